//! Has the kit judge the mutants of core that are kept as patches: all, or those that are named.
//!
//! The sources are copied to a folder of their own, so that nothing here is changed; there each mutant is built
//! and put through the fast level of the kit, and where that finds nothing through core's own tests.
//! `NODEWRIGHT_SCRATCH` names the folder; it is kept, so that the next run builds less.
//!
//! Ends with 1 if a mutant survives, or if the sources fail without any.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use nodewright_conformance::mutants::{Mutant, workspace};

/// The kit, then core's own tests.
const RINGS: [(&str, &[&str]); 2] = [
    (
        "the kit",
        &[
            "--package=nodewright-conformance",
            "--test=dependencies",
            "--test=driver",
            "--test=fast",
            "--test=looks",
            "--test=pace",
            "--test=restarts",
            "--test=sweeps",
        ],
    ),
    ("core's tests", &["--package=nodewright-core", "--lib"]),
];

/// A mutant that runs for longer has hung something, which is caught, too.
const SECONDS: &str = "900";

/// How many of the tests that failed are named.
const SHOWN: usize = 3;

enum Verdict {
    Caught { by: &'static str, what: String },
    Survived,
    DoesNotBuild,
}

#[expect(clippy::print_stdout, reason = "the table is what it is run for")]
fn main() -> io::Result<ExitCode> {
    let mut named: BTreeSet<String> = std::env::args().skip(1).collect();
    let mut mutants = Mutant::all()?;
    if !named.is_empty() {
        mutants.retain(|mutant| named.remove(&mutant.name));
    }
    if !named.is_empty() {
        println!("no such mutants: {named:?}; the names are those of the patches in tests/mutants");
        return Ok(ExitCode::FAILURE);
    }
    let scratch = std::env::var_os("NODEWRIGHT_SCRATCH")
        .map_or_else(|| std::env::temp_dir().join("nodewright-mutants"), PathBuf::from);
    copy(workspace(), &scratch)?;
    if let Verdict::Caught { by, what } = judge(&scratch)? {
        println!("without a mutant, {by}: {what}");
        return Ok(ExitCode::FAILURE);
    }
    println!("| mutant | breaks | verdict | by | what failed |\n|---|---|---|---|---|");
    let mut survived = 0;
    for mutant in mutants {
        let (source, changed) = mutant.change()?;
        let file = scratch.join(&mutant.file);
        fs::write(&file, changed)?;
        let verdict = judge(&scratch);
        fs::write(&file, source)?;
        let (said, by, what) = match verdict? {
            Verdict::Caught { by, what } => ("caught", by, what),
            Verdict::Survived => ("SURVIVED", "", String::new()),
            Verdict::DoesNotBuild => ("DOES NOT BUILD", "", String::new()),
        };
        survived += u32::from(said != "caught");
        println!(
            "| {} | {} | {said} | {by} | {what} |",
            mutant.name,
            mutant.guarantee()
        );
    }
    Ok(if survived == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Builds the copy and runs ring after ring until one fails.
fn judge(scratch: &Path) -> io::Result<Verdict> {
    for (by, targets) in RINGS {
        let mut cargo = Command::new("timeout");
        cargo.args([
            "--kill-after=10",
            SECONDS,
            "cargo",
            "test",
            "--profile=mutants",
            "--no-fail-fast",
        ]);
        let output = cargo
            .args(targets)
            .current_dir(scratch)
            .env("CARGO_TARGET_DIR", scratch.join("target"))
            .env("NODEWRIGHT_SHRINK", "0")
            .output()?;
        if output.status.success() {
            continue;
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let failed = failures(&text);
        if failed.is_empty() && String::from_utf8_lossy(&output.stderr).contains("could not compile") {
            return Ok(Verdict::DoesNotBuild);
        }
        return Ok(Verdict::Caught { by, what: failed });
    }
    Ok(Verdict::Survived)
}

/// The guarantees that the oracle named, and the tests that failed.
fn failures(text: &str) -> String {
    let mut named = BTreeSet::new();
    for line in text.lines() {
        let word = line.split(": ").find(|word| is_guarantee(word));
        named.extend(word.map(str::to_owned));
    }
    let mut said: Vec<String> = named.into_iter().collect();
    let tests = text.lines().filter_map(|line| {
        let name = line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
        Some(format!("`{name}`"))
    });
    let tests: Vec<String> = tests.collect();
    said.extend(tests.iter().take(SHOWN).cloned());
    if tests.len() > SHOWN {
        said.push(format!("{} tests more", tests.len() - SHOWN));
    }
    said.join(", ")
}

fn is_guarantee(word: &str) -> bool {
    let number = word.strip_prefix('G').unwrap_or_default();
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// Copies what differs, so that what is as it was is not built again.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_name() == "target" || entry.file_name() == ".git" {
            continue;
        }
        if entry.file_type()?.is_dir() {
            copy(&source, &target)?;
        } else if fs::read(&target).ok() != Some(fs::read(&source)?) {
            fs::copy(&source, &target)?;
        }
    }
    Ok(())
}

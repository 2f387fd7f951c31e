//! Many traces of a theme: which seeds are played, and which are never forgotten.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{
    Config, FileFailurePersistence, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner,
};

use crate::oracle::Broken;
use crate::trace::{Theme, Trace};

/// The seeds of a test: `least` of them, or as many as `NODEWRIGHT_SEEDS` says if that is more; one alone if
/// `NODEWRIGHT_SEED` names it.
pub fn seeds(least: u64) -> Range<u64> {
    match number("NODEWRIGHT_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..least.max(number("NODEWRIGHT_SEEDS").unwrap_or(0)),
    }
}

/// How many of the last notes a broken trace shows: `NODEWRIGHT_NOTES`, or 120.
pub(crate) fn noted() -> usize {
    number("NODEWRIGHT_NOTES").map_or(120, |lines| lines as usize)
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Whether a trace that breaks is shrunk and its seed is kept: not if `NODEWRIGHT_SHRINK` is 0, for whoever asks
/// only whether it breaks.
fn shrinks() -> bool {
    number("NODEWRIGHT_SHRINK") != Some(0)
}

/// The trace that follows from a seed.
pub fn trace(theme: Theme, inputs: usize, seed: u64) -> Trace {
    let mut runner = runner(seed);
    let tree = crate::trace::traces(theme, inputs).new_tree(&mut runner);
    tree.expect("traces can always be made").current()
}

fn runner(seed: u64) -> TestRunner {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config {
        failure_persistence: Some(Box::new(FileFailurePersistence::Off)),
        max_shrink_iters: if shrinks() { 4096 } else { 0 },
        ..Config::default()
    };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

/// The traces of a test.
#[derive(Debug, Clone, Copy)]
pub struct Traces<'a> {
    /// The test, which names the file of its regressions.
    pub name: &'a str,
    /// What may happen.
    pub theme: Theme,
    /// How many inputs each has.
    pub inputs: usize,
    /// How many there are at least.
    pub least: u64,
}

/// Plays the trace of every seed, after those of the regression file; the first that breaks is shrunk, and its
/// seed goes into the file.
///
/// # Panics
///
/// If a trace breaks: with the smallest trace that does, as code, and its seed.
pub fn play_all<R>(traces: Traces<'_>, play: impl Fn(&Trace) -> Result<R, Broken>) {
    if let Err(Broken(what)) = play_from(&Regressions::of(traces.name), traces, play) {
        panic!("{what}");
    }
}

fn play_from<R>(
    file: &Regressions,
    traces: Traces<'_>,
    play: impl Fn(&Trace) -> Result<R, Broken>,
) -> Result<(), Broken> {
    let Traces {
        name,
        theme,
        inputs,
        least,
    } = traces;
    let seeds = seeds(least);
    for seed in file.seeds().into_iter().chain(seeds) {
        let mut runner = runner(seed);
        let tree = crate::trace::traces(theme, inputs).new_tree(&mut runner);
        let tree = tree.expect("traces can always be made");
        let played = runner.run_one(tree, |trace| match play(&trace) {
            Ok(_) => Ok(()),
            Err(Broken(what)) => Err(TestCaseError::fail(what)),
        });
        if let Err(TestError::Fail(what, simple)) = played {
            let kept = file.keep(seed);
            let first = Broken(format!("{what}\n(it held when it was played again)"));
            let Broken(what) = shorten(simple, &play).unwrap_or(first);
            return Err(Broken(format!(
                "seed {seed} of {name} ({kept}):\n{what}\nseed {seed} of {name}"
            )));
        }
    }
    Ok(())
}

/// Leaves out of a trace that breaks whatever it breaks without, and says how the shortest breaks. None if it
/// does not break a second time, as may happen where time is real.
fn shorten<R>(mut trace: Trace, play: impl Fn(&Trace) -> Result<R, Broken>) -> Option<Broken> {
    let mut broken = play(&trace).err()?;
    let mut length = trace.inputs.len().div_ceil(2);
    while length > 0 && shrinks() {
        let mut from = 0;
        while from < trace.inputs.len() {
            let mut shorter = trace.clone();
            let to = (from + length).min(shorter.inputs.len());
            shorter.inputs.drain(from..to);
            match play(&shorter) {
                Err(still) => (trace, broken) = (shorter, still),
                Ok(_) => from += length,
            }
        }
        length /= 2;
    }
    Some(broken)
}

/// Seeds that broke something once, in a file that is kept with the kit.
struct Regressions(PathBuf);

impl Regressions {
    fn of(name: &str) -> Self {
        Self::below(&Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions"), name)
    }

    fn below(folder: &Path, name: &str) -> Self {
        Self(folder.join(format!("{name}.txt")))
    }

    fn seeds(&self) -> Vec<u64> {
        let text = fs::read_to_string(&self.0).unwrap_or_default();
        let lines = text
            .lines()
            .map(|line| line.split('#').next().unwrap_or_default());
        lines.filter_map(|line| line.trim().parse().ok()).collect()
    }

    /// Adds a seed, and says what became of that.
    fn keep(&self, seed: u64) -> String {
        if !shrinks() {
            return "not kept".to_owned();
        }
        if self.seeds().contains(&seed) {
            return "a known regression".to_owned();
        }
        let text = fs::read_to_string(&self.0).unwrap_or_default();
        let folder = self.0.parent().expect("it lies in a folder");
        let written = fs::create_dir_all(folder).and_then(|()| fs::write(&self.0, format!("{text}{seed}\n")));
        match written {
            Ok(()) => format!("kept in {}", self.0.display()),
            Err(error) => format!("not kept: {error}"),
        }
    }
}

#[cfg(test)]
mod tests;

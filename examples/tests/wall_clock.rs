//! The real program beside a wall clock that somebody sets, back and forth. The clock is set for fleet alone: a
//! library that stands in front of the system's tells it the time of a file. Where that library is not installed
//! the test shows as ignored, and says so.

#[path = "fleet/world.rs"]
#[expect(dead_code, reason = "fleet's own tests use more of it")]
mod world;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use jiff::Timestamp;
use libtest_mimic::{Arguments, Trial};
use rustix::process::Signal;
use serde_json::Value;

use crate::world::{Running, World, kill_holder};

const NAME: &str = "a_wall_clock_that_jumps_an_hour_back_and_forth_changes_nothing";
const NEEDS: &str =
    "needs libfaketime: apt-get install libfaketime; cargo test -p nodewright-examples --test wall_clock";

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let demanded = std::env::var_os("NODEWRIGHT_REQUIRE_ALL").is_some();
    let trial = match (library(), demanded) {
        (Some(library), _) => Trial::test(NAME, move || {
            a_wall_clock_that_jumps_an_hour_back_and_forth_changes_nothing(&library);
            Ok(())
        }),
        (None, true) => Trial::test(NAME, || Err(NEEDS.into())),
        (None, false) => Trial::test(NAME, || Ok(()))
            .with_kind(NEEDS)
            .with_ignored_flag(true),
    };
    libtest_mimic::run(&arguments, vec![trial]).exit_code()
}

/// Where Debian installs it, in a folder that is named after the machine's kind.
fn library() -> Option<PathBuf> {
    let kinds = fs::read_dir("/usr/lib").ok()?;
    let mut found = kinds.filter_map(|kind| Some(kind.ok()?.path().join("faketime/libfaketime.so.1")));
    found.find(|path| path.exists())
}

/// A wall clock that a fleet reads.
struct Wall(PathBuf);

impl Wall {
    /// Sets it, as an offset from the real one.
    fn set(&self, offset: &str) {
        let new = self.0.with_extension("new");
        fs::write(&new, format!("{offset}\n")).unwrap();
        fs::rename(new, &self.0).unwrap();
    }
}

fn fleet(world: &World, library: &Path, wall: &Wall, options: &[&str]) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fleet"));
    command
        .arg(world.shape())
        .arg("--json")
        .args(options)
        .env("LD_PRELOAD", library)
        .env("FAKETIME_TIMESTAMP_FILE", &wall.0)
        .env("FAKETIME_NO_CACHE", "1")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    Running::spawn(command)
}

/// What a person is told of the time of a line.
fn at(line: &Value) -> Option<Timestamp> {
    Some(line["at"].as_str()?.parse().unwrap())
}

fn a_wall_clock_that_jumps_an_hour_back_and_forth_changes_nothing(library: &Path) {
    let world = World::new(
        "[groups.workers]\ncount = 4\nrole = \"worker\"\nprovider = \"process\"\nshape.image = \"local\"\n\
         boot.start = 'exec \"$FLEET\" agent'\n",
    );
    let wall = Wall(world.path().join("wall"));
    wall.set("+0");
    let mut first = fleet(&world, library, &wall, &["--commands"]);
    first.until_converged(1);
    for offset in ["-1h", "+1h", "-30d", "+0"] {
        let before = world.holders();
        wall.set(offset);
        // An answer to this shows that the time was read since.
        first.say("replace workers-0");
        first.until("a replacement", |line| {
            line["event"] == "stage-reached" && line["node"] == "workers-0" && line["ready"] == true
        });
        let after = world.holders();
        let changed: Vec<&String> = after
            .keys()
            .filter(|node| before[*node] != after[*node])
            .collect();
        assert_eq!(changed, ["workers-0"], "{offset}: nobody else was replaced");
        // A death is noticed, and what waits for a moment goes on, whatever the clock says.
        kill_holder(after["workers-1"]);
        first.until("a new machine for the dead one", |line| {
            line["event"] == "stage-reached" && line["node"] == "workers-1" && line["ready"] == true
        });
    }
    wall.set("-1h");
    first.signal(Signal::TERM);
    let ended = first.end();
    ended.assert_clean();
    assert_eq!(ended.summary()["created"], 4 + 4 * 2);
    // Events and fleet's own lines alike.
    let told: Vec<Timestamp> = ended.heard.iter().filter_map(at).collect();
    let (begun, last) = (told[0], told[told.len() - 1]);
    let within = |at: &Timestamp| at.duration_since(begun).unsigned_abs() < Duration::from_secs(600);
    assert!(told.len() > 100 && told.iter().all(within), "{told:?}");
    // And between two processes: the next takes all over, though it seems to come before the first.
    wall.set("+0");
    assert_eq!(fleet(&world, library, &wall, &["--detach"]).end().code, Some(0));
    let before = world.holders();
    wall.set("-1h");
    let mut second = fleet(&world, library, &wall, &[]);
    second.until_converged(1);
    let told = second.heard.iter().find_map(at).unwrap();
    assert!(
        last.duration_since(told).as_mins() > 50,
        "the clock was set: {last}, {told}"
    );
    assert_eq!(world.holders(), before);
    kill_holder(before["workers-2"]);
    second.until("a new machine for the dead one", |line| {
        line["event"] == "stage-reached" && line["node"] == "workers-2" && line["ready"] == true
    });
    second.signal(Signal::TERM);
    second.end().assert_clean();
}

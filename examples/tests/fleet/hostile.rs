//! Machines whose agents misbehave: replaced or ended, and nothing of them stays.

use rustix::process::Signal;
use serde_json::Value;

use crate::world::World;
use crate::{group, workers};

/// A group that is well beside one agent of this kind.
fn beside(options: &str) -> String {
    workers(1) + &group("hostile", 1, &format!(r#"exec "$FLEET" agent {options}"#))
}

fn of_hostile(line: &Value, event: &str) -> bool {
    line["event"] == event && line["node"] == "hostile-0"
}

#[test]
fn an_agent_that_never_joins_is_replaced_when_its_time_is_up() {
    let world = World::new(beside("--never-join"));
    let mut fleet = world.fleet(["--startup-timeout", "1"]);
    let failed = fleet.until("the failure", |line| of_hostile(line, "attempt-failed"));
    assert!(failed["reason"].is_string());
    fleet.until("another attempt", |line| of_hostile(line, "restarted"));
    fleet.signal(Signal::TERM);
    let ended = fleet.end();
    assert_eq!((ended.code, &ended.summary()["left"]), (Some(1), &0.into()));
}

#[test]
fn an_agent_that_says_nothing_is_told_from_slow_work() {
    let world = World::new(beside("--never-join"));
    let mut fleet = world.fleet(["--stall-timeout", "1"]);
    fleet.until("the failure", |line| of_hostile(line, "attempt-failed"));
    fleet.until("another attempt", |line| of_hostile(line, "restarted"));
    fleet.signal(Signal::TERM);
    assert_eq!(fleet.end().summary()["left"], 0);
}

#[test]
fn an_agent_that_ends_at_once_is_replaced_and_its_status_told() {
    let world = World::new(beside("--exit 7"));
    let mut fleet = world.fleet([]);
    let failed = fleet.until("the failure", |line| of_hostile(line, "attempt-failed"));
    assert!(failed["reason"].as_str().unwrap().contains('7'), "{failed}");
    fleet.until("another attempt", |line| of_hostile(line, "restarted"));
    fleet.signal(Signal::TERM);
    let ended = fleet.end();
    assert_eq!((ended.code, &ended.summary()["left"]), (Some(1), &0.into()));
}

#[test]
fn an_agent_that_leaves_its_session_or_ignores_term_is_ended_all_the_same() {
    let both = workers(1)
        + &group("leaver", 1, r#"exec "$FLEET" agent --leave-session"#)
        + &group("deaf", 1, r#"exec "$FLEET" agent --ignore-term --leave-session"#);
    let world = World::new(both);
    let ended = world.fleet(["--once", "--kill", "3"]).end();
    ended.assert_clean();
    assert_eq!(ended.summary()["replaced"], 3);
    assert!(world.survivors().is_empty());
}

#[test]
fn an_agent_that_floods_its_output_joins_and_neither_memory_nor_disk_grow() {
    const FLOOD: u64 = 200_000_000;
    let flood = format!("--flood {FLOOD}");
    let world = World::new(beside(&flood));
    let mut fleet = world.fleet([]);
    fleet.until_converged(1);
    let peak = peak_kib(fleet.pid());
    assert!(peak < 128 * 1024, "peak of {peak} KiB");
    let disk = disk_blocks(&world.state()) * 512;
    assert!(disk < 20_000_000, "{disk} bytes on disk");
    fleet.signal(Signal::TERM);
    fleet.end().assert_clean();
}

/// The most memory that a process ever had.
fn peak_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// The blocks, of 512 bytes each, that a folder takes on the disk with all that is in it.
fn disk_blocks(path: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(metadata) = std::fs::symlink_metadata(path) else {
        return 0;
    };
    let inside = std::fs::read_dir(path).into_iter().flatten().flatten();
    metadata.blocks() + inside.map(|entry| disk_blocks(&entry.path())).sum::<u64>()
}

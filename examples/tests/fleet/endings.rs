//! How a fleet ends.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;

use crate::world::World;
use crate::{group, workers};

#[test]
fn a_second_signal_leaves_at_once_and_the_next_fleet_finishes_the_work() {
    // They hold the drain up for as long as their grace lasts.
    let deaf = group("workers", 2, r#"exec "$FLEET" agent --ignore-term"#);
    // A generation of the file's own: the drain, which is one more, is not to count for the next fleet.
    let world = World::new("generation = 5\n".to_owned() + &deaf);
    let mut first = world.fleet([]);
    first.until_converged(5);
    first.signal(Signal::TERM);
    first.until("the drain", |line| line["command"] == "destroy-lease");
    first.signal(Signal::INT);
    first.until_event("detached");
    let ended = first.end();
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.summary()["left"].as_u64().unwrap() >= 2,
        "{:#?}",
        ended.heard
    );
    assert!(world.state().join("detached.json").exists());
    let ended = world.fleet(["--once"]).end();
    ended.assert_clean();
    assert_eq!(ended.count("resumed"), 1);
    assert!(world.survivors().is_empty());
}

#[test]
fn the_timeout_ends_a_fleet_that_cannot_converge_and_nothing_is_left() {
    let world = World::new(group("workers", 2, r#"exec "$FLEET" agent --never-join"#));
    let ended = world.fleet(["--once", "--timeout", "2"]).end();
    assert_eq!(ended.code, Some(1));
    let summary = ended.summary();
    assert_eq!(
        (&summary["converged"], &summary["left"]),
        (&false.into(), &0.into())
    );
    assert_eq!(ended.count("draining"), 1);
}

#[test]
fn an_idle_fleet_wakes_up_for_nothing() {
    // A window of time is what is measured here, and nothing else is waited for.
    const WINDOW: Duration = Duration::from_secs(10);
    let world = World::new(workers(200));
    let mut fleet = world.fleet([]);
    fleet.until_converged(1);
    let agents: Vec<u32> = world.survivors().iter().map(|survivor| survivor.pid).collect();
    let count = || (wake_ups(&[fleet.pid()]), wake_ups(&agents));
    // What follows on the convergence dies away first.
    std::thread::sleep(WINDOW / 5);
    let before = count();
    std::thread::sleep(WINDOW);
    let after = count();
    let (ours, theirs) = (more(&before.0, &after.0), more(&before.1, &after.1));
    assert!(ours <= 25, "{ours} wake-ups of the fleet in {WINDOW:?}");
    assert_eq!(theirs, 0, "wake-ups of the machines");
    fleet.signal(Signal::TERM);
    fleet.end().assert_clean();
}

/// How often each thread of these processes has gone to sleep so far; each time something had woken it.
pub(crate) fn wake_ups(pids: &[u32]) -> BTreeMap<PathBuf, u64> {
    let threads = pids
        .iter()
        .flat_map(|pid| fs::read_dir(format!("/proc/{pid}/task")).unwrap());
    let of_thread = |thread: fs::DirEntry| {
        // It may have ended by now.
        let status = fs::read_to_string(thread.path().join("status")).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        Some((thread.path(), line?.trim().parse().ok()?))
    };
    threads.flatten().filter_map(of_thread).collect()
}

/// By how much the threads that are there have gone on.
pub(crate) fn more(before: &BTreeMap<PathBuf, u64>, after: &BTreeMap<PathBuf, u64>) -> u64 {
    let of_thread = |(thread, count): (&PathBuf, &u64)| count - before.get(thread).unwrap_or(&0);
    after.iter().map(of_thread).sum()
}

#[test]
fn a_fleet_that_could_not_kill_as_many_as_asked_has_not_done_as_asked() {
    let world = World::without_shape();
    let gate = world.path().join("gate");
    let agent = format!(
        r#"while ! [ -e "{}" ]; do sleep 0.05; done; exec "$FLEET" agent"#,
        gate.display()
    );
    world.save(group("workers", 3, &agent));
    let mut fleet = world.fleet(["--once", "--kill", "3"]);
    fleet.until_event("inserted");
    world.save(group("workers", 1, &agent));
    fleet.until("the edit", |line| {
        line["event"] == "shape-accepted" && line["generation"] == 2
    });
    fs::write(gate, "").unwrap();
    let ended = fleet.end();
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let summary = ended.summary();
    assert_eq!(
        (&summary["converged"], &summary["left"]),
        (&true.into(), &0.into())
    );
}

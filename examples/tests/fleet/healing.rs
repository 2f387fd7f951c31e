//! Machines that die are replaced, and what an earlier fleet left is ended or kept.

use rustix::process::Signal;

use crate::world::{World, assert_never_two_machines_of_a_slot};
use crate::{group, workers};

/// Agents that would fail, and make the attempt fail, while another agent of their slot lives.
pub(crate) fn exclusive(count: u32) -> String {
    let start = r#"exec flock -n "$OLDPLACE/$NODEWRIGHT_NODE.lock" "$FLEET" agent"#;
    group(
        "workers",
        count,
        &start.replace("$OLDPLACE", "$NODEWRIGHT_MACHINE/../.."),
    )
}

#[test]
fn killed_machines_are_replaced_exactly_once_each_and_never_beside_their_old_agent() {
    let world = World::new(exclusive(12));
    let ended = world.fleet(["--once", "--kill", "5"]).end();
    ended.assert_clean();
    let summary = ended.summary();
    for (key, value) in [("nodes", 12), ("replaced", 5), ("created", 17), ("destroyed", 17)] {
        assert_eq!(summary[key], value, "{summary}");
    }
    assert_eq!(ended.count("killed"), 5);
    assert_never_two_machines_of_a_slot(&ended.heard);
}

#[test]
fn of_two_hundred_processes_twenty_are_killed_and_replaced() {
    let world = World::new(exclusive(200));
    let ended = world.fleet(["--once", "--kill", "20"]).end();
    ended.assert_clean();
    let summary = ended.summary();
    for (key, value) in [
        ("nodes", 200),
        ("replaced", 20),
        ("created", 220),
        ("destroyed", 220),
    ] {
        assert_eq!(summary[key], value, "{summary}");
    }
    assert_never_two_machines_of_a_slot(&ended.heard);
}

#[test]
fn after_a_killed_fleet_the_next_one_ends_each_old_machine_before_its_slot_is_filled() {
    let world = World::new(exclusive(5));
    let mut first = world.fleet([]);
    first.until_converged(1);
    let before = world.holders();
    first.signal(Signal::KILL);
    drop(first);
    assert!(world.survivors().len() >= 5);
    let mut second = world.fleet([]);
    second.until_converged(1);
    let after = world.holders();
    assert_eq!(after.len(), 5);
    assert!(after.iter().all(|(node, holder)| before[node] != *holder));
    second.signal(Signal::TERM);
    let ended = second.end();
    ended.assert_clean();
    assert_eq!(ended.count("machine-found"), 5);
    let summary = ended.summary();
    assert_eq!(
        (&summary["created"], &summary["destroyed"]),
        (&5.into(), &10.into())
    );
    assert_never_two_machines_of_a_slot(&ended.heard);
}

#[test]
fn a_fleet_that_is_killed_in_the_middle_leaves_nothing_that_the_next_does_not_end() {
    let world = World::new(exclusive(8));
    let mut first = world.fleet([]);
    first.until("a first machine", |line| line["stage"] == "endpoint-known");
    first.signal(Signal::KILL);
    drop(first);
    let ended = world.fleet(["--once"]).end();
    ended.assert_clean();
    assert_eq!(ended.summary()["created"], 8);
    assert_never_two_machines_of_a_slot(&ended.heard);
    assert!(world.survivors().is_empty());
}

#[test]
fn what_was_detached_is_taken_over_with_the_same_processes() {
    let world = World::new(exclusive(4));
    let first = world.fleet(["--detach"]).end();
    assert_eq!(first.code, Some(0), "{}", first.stderr);
    assert!(first.summary()["left"].as_u64().unwrap() >= 4);
    let before = world.holders();
    assert_eq!(before.len(), 4);
    let mut second = world.fleet([]);
    second.until_converged(1);
    assert_eq!(
        second
            .heard
            .iter()
            .filter(|line| line["event"] == "resumed")
            .count(),
        1
    );
    assert_eq!(world.holders(), before);
    assert!(!world.state().join("detached.json").exists());
    second.signal(Signal::TERM);
    let ended = second.end();
    ended.assert_clean();
    let summary = ended.summary();
    assert_eq!(
        (&summary["created"], &summary["destroyed"]),
        (&0.into(), &4.into())
    );
}

#[test]
fn what_died_while_nobody_looked_is_replaced_by_whoever_takes_over() {
    let world = World::new(workers(3));
    assert_eq!(world.fleet(["--detach"]).end().code, Some(0));
    let before = world.holders();
    let (victim, _) = before["workers-1"];
    let survivor = world
        .survivors()
        .into_iter()
        .find(|one| u64::from(one.pid) == victim);
    let pid = i32::try_from(survivor.unwrap().pid).unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    let mut second = world.fleet([]);
    second.until_converged(1);
    let after = world.holders();
    let changed = before.iter().filter(|(node, holder)| after[*node] != **holder);
    assert_eq!(
        changed.map(|(node, _)| node.as_str()).collect::<Vec<_>>(),
        ["workers-1"]
    );
    second.signal(Signal::TERM);
    let ended = second.end();
    ended.assert_clean();
    assert_eq!(ended.summary()["created"], 1);
}

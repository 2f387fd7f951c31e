//! Groups that need each other, with the shape of three tiers that the repository shows.

use std::fs;
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;

use crate::world::{World, assert_never_two_machines_of_a_slot, kill_holder};

/// From below to above.
const TIERS: [&str; 3] = ["store", "broker", "workers"];

fn three_tiers() -> World {
    let shape = Path::new(env!("CARGO_MANIFEST_DIR")).join("shapes/three-tier.toml");
    World::new(fs::read(shape).unwrap())
}

/// Where the lines stand that are of this group and as wanted.
fn places(heard: &[Value], group: &str, wanted: impl Fn(&Value) -> bool) -> Vec<usize> {
    let of_group = |line: &Value| {
        let node = line["node"].as_str().and_then(|node| node.rsplit_once('-'));
        node.is_some_and(|(name, _)| name == group)
    };
    let lines = heard.iter().enumerate();
    let lines = lines.filter(|(_, line)| of_group(line) && wanted(line));
    lines.map(|(place, _)| place).collect()
}

fn becomes_ready(line: &Value) -> bool {
    line["event"] == "stage-reached" && line["ready"] == true
}

fn is_sent(command: &str) -> impl Fn(&Value) -> bool {
    move |line| line["event"] == "dispatched" && line["command"] == command
}

/// Of each tier, all is ready before anything is created for the next one.
fn assert_up_from_below(heard: &[Value]) {
    for pair in TIERS.windows(2) {
        let ready = places(heard, pair[0], becomes_ready);
        let created = places(heard, pair[1], is_sent("create-lease"));
        assert!(ready.last().unwrap() < created.first().unwrap(), "{pair:?}");
    }
}

/// Of each tier, all is gone before anything is destroyed of the one below.
fn assert_down_from_above(heard: &[Value]) {
    for pair in TIERS.windows(2) {
        let gone = places(heard, pair[1], |line| line["event"] == "reaped");
        let begun = places(heard, pair[0], |line| line["event"] == "delete-began");
        assert!(gone.last().unwrap() < begun.first().unwrap(), "{pair:?}");
    }
}

/// The names of the groups that a slot was said to wait for at first.
fn awaited<'a>(heard: &'a [Value], node: &str, reason: &str) -> Vec<&'a str> {
    let wait = |line: &&Value| line["event"] == "waiting" && line["node"] == node && line["reason"] == reason;
    let groups = heard.iter().find(wait).expect("a wait")["groups"].as_array();
    let name = |group: &'a Value| group["group"].as_str().unwrap();
    groups.into_iter().flatten().map(name).collect()
}

#[test]
fn three_tiers_start_from_below_and_an_edit_that_removes_them_takes_them_down_from_above() {
    let world = three_tiers();
    let mut fleet = world.fleet([]);
    fleet.until_converged(1);
    assert_up_from_below(&fleet.heard);
    assert_eq!(awaited(&fleet.heard, "broker-0", "dependencies"), ["store"]);
    assert_eq!(
        awaited(&fleet.heard, "workers-5", "dependencies"),
        ["broker", "store"]
    );
    let up = fleet.heard.len();
    world.save("groups = {}\n");
    fleet.until_converged(2);
    assert_down_from_above(&fleet.heard[up..]);
    assert!(world.survivors().is_empty());
    fleet.signal(Signal::TERM);
    fleet.end().assert_clean();
}

#[test]
fn a_store_that_is_killed_is_replaced_beside_tiers_that_stay_and_a_drain_goes_from_above() {
    let world = three_tiers();
    let mut fleet = world.fleet([]);
    fleet.until_converged(1);
    let before = world.holders();
    kill_holder(before["store-1"]);
    fleet.until("another store-1", |line| {
        becomes_ready(line) && line["node"] == "store-1"
    });
    let after = world.holders();
    assert_eq!(after.len(), 11);
    let changed = before.iter().filter(|(node, holder)| after[*node] != **holder);
    let changed: Vec<&str> = changed.map(|(node, _)| node.as_str()).collect();
    assert_eq!(changed, ["store-1"]);
    let up = fleet.heard.len();
    fleet.signal(Signal::TERM);
    let ended = fleet.end();
    ended.assert_clean();
    assert_eq!(
        (
            ended.summary()["nodes"].as_u64(),
            ended.summary()["replaced"].as_u64()
        ),
        (Some(11), Some(1))
    );
    assert_down_from_above(&ended.heard[up..]);
    assert_never_two_machines_of_a_slot(&ended.heard);
}

//! A fleet that is killed again and again while it makes machines.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::Duration;

use nodewright::id::NodeAttemptId;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use rustix::process::Signal;
use serde_json::Value;

use crate::healing::exclusive;
use crate::world::{LIMIT, World, assert_never_two_machines_of_a_slot, monotonic, record, say};

/// How often it is killed.
const ROUNDS: u32 = 50;

/// How many slots there are.
const SLOTS: u32 = 3;

/// From a machine's directory to its record with its holder it takes about this long.
const LATEST: Duration = Duration::from_micros(2500);

#[test]
fn g10_g32_a_fleet_that_is_killed_at_fifty_random_moments_never_doubles_a_machine_and_leaves_none() {
    let seed = std::env::var("FLEET_SEED").map_or_else(|_| rand::random(), |seed| seed.parse().unwrap());
    say(&format!("FLEET_SEED={seed}"));
    let mut random = StdRng::seed_from_u64(seed);
    let world = World::new(exclusive(SLOTS));
    let mut moments = BTreeMap::new();
    for _ in 0..ROUNDS {
        let (machine, after) = (
            random.random_range(1..=SLOTS as usize),
            random.random_range(Duration::ZERO..LATEST),
        );
        let old = world.machines();
        let fleet = world.fleet([]);
        let begun = monotonic();
        while world.machines().difference(&old).count() < machine {
            assert!(begun.elapsed() < LIMIT, "no machine {machine}");
            thread::yield_now();
        }
        let made = monotonic();
        while made.elapsed() < after {
            std::hint::spin_loop();
        }
        fleet.signal(Signal::KILL);
        let ended = fleet.end();
        assert_eq!(ended.code, None);
        assert_none_failed(&ended.heard);
        assert_never_two_machines_of_a_slot(&ended.heard);
        for moment in look(&world) {
            *moments.entry(moment).or_insert(0) += 1;
        }
    }
    say(&format!("machines by how far they were: {moments:?}"));
    assert!(moments[&Moment::Unrecorded] > 0, "no moment that matters was hit");
    let ended = world.fleet(["--once"]).end();
    ended.assert_clean();
    assert_none_failed(&ended.heard);
    assert_never_two_machines_of_a_slot(&ended.heard);
    assert_eq!(ended.summary()["created"], SLOTS);
    assert_eq!(world.survivors(), []);
    assert_eq!(world.machines(), BTreeSet::new());
}

/// How far a machine was when its fleet was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Moment {
    /// Nothing of it ran.
    Prepared,
    /// It ran, and its record did not say so.
    Unrecorded,
    Recorded,
}

/// How far each machine is. No slot has two of which something runs.
fn look(world: &World) -> Vec<Moment> {
    let survivors = world.survivors();
    let mut attempts: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for survivor in &survivors {
        let identity = &survivor.identity;
        attempts
            .entry(&identity.node)
            .or_default()
            .insert(identity.attempt);
    }
    assert!(
        attempts.values().all(|attempts| attempts.len() == 1),
        "{attempts:?}"
    );
    let directories = world.machines();
    let records = directories.iter().filter_map(|directory| record(directory));
    let moment = |record: Value| {
        let runs = |attempts: &BTreeSet<NodeAttemptId>| {
            let written = &record["identity"]["attempt"];
            attempts.iter().any(|attempt| *written == attempt.to_string())
        };
        match &record["holder"] {
            Value::Null if attempts.values().any(runs) => Moment::Unrecorded,
            Value::Null => Moment::Prepared,
            _ => Moment::Recorded,
        }
    };
    records.map(moment).collect()
}

/// An agent that finds another one of its slot fails its attempt.
fn assert_none_failed(heard: &[Value]) {
    let failed = heard.iter().find(|line| line["event"] == "attempt-failed");
    assert_eq!(failed, None);
}

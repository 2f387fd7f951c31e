//! Sweeps: what is there, compared with what is known, by hand.

mod lost;
mod outages;
mod questions;
mod strays;

use std::time::Duration;

use jiff::Timestamp;
use nodewright_conformance::{ByHand, group, policy, shape, template};
use nodewright_core::effect::{InventoryEntry, PlannedEffect};
use nodewright_core::inventory::Findings;
use nodewright_core::pace::PaceConfig;
use nodewright_core::shape::ClusterShape;

/// The interval of sweeps, and by how much two must be apart whose answers count as two.
const INTERVAL: u64 = 60;
const APART: u64 = 30;

fn of(count: u32) -> ClusterShape {
    shape(1, vec![group("w", count, template("alpha", "one"))])
}

/// A run whose nodes are all ready; slot `w-i` holds `m-(i+1)` of attempt `i+1`.
fn ready(count: u32) -> ByHand {
    let mut run = ByHand::fresh(of(count), policy(), PaceConfig::default());
    run.succeed_all();
    assert!(run.driver.is_converged());
    assert!(
        run.driver.due_looks(run.now).is_empty(),
        "the first sweep comes an interval later"
    );
    run
}

/// What an honest answer lists of such a run: all but these slots.
fn all_but(run: &ByHand, missing: &[u32]) -> Vec<InventoryEntry> {
    let nodes = run.driver.state().nodes.iter();
    let held = nodes.filter_map(|(id, node)| Some((id, node.attempt, node.lease.as_ref()?.id.clone())));
    let held = held.filter(|(id, _, _)| !missing.contains(&id.index));
    held.map(|(id, attempt, lease)| run.entry((&id.to_string(), attempt.number(), lease.as_str())))
        .collect()
}

/// The next sweep, answered with these.
fn answer(run: &mut ByHand, entries: Vec<InventoryEntry>) -> (Findings, Vec<PlannedEffect>) {
    let look = run.due_sweep();
    let findings = run.answer_look(&look, run.now, Ok(entries));
    (findings, run.drive())
}

/// A sweep that somebody asked for, so many seconds later.
fn on_demand(run: &mut ByHand, seconds: u64, missing: &[u32]) -> Findings {
    assert!(run.pass(seconds).is_empty());
    run.driver.sweep(run.now);
    let entries = all_but(run, missing);
    answer(run, entries).0
}

fn lost(run: &ByHand) -> Vec<String> {
    let failed = run.driver.state().nodes.iter();
    let failed = failed.filter(|(_, node)| node.failure.is_some());
    failed.map(|(id, _)| id.to_string()).collect()
}

fn after(start: Timestamp, seconds: u64) -> Timestamp {
    start.checked_add(Duration::from_secs(seconds)).unwrap()
}

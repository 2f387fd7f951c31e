//! Processes that end, and processes that take over.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use nodewright_backends::MemoryBackend;
use nodewright_conformance::{Provider, Sim, SimConfig, group, shape, template};
use nodewright_core::node::Stage;

fn converged(count: u32) -> Sim<MemoryBackend> {
    let provider = Provider {
        backend: Arc::new(MemoryBackend::new()),
        kill: MemoryBackend::kill,
    };
    let providers = BTreeMap::from([("alpha".parse().unwrap(), provider)]);
    let shape = shape(1, vec![group("w", count, template("alpha", "one"))]);
    let mut sim = Sim::new(SimConfig::default(), providers, shape).unwrap();
    sim.settle(Duration::from_secs(60)).unwrap();
    sim
}

/// G32: a new process never takes an old machine for a new attempt's. Every check of the simulation holds
/// on the way, so no slot ever has two machines.
#[test]
fn a_new_process_ends_every_old_machine_before_it_fills_the_slot_anew() {
    let mut sim = converged(5);
    let (calls, allocated) = (sim.calls().len(), sim.driver().state().next_attempt_id);
    sim.restart_anew().unwrap();
    sim.settle(Duration::from_secs(60)).unwrap();
    for (id, node) in sim.driver().state().nodes.iter() {
        assert!(
            Some(node.attempt) >= allocated,
            "{id} is attempt {} again",
            node.attempt
        );
        let calls: Vec<&String> = sim.calls()[calls..]
            .iter()
            .filter(|call| call.starts_with(&format!("{id} ")))
            .collect();
        assert!(
            calls[0].ends_with("destroy-lease") && calls[1].ends_with("create-lease"),
            "{calls:?}"
        );
    }
}

/// Chapter 4: `restore` keeps known leases.
#[test]
fn a_process_that_has_the_state_keeps_every_machine_and_calls_nobody() {
    let mut sim = converged(5);
    let (calls, live) = (sim.calls().len(), sim.live());
    sim.restart_restored().unwrap();
    sim.settle(Duration::from_secs(60)).unwrap();
    assert_eq!((sim.calls().len(), sim.live()), (calls, live));
}

/// Chapter 4: what was under way is remembered, so that what came of it is adopted and not made twice.
#[test]
fn whatever_a_restored_process_was_about_its_machines_are_adopted() {
    for seed in 0..200 {
        let mut sim = converged(3);
        sim.update(vec![group("w", 6, template("alpha", "one"))]).unwrap();
        sim.drive().unwrap();
        for _ in 0..seed % 40 {
            sim.work().unwrap();
        }
        let before = sim.driver().state().next_attempt_id;
        sim.restart_restored().unwrap();
        sim.settle(Duration::from_secs(600)).unwrap();
        assert_eq!(
            sim.driver().state().next_attempt_id,
            before,
            "an attempt was lost at step {seed}"
        );
        for (id, node) in sim.driver().state().nodes.iter() {
            assert_eq!(node.stage, Stage::Dormant, "{id} at step {seed}");
        }
    }
}

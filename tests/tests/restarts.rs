//! Processes that end, and processes that take over.

use std::num::NonZeroU32;
use std::time::Duration;

use jiff::SignedDuration;
use nodewright_conformance::{ByHand, Chooser, Memory, Sim, SimConfig, group, policy, shape, template};
use nodewright_core::effect::{CommandKind, EffectError, Outcome};
use nodewright_core::node::Stage;
use nodewright_core::observation::Observation;
use nodewright_core::pace::{PaceConfig, Rate};

fn converged(count: u32) -> Sim<Memory> {
    converged_with(SimConfig::default(), count)
}

fn converged_with(config: SimConfig, count: u32) -> Sim<Memory> {
    let shape = shape(1, vec![group("w", count, template("alpha", "one"))]);
    let mut sim = Sim::new(config, ["alpha"], shape).unwrap();
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
    let all = sim.calls();
    for (id, node) in sim.driver().state().nodes.iter() {
        assert!(
            Some(node.attempt) >= allocated,
            "{id} is attempt {} again",
            node.attempt
        );
        let calls: Vec<&String> = all[calls..]
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
    let (calls, live) = (sim.calls().len(), sim.living());
    sim.restart_restored().unwrap();
    sim.settle(Duration::from_secs(60)).unwrap();
    assert_eq!((sim.calls().len(), sim.living()), (calls, live));
}

/// Chapter 4: what was under way is remembered, so that what came of it is adopted and not made twice.
#[test]
fn whatever_a_restored_process_was_about_its_machines_are_adopted() {
    for seed in 0..200 {
        let mut sim = converged(3);
        sim.update(vec![group("w", 6, template("alpha", "one"))]).unwrap();
        sim.drive().unwrap();
        let mut chooser = Chooser::new(seed);
        for _ in 0..seed % 40 {
            sim.work(&mut chooser).unwrap();
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

/// G32: a journal may lag behind what the process did before it ended. What it does not know of is found
/// before anything is leased, also for a node of which it knows only that it was to get a machine.
#[test]
fn a_state_that_lags_behind_never_makes_a_second_machine_for_a_slot() {
    for seed in 0..100 {
        // One call at a time, so that the journal has nodes that have asked for nothing yet.
        let pace = PaceConfig {
            max_in_flight: NonZeroU32::MIN,
            rate: None,
        };
        let config = SimConfig {
            pace,
            notes: true,
            ..SimConfig::default()
        };
        let mut sim = converged_with(config, 2);
        sim.update(vec![group("w", 5, template("alpha", "one"))]).unwrap();
        sim.drive().unwrap();
        let mut chooser = Chooser::new(seed);
        for _ in 0..seed % 20 {
            sim.work(&mut chooser).unwrap();
        }
        let journal = sim.driver().state().clone();
        // That a machine is gone of which the journal knows is for the sweeps to find.
        let doomed = journal.nodes.iter().filter(|(_, node)| node.lease.is_none());
        let doomed: Vec<_> = doomed.map(|(id, node)| (id, node.attempt)).collect();
        for (id, attempt) in &doomed {
            let reason = "it died after the journal was written".into();
            let lost = Observation::NodeLost { reason };
            let _ = sim.observe(id, *attempt, &lost).unwrap();
        }
        sim.settle(Duration::from_secs(600)).unwrap();
        sim.restart_from(journal).unwrap();
        let settled = sim.settle(Duration::from_secs(600));
        settled.unwrap_or_else(|broken| panic!("seed {seed}: {broken}\n{}", sim.notes().join("\n")));
    }
}

const HOUR: SignedDuration = SignedDuration::from_hours(1);

/// Chapter 6: a wall clock that was set back between two processes makes nobody wait for it. The moments that the
/// state holds lie an hour ahead then: of a node in backoff, of a throttled provider, of an orphan.
#[test]
fn a_clock_that_was_set_back_between_two_processes_is_not_waited_for() {
    let wanted = || shape(1, vec![group("w", 2, template("alpha", "one"))]);
    let rate = Rate {
        calls: NonZeroU32::MIN,
        per: Duration::from_secs(1),
        burst: NonZeroU32::new(4).unwrap(),
    };
    let pace = PaceConfig {
        rate: Some(rate),
        ..PaceConfig::default()
    };
    let mut first = ByHand::fresh(wanted(), policy(), pace);
    let sent = first.drive();
    let _ = first.fail(&sent[0], EffectError::definite("no room"));
    let slow_down = EffectError::throttled("slow down", Some(Duration::from_secs(5)));
    let _ = first.fail(&sent[1], slow_down);
    first.drive();
    let (state, begun) = (first.driver.state().clone(), first.now - HOUR);
    let setup = ByHand::setup(pace, true);
    let mut run = ByHand::restored(state, wanted(), policy(), [("alpha", setup)], begun);
    run.drive();
    let longest = policy().max_throttle.max(policy().max_delay);
    while !run.driver.is_converged() {
        run.succeed_all();
        let Some(at) = run.driver.requeue_at() else { break };
        let waits = at.duration_since(run.now).unsigned_abs();
        assert!(waits <= longest, "it waits for {waits:?}");
        run.now = at;
    }
    assert!(run.driver.is_converged());
}

/// G10: a wall clock that was set forward proves nothing about an ambiguous create: what may become visible for ten
/// seconds more is waited for, whatever the clock says.
#[test]
fn a_clock_that_was_set_forward_between_two_processes_makes_no_second_machine() {
    let wanted = || shape(1, vec![group("w", 1, template("alpha", "one"))]);
    let mut first = ByHand::fresh(wanted(), policy(), PaceConfig::default());
    let sent = first.drive();
    let _ = first.fail(&sent[0], EffectError::ambiguous("the wire was cut"));
    let (state, begun) = (first.driver.state().clone(), first.now + HOUR);
    let setup = ByHand::setup(PaceConfig::default(), true);
    let visibility = setup.capabilities.visibility;
    let mut run = ByHand::restored(state, wanted(), policy(), [("alpha", setup)], begun);
    let (mut looked, mut sent) = (0, run.drive());
    while run.now < begun.checked_add(visibility).unwrap() {
        for effect in &sent {
            assert_eq!(
                effect.command.kind(),
                CommandKind::FindLease,
                "it may be there still"
            );
            let _ = run.answer(effect, Outcome::LeaseFound(None));
            looked += 1;
        }
        sent = run.pass(1);
    }
    assert!(looked > 1);
    for effect in &sent {
        let _ = run.succeed(effect);
    }
    run.succeed_all();
    while !run.driver.is_converged() {
        run.now = run.driver.requeue_at().unwrap();
        run.succeed_all();
    }
    assert_eq!(run.node("w-0").attempt.number(), 1);
}

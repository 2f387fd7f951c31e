//! What one driver promises of many nodes.

use std::time::Duration;

use nodewright_conformance::{
    ByHand, Chooser, Memory, Sim, SimConfig, group, policy, seeds, shape, template,
};
use nodewright_core::driver::{Accepted, DriverError};
use nodewright_core::effect::{CommandKind, Destroyed, EffectError, Outcome};
use nodewright_core::facts::{CreatedLease, LeaseFacts, LeaseId};
use nodewright_core::id::BootstrapSessionId;
use nodewright_core::node::Stage;
use nodewright_core::observation::Folded;
use nodewright_core::pace::PaceConfig;
use nodewright_core::shape::{ClusterShape, Generation};

fn workers(count: u32) -> ClusterShape {
    shape(1, vec![group("w", count, template("alpha", "one"))])
}

fn run(count: u32) -> ByHand {
    ByHand::fresh(workers(count), policy(), PaceConfig::default())
}

/// Chapter 3: `Destroyed` takes no facts; what turns up then is an orphan, and holds the slot's next lease.
#[test]
fn a_late_answer_to_a_destroyed_attempt_is_destroyed_before_the_slot_is_leased_again() {
    let mut run = run(1);
    let create = run.drive();
    let _ = run.succeed(&create[0]);
    let start = run.drive();
    let _ = run.fail(&start[0], EffectError::definite("it said no"));
    let destroy = run.drive();
    let _ = run.succeed(&destroy[0]);
    run.drive();
    assert_eq!(run.node("w-0").stage, Stage::Destroyed);
    let late = |name: &str| {
        let lease = LeaseFacts::new(LeaseId::new(name));
        Outcome::LeaseCreated(CreatedLease {
            lease,
            endpoint: None,
        })
    };
    assert_eq!(run.answer(&create[0], late("n-1")), Folded::Orphaned);
    // The net of the attempt holds for its orphans, too.
    assert_eq!(ByHand::text(&run.drive()), [""; 0]);
    let sent = run.pass(1);
    assert_eq!(ByHand::text(&sent), ["w-0 1.4 destroy-lease"]);
    assert_eq!(
        ByHand::text(&run.pass(5)),
        [""; 0],
        "the next attempt waits for the orphan"
    );
    assert_eq!(run.node("w-0").attempt.number(), 2);
    assert!(run.retired.is_empty(), "its ledger is still needed");
    let _ = run.succeed(&sent[0]);
    assert_eq!(ByHand::text(&run.drive()), ["w-0 2.1 create-lease"]);
    assert_eq!(run.retired, [create[0].operation.attempt]);
}

/// Chapter 1: orphans of one attempt share one sequence, which goes on after the last of them was gone.
#[test]
fn a_second_late_answer_goes_on_in_the_same_row_of_sequences() {
    let mut run = run(1);
    let create = run.drive();
    let _ = run.succeed(&create[0]);
    let start = run.drive();
    let _ = run.fail(&start[0], EffectError::definite("it said no"));
    let destroy = run.drive();
    let _ = run.succeed(&destroy[0]);
    run.drive();
    let mut sequences = Vec::new();
    for name in ["n-1", "n-2"] {
        let lease = LeaseFacts::new(LeaseId::new(name));
        let late = Outcome::LeaseCreated(CreatedLease {
            lease,
            endpoint: None,
        });
        assert_eq!(run.answer(&create[0], late), Folded::Orphaned);
        let sent = run.pass(1);
        sequences.extend(sent.iter().map(|effect| effect.operation.sequence));
        let _ = run.succeed(&sent[0]);
        run.drive();
    }
    assert_eq!(sequences, [4, 5]);
}

/// G18: what befalls one node never stops another.
#[test]
fn a_node_that_hangs_and_one_that_fails_hold_back_nobody() {
    let mut run = run(6);
    let mut flying = run.drive();
    while let Some(effect) = flying.pop() {
        match effect.node.index {
            0 => {}
            1 => drop(run.fail(&effect, EffectError::fatal("never"))),
            _ => drop(run.succeed(&effect)),
        }
        flying.extend(run.drive());
    }
    let summary = run.driver.summary();
    assert_eq!((summary.ready, summary.halted, summary.pending), (4, 1, 1));
}

/// G6: an answer that is right by its operation and answers another command is none.
#[test]
fn an_answer_to_another_kind_of_command_changes_nothing() {
    let mut run = run(1);
    let mut sent = run.drive();
    let session = BootstrapSessionId(sent[0].operation);
    let created = CreatedLease {
        lease: LeaseFacts::new(LeaseId::new("n-1")),
        endpoint: None,
    };
    let answers = [
        (CommandKind::CreateLease, Outcome::LeaseCreated(created.clone())),
        (CommandKind::FindLease, Outcome::LeaseFound(Some(created))),
        (CommandKind::LookupEndpoint, Outcome::EndpointFound(None)),
        (CommandKind::StartBootstrap, Outcome::BootstrapStarted(session)),
        (CommandKind::ObserveConvergence, Outcome::ConvergenceAccepted),
        (CommandKind::CancelBootstrap, Outcome::BootstrapCancelled),
        (
            CommandKind::DestroyLease,
            Outcome::LeaseDestroyed(Destroyed::Gone),
        ),
    ];
    let mut asked = Vec::new();
    while let Some(effect) = sent.pop() {
        let kind = effect.command.kind();
        let before = run.driver.state().clone();
        for (answered, outcome) in &answers {
            if *answered != kind {
                assert_eq!(run.answer(&effect, outcome.clone()), Folded::Stale, "{kind}");
            }
        }
        assert_eq!(*run.driver.state(), before, "{kind}");
        asked.push(kind);
        let _ = run.succeed(&effect);
        sent = run.drive();
        if sent.is_empty() && run.driver.desired().node_count() == 1 {
            let mut nothing = workers(0);
            nothing.generation = Generation(2);
            run.driver.update_desired(nothing, run.now).unwrap();
            sent = run.drive();
        }
    }
    assert_eq!(
        asked,
        [
            CommandKind::CreateLease,
            CommandKind::StartBootstrap,
            CommandKind::ObserveConvergence,
            CommandKind::DestroyLease
        ]
    );
}

/// G13: where a machine is reached may be known later than that there is one.
#[test]
fn a_machine_without_an_endpoint_is_asked_for_it_until_there_is_one() {
    let mut run = run(1);
    let create = run.drive();
    let made = Outcome::LeaseCreated(CreatedLease {
        lease: LeaseFacts::new(LeaseId::new("n-1")),
        endpoint: None,
    });
    let _ = run.answer(&create[0], made);
    let asked = run.drive();
    assert_eq!(ByHand::text(&asked), ["w-0 1.2 lookup-endpoint"]);
    let _ = run.answer(&asked[0], Outcome::EndpointFound(None));
    assert!(run.drive().is_empty(), "it is not asked again at once");
    let asked = run.pass(policy().probe_interval.as_secs());
    assert_eq!(ByHand::text(&asked), ["w-0 1.3 lookup-endpoint"]);
    let _ = run.succeed(&asked[0]);
    assert!(run.node("w-0").endpoint.is_some());
    assert_eq!(run.node("w-0").stage, Stage::EndpointKnown);
    assert_eq!(ByHand::text(&run.drive()), ["w-0 1.4 start-bootstrap"]);
}

/// G3: whoever has not asked yet what is due is woken for nothing that has come already.
#[test]
fn a_deadline_that_has_come_is_not_waited_for() {
    let mut run = run(1);
    run.drive();
    let deadline = run.node("w-0").pending.as_ref().unwrap().deadline;
    assert_eq!(run.driver.requeue_at(), Some(deadline));
    run.now = deadline;
    assert!(run.drive().is_empty());
    assert!(run.driver.requeue_at().is_none_or(|at| at > deadline));
}

/// G19, G18: used up sequences are an error of that node, said once; every other goes on.
#[test]
fn a_node_whose_sequences_are_used_up_is_reported_once_and_the_others_go_on() {
    let mut run = run(3);
    run.drive();
    let mut state = serde_json::to_value(run.driver.state()).unwrap();
    state["nodes"]["w-1"]["next_sequence"] = u32::MAX.into();
    state["nodes"]["w-1"]["pending"]["id"] = format!("2.{}", u32::MAX - 1).into();
    let state = serde_json::from_value(state).unwrap();
    let setup = ByHand::setup(PaceConfig::default(), true);
    let mut run = ByHand::restored(state, workers(3), policy(), [("alpha", setup)], run.now);
    let sent = run.pass(30);
    assert_eq!(run.report.errors.len(), 1, "{:?}", run.report.errors);
    assert_eq!(run.report.errors[0].node, "w-1".parse().unwrap());
    for effect in &sent {
        let _ = run.succeed(effect);
    }
    for _ in 0..20 {
        // A full pass looks at it again, and has nothing new to say.
        run.driver.trigger();
        for effect in &run.pass(10) {
            let _ = run.succeed(effect);
        }
        assert!(run.report.errors.is_empty());
    }
    assert_eq!(run.driver.summary().ready, 2);
}

/// G20: the latest desired wins, and what is refused changes nothing.
#[test]
fn the_latest_shape_wins_and_old_or_silent_changes_are_refused() {
    let mut run = run(2);
    run.succeed_all();
    let wanted = |generation, count| shape(generation, vec![group("w", count, template("alpha", "one"))]);
    // Revisions between may never be seen by a pass.
    assert_eq!(
        run.driver.update_desired(wanted(2, 40), run.now),
        Ok(Accepted::Changed(Generation(2)))
    );
    assert_eq!(
        run.driver.update_desired(wanted(5, 3), run.now),
        Ok(Accepted::Changed(Generation(5)))
    );
    assert_eq!(
        run.driver.update_desired(wanted(5, 3), run.now),
        Ok(Accepted::Unchanged(Generation(5)))
    );
    let before = (run.driver.state().clone(), run.driver.desired().clone());
    assert!(matches!(
        run.driver.update_desired(wanted(4, 9), run.now),
        Err(DriverError::OldGeneration { .. })
    ));
    assert!(matches!(
        run.driver.update_desired(wanted(5, 9), run.now),
        Err(DriverError::SilentChange { .. })
    ));
    let mut other = wanted(6, 1);
    other.run_id = "other".parse().unwrap();
    assert!(matches!(
        run.driver.update_desired(other, run.now),
        Err(DriverError::OtherRun { .. })
    ));
    assert_eq!((run.driver.state().clone(), run.driver.desired().clone()), before);
    assert_eq!(ByHand::text(&run.drive()), ["w-2 3.1 create-lease"]);
    assert_eq!(run.driver.state().observed_generation, Generation(5));
}

/// G21: scale-down takes the highest indices only.
#[test]
fn scale_down_takes_the_highest_indices() {
    let mut run = run(12);
    run.succeed_all();
    run.driver
        .update_desired(shape(2, vec![group("w", 10, template("alpha", "one"))]), run.now)
        .unwrap();
    let sent = run.drive();
    assert_eq!(
        ByHand::text(&sent),
        ["w-10 11.4 destroy-lease", "w-11 12.4 destroy-lease"]
    );
    run.succeed_all();
}

/// G2: the order in which independent work completes does not change what is converged to, up to ids,
/// sequences and moments.
#[test]
fn every_order_of_delivery_reaches_the_same_converged_state() {
    let reached = |seed| {
        let mut sim = Sim::<Memory>::new(SimConfig::default(), ["alpha"], workers(4)).unwrap();
        let mut chooser = Chooser::new(seed);
        sim.drive().unwrap();
        for (count, image) in [(6, "one"), (3, "two"), (5, "two")] {
            for _ in 0..10 {
                sim.work(&mut chooser).unwrap();
            }
            sim.update(vec![group("w", count, template("alpha", image))])
                .unwrap();
            sim.drive().unwrap();
        }
        sim.settle(Duration::from_secs(600))
            .unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
        let nodes = sim.driver().state().nodes.iter();
        let nodes = nodes.map(|(id, node)| {
            let facts = (
                node.lease.is_some(),
                node.endpoint.is_some(),
                node.active_bootstrap.is_some(),
            );
            let agent = node.join.as_ref().map(|join| join.agent.clone());
            let mut retry = node.retry.clone();
            retry.last_command = None;
            (
                id,
                node.spec.clone(),
                node.intent,
                node.stage,
                node.ready,
                facts,
                agent,
                retry,
            )
        });
        (nodes.collect::<Vec<_>>(), sim.driver().state().orphans.clone())
    };
    let first = reached(0);
    assert_eq!(first.0.len(), 5);
    for seed in seeds(200) {
        assert_eq!(reached(seed), first, "seed {seed}");
    }
}

/// Chapter 4's cost, as far as a test can tell: ten thousand nodes converge, and nothing is left to do.
#[test]
fn ten_thousand_nodes_converge() {
    let mut run = ByHand::fresh(workers(10_000), policy(), PaceConfig::default());
    // The full plan is not asked for here: it costs what the whole cluster costs, at every pass.
    struct Sink(Vec<nodewright_core::effect::PlannedEffect>);
    impl nodewright_core::driver::EffectSink for Sink {
        fn submit(
            &mut self,
            effects: Vec<nodewright_core::effect::PlannedEffect>,
        ) -> Vec<nodewright_core::driver::Refused> {
            self.0.extend(effects);
            Vec::new()
        }
        fn retire(&mut self, _: nodewright_core::id::NodeAttemptId) {}
    }
    let mut sink = Sink(Vec::new());
    let _ = run.driver.drive(run.now, &mut sink);
    while let Some(effect) = sink.0.pop() {
        let _ = run.succeed(&effect);
        let _ = run.driver.drive(run.now, &mut sink);
    }
    assert!(run.driver.is_converged());
    assert_eq!(run.driver.requeue_at(), None);
    run.driver.trigger();
    assert!(run.drive().is_empty());
}

//! The promises of the driver, each by the number of the guarantee that makes it.

mod boundaries;
mod failures;
mod storm;

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::*;
use crate::bootstrap::{StreamEvent, StreamObservation};
use crate::effect::{
    CallEnd, Capabilities, Command, CommandKind, Destroyed, EffectError, Outcome, PlannedEffect,
};
use crate::facts::{AgentId, CreatedLease};
use crate::id::{BootstrapSessionId, OperationId};
use crate::node::Intent;
use crate::pace::PaceConfig;
use crate::sample::{at, endpoint, lease, policy, seconds, template};
use crate::shape::{Generation, NodeGroupSpec};

use CommandKind::{
    CancelBootstrap, CreateLease, DestroyLease, FindLease, LookupEndpoint, ObserveConvergence, StartBootstrap,
};

/// How long the provider may not show a resource.
const VISIBILITY: u64 = 30;

/// Keeps what it is handed; refuses what it is told to.
#[derive(Debug, Default)]
struct Tape {
    sent: Vec<PlannedEffect>,
    retired: Vec<NodeAttemptId>,
    refuses: bool,
}

impl EffectSink for Tape {
    fn submit(&mut self, effects: Vec<PlannedEffect>) -> Vec<Refused> {
        let refused = effects.iter().filter(|_| self.refuses).map(|effect| Refused {
            node: effect.node.clone(),
            operation: effect.operation,
            reason: "restarting".into(),
        });
        let refused = refused.collect();
        self.sent.extend(effects);
        refused
    }

    fn retire(&mut self, attempt: NodeAttemptId) {
        self.retired.push(attempt);
    }
}

fn shape(generation: u64, groups: &[(&str, u32, &str)]) -> ClusterShape {
    let run_id = RunId::new("r").unwrap();
    let group = |(name, count, image): &(&str, u32, &str)| NodeGroupSpec {
        run_id: run_id.clone(),
        group_id: name.parse().unwrap(),
        count: *count,
        depends_on: BTreeSet::new(),
        template: template(image),
    };
    ClusterShape {
        run_id: run_id.clone(),
        generation: Generation(generation),
        groups: groups.iter().map(group).collect(),
    }
}

fn setup(places: u32) -> ProviderSetup {
    ProviderSetup {
        capabilities: Capabilities {
            visibility: Duration::from_secs(VISIBILITY),
            inventory: true,
            watch: false,
            abortable: true,
        },
        pace: PaceConfig {
            max_in_flight: NonZeroU32::new(places).unwrap(),
            rate: None,
        },
        fresh: true,
    }
}

fn setups(places: u32) -> BTreeMap<ProviderKind, ProviderSetup> {
    [("fake".parse().unwrap(), setup(places))].into()
}

fn id(name: &str) -> LogicalNodeId {
    name.parse().unwrap()
}

/// What an honest provider answers.
fn success(effect: &PlannedEffect) -> Outcome {
    let name = format!("m-{}", effect.operation.attempt);
    let made = || CreatedLease {
        lease: lease(&name),
        endpoint: None,
    };
    match &effect.command {
        Command::CreateLease(_) => Outcome::LeaseCreated(made()),
        Command::FindLease => Outcome::LeaseFound(Some(made())),
        Command::LookupEndpoint(_) => Outcome::EndpointFound(Some(endpoint(&name))),
        Command::StartBootstrap(_) => Outcome::BootstrapStarted(BootstrapSessionId(effect.operation)),
        Command::ObserveConvergence(_) => Outcome::ConvergenceAccepted,
        Command::CancelBootstrap => Outcome::BootstrapCancelled,
        Command::DestroyLease(_) => Outcome::LeaseDestroyed(Destroyed::Gone),
    }
}

/// A driver, its clock, and what it sent.
struct Rig {
    driver: ClusterDriver,
    tape: Tape,
    now: Timestamp,
    errors: Vec<NodeFault>,
}

use crate::failure::NodeFault;

impl Rig {
    fn new(groups: &[(&str, u32, &str)]) -> Self {
        Self::with(groups, 64, policy())
    }

    fn with(groups: &[(&str, u32, &str)], places: u32, policy: Policy) -> Self {
        Self::around(ClusterDriver::new(shape(1, groups), policy, setups(places)).unwrap())
    }

    fn around(driver: ClusterDriver) -> Self {
        Self {
            driver,
            tape: Tape::default(),
            now: at(1_000_000),
            errors: Vec::new(),
        }
    }

    /// Drives, and hands out what was sent.
    fn drive(&mut self) -> Vec<PlannedEffect> {
        let report = self.driver.drive(self.now, &mut self.tape);
        self.errors.extend(report.errors.iter().map(|error| error.fault));
        assert_eq!(self.driver.state().check(), Ok(()));
        assert!(
            self.driver.requeue_at().is_none_or(|at| at > self.now),
            "G3: requeue in the past"
        );
        std::mem::take(&mut self.tape.sent)
    }

    /// Drives; exactly these commands are sent.
    #[track_caller]
    fn sends(&mut self, expected: &[(&str, CommandKind)]) -> Vec<PlannedEffect> {
        let sent = self.drive();
        let found: Vec<(String, CommandKind)> = sent
            .iter()
            .map(|effect| (effect.node.to_string(), effect.command.kind()))
            .collect();
        let expected: Vec<(String, CommandKind)> = expected
            .iter()
            .map(|(node, kind)| ((*node).to_owned(), *kind))
            .collect();
        assert_eq!(found, expected);
        sent
    }

    /// Drives; exactly this one command is sent.
    #[track_caller]
    fn sends_one(&mut self, node: &str, kind: CommandKind) -> PlannedEffect {
        self.sends(&[(node, kind)]).remove(0)
    }

    fn pass_time(&mut self, wait: u64) {
        self.now = self.now.checked_add(seconds(wait)).unwrap();
    }

    /// Moves the clock to the moment that the driver waits for; says how far that is.
    fn requeue(&mut self) -> i64 {
        let requeue_at = self.driver.requeue_at().expect("it waits for a moment");
        let waited = requeue_at.as_second() - self.now.as_second();
        self.now = requeue_at;
        waited
    }

    fn answer(&mut self, effect: &PlannedEffect, outcome: Outcome) -> Folded {
        let observation = Observation::Finished {
            operation: effect.operation,
            outcome,
            end: CallEnd::At(self.now),
        };
        self.driver
            .fold(&effect.node, effect.operation.attempt, &observation, self.now)
    }

    #[track_caller]
    fn succeed(&mut self, effect: &PlannedEffect) {
        assert_eq!(self.answer(effect, success(effect)), Folded::Applied);
        if effect.command.kind() == StartBootstrap {
            self.see(effect, 1, StreamEvent::Joined(AgentId::new("agent")));
        }
    }

    #[track_caller]
    fn fail(&mut self, effect: &PlannedEffect, error: EffectError) {
        assert_eq!(self.answer(effect, Outcome::Failed(error)), Folded::Applied);
    }

    #[track_caller]
    fn see(&mut self, start: &PlannedEffect, sequence: u64, event: StreamEvent) {
        let observation = Observation::Stream(StreamObservation {
            session: BootstrapSessionId(start.operation),
            sequence,
            event,
        });
        let attempt = start.operation.attempt;
        let folded = self.driver.fold(&start.node, attempt, &observation, self.now);
        assert_eq!(folded, Folded::Applied);
    }

    fn lose(&mut self, node: &str) -> Folded {
        let attempt = self.node(node).attempt;
        let reason = "gone".into();
        self.driver
            .fold(&id(node), attempt, &Observation::NodeLost { reason }, self.now)
    }

    /// Answers everything with success until nothing is sent any more.
    fn settle(&mut self) {
        for _ in 0..200 {
            let sent = self.drive();
            if sent.is_empty() {
                return;
            }
            for effect in sent {
                self.succeed(&effect);
            }
        }
        panic!("it does not settle");
    }

    fn converged(groups: &[(&str, u32, &str)]) -> Self {
        let mut rig = Self::new(groups);
        rig.settle();
        assert!(rig.driver.is_converged());
        rig
    }

    /// One node whose session is live and has not joined, and the start of that.
    fn booting(policy: Policy) -> (Self, PlannedEffect) {
        let mut rig = Self::with(&[("w", 1, "plain")], 64, policy);
        for kind in [CreateLease, LookupEndpoint] {
            let effect = rig.sends_one("w-0", kind);
            rig.succeed(&effect);
        }
        let start = rig.sends_one("w-0", StartBootstrap);
        assert_eq!(rig.answer(&start, success(&start)), Folded::Applied);
        rig.sends(&[]);
        (rig, start)
    }

    fn node(&self, name: &str) -> &ManagedNode {
        self.driver
            .state()
            .nodes
            .get(&id(name))
            .expect("the slot holds a node")
    }

    fn update(&mut self, generation: u64, groups: &[(&str, u32, &str)]) {
        let accepted = self.driver.update_desired(shape(generation, groups), self.now);
        assert_eq!(accepted, Ok(Accepted::Changed(Generation(generation))));
    }

    fn attempts(&self) -> Vec<u64> {
        self.driver
            .state()
            .nodes
            .iter()
            .map(|(_, node)| node.attempt.number())
            .collect()
    }

    /// Everything that the driver is, as text.
    fn whole(&self) -> String {
        format!("{:?}", self.driver)
    }
}

#[test]
fn g3_a_forced_pass_over_what_is_settled_changes_nothing() {
    let mut rig = Rig::converged(&[("w", 3, "plain")]);
    assert_eq!(rig.driver.requeue_at(), None);
    let state = rig.driver.state().clone();
    rig.pass_time(3600);
    rig.driver.trigger();
    rig.sends(&[]);
    assert_eq!(rig.driver.state(), &state);
    let (mut rig, _) = Rig::booting(policy());
    let requeue_at = rig.driver.requeue_at();
    rig.driver.trigger();
    rig.sends(&[]);
    assert_eq!(rig.driver.requeue_at(), requeue_at);
}

#[test]
fn g4_attempts_are_unique_increase_and_are_never_used_again_even_after_a_reap() {
    let mut rig = Rig::converged(&[("w", 2, "plain")]);
    assert_eq!(rig.attempts(), [1, 2]);
    rig.update(2, &[("w", 0, "plain")]);
    rig.settle();
    assert!(rig.driver.state().nodes.is_empty(), "reaped");
    rig.update(3, &[("w", 2, "plain")]);
    rig.settle();
    assert_eq!(rig.attempts(), [3, 4]);
    rig.update(4, &[("w", 2, "other")]);
    rig.settle();
    assert_eq!(rig.attempts(), [5, 6]);
    let retired: Vec<u64> = rig.tape.retired.iter().map(|attempt| attempt.number()).collect();
    assert_eq!(retired, [1, 2, 3, 4], "each once");
    // Nor after the state went through a journal.
    let state = serde_json::from_str(&serde_json::to_string(rig.driver.state()).unwrap()).unwrap();
    let wanted = shape(5, &[("w", 3, "other")]);
    let driver = ClusterDriver::restore(state, wanted, policy(), setups(64), rig.now).unwrap();
    let mut rig = Rig::around(driver);
    rig.settle();
    assert_eq!(rig.attempts(), [5, 6, 7]);
}

#[test]
fn g5_sequences_start_at_1_and_rise_through_an_attempt() {
    let mut rig = Rig::new(&[("w", 1, "plain")]);
    let mut sequences = Vec::new();
    loop {
        let sent = rig.drive();
        if sent.is_empty() {
            break;
        }
        for effect in sent {
            sequences.push(effect.operation.sequence);
            rig.succeed(&effect);
        }
    }
    assert_eq!(sequences, [1, 2, 3, 4]);
}

#[test]
fn g6_what_speaks_of_another_attempt_operation_or_slot_changes_nothing_and_is_counted() {
    let mut rig = Rig::new(&[("w", 1, "plain")]);
    let create = rig.sends_one("w-0", CreateLease);
    rig.succeed(&create);
    let look = rig.sends_one("w-0", LookupEndpoint);
    let state = rig.driver.state().clone();
    let other_attempt = PlannedEffect {
        operation: OperationId {
            attempt: NodeAttemptId::new(9),
            ..look.operation
        },
        ..look.clone()
    };
    let other_operation = PlannedEffect {
        operation: OperationId {
            sequence: 9,
            ..look.operation
        },
        ..look.clone()
    };
    let other_slot = PlannedEffect {
        node: id("w-7"),
        ..look.clone()
    };
    let other_group = PlannedEffect {
        node: id("x-0"),
        ..look.clone()
    };
    let stale = [create, other_attempt, other_operation, other_slot, other_group];
    for (count, effect) in (1..).zip(&stale) {
        for _ in 0..2 {
            assert_eq!(rig.answer(effect, success(effect)), Folded::Stale);
        }
        assert_eq!(rig.driver.summary().stale, 2 * count);
    }
    rig.sends(&[]);
    assert_eq!(rig.driver.state(), &state);
    rig.succeed(&look);
}

#[test]
fn g7_what_befalls_an_old_attempt_becomes_no_fact_of_the_next() {
    let (mut rig, old) = Rig::booting(policy());
    rig.update(2, &[("w", 1, "other")]);
    for kind in [CancelBootstrap, DestroyLease, CreateLease, LookupEndpoint] {
        let effect = rig.sends_one("w-0", kind);
        rig.succeed(&effect);
    }
    let start = rig.sends_one("w-0", StartBootstrap);
    let (before, now) = (old.operation.attempt, start.operation.attempt);
    assert_eq!((before.number(), now.number()), (1, 2));
    let joined = Observation::Stream(StreamObservation {
        session: BootstrapSessionId(old.operation),
        sequence: 9,
        event: StreamEvent::Joined(AgentId::new("old")),
    });
    let ended = Observation::CallEnded {
        operation: old.operation,
        at: rig.now,
    };
    let lost = Observation::NodeLost {
        reason: "gone".into(),
    };
    let state = rig.driver.state().clone();
    for observation in [
        joined.clone(),
        Observation::Joined(AgentId::new("old")),
        Observation::HandedOff,
        lost,
        ended,
    ] {
        let folded = rig.driver.fold(&id("w-0"), before, &observation, rig.now);
        assert_eq!(folded, Folded::Stale, "{observation}");
    }
    // Nor what an old session says under the name of the new attempt.
    assert_eq!(rig.driver.fold(&id("w-0"), now, &joined, rig.now), Folded::Stale);
    assert_eq!(rig.driver.state(), &state);
    rig.succeed(&start);
}

#[test]
fn g8_an_operation_is_recorded_before_the_sink_sees_it() {
    /// Dies with what it was handed, so that the state at that moment can be looked at.
    struct Dies(Vec<PlannedEffect>);
    impl EffectSink for Dies {
        fn submit(&mut self, effects: Vec<PlannedEffect>) -> Vec<Refused> {
            self.0.extend(effects);
            std::panic::resume_unwind(Box::new("the sink died"));
        }
        fn retire(&mut self, _: NodeAttemptId) {}
    }
    let mut rig = Rig::new(&[("w", 2, "plain")]);
    let mut sink = Dies(Vec::new());
    let now = rig.now;
    let died = catch_unwind(AssertUnwindSafe(|| rig.driver.drive(now, &mut sink)));
    assert!(died.is_err());
    assert_eq!(sink.0.len(), 2);
    for effect in sink.0 {
        let node = rig.driver.state().nodes.get(&effect.node).unwrap();
        let pending = node.pending.as_ref().expect("recorded as pending");
        assert_eq!(
            (pending.id, pending.kind),
            (effect.operation, effect.command.kind())
        );
        assert_eq!(
            pending.deadline,
            now.checked_add(policy().operation_timeout).unwrap()
        );
        assert_eq!(node.next_sequence, effect.operation.sequence + 1);
    }
}

#[test]
fn g9_while_an_operation_is_pending_or_may_still_run_nothing_else_is_sent_for_its_node() {
    let mut rig = Rig::new(&[("w", 1, "plain")]);
    let create = rig.sends_one("w-0", CreateLease);
    rig.pass_time(30);
    rig.driver.trigger();
    rig.sends(&[]);
    for generation in 2..5 {
        rig.pass_time(30);
        rig.update(
            generation,
            &[("w", 1, if generation % 2 == 0 { "other" } else { "plain" })],
        );
        rig.driver.trigger();
        rig.sends(&[]);
    }
    let observation = Observation::Finished {
        operation: create.operation,
        outcome: Outcome::Failed(EffectError::ambiguous("timeout")),
        end: CallEnd::Unknown,
    };
    let attempt = create.operation.attempt;
    assert_eq!(
        rig.driver.fold(&create.node, attempt, &observation, rig.now),
        Folded::Applied
    );
    rig.pass_time(3600);
    rig.sends(&[]);
    let ended = Observation::CallEnded {
        operation: create.operation,
        at: rig.now,
    };
    assert_eq!(
        rig.driver.fold(&create.node, attempt, &ended, rig.now),
        Folded::Applied
    );
    rig.sends_one("w-0", FindLease);
}

#[test]
fn g10_a_replacement_leases_only_after_the_attempt_before_it_is_gone() {
    let mut rig = Rig::converged(&[("w", 1, "plain")]);
    rig.update(2, &[("w", 1, "other")]);
    let destroy = rig.sends_one("w-0", DestroyLease);
    assert_eq!(
        rig.answer(&destroy, Outcome::LeaseDestroyed(Destroyed::Going)),
        Folded::Applied
    );
    rig.sends(&[]);
    assert_eq!(rig.requeue(), 2);
    let destroy = rig.sends_one("w-0", DestroyLease);
    rig.succeed(&destroy);
    let create = rig.sends_one("w-0", CreateLease);
    assert_eq!(create.operation.attempt.number(), 2);
}

#[test]
fn g14_cleanup_finds_cancels_destroys_and_marks_and_no_failing_cancel_keeps_a_machine() {
    let (mut rig, _) = Rig::booting(policy());
    rig.update(2, &[("w", 0, "plain")]);
    for (failed, wait) in [1, 2, 4].into_iter().enumerate() {
        let cancel = rig.sends_one("w-0", CancelBootstrap);
        rig.fail(&cancel, EffectError::definite("no"));
        assert_eq!(rig.node("w-0").retry.failed_cancels, failed as u32 + 1);
        if failed < 2 {
            rig.sends(&[]);
            assert_eq!(rig.requeue(), wait);
        }
    }
    rig.sends(&[]);
    rig.requeue();
    let destroy = rig.sends_one("w-0", DestroyLease);
    rig.fail(&destroy, EffectError::definite("no"));
    assert!(
        rig.node("w-0").lease.is_some(),
        "G12: a failed cleanup keeps its facts"
    );
    rig.sends(&[]);
    rig.requeue();
    let destroy = rig.sends_one("w-0", DestroyLease);
    rig.succeed(&destroy);
    rig.sends(&[]);
    assert!(rig.driver.state().nodes.is_empty() && rig.driver.is_converged());
}

#[test]
fn g15_a_remembered_create_is_settled_before_the_attempt_is_destroyed() {
    let mut rig = Rig::new(&[("w", 1, "plain")]);
    let create = rig.sends_one("w-0", CreateLease);
    let sent_at = rig.now;
    rig.fail(&create, EffectError::ambiguous("timeout"));
    rig.update(2, &[("w", 0, "plain")]);
    // Absent too early, failed, throttled: none of them settles it.
    let find = rig.sends_one("w-0", FindLease);
    assert_eq!(rig.node("w-0").intent, Intent::Deleting);
    assert_eq!(rig.answer(&find, Outcome::LeaseFound(None)), Folded::Applied);
    for error in crate::sample::errors() {
        rig.sends(&[]);
        rig.requeue();
        let find = rig.sends_one("w-0", FindLease);
        rig.fail(&find, error);
        assert!(rig.node("w-0").retry.create.is_some());
    }
    // Only this one was asked when the create could no longer come through.
    rig.sends(&[]);
    rig.requeue();
    assert!(rig.now >= sent_at.checked_add(seconds(VISIBILITY)).unwrap());
    let find = rig.sends_one("w-0", FindLease);
    assert_eq!(rig.answer(&find, Outcome::LeaseFound(None)), Folded::Applied);
    rig.sends(&[]);
    assert!(rig.driver.state().nodes.is_empty());
}

#[test]
fn g15_what_a_remembered_create_left_is_adopted_or_destroyed() {
    for wanted in [1, 0] {
        let mut rig = Rig::new(&[("w", 1, "plain")]);
        let create = rig.sends_one("w-0", CreateLease);
        rig.fail(&create, EffectError::ambiguous("timeout"));
        rig.update(2, &[("w", wanted, "plain")]);
        let find = rig.sends_one("w-0", FindLease);
        rig.succeed(&find);
        let next = if wanted == 1 { LookupEndpoint } else { DestroyLease };
        let next = rig.sends_one("w-0", next);
        assert_eq!(next.operation.attempt, create.operation.attempt);
    }
}

#[test]
fn g18_a_node_that_cannot_go_on_stops_no_other_in_the_same_pass() {
    let mut rig = Rig::new(&[("w", 3, "plain")]);
    for effect in rig.drive() {
        rig.succeed(&effect);
    }
    let slot = rig.driver.state.nodes.slot(&id("w-1")).unwrap();
    rig.driver
        .change(slot, |node, _, _| node.next_sequence = u32::MAX);
    rig.sends(&[("w-0", LookupEndpoint), ("w-2", LookupEndpoint)]);
    assert_eq!(rig.errors, [NodeFault::SequencesExhausted]);
    rig.driver.trigger();
    rig.sends(&[]);
    assert_eq!(rig.errors.len(), 1, "it is said once");
}

#[test]
fn g20_the_latest_shape_wins_and_every_refusal_leaves_the_driver_untouched() {
    let mut rig = Rig::converged(&[("w", 2, "plain")]);
    rig.update(5, &[("w", 3, "plain")]);
    let whole = rig.whole();
    let mut other_run = shape(9, &[]);
    other_run.run_id = RunId::new("other").unwrap();
    let mut bad = shape(9, &[("w", 3, "plain")]);
    bad.groups[0].depends_on.insert("nobody".parse().unwrap());
    let mut unknown = shape(9, &[("w", 3, "plain")]);
    let mut moved = (*unknown.groups[0].template).clone();
    moved.provider = "elsewhere".parse().unwrap();
    unknown.groups[0].template = Template::new(moved);
    let refusals = [
        other_run,
        bad,
        unknown,
        shape(9, &[("w", u32::MAX, "plain")]),
        shape(9, &[("w", 1_000_001, "plain")]),
        shape(4, &[("w", 3, "plain")]),
        shape(4, &[("w", 1, "plain")]),
        shape(5, &[("w", 1, "plain")]),
        shape(5, &[("w", 3, "other")]),
        shape(5, &[("v", 3, "plain")]),
    ];
    for refused in refusals {
        let text = format!("{:?}", refused.groups.len());
        rig.driver.update_desired(refused, rig.now).expect_err(&text);
        assert_eq!(rig.whole(), whole);
    }
    let same = rig.driver.update_desired(shape(5, &[("w", 3, "plain")]), rig.now);
    assert_eq!(same, Ok(Accepted::Unchanged(Generation(5))));
    assert_eq!(rig.whole(), whole);
    // Intermediate generations may be skipped; what counts is the latest.
    assert_eq!(rig.driver.state().observed_generation, Generation(1));
    rig.update(6, &[("w", 9, "plain")]);
    rig.update(7, &[("w", 2, "plain")]);
    rig.sends(&[]);
    assert_eq!(rig.driver.state().observed_generation, Generation(7));
    assert_eq!(rig.attempts(), [1, 2]);
    assert!(rig.driver.is_converged());
}

#[test]
fn g21_scaling_down_removes_only_the_highest_indices() {
    let mut rig = Rig::converged(&[("v", 2, "plain"), ("w", 12, "plain")]);
    rig.update(2, &[("v", 2, "plain"), ("w", 9, "plain")]);
    let expected = ["w-9", "w-10", "w-11"].map(|node| (node, DestroyLease));
    for effect in rig.sends(&expected) {
        rig.succeed(&effect);
    }
    rig.settle();
    assert_eq!(rig.attempts(), (1..=11).collect::<Vec<_>>());
    assert!(rig.driver.is_converged());
}

#[test]
fn a_changed_count_replaces_nobody_and_a_changed_template_everybody() {
    let mut rig = Rig::converged(&[("v", 1, "plain"), ("w", 2, "plain")]);
    rig.update(2, &[("v", 1, "plain"), ("w", 3, "plain")]);
    rig.sends_one("w-2", CreateLease);
    let mut rig = Rig::converged(&[("v", 1, "plain"), ("w", 2, "plain")]);
    rig.update(2, &[("v", 1, "plain"), ("w", 2, "other")]);
    rig.sends(&[("w-0", DestroyLease), ("w-1", DestroyLease)]);
}

#[test]
fn a_slot_that_becomes_desired_again_while_it_is_deleted_gets_a_fresh_attempt_afterwards() {
    let mut rig = Rig::converged(&[("w", 1, "plain")]);
    rig.update(2, &[("w", 0, "plain")]);
    let destroy = rig.sends_one("w-0", DestroyLease);
    rig.update(3, &[("w", 1, "plain")]);
    rig.sends(&[]);
    rig.succeed(&destroy);
    let create = rig.sends_one("w-0", CreateLease);
    assert_eq!(create.operation.attempt.number(), 2);
}

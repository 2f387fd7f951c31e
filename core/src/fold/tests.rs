//! Chapter by chapter what an observation becomes: the table of observations here, the table of failures in
//! `failures`, sessions in `sessions`.

mod failures;
mod sessions;

use std::time::Duration;

use super::*;
use crate::bootstrap::{StreamEvent, StreamObservation};
use crate::effect::EffectError;
use crate::id::{NodeAttemptId, RunId};
use crate::node::PassId;
use crate::policy::Policy;
use crate::sample::{
    But, NOW, at, busy, deleting, destroyed, dormant, endpoint, errors, failed, fresh, halt, handed_off,
    join, joined as joined_node, lease, leased, operation, policy, reachable, remembered, running, seconds,
    session, template, unended,
};

use CommandKind::{
    CancelBootstrap, CreateLease, DestroyLease, FindLease, LookupEndpoint, ObserveConvergence, StartBootstrap,
};

/// How long the samples' provider may not show a resource.
const VISIBILITY: u64 = 60;

/// The pass that will see what is folded.
const PASS: PassId = PassId(42);

/// A node, after an observation was folded into it.
struct After {
    before: ManagedNode,
    node: ManagedNode,
    folded: Folded,
    signal: Option<PaceSignal>,
    faulty: bool,
}

impl After {
    /// The node, where the observation became facts of it.
    #[track_caller]
    fn applied(self) -> ManagedNode {
        assert_eq!(self.folded, Folded::Applied);
        assert_eq!(self.node.check(), Ok(()));
        self.node
    }

    /// A stale observation changes nothing whatever.
    #[track_caller]
    fn stale(self) {
        assert_eq!(self.folded, Folded::Stale);
        assert_eq!(self.node, self.before);
        assert!(self.signal.is_none() && !self.faulty);
    }
}

fn see_at(node: &ManagedNode, observation: &Observation, now: Timestamp, policy: &Policy) -> After {
    assert_eq!(node.check(), Ok(()), "the sample cannot be");
    let run = RunId::new("r").unwrap();
    let mut cx = Context {
        run: &run,
        policy,
        visibility: Duration::from_secs(VISIBILITY),
        now,
        pass: PASS,
        signal: None,
        fault: None,
    };
    let mut after = node.clone();
    let folded = fold(&mut after, observation, &mut cx);
    After {
        before: node.clone(),
        node: after,
        folded,
        signal: cx.signal,
        faulty: cx.fault.is_some(),
    }
}

fn see(node: &ManagedNode, observation: &Observation) -> After {
    see_at(node, observation, at(NOW), &policy())
}

/// The result of the samples' pending operation, its call answered now.
fn result(outcome: Outcome) -> Observation {
    Observation::Finished {
        operation: operation(10),
        outcome,
        end: CallEnd::At(at(NOW)),
    }
}

fn answer(node: &ManagedNode, outcome: Outcome) -> After {
    see(node, &result(outcome))
}

fn fails(node: &ManagedNode, error: EffectError) -> After {
    answer(node, Outcome::Failed(error))
}

fn report(of: u32, sequence: u64, event: StreamEvent) -> Observation {
    Observation::Stream(StreamObservation {
        session: session(of),
        sequence,
        event,
    })
}

fn agent(name: &str) -> AgentId {
    AgentId::new(name)
}

fn created(name: &str, host: Option<&str>) -> CreatedLease {
    CreatedLease {
        lease: lease(name),
        endpoint: host.map(endpoint),
    }
}

fn lost() -> Observation {
    Observation::NodeLost {
        reason: "gone".into(),
    }
}

fn creating() -> ManagedNode {
    busy(fresh(), CreateLease).but(|node| node.stage = Stage::LeaseRequested)
}

/// A node that looks for what its create of operation 9 left.
fn finding(ended: Option<i64>) -> ManagedNode {
    busy(fresh(), FindLease).but(|node| {
        node.stage = Stage::LeaseRequested;
        node.retry.create = Some(remembered(9, ended));
    })
}

#[test]
fn a_created_lease_becomes_the_lease_and_starts_the_clock() {
    for (host, stage) in [(None, Stage::LeaseCreated), (Some("h"), Stage::EndpointKnown)] {
        let waiting = creating().but(|node| node.retry.next_effect_at = Some(at(NOW + 9)));
        let after = answer(&waiting, Outcome::LeaseCreated(created("m", host)));
        assert!(matches!(after.signal, Some(PaceSignal::Succeeded)));
        let node = after.applied();
        assert_eq!(node.stage, stage);
        assert_eq!(node.lease.as_deref(), Some(&lease("m")));
        assert_eq!(node.endpoint, host.map(endpoint));
        assert_eq!(node.retry.ready_by, Some(at(NOW + 900)));
        assert_eq!((node.pending, node.retry.next_effect_at), (None, None));
        assert_eq!(node.lease_changed, PASS);
    }
}

#[test]
fn a_found_lease_settles_the_memory_and_lifts_a_halt() {
    let halted = finding(Some(0)).but(|node| node.retry.halted = Some(halt(&template("plain"))));
    let node = answer(&halted, Outcome::LeaseFound(Some(created("m", None)))).applied();
    assert_eq!((node.retry.create, node.retry.halted), (None, None));
    assert_eq!(node.stage, Stage::LeaseCreated);
    // A node that is to go keeps the halt, and its stage: the lease is known, so that it can be destroyed.
    let halted = deleting(halted);
    let node = answer(&halted, Outcome::LeaseFound(Some(created("m", Some("h"))))).applied();
    assert_eq!(node.retry.create, None);
    assert!(node.retry.halted.is_some() && node.lease.is_some());
    assert_eq!((node.stage, node.retry.ready_by), (Stage::LeaseRequested, None));
}

#[test]
fn a_lease_made_from_another_template_is_kept_to_be_destroyed_and_the_attempt_fails() {
    let made = |image: &str| {
        let mut made = created("m", None);
        made.lease.template = Some(template(image).digest());
        answer(&creating(), Outcome::LeaseCreated(made)).applied()
    };
    let node = made("other");
    assert_eq!(node.stage, Stage::Failed);
    assert!(node.lease.is_some() && node.failure.is_some());
    assert_eq!(node.retry.failed_attempts, 1);
    assert_eq!(made("plain").stage, Stage::LeaseCreated);
}

#[test]
fn a_lease_that_arrives_late_is_known_and_moves_nothing_upward() {
    for node in [
        failed(creating()),
        deleting(creating()),
        deleting(failed(creating())),
    ] {
        let after = answer(&node, Outcome::LeaseCreated(created("m", Some("h")))).applied();
        assert_eq!(
            (after.stage, after.ready, after.intent),
            (node.stage, false, node.intent)
        );
        assert_eq!(after.lease.as_deref(), Some(&lease("m")));
        assert_eq!(after.retry.ready_by, None);
    }
}

#[test]
fn absent_counts_only_when_it_was_asked_visibility_after_the_last_create_had_ended() {
    let absent = Outcome::LeaseFound(None);
    // Asked at NOW - 10.
    let in_time = NOW - 10 - VISIBILITY as i64;
    let node = answer(&finding(Some(in_time)), absent.clone()).applied();
    assert_eq!(node.retry.create, None);
    assert_eq!(node.retry.failures.get(&CreateLease), Some(&1));
    assert_eq!(node.retry.next_effect_at, Some(at(NOW + 1)));
    for ended in [Some(in_time + 1), Some(NOW), None] {
        let node = answer(&finding(ended), absent.clone()).applied();
        assert_eq!(node.retry.create, Some(remembered(9, ended)));
        assert_eq!(
            node.retry.next_effect_at,
            Some(at(NOW + 2)),
            "after the probe interval"
        );
        assert!(node.retry.failures.is_empty());
    }
    // Failures of the create add up across look-ups.
    let again = finding(Some(in_time)).but(|node| {
        node.retry.failures.insert(CreateLease, 3);
        node.retry.failures.insert(FindLease, 5);
    });
    let node = answer(&again, absent.clone()).applied();
    assert_eq!(node.retry.failures.get(&CreateLease), Some(&4));
    assert_eq!(node.retry.failures.get(&FindLease), None);
    assert_eq!(node.retry.next_effect_at, Some(at(NOW + 8)));
    // What is being deleted only forgets; a halt stays.
    let halted = finding(Some(in_time)).but(|node| node.retry.halted = Some(halt(&template("plain"))));
    let node = answer(&halted, absent.clone()).applied();
    assert!(node.retry.halted.is_some() && node.retry.create.is_none());
    let node = answer(&deleting(finding(Some(in_time))), absent).applied();
    assert!(node.retry.create.is_none() && node.retry.failures.is_empty());
    assert_eq!(node.retry.next_effect_at, None);
}

#[test]
fn a_look_for_a_call_whose_end_was_unknown_counts_from_the_end_that_was_reported_late() {
    let unknown = Observation::Finished {
        operation: operation(10),
        outcome: Outcome::Failed(EffectError::ambiguous("timeout")),
        end: CallEnd::Unknown,
    };
    let node = see(&creating(), &unknown).applied();
    assert_eq!(node.retry.create, Some(remembered(10, None)));
    assert_eq!(node.unended, Some(unended(CreateLease)));
    let ended = |sequence| Observation::CallEnded {
        operation: operation(sequence),
        at: at(NOW - 3),
    };
    see(&node, &ended(9)).stale();
    let node = see(&node, &ended(10)).applied();
    assert_eq!(node.unended, None);
    assert_eq!(node.retry.create, Some(remembered(10, Some(NOW - 3))));
    see(&node, &ended(10)).stale();
}

#[test]
fn an_endpoint_is_found_or_asked_for_again_and_that_is_no_failure() {
    let looking = busy(leased(), LookupEndpoint);
    let node = answer(&looking, Outcome::EndpointFound(Some(endpoint("h")))).applied();
    assert_eq!(
        (node.stage, node.endpoint),
        (Stage::EndpointKnown, Some(endpoint("h")))
    );
    let node = answer(&looking, Outcome::EndpointFound(None)).applied();
    assert_eq!(node.stage, Stage::LeaseCreated);
    assert_eq!(node.retry.next_effect_at, Some(at(NOW + 2)));
    assert!(node.retry.failures.is_empty());
    let node = answer(&deleting(looking), Outcome::EndpointFound(None)).applied();
    assert_eq!(node.retry.next_effect_at, None, "it began before the deletion");
}

#[test]
fn an_accepted_convergence_is_the_handoff_unless_the_node_is_to_go() {
    let observing = busy(joined_node(), ObserveConvergence).but(|node| {
        node.retry.failures.insert(ObserveConvergence, 2);
        node.retry.failed_attempts = 3;
        node.retry.failed_cancels = 1;
        node.retry.join_by = Some(at(NOW + 5));
    });
    let node = answer(&observing, Outcome::ConvergenceAccepted).applied();
    assert_eq!((node.stage, node.ready), (Stage::Dormant, true));
    assert_eq!(
        (node.active_bootstrap, node.ended_bootstrap),
        (None, Some(session(3)))
    );
    let retry = &node.retry;
    assert_eq!((retry.failed_attempts, retry.failed_cancels), (0, 0));
    assert_eq!(
        (retry.ready_by, retry.stall_at, retry.join_by),
        (None, None, None)
    );
    assert!(retry.failures.is_empty());
    for node in [deleting(observing.clone()), failed(observing)] {
        let after = answer(&node, Outcome::ConvergenceAccepted).applied();
        assert_eq!((after.stage, after.ready), (node.stage, false));
    }
    // On a ready node it only clears the pending operation.
    let ready = busy(handed_off(), ObserveConvergence);
    let node = answer(&ready, Outcome::ConvergenceAccepted).applied();
    assert_eq!(node.but(|node| node.retry.last_command = None), handed_off());
}

#[test]
fn the_application_may_take_over_what_has_joined_and_can_be_reached() {
    for node in [joined_node(), busy(joined_node(), ObserveConvergence)] {
        let after = see(&node, &Observation::HandedOff).applied();
        assert_eq!((after.stage, after.ready), (Stage::HandedOff, true));
        assert_eq!(
            after.active_bootstrap, node.active_bootstrap,
            "the session may end when it likes"
        );
        assert_eq!((after.retry.ready_by, after.retry.failed_attempts), (None, 0));
    }
    let unreachable = leased().but(|node| node.join = Some(join()));
    for node in [
        running(),
        unreachable,
        dormant(),
        failed(joined_node()),
        deleting(joined_node()),
        destroyed(),
    ] {
        see(&node, &Observation::HandedOff).stale();
    }
}

#[test]
fn a_destroyed_lease_leaves_nothing_and_one_that_is_going_is_asked_for_again() {
    let going = busy(deleting(running()), DestroyLease).but(|node| {
        node.retry.start = Some(remembered(5, Some(0)));
        node.missing_since = Some(at(0));
    });
    let node = answer(&going, Outcome::LeaseDestroyed(Destroyed::Gone)).applied();
    assert!(node.lease.is_none() && node.endpoint.is_none() && node.active_bootstrap.is_none());
    assert!(node.holds_nothing(), "the remembered start is settled");
    assert_eq!(node.lease_changed, PASS);
    let node = answer(&going, Outcome::LeaseDestroyed(Destroyed::Going)).applied();
    assert!(node.lease.is_some() && node.endpoint.is_some() && node.active_bootstrap.is_some());
    assert!(node.retry.start.is_some());
    assert_eq!(node.retry.next_effect_at, Some(at(NOW + 2)));
}

#[test]
fn our_own_cancel_ends_the_session_settles_a_remembered_start_and_keeps_the_facts() {
    let session_facts = running().bootstrap;
    let node = answer(
        &busy(deleting(running()), CancelBootstrap),
        Outcome::BootstrapCancelled,
    )
    .applied();
    assert_eq!(
        (node.active_bootstrap, node.ended_bootstrap),
        (None, Some(session(3)))
    );
    assert_eq!(node.bootstrap, session_facts);
    let unsure = deleting(reachable()).but(|node| node.retry.start = Some(remembered(3, None)));
    let node = answer(&busy(unsure, CancelBootstrap), Outcome::BootstrapCancelled).applied();
    assert_eq!(node.retry.start, None);
    // What that session still says speaks of nothing any more.
    see(
        &node,
        &report(
            3,
            9,
            StreamEvent::Stage(crate::facts::BootstrapStage::WaitingForJoin),
        ),
    )
    .stale();
}

#[test]
fn a_lost_node_fails_at_any_stage_and_keeps_its_lease_facts() {
    for node in [
        fresh(),
        creating(),
        leased(),
        reachable(),
        running(),
        joined_node(),
        dormant(),
        handed_off(),
    ] {
        let after = see(&node, &lost()).applied();
        assert_eq!((after.stage, after.ready), (Stage::Failed, false));
        assert_eq!((&after.lease, &after.pending), (&node.lease, &node.pending));
        assert_eq!(after.failure.unwrap().reason, "gone".into());
        assert_eq!(after.retry.failed_attempts, 1);
        assert_eq!(after.retry.restart_at, Some(at(NOW + 1)));
    }
    for node in [failed(leased()), deleting(dormant()), destroyed()] {
        see(&node, &lost()).stale();
    }
}

#[test]
fn one_death_counts_once_whatever_else_says_so() {
    let node = busy(running(), StartBootstrap);
    let mut node = see(&node, &lost()).applied();
    let failed_once = node.retry.clone();
    for observation in [
        lost(),
        result(Outcome::Failed(EffectError::definite("no"))),
        report(
            3,
            9,
            StreamEvent::Failed {
                stage: crate::facts::BootstrapStage::StreamFailed,
                reason: "cut".into(),
            },
        ),
    ] {
        node = see(&node, &observation).node;
        assert_eq!(node.retry.failed_attempts, 1);
        assert_eq!(node.retry.restart_at, failed_once.restart_at);
    }
}

#[test]
fn failed_attempts_in_a_row_wait_longer_each_time_up_to_the_cap() {
    for (before, wait) in [(0, 1), (1, 2), (2, 4), (5, 32), (6, 60), (u32::MAX, 60)] {
        let node = dormant().but(|node| node.retry.failed_attempts = before);
        let after = see(&node, &lost()).applied();
        assert_eq!(after.retry.restart_at, Some(at(NOW + wait)));
        assert_eq!(after.retry.failed_attempts, before.saturating_add(1));
        assert_eq!(after.retry.halted, None);
    }
}

#[test]
fn the_attempt_limit_halts_the_slot_for_its_spec() {
    let limited = Policy {
        attempt_limit: std::num::NonZeroU32::new(3),
        ..policy()
    };
    let fail = |before: u32| {
        let node = dormant().but(|node| node.retry.failed_attempts = before);
        see_at(&node, &lost(), at(NOW), &limited).applied().retry.halted
    };
    assert_eq!(fail(1), None);
    assert_eq!(fail(2).unwrap().spec, Some(template("plain").digest()));
}

#[test]
fn a_result_of_another_operation_or_of_the_wrong_kind_changes_nothing() {
    let other = Observation::Finished {
        operation: operation(9),
        outcome: Outcome::LeaseCreated(created("m", None)),
        end: CallEnd::At(at(NOW)),
    };
    for node in [
        fresh(),
        creating(),
        dormant(),
        deleting(creating()),
        destroyed().but(|node| node.attempt = NodeAttemptId::new(8)),
    ] {
        see(&node, &other).stale();
        let refused = Observation::Refused {
            operation: operation(9),
            reason: "no".into(),
        };
        see(&node, &refused).stale();
    }
    for (node, kind) in [
        (creating(), CreateLease),
        (busy(leased(), LookupEndpoint), LookupEndpoint),
    ] {
        for outcome in [
            Outcome::LeaseCreated(created("m", None)),
            Outcome::LeaseFound(None),
            Outcome::EndpointFound(None),
            Outcome::BootstrapStarted(session(10)),
            Outcome::ConvergenceAccepted,
            Outcome::BootstrapCancelled,
            Outcome::LeaseDestroyed(Destroyed::Gone),
        ] {
            if !answers(&outcome, kind) {
                answer(&node, outcome).stale();
            }
        }
    }
    // The second of two equal results is stale.
    let node = answer(&creating(), Outcome::LeaseCreated(created("m", None))).applied();
    answer(&node, Outcome::LeaseCreated(created("m", None))).stale();
}

#[test]
fn destroyed_takes_no_facts_and_a_lease_that_turns_up_then_is_an_orphan() {
    let node = destroyed();
    for outcome in [
        Outcome::LeaseCreated(created("m", None)),
        Outcome::LeaseFound(Some(created("m", None))),
    ] {
        let after = answer(&node, outcome);
        assert_eq!(after.folded, Folded::Orphaned);
        assert_eq!(after.node, node);
    }
    answer(&node, Outcome::LeaseFound(None)).stale();
    answer(&node, Outcome::EndpointFound(Some(endpoint("h")))).stale();
    answer(&node, Outcome::Failed(EffectError::ambiguous("timeout"))).stale();
    see(&node, &Observation::Joined(agent("a"))).stale();
    see(&node, &report(3, 9, StreamEvent::Joined(agent("a")))).stale();
    see(
        &node,
        &Observation::CallEnded {
            operation: operation(10),
            at: at(NOW),
        },
    )
    .stale();
}

#[test]
fn moments_beyond_representable_time_are_the_nodes_fault_and_panic_nothing() {
    let end = Timestamp::MAX;
    let after = see_at(
        &creating(),
        &result(Outcome::LeaseCreated(created("m", None))),
        end,
        &policy(),
    );
    assert!(after.faulty);
    assert_eq!(after.applied().retry.ready_by, Some(end));
    let after = see_at(&dormant(), &lost(), end, &policy());
    assert!(after.faulty);
    assert_eq!(after.applied().retry.restart_at, Some(end));
    for error in errors() {
        for now in [Timestamp::MIN, end] {
            let observation = result(Outcome::Failed(error.clone()));
            let _ = see_at(&busy(reachable(), StartBootstrap), &observation, now, &policy()).applied();
        }
    }
    let forever = finding(Some(NOW)).but(|node| node.retry.create.as_mut().unwrap().ended = Some(end));
    let node = answer(&forever, Outcome::LeaseFound(None)).applied();
    assert!(node.retry.create.is_some());
}

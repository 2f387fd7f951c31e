//! The ladder row by row: what matches, what only nearly does, and which of two rows goes first.

use super::*;
use crate::id::NodeAttemptId;
use crate::node::Intent;
use crate::sample::{
    But, NOW, at, busy, deleting, destroyed, dormant, failed, fresh, halt, handed_off, joined, leased,
    operation, policy, reachable, remembered, running, seconds, session, template, unended,
};

use CommandKind::{
    CancelBootstrap, CreateLease, DestroyLease, FindLease, LookupEndpoint, ObserveConvergence, StartBootstrap,
};

const SHUT: Gate = Gate {
    looked: false,
    may_start: false,
    may_stop: false,
    orphaned: true,
};
const UNLOOKED: Gate = Gate {
    looked: false,
    ..Gate::OPEN
};
const MAY_NOT_START: Gate = Gate {
    may_start: false,
    ..Gate::OPEN
};
const MAY_NOT_STOP: Gate = Gate {
    may_stop: false,
    ..Gate::OPEN
};
const ORPHANED: Gate = Gate {
    orphaned: true,
    ..Gate::OPEN
};

/// One slot as the ladder sees it.
struct Case {
    node: Option<ManagedNode>,
    desired: Option<Template>,
    gate: Gate,
    now: Timestamp,
}

/// A slot that holds this node and wants its spec.
fn of(node: ManagedNode) -> Case {
    Case {
        node: Some(node),
        desired: Some(template("plain")),
        gate: Gate::OPEN,
        now: at(NOW),
    }
}

fn empty() -> Case {
    Case {
        node: None,
        ..of(fresh())
    }
}

impl Case {
    fn undesired(self) -> Self {
        Self {
            desired: None,
            ..self
        }
    }

    fn wants(self, image: &str) -> Self {
        Self {
            desired: Some(template(image)),
            ..self
        }
    }

    fn behind(self, gate: Gate) -> Self {
        Self { gate, ..self }
    }

    fn now(self, now: Timestamp) -> Self {
        Self { now, ..self }
    }
}

/// Decides a case; the sample must be a state that can be, and a moment to wait for must lie ahead.
#[track_caller]
fn check(case: Case, expected: Decision) {
    if let Some(node) = &case.node {
        assert_eq!(node.check(), Ok(()));
    }
    let decision = reconcile_node(
        case.node.as_ref(),
        case.desired.as_ref(),
        case.gate,
        &policy(),
        case.now,
    );
    assert_eq!(decision, expected);
    assert!(
        decision.until().is_none_or(|until| until > case.now),
        "{decision:?}"
    );
}

fn wait(on: WaitReason, until: Option<i64>) -> Decision {
    Decision::Wait {
        on,
        until: until.map(at),
    }
}

fn waits_for(kind: CommandKind, until: i64) -> Decision {
    let operation = operation(10);
    wait(WaitReason::Operation { operation, kind }, Some(until))
}

fn backs_off(kind: CommandKind, until: i64) -> Decision {
    wait(WaitReason::Backoff(kind), Some(until))
}

fn deletes(reason: DeleteReason) -> Decision {
    Decision::Step(Step::BeginDelete(reason))
}

fn fails(overdue: Overdue) -> Decision {
    Decision::Step(Step::FailAttempt(overdue))
}

fn halted() -> ManagedNode {
    fresh().but(|node| {
        node.stage = Stage::LeaseRequested;
        node.retry.halted = Some(halt(&template("plain")));
    })
}

#[test]
fn row_0_fills_an_empty_slot_once_every_first_look_is_done() {
    check(empty(), Decision::Step(Step::Insert));
    check(empty().behind(UNLOOKED), wait(WaitReason::FirstLook, None));
    // Only the look holds it back: an attempt that may not lease yet is inserted all the same.
    check(empty().behind(MAY_NOT_START), Decision::Step(Step::Insert));
    check(empty().behind(ORPHANED), Decision::Step(Step::Insert));
    check(empty().undesired(), Decision::Settled);
    check(empty().undesired().behind(SHUT), Decision::Settled);
}

#[test]
fn row_1_reaps_what_is_destroyed_and_wanted_no_more() {
    check(of(destroyed()).undesired(), Decision::Step(Step::Reap));
    let halted = destroyed().but(|node| node.retry.halted = Some(halt(&template("plain"))));
    check(of(halted).undesired().behind(SHUT), Decision::Step(Step::Reap));
    // Not before it is destroyed.
    check(
        of(deleting(fresh())).undesired(),
        Decision::Step(Step::MarkDestroyed),
    );
}

#[test]
fn row_2_leaves_a_slot_alone_that_is_halted_for_the_wanted_spec_and_for_no_other() {
    let halted = destroyed().but(|node| node.retry.halted = Some(halt(&template("plain"))));
    check(of(halted.clone()), Decision::Halted { until: None });
    let due = halted.clone().but(|node| node.retry.restart_at = Some(at(NOW)));
    check(of(due), Decision::Halted { until: None });
    check(of(halted).wants("other"), Decision::Step(Step::Restart));
    // What a first look found has no spec, so no spec is the one that it was halted for.
    let found = destroyed().but(|node| {
        node.spec = None;
        node.retry.halted = Some(crate::node::Halt {
            spec: None,
            reason: "found".into(),
        });
    });
    check(of(found), Decision::Step(Step::Restart));
}

#[test]
fn row_3_restarts_once_looks_are_done_and_the_backoff_is_over_or_the_spec_changed() {
    let backed_off = |until: i64| destroyed().but(move |node| node.retry.restart_at = Some(at(until)));
    check(of(destroyed()), Decision::Step(Step::Restart));
    check(of(backed_off(NOW)), Decision::Step(Step::Restart));
    check(of(backed_off(NOW + 1)), wait(WaitReason::Restart, Some(NOW + 1)));
    check(
        of(backed_off(NOW + 1)).wants("other"),
        Decision::Step(Step::Restart),
    );
    check(
        of(destroyed()).behind(UNLOOKED),
        wait(WaitReason::FirstLook, None),
    );
    check(
        of(backed_off(NOW + 1)).behind(UNLOOKED),
        wait(WaitReason::FirstLook, None),
    );
    check(of(destroyed()).behind(ORPHANED), Decision::Step(Step::Restart));
}

#[test]
fn row_4_begins_to_delete_what_failed_drifted_or_is_to_be_replaced_whatever_the_gate() {
    let replaced = |node: ManagedNode| node.but(|node| node.retry.replace = true);
    for gate in [Gate::OPEN, SHUT] {
        check(of(failed(leased())).behind(gate), deletes(DeleteReason::Failed));
        check(
            of(dormant()).wants("other").behind(gate),
            deletes(DeleteReason::Drifted),
        );
        check(
            of(replaced(dormant())).behind(gate),
            deletes(DeleteReason::Replaced),
        );
        check(
            of(replaced(dormant())).undesired().behind(gate),
            deletes(DeleteReason::Replaced),
        );
    }
    // While an operation is pending, too: cleanup waits for that, deciding does not.
    check(
        of(busy(fresh(), CreateLease)).wants("other"),
        deletes(DeleteReason::Drifted),
    );
    // A halt for the old spec ends with the drift.
    check(of(halted()).wants("other"), deletes(DeleteReason::Drifted));
    // Deleting never begins twice.
    check(of(deleting(failed(leased()))), Decision::Dispatch(DestroyLease));
}

#[test]
fn row_4_asks_the_gate_of_an_undesired_node_unless_it_holds_nothing() {
    check(of(dormant()).undesired(), deletes(DeleteReason::Undesired));
    check(
        of(dormant()).undesired().behind(MAY_NOT_STOP),
        wait(WaitReason::Dependents, None),
    );
    check(
        of(fresh()).undesired().behind(MAY_NOT_STOP),
        deletes(DeleteReason::Undesired),
    );
    let holds: [ManagedNode; 5] = [
        leased(),
        fresh().but(|node| node.retry.create = Some(remembered(2, Some(0)))),
        reachable().but(|node| {
            node.lease = None;
            node.retry.start = Some(remembered(2, Some(0)));
        }),
        busy(fresh(), CreateLease),
        fresh().but(|node| node.unended = Some(unended(CreateLease))),
    ];
    for node in holds {
        assert!(!node.holds_nothing());
        let case = of(node.clone()).undesired().behind(MAY_NOT_STOP);
        let decision = reconcile_node(case.node.as_ref(), None, case.gate, &policy(), case.now);
        assert!(!matches!(decision, Decision::Step(_)), "{decision:?}");
        check(of(node).undesired(), deletes(DeleteReason::Undesired));
    }
}

#[test]
fn row_5_fails_an_attempt_exactly_when_one_of_its_moments_has_come() {
    let ready_by = |second: i64| reachable().but(move |node| node.retry.ready_by = Some(at(second)));
    check(of(ready_by(NOW)), fails(Overdue::Ready));
    check(of(ready_by(NOW + 1)), Decision::Dispatch(StartBootstrap));
    let stall_at = |second: i64| running().but(move |node| node.retry.stall_at = Some(at(second)));
    check(of(stall_at(NOW)), fails(Overdue::Stall));
    check(of(stall_at(NOW + 1)), wait(WaitReason::Bootstrap, Some(NOW + 1)));
    let join_by = |second: i64| reachable().but(move |node| node.retry.join_by = Some(at(second)));
    check(of(join_by(NOW)), fails(Overdue::Join));
    check(of(join_by(NOW + 1)), wait(WaitReason::Join, Some(NOW + 1)));
    // The one that passed first is named.
    let both = stall_at(NOW - 1).but(|node| node.retry.ready_by = Some(at(NOW - 2)));
    check(of(both), fails(Overdue::Ready));
    // Also while an operation is pending or a call's end unknown, and while it is held undesired.
    check(of(busy(ready_by(NOW), StartBootstrap)), fails(Overdue::Ready));
    let unended = ready_by(NOW).but(|node| node.unended = Some(unended(StartBootstrap)));
    check(of(unended), fails(Overdue::Ready));
    check(
        of(ready_by(NOW)).undesired().behind(MAY_NOT_STOP),
        fails(Overdue::Ready),
    );
    // Row 4 goes first.
    check(of(ready_by(NOW)).wants("other"), deletes(DeleteReason::Drifted));
    // What is ready or being deleted has no such moment.
    check(
        of(dormant().but(|node| node.retry.ready_by = Some(at(NOW)))),
        Decision::Settled,
    );
    let deleting = deleting(reachable()).but(|node| node.retry.ready_by = Some(at(NOW)));
    check(of(deleting), Decision::Dispatch(DestroyLease));
}

#[test]
fn row_5_does_not_count_the_startup_while_the_node_waits_for_its_providers_pace() {
    let waiting = reachable().but(|node| {
        node.retry.ready_by = Some(at(NOW));
        node.retry.waiting_since = Some(at(NOW - 10));
    });
    check(of(waiting.clone()), Decision::Dispatch(StartBootstrap));
    // Its other moments count on.
    let silent = waiting.clone().but(|node| {
        node.active_bootstrap = Some(session(3));
        node.retry.stall_at = Some(at(NOW));
    });
    check(of(silent), fails(Overdue::Stall));
    let backed_off = waiting.but(|node| node.retry.next_effect_at = Some(at(NOW + 60)));
    check(of(backed_off), backs_off(StartBootstrap, NOW + 60));
}

#[test]
fn row_6_waits_for_a_pending_operation_until_its_deadline_or_an_earlier_moment_of_row_5() {
    check(of(busy(fresh(), CreateLease)), waits_for(CreateLease, NOW + 110));
    check(
        of(busy(leased(), LookupEndpoint)),
        waits_for(LookupEndpoint, NOW + 110),
    );
    let soon = busy(leased(), LookupEndpoint).but(|node| node.retry.ready_by = Some(at(NOW + 5)));
    check(of(soon), waits_for(LookupEndpoint, NOW + 5));
    // Once handed out as due it counts no longer; row 5's moment does.
    let due = busy(leased(), LookupEndpoint).but(|node| {
        let pending = node.pending.as_mut().unwrap();
        pending.expiring = true;
        pending.deadline = at(NOW);
    });
    check(of(due), waits_for(LookupEndpoint, NOW + 900));
    let passed = busy(fresh(), CreateLease).but(|node| {
        node.pending.as_mut().unwrap().deadline = at(NOW);
    });
    let on = WaitReason::Operation {
        operation: operation(10),
        kind: CreateLease,
    };
    check(of(passed), wait(on, None));
    // A call whose end is unknown holds as well, in cleanup too.
    let unknown = leased().but(|node| node.unended = Some(unended(LookupEndpoint)));
    let on = WaitReason::CallEnd(operation(10));
    check(of(unknown.clone()), wait(on, Some(NOW + 900)));
    check(of(deleting(unknown)), wait(on, None));
}

#[test]
fn row_6_goes_before_everything_that_dispatches() {
    let remembered = busy(fresh(), FindLease).but(|node| node.retry.create = Some(remembered(2, None)));
    check(of(remembered), waits_for(FindLease, NOW + 110));
    check(
        of(deleting(busy(running(), StartBootstrap))),
        waits_for(StartBootstrap, NOW + 110),
    );
}

#[test]
fn row_7_looks_for_a_remembered_create_before_anything_else_in_active_and_in_deleting() {
    let memory = |node: ManagedNode| node.but(|node| node.retry.create = Some(remembered(2, Some(NOW - 1))));
    let find = Decision::Dispatch(FindLease);
    check(of(memory(fresh())), find);
    check(of(memory(halted())), find);
    check(of(memory(fresh())).behind(MAY_NOT_START), find);
    check(of(memory(fresh())).behind(ORPHANED), find);
    check(of(memory(fresh())).undesired().behind(MAY_NOT_STOP), find);
    check(of(deleting(memory(fresh()))), find);
    check(of(deleting(memory(running()))), find);
    check(of(deleting(memory(leased()))), find);
    // And nothing is created in order to be destroyed.
    check(of(deleting(fresh())), Decision::Step(Step::MarkDestroyed));
}

#[test]
fn row_8_cancels_a_session_or_a_remembered_start_until_enough_cancels_have_failed() {
    let cancel = Decision::Dispatch(CancelBootstrap);
    let start = reachable().but(|node| node.retry.start = Some(remembered(3, None)));
    for node in [running(), joined(), handed_off(), start] {
        let cancels =
            |failed: u32| deleting(node.clone()).but(move |node| node.retry.failed_cancels = failed);
        check(of(cancels(0)), cancel);
        check(of(cancels(2)), cancel);
        check(of(cancels(3)), Decision::Dispatch(DestroyLease));
        check(of(cancels(4)), Decision::Dispatch(DestroyLease));
    }
    // Only what is being deleted.
    check(of(running()), wait(WaitReason::Bootstrap, Some(NOW + 300)));
    // Without a lease, too; and without one it ends there.
    let no_lease = deleting(running()).but(|node| node.lease = None);
    check(of(no_lease.clone()), cancel);
    let tried = no_lease.but(|node| node.retry.failed_cancels = 3);
    check(of(tried), Decision::Step(Step::MarkDestroyed));
}

#[test]
fn rows_9_and_10_destroy_what_is_held_and_mark_when_nothing_is_left() {
    for node in [leased(), reachable(), dormant(), failed(leased())] {
        check(of(deleting(node.clone())), Decision::Dispatch(DestroyLease));
        check(
            of(deleting(node.clone())).undesired().behind(SHUT),
            Decision::Dispatch(DestroyLease),
        );
        let gone = deleting(node).but(|node| node.lease = None);
        check(of(gone), Decision::Step(Step::MarkDestroyed));
    }
    // Deletion that has begun runs to its end, though the slot is wanted, its spec is right and it is halted.
    let halted = deleting(leased()).but(|node| node.retry.halted = Some(halt(&template("plain"))));
    check(of(halted), Decision::Dispatch(DestroyLease));
}

#[test]
fn row_11_holds_an_undesired_node_until_its_gate_opens_and_still_counts_its_moments() {
    for node in [dormant(), handed_off()] {
        check(
            of(node).undesired().behind(MAY_NOT_STOP),
            wait(WaitReason::Dependents, None),
        );
    }
    check(
        of(reachable()).undesired().behind(MAY_NOT_STOP),
        wait(WaitReason::Dependents, Some(NOW + 900)),
    );
}

#[test]
fn row_12_leaves_a_halted_node_alone_that_holds_no_lease() {
    check(of(halted()), Decision::Halted { until: None });
    check(of(halted()).behind(ORPHANED), Decision::Halted { until: None });
    let backed_off = halted().but(|node| node.retry.next_effect_at = Some(at(NOW + 9)));
    check(of(backed_off), Decision::Halted { until: None });
    // With a lease it goes on.
    let held = leased().but(|node| node.retry.halted = Some(halt(&template("plain"))));
    check(of(held), Decision::Dispatch(LookupEndpoint));
}

#[test]
fn row_13_leaves_what_is_ready_alone_whatever_moments_are_left_behind() {
    for node in [dormant(), handed_off()] {
        for gate in [Gate::OPEN, MAY_NOT_START, ORPHANED, UNLOOKED, MAY_NOT_STOP] {
            check(of(node.clone()).behind(gate), Decision::Settled);
        }
        let backed_off = node.but(|node| node.retry.next_effect_at = Some(at(NOW + 9)));
        check(of(backed_off), Decision::Settled);
    }
}

#[test]
fn rows_14_and_15_lease_only_through_an_open_gate_and_beside_no_orphan() {
    check(of(fresh()), Decision::Dispatch(CreateLease));
    check(
        of(fresh()).behind(MAY_NOT_START),
        wait(WaitReason::Dependencies, None),
    );
    check(of(fresh()).behind(ORPHANED), wait(WaitReason::Orphan, None));
    check(of(fresh()).behind(MAY_NOT_STOP), Decision::Dispatch(CreateLease));
    // The gate is for leasing alone: what holds a lease goes on.
    for gate in [MAY_NOT_START, ORPHANED] {
        check(of(leased()).behind(gate), Decision::Dispatch(LookupEndpoint));
        check(of(reachable()).behind(gate), Decision::Dispatch(StartBootstrap));
    }
    // A create that was asked for before and did not happen is asked for again.
    let requested = fresh().but(|node| node.stage = Stage::LeaseRequested);
    check(of(requested), Decision::Dispatch(CreateLease));
}

#[test]
fn rows_16_to_19_bring_a_leased_node_on() {
    check(of(leased()), Decision::Dispatch(LookupEndpoint));
    check(of(reachable()), Decision::Dispatch(StartBootstrap));
    check(of(running()), wait(WaitReason::Bootstrap, Some(NOW + 300)));
    check(of(joined()), Decision::Dispatch(ObserveConvergence));
    // A remembered start is started again, and a join before any start does not stand in for one.
    let again = reachable().but(|node| node.retry.start = Some(remembered(3, None)));
    check(of(again), Decision::Dispatch(StartBootstrap));
    let early = reachable().but(|node| node.join = Some(crate::sample::join()));
    check(of(early), Decision::Dispatch(StartBootstrap));
    // The session is over and the join awaited.
    let over = reachable().but(|node| {
        node.ended_bootstrap = Some(session(3));
        node.retry.join_by = Some(at(NOW + 5));
    });
    check(of(over), wait(WaitReason::Join, Some(NOW + 5)));
}

/// A node for every row that dispatches.
fn dispatching() -> [(ManagedNode, CommandKind); 7] {
    let memory = fresh().but(|node| node.retry.create = Some(remembered(2, Some(0))));
    [
        (memory, FindLease),
        (deleting(running()), CancelBootstrap),
        (deleting(leased()), DestroyLease),
        (fresh(), CreateLease),
        (leased(), LookupEndpoint),
        (joined(), ObserveConvergence),
        (reachable(), StartBootstrap),
    ]
}

#[test]
fn every_row_that_dispatches_waits_for_the_backoff_and_for_an_earlier_moment_of_row_5() {
    for (node, kind) in dispatching() {
        let backed_off = |until: i64| {
            node.clone()
                .but(move |node| node.retry.next_effect_at = Some(at(until)))
        };
        check(of(backed_off(NOW)), Decision::Dispatch(kind));
        check(of(backed_off(NOW + 1)), backs_off(kind, NOW + 1));
        if node.is_active() && node.lease.is_some() {
            check(of(backed_off(NOW + 5000)), backs_off(kind, NOW + 900));
        }
    }
}

#[test]
fn the_net_keeps_one_command_an_initial_delay_and_a_look_up_a_probe_interval_apart() {
    for (node, kind) in dispatching() {
        let apart = if kind.is_look_up() { 2 } else { 1 };
        let sent = |last: CommandKind, ago: i64| {
            node.clone()
                .but(move |node| node.retry.last_command = Some((last, at(NOW - ago))))
        };
        check(of(sent(kind, apart)), Decision::Dispatch(kind));
        check(of(sent(kind, 0)), backs_off(kind, NOW + apart));
        check(of(sent(kind, apart - 1)), backs_off(kind, NOW + 1));
        // Another command may follow at once, and the later of net and backoff counts.
        let other = CommandKind::ALL.into_iter().find(|other| *other != kind).unwrap();
        check(of(sent(other, 0)), Decision::Dispatch(kind));
        let both = |until: i64| sent(kind, 0).but(move |node| node.retry.next_effect_at = Some(at(until)));
        check(of(both(NOW + 60)), backs_off(kind, NOW + 60));
        check(of(both(NOW - 60)), backs_off(kind, NOW + apart));
    }
}

#[test]
fn used_up_sequences_are_a_fault_of_the_node_and_its_moments_count_on() {
    for (node, kind) in dispatching() {
        let last = node.clone().but(|node| node.next_sequence = u32::MAX - 1);
        check(of(last), Decision::Dispatch(kind));
        let used_up = node.clone().but(|node| node.next_sequence = u32::MAX);
        let counts = node.is_active() && node.lease.is_some();
        check(
            of(used_up),
            Decision::Faulty {
                fault: NodeFault::SequencesExhausted,
                until: counts.then(|| at(NOW + 900)),
            },
        );
    }
    // Steps take no sequence.
    let used_up = |node: ManagedNode| node.but(|node| node.next_sequence = u32::MAX);
    check(of(used_up(failed(leased()))), deletes(DeleteReason::Failed));
    check(
        of(used_up(deleting(fresh()))),
        Decision::Step(Step::MarkDestroyed),
    );
    check(of(used_up(dormant())), Decision::Settled);
}

#[test]
fn a_deadline_beyond_representable_time_is_a_fault_of_the_node() {
    let fault = Decision::Faulty {
        fault: NodeFault::MomentOutOfRange,
        until: None,
    };
    let end = Timestamp::MAX;
    let early = |node: ManagedNode| node.but(|node| node.clear_startup());
    for (node, kind) in dispatching() {
        check(of(early(node.clone())).now(end), fault);
        let room = end.checked_sub(policy().operation_timeout).unwrap();
        check(of(early(node.clone())).now(room), Decision::Dispatch(kind));
        // The net's moment may be the one that cannot be.
        let sent = early(node).but(|node| node.retry.last_command = Some((kind, end)));
        check(of(sent).now(at(NOW)), fault);
    }
    for now in [Timestamp::MIN, Timestamp::MAX] {
        check(empty().now(now), Decision::Step(Step::Insert));
        check(of(dormant()).now(now), Decision::Settled);
    }
    check(of(fresh()).now(Timestamp::MIN), Decision::Dispatch(CreateLease));
}

#[test]
fn a_first_look_gates_nothing_but_filling_a_slot_and_leasing_for_it() {
    for (node, kind) in dispatching() {
        // A state that was handed back may be older than a machine that the look will show.
        let waits = Decision::Wait {
            on: WaitReason::FirstLook,
            until: None,
        };
        let expected = if kind == CreateLease {
            waits
        } else {
            Decision::Dispatch(kind)
        };
        check(of(node).behind(UNLOOKED), expected);
    }
    check(
        of(dormant()).undesired().behind(UNLOOKED),
        deletes(DeleteReason::Undesired),
    );
    check(
        of(destroyed()).undesired().behind(UNLOOKED),
        Decision::Step(Step::Reap),
    );
}

mod orphans {
    //! An orphan is planned like a node that is being deleted, of which only rows 6 and 9 remain.

    use std::sync::Arc;

    use super::*;
    use crate::facts::LeaseId;
    use crate::node::PendingOperation;
    use crate::orphan::{Orphan, OrphanKey, Turns, reconcile_orphan};
    use crate::sample::{ATTEMPT, lease, pending};
    use crate::state::{ClusterState, Slot};

    fn key(name: &str) -> OrphanKey {
        OrphanKey {
            node: "w-0".parse().unwrap(),
            attempt: ATTEMPT,
            provider: "fake".parse().unwrap(),
            lease: LeaseId::new(name),
        }
    }

    fn orphan(name: &str) -> Orphan {
        Orphan::new(Arc::new(lease(name)), at(0), 5)
    }

    fn state(orphans: &[(&str, Orphan)]) -> ClusterState {
        let mut state = ClusterState::new("r".parse().unwrap());
        for (name, orphan) in orphans {
            state.orphans.insert(key(name), orphan.clone());
        }
        state
    }

    /// What the orphan `a` of a state does.
    fn decide(state: &ClusterState, now: Timestamp) -> Decision {
        let orphan = &state.orphans[&key("a")];
        let decision = reconcile_orphan(state, &key("a"), orphan, &mut Turns::default(), &policy(), now);
        assert!(decision.until().is_none_or(|until| until > now), "{decision:?}");
        decision
    }

    #[track_caller]
    fn check(orphan: Orphan, expected: Decision) {
        assert_eq!(decide(&state(&[("a", orphan)]), at(NOW)), expected);
    }

    #[test]
    fn it_is_destroyed_after_backoff_and_net_and_waits_for_what_is_pending() {
        let with = |change: fn(&mut Orphan)| {
            let mut orphan = orphan("a");
            change(&mut orphan);
            orphan
        };
        check(orphan("a"), Decision::Dispatch(DestroyLease));
        check(
            with(|orphan| orphan.pending = Some(pending(DestroyLease))),
            waits_for(DestroyLease, NOW + 110),
        );
        let due = PendingOperation {
            expiring: true,
            ..pending(DestroyLease)
        };
        let mut handed_out = orphan("a");
        handed_out.pending = Some(due);
        let on = WaitReason::Operation {
            operation: operation(10),
            kind: DestroyLease,
        };
        check(handed_out, wait(on, None));
        check(
            with(|orphan| orphan.unended = Some(unended(DestroyLease))),
            wait(WaitReason::CallEnd(operation(10)), None),
        );
        check(
            with(|orphan| orphan.next_effect_at = Some(at(NOW))),
            Decision::Dispatch(DestroyLease),
        );
        check(
            with(|orphan| orphan.next_effect_at = Some(at(NOW + 4))),
            backs_off(DestroyLease, NOW + 4),
        );
        check(
            with(|orphan| orphan.last_dispatch = Some(at(NOW))),
            backs_off(DestroyLease, NOW + 1),
        );
        check(
            with(|orphan| orphan.last_dispatch = Some(at(NOW - 1))),
            Decision::Dispatch(DestroyLease),
        );
        let faulty = |fault| Decision::Faulty { fault, until: None };
        check(
            with(|orphan| orphan.next_sequence = u32::MAX),
            faulty(NodeFault::SequencesExhausted),
        );
        assert_eq!(
            decide(&state(&[("a", orphan("a"))]), Timestamp::MAX),
            faulty(NodeFault::MomentOutOfRange),
        );
    }

    #[test]
    fn a_surplus_waits_until_its_attempt_is_over() {
        let with = |node: ManagedNode| {
            let mut state = state(&[("a", orphan("a"))]);
            let (group, _) = state.nodes.intern(&key("a").node.group);
            state.nodes.insert(Slot { group, index: 0 }, node);
            decide(&state, at(NOW))
        };
        assert_eq!(with(dormant()), Decision::Settled);
        assert_eq!(with(deleting(leased())), Decision::Settled);
        assert_eq!(with(destroyed()), Decision::Dispatch(DestroyLease));
        // Of another attempt of the slot it is none.
        let next = dormant().but(|node| {
            node.attempt = NodeAttemptId::new(8);
            node.ended_bootstrap = None;
        });
        assert_eq!(with(next), Decision::Dispatch(DestroyLease));
    }

    #[test]
    fn orphans_of_one_attempt_take_turns() {
        let busy = |change: fn(&mut Orphan)| {
            let mut other = orphan("b");
            change(&mut other);
            decide(&state(&[("a", orphan("a")), ("b", other)]), at(NOW))
        };
        assert_eq!(busy(|_| {}), Decision::Dispatch(DestroyLease));
        let turn = wait(WaitReason::Orphan, None);
        assert_eq!(busy(|other| other.pending = Some(pending(DestroyLease))), turn);
        assert_eq!(busy(|other| other.unended = Some(unended(DestroyLease))), turn);
        assert_eq!(busy(|other| other.waiting_since = Some(at(NOW))), turn);
        // Within one pass the first takes the turn.
        let state = state(&[("a", orphan("a")), ("b", orphan("b"))]);
        let mut turns = Turns::default();
        let mut next = |name: &str| {
            let orphan = &state.orphans[&key(name)];
            reconcile_orphan(&state, &key(name), orphan, &mut turns, &policy(), at(NOW))
        };
        assert_eq!(next("a"), Decision::Dispatch(DestroyLease));
        assert_eq!(next("b"), turn);
    }
}

#[test]
fn a_shorter_policy_moves_every_wait_with_it() {
    let short = Policy {
        probe_interval: seconds(7),
        initial_delay: seconds(3),
        cancel_attempts: 1,
        ..policy()
    };
    let decide = |node: ManagedNode| {
        reconcile_node(Some(&node), Some(&template("plain")), Gate::OPEN, &short, at(NOW))
    };
    let sent = |node: ManagedNode, kind| node.but(|node| node.retry.last_command = Some((kind, at(NOW))));
    assert_eq!(
        decide(sent(leased(), LookupEndpoint)),
        backs_off(LookupEndpoint, NOW + 7)
    );
    assert_eq!(
        decide(sent(fresh(), CreateLease)),
        backs_off(CreateLease, NOW + 3)
    );
    let tried = deleting(running()).but(|node| node.retry.failed_cancels = 1);
    assert_eq!(decide(tried.clone()), Decision::Dispatch(DestroyLease));
    assert_eq!(tried.intent, Intent::Deleting);
}

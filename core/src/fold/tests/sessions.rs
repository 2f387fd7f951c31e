//! Sessions: whichever arrives first, the result of the start, its stream, or the join another way.

use super::*;
use crate::facts::BootstrapStage;

fn starting() -> ManagedNode {
    busy(reachable(), StartBootstrap)
}

fn unsure() -> ManagedNode {
    reachable().but(|node| node.retry.start = Some(remembered(10, Some(0))))
}

/// The session is over, and the join awaited.
fn over() -> ManagedNode {
    reachable().but(|node| {
        node.stage = Stage::BootstrapRunning;
        node.ended_bootstrap = Some(session(3));
        node.retry.join_by = Some(at(NOW + 5));
    })
}

fn started(of: u32) -> Observation {
    result(Outcome::BootstrapStarted(session(of)))
}

fn stage(stage: BootstrapStage) -> StreamEvent {
    StreamEvent::Stage(stage)
}

fn lines(stdout: u64) -> StreamEvent {
    StreamEvent::Lines { stdout, stderr: 1 }
}

fn broke() -> StreamEvent {
    StreamEvent::Failed {
        stage: BootstrapStage::StreamFailed,
        reason: "cut".into(),
    }
}

fn joins(name: &str) -> StreamEvent {
    StreamEvent::Joined(agent(name))
}

fn fold_all(mut node: ManagedNode, observations: &[Observation]) -> ManagedNode {
    for observation in observations {
        let after = see(&node, observation);
        assert_eq!(after.node.check(), Ok(()), "{observation}");
        node = after.node;
    }
    node
}

#[test]
fn a_started_session_is_live_and_must_report() {
    let node = see(
        &starting().but(|node| node.retry.join_by = Some(at(NOW + 5))),
        &started(10),
    )
    .applied();
    assert_eq!(
        (node.stage, node.active_bootstrap),
        (Stage::BootstrapRunning, Some(session(10)))
    );
    assert_eq!(node.bootstrap.unwrap().session, session(10));
    assert_eq!(
        (node.retry.stall_at, node.retry.join_by),
        (Some(at(NOW + 300)), None)
    );
    // Where its stream came first, the result starts the clock all the same.
    let early = see_at(&starting(), &report(10, 1, lines(1)), at(NOW - 5), &policy()).applied();
    assert_eq!(early.retry.stall_at, Some(at(NOW + 295)));
    let node = see(&early, &started(10)).applied();
    assert_eq!(node.retry.stall_at, Some(at(NOW + 300)));
    // A session of another attempt is none of its own.
    let foreign = crate::id::BootstrapSessionId(OperationId {
        attempt: NodeAttemptId::new(8),
        sequence: 10,
    });
    let node = answer(&starting(), Outcome::BootstrapStarted(foreign)).applied();
    assert_eq!((node.active_bootstrap, node.stage), (None, Stage::EndpointKnown));
}

#[test]
fn a_start_of_what_is_to_go_is_known_and_moves_nothing_upward() {
    for node in [failed(starting()), deleting(starting())] {
        let after = see(&node, &started(10)).applied();
        assert_eq!(
            after.active_bootstrap,
            Some(session(10)),
            "it has to be cancelled"
        );
        assert_eq!((after.stage, after.ready), (node.stage, false));
        assert_eq!(after.retry.stall_at, None);
    }
}

#[test]
fn a_stage_or_a_line_moves_the_stall_on_until_the_join() {
    for event in [stage(BootstrapStage::BootChecking), lines(7)] {
        let old = running().but(|node| node.retry.stall_at = Some(at(NOW + 1)));
        let node = see(&old, &report(3, 5, event.clone())).applied();
        assert_eq!(node.retry.stall_at, Some(at(NOW + 300)));
        assert_eq!(node.bootstrap.unwrap().sequence, 5);
        let node = see(&joined_node(), &report(3, 5, event)).applied();
        assert_eq!(node.retry.stall_at, None);
    }
}

#[test]
fn sequence_numbers_only_rise() {
    for sequence in [0, 1, 4] {
        see(&running(), &report(3, sequence, lines(7))).stale();
        see(&running(), &report(3, sequence, broke())).stale();
    }
    let node = see(&running(), &report(3, 6, lines(7))).applied();
    see(&node, &report(3, 5, stage(BootstrapStage::BootChecking))).stale();
    let facts = node.bootstrap.unwrap();
    assert_eq!(
        (facts.stage, facts.stdout_lines),
        (BootstrapStage::WaitingForJoin, 7)
    );
}

#[test]
fn a_report_that_is_too_old_names_no_session() {
    // What is remembered is session 3, of which more is known already: the report says nothing new.
    let resumed = running().but(|node| {
        node.stage = Stage::EndpointKnown;
        node.active_bootstrap = None;
        node.retry.stall_at = None;
        node.retry.start = Some(remembered(3, Some(0)));
    });
    see(&resumed, &report(3, 4, lines(7))).stale();
    see(&unsure(), &report(10, 0, lines(7))).stale();
    let node = see(&resumed, &report(3, 5, lines(7))).applied();
    assert_eq!(node.active_bootstrap, Some(session(3)));
}

#[test]
fn a_join_that_was_overtaken_by_a_later_report_counts() {
    let node = see(&running(), &report(3, 2, joins("a"))).applied();
    assert_eq!(
        (node.stage, node.join.unwrap().agent),
        (Stage::Joined, agent("a"))
    );
    assert_eq!(node.bootstrap.unwrap().sequence, 4, "its number does not go back");
}

#[test]
fn a_stream_that_overtakes_the_start_names_the_session_and_the_start_changes_nothing_more() {
    for node in [starting(), unsure()] {
        let node = see(&node, &report(10, 1, stage(BootstrapStage::Connecting))).applied();
        assert_eq!(
            (node.stage, node.active_bootstrap),
            (Stage::BootstrapRunning, Some(session(10)))
        );
        assert_eq!(node.retry.start, None);
        assert_eq!(node.retry.stall_at, Some(at(NOW + 300)));
    }
    let node = see(&starting(), &report(10, 1, joins("a"))).applied();
    assert_eq!(node.stage, Stage::Joined);
    let node = see(&node, &started(10)).applied();
    assert_eq!(
        (node.stage, node.active_bootstrap),
        (Stage::Joined, Some(session(10)))
    );
    // What comes of the start is known by then: nothing is remembered, and nothing counted.
    let seen = see(&starting(), &report(10, 1, lines(1))).applied();
    let node = fails(&seen, EffectError::ambiguous("timeout")).applied();
    assert_eq!((node.retry.start.is_none(), node.retry.failures.len()), (true, 0));
    // Without a start that is pending or remembered nothing is named.
    see(&reachable(), &report(10, 1, lines(1))).stale();
    see(&dormant(), &report(10, 1, lines(1))).stale();
}

#[test]
fn a_start_whose_session_has_ended_already_only_clears_the_pending_operation() {
    let ended = fold_all(starting(), &[report(10, 1, StreamEvent::Closed)]);
    assert_eq!(ended.ended_bootstrap, Some(session(10)));
    assert_eq!(ended.retry.join_by, Some(at(NOW + 5)));
    let node = see(&ended, &started(10)).applied();
    assert_eq!(node, ended.clone().but(|node| node.pending = None));
    // Likewise the name of an older session, adopted.
    let node = see(&ended, &started(8)).applied();
    assert_eq!(node, ended.clone().but(|node| node.pending = None));
    // Nor is it remembered.
    let node = fails(&ended, EffectError::ambiguous("timeout")).applied();
    assert_eq!(node.retry.start, None);
    assert_eq!(node.retry.join_by, Some(at(NOW + 5)));
}

#[test]
fn of_two_sessions_the_later_counts() {
    let both = [report(8, 3, lines(8)), report(10, 1, lines(10))];
    for order in [[0, 1], [1, 0]] {
        let seen = order.map(|place: usize| both[place].clone());
        let node = fold_all(starting(), &seen);
        assert_eq!(node.active_bootstrap, Some(session(10)));
        let facts = node.bootstrap.clone().unwrap();
        assert_eq!((facts.session, facts.stdout_lines), (session(10), 10));
        // The end of the earlier one is not the end.
        see(&node, &report(8, 9, StreamEvent::Closed)).stale();
        see(&node, &report(8, 9, broke())).stale();
        // Nor does the start that names the earlier one go back.
        let node = see(&node, &started(8)).applied();
        assert_eq!(node.active_bootstrap, Some(session(10)));
    }
    // An older session than the one that ended is over as well.
    let ended = fold_all(starting(), &[report(10, 1, StreamEvent::Closed)]);
    see(&ended, &report(8, 9, lines(1))).stale();
}

#[test]
fn a_session_that_ends_before_the_join_gives_the_join_its_grace() {
    for event in [
        StreamEvent::Closed,
        StreamEvent::Converged,
        stage(BootstrapStage::Closed),
        stage(BootstrapStage::Converged),
    ] {
        let node = see(&running(), &report(3, 5, event)).applied();
        assert_eq!(
            (node.active_bootstrap, node.ended_bootstrap),
            (None, Some(session(3)))
        );
        assert_eq!(
            (node.retry.join_by, node.retry.stall_at),
            (Some(at(NOW + 5)), None)
        );
        assert_ne!(node.stage, Stage::Failed);
    }
}

#[test]
fn a_session_that_breaks_or_is_cancelled_by_somebody_else_before_the_join_fails_the_attempt() {
    let failures = [
        BootstrapStage::ConnectFailed,
        BootstrapStage::BootCheckFailed,
        BootstrapStage::StartFailed,
        BootstrapStage::JoinFailed,
        BootstrapStage::StreamFailed,
        BootstrapStage::Cancelled,
    ];
    let events = failures.into_iter().map(stage);
    for event in events.chain([broke(), StreamEvent::Cancelled]) {
        let node = see(&running(), &report(3, 5, event.clone())).applied();
        assert_eq!(node.stage, Stage::Failed, "{event:?}");
        assert_eq!(
            (node.active_bootstrap, node.ended_bootstrap),
            (None, Some(session(3)))
        );
        assert_eq!(node.retry.failed_attempts, 1);
        // In cleanup it is a fact.
        let node = see(&deleting(running()), &report(3, 5, event)).applied();
        assert_eq!(
            (node.stage, node.retry.failed_attempts),
            (Stage::BootstrapRunning, 0)
        );
        assert_eq!(node.active_bootstrap, None);
    }
}

#[test]
fn once_joined_nothing_that_befalls_the_session_fails_the_attempt() {
    let failures = [
        StreamEvent::Closed,
        StreamEvent::Converged,
        StreamEvent::Cancelled,
        broke(),
        stage(BootstrapStage::JoinFailed),
        stage(BootstrapStage::Cancelled),
        stage(BootstrapStage::Closed),
    ];
    for node in [
        joined_node(),
        busy(joined_node(), ObserveConvergence),
        handed_off(),
    ] {
        for event in failures.clone() {
            let after = see(&node, &report(3, 5, event)).applied();
            assert_eq!((after.stage, after.ready), (Stage::Dormant, true));
            assert_eq!(
                (after.active_bootstrap, after.ended_bootstrap),
                (None, Some(session(3)))
            );
            assert_eq!((after.failure, after.retry.ready_by), (None, None));
            assert_eq!(after.pending, node.pending);
        }
    }
}

#[test]
fn the_first_join_counts_and_needs_a_lease() {
    for observation in [
        Observation::Joined(agent("b")),
        Observation::Joined(agent("agent")),
    ] {
        see(&joined_node(), &observation).stale();
        see(&dormant(), &observation).stale();
        see(&fresh(), &observation).stale();
        see(&creating(), &observation).stale();
    }
    let node = see(&joined_node(), &report(3, 5, joins("b"))).applied();
    assert_eq!(node.join, Some(join()));
}

#[test]
fn a_join_counts_in_every_order() {
    let join = Observation::Joined(agent("a"));
    let after = |node: &ManagedNode| {
        let node = see(node, &join).applied();
        assert_eq!((node.retry.stall_at, node.retry.join_by), (None, None));
        (node.stage, node.ready)
    };
    // While a session is live or starting.
    assert_eq!(after(&running()), (Stage::Joined, false));
    assert_eq!(after(&starting()), (Stage::Joined, false));
    // Once it is over, or its start only remembered.
    assert_eq!(after(&over()), (Stage::Dormant, true));
    assert_eq!(after(&unsure()), (Stage::Dormant, true));
    // Before any start it is a fact that counts once the session lives.
    assert_eq!(after(&leased()), (Stage::LeaseCreated, false));
    assert_eq!(after(&reachable()), (Stage::EndpointKnown, false));
    let early = busy(see(&reachable(), &join).applied(), StartBootstrap);
    let node = see(&early, &started(10)).applied();
    assert_eq!((node.stage, node.retry.stall_at), (Stage::Joined, None));
    let node = see(&early, &report(10, 1, lines(1))).applied();
    assert_eq!(node.stage, Stage::Joined);
    // While the start of a session that has ended is pending.
    let ended = fold_all(starting(), &[report(10, 1, StreamEvent::Closed)]);
    assert_eq!(after(&ended), (Stage::Dormant, true));
    // What is to go takes the fact and moves nowhere.
    assert_eq!(after(&failed(running())), (Stage::Failed, false));
    assert_eq!(after(&deleting(running())), (Stage::BootstrapRunning, false));
}

#[test]
fn a_join_after_an_adopted_session_ended_is_handed_off_when_its_start_is_answered() {
    // The start of operation 10 adopts session 8, whose end and whose node's join are seen before it answers.
    let node = fold_all(
        starting(),
        &[
            report(8, 3, StreamEvent::Closed),
            Observation::Joined(agent("a")),
            started(8),
        ],
    );
    assert_eq!(
        (node.stage, node.ready, node.pending.is_none()),
        (Stage::Dormant, true, true)
    );
}

#[test]
fn a_join_that_an_unknown_session_of_the_attempt_reports_is_proof_all_the_same() {
    let node = see(&over(), &report(3, 9, joins("a"))).applied();
    assert_eq!((node.stage, node.ready), (Stage::Dormant, true));
    // Nothing else of it counts, and of another attempt nothing does.
    see(&over(), &report(3, 9, lines(1))).stale();
    let foreign = Observation::Stream(StreamObservation {
        session: crate::id::BootstrapSessionId(OperationId {
            attempt: NodeAttemptId::new(8),
            sequence: 3,
        }),
        sequence: 9,
        event: joins("a"),
    });
    see(&running(), &foreign).stale();
}

//! Sessions: a session is known by its attempt, whatever arrives first, its start's result or its stream.

use std::sync::Arc;

use crate::bootstrap::{StreamEvent, StreamObservation};
use crate::effect::CommandKind;
use crate::facts::{BootstrapFacts, BootstrapStage};
use crate::failure::Context;
use crate::id::BootstrapSessionId;
use crate::node::{ManagedNode, Stage};
use crate::observation::Folded;

/// Folds the success of a start.
pub(super) fn started(node: &mut ManagedNode, session: BootstrapSessionId, cx: &mut Context<'_>) {
    let over = node.ready
        || session.attempt() != node.attempt
        || node.ended_bootstrap >= Some(session)
        || node.active_bootstrap.is_some_and(|active| active > session);
    if !over {
        activate(node, session, cx);
        push_stall(node, cx);
    } else if node.join.is_some() && node.is_lively() && !node.ready && node.active_bootstrap.is_none() {
        // The join came while this start was still to be answered, and its session is over.
        node.hand_off(Stage::Dormant);
    }
}

/// Folds what a session reported.
pub(super) fn fold(node: &mut ManagedNode, seen: &StreamObservation, cx: &mut Context<'_>) -> Folded {
    let session = seen.session;
    if session.attempt() != node.attempt {
        return Folded::Stale;
    }
    // What is as old as what is known changes nothing, so it names no session either. A join that was overtaken
    // is proof all the same.
    let known = node.bootstrap.as_ref().filter(|facts| facts.session == session);
    if seen.sequence <= known.map_or(0, |facts| facts.sequence) {
        return match &seen.event {
            StreamEvent::Joined(agent) => super::joined(node, agent, cx),
            _ => Folded::Stale,
        };
    }
    if node.active_bootstrap != Some(session) {
        if !may_name(node, session) {
            // The join is proof whatever became of the session that saw it.
            return match &seen.event {
                StreamEvent::Joined(agent) => super::joined(node, agent, cx),
                _ => Folded::Stale,
            };
        }
        activate(node, session, cx);
    }
    let facts = node.bootstrap.get_or_insert_with(|| no_facts(session));
    facts.sequence = seen.sequence;
    let stage = match &seen.event {
        StreamEvent::Stage(stage) | StreamEvent::Failed { stage, .. } => Some(*stage),
        StreamEvent::Converged => Some(BootstrapStage::Converged),
        StreamEvent::Closed => Some(BootstrapStage::Closed),
        StreamEvent::Cancelled => Some(BootstrapStage::Cancelled),
        StreamEvent::Lines { .. } | StreamEvent::Joined(_) => None,
    };
    facts.stage = stage.unwrap_or(facts.stage);
    match (&seen.event, stage) {
        (StreamEvent::Lines { stdout, stderr }, _) => {
            facts.stdout_lines = facts.stdout_lines.max(*stdout);
            facts.stderr_lines = facts.stderr_lines.max(*stderr);
            push_stall(node, cx);
        }
        (StreamEvent::Joined(agent), _) => {
            let _ = super::joined(node, agent, cx);
        }
        (StreamEvent::Failed { stage, reason }, _) => {
            end(
                node,
                session,
                Some(format!("bootstrap: {stage}: {reason}").into()),
                cx,
            );
        }
        (_, Some(stage)) if stage.is_terminal() => end(node, session, fault(stage), cx),
        _ => push_stall(node, cx),
    }
    Folded::Applied
}

/// Whether a report of this session may make it the addressable one: while a start is pending or remembered,
/// any session of the attempt that has not ended and is not older than the one that is known.
fn may_name(node: &ManagedNode, session: BootstrapSessionId) -> bool {
    let starting = node
        .pending
        .as_ref()
        .is_some_and(|pending| pending.kind == CommandKind::StartBootstrap);
    (starting || node.retry.start.is_some())
        && node.ended_bootstrap.is_none_or(|ended| ended < session)
        && node.active_bootstrap.is_none_or(|active| active < session)
}

fn no_facts(session: BootstrapSessionId) -> BootstrapFacts {
    BootstrapFacts {
        session,
        stage: BootstrapStage::Connecting,
        sequence: 0,
        stdout_lines: 0,
        stderr_lines: 0,
    }
}

/// Makes a session the addressable one; whatever start was remembered is settled by it.
fn activate(node: &mut ManagedNode, session: BootstrapSessionId, cx: &mut Context<'_>) {
    if node.active_bootstrap == Some(session) {
        return;
    }
    node.active_bootstrap = Some(session);
    node.retry.start = None;
    if node
        .bootstrap
        .as_ref()
        .is_none_or(|facts| facts.session != session)
    {
        node.bootstrap = Some(no_facts(session));
    }
    if !node.is_lively() || node.ready {
        return;
    }
    node.retry.join_by = None;
    if node.join.is_some() {
        node.stage = Stage::Joined;
    } else {
        node.stage = Stage::BootstrapRunning;
        push_stall(node, cx);
    }
}

/// A session that reports is not hung. Once joined it need not report any more.
fn push_stall(node: &mut ManagedNode, cx: &mut Context<'_>) {
    if node.is_lively() && !node.ready && node.join.is_none() {
        node.retry.stall_at = Some(cx.after(cx.policy.stall_timeout));
    }
}

/// What is wrong with ending in this stage, if anything is.
fn fault(stage: BootstrapStage) -> Option<Arc<str>> {
    match stage {
        BootstrapStage::Cancelled => Some("its bootstrap session was cancelled by somebody else".into()),
        stage if stage.is_failure() => Some(format!("bootstrap: {stage}").into()),
        _ => None,
    }
}

/// Ends the session. For the attempt that means after the join the handoff; before it a failure if it ended
/// in a fault, else the join may still come another way for a while.
fn end(node: &mut ManagedNode, session: BootstrapSessionId, fault: Option<Arc<str>>, cx: &mut Context<'_>) {
    node.active_bootstrap = None;
    node.ended_bootstrap = Some(session);
    node.retry.stall_at = None;
    if !node.is_lively() {
        return;
    }
    if node.join.is_some() {
        node.hand_off(Stage::Dormant);
    } else if let Some(fault) = fault {
        node.fail(fault, cx);
    } else {
        node.retry.join_by = Some(cx.after(cx.policy.join_grace));
    }
}

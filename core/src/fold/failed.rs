//! The failure table: what each kind of failure of each command keeps, and what follows.

use std::sync::Arc;

use crate::effect::{CallEnd, CommandKind, EffectError, FailureKind};
use crate::failure::{Context, PaceSignal, throttle_wait};
use crate::id::BootstrapSessionId;
use crate::node::{ManagedNode, PendingOperation, RememberedCall, Stage};

/// Folds a failed call. A remembered ambiguity is never cleared here: a later failure says nothing about the
/// earlier call.
pub(super) fn failed(
    node: &mut ManagedNode,
    pending: &PendingOperation,
    error: &EffectError,
    end: CallEnd,
    cx: &mut Context<'_>,
) {
    if let FailureKind::Throttled { retry_after } = error.kind {
        let delay = throttle_wait(cx.policy, retry_after);
        let resume_at = cx.after(delay);
        cx.signal = Some(PaceSignal::Throttled {
            dispatched_at: pending.dispatched_at,
            resume_at,
        });
        node.retry.last_error = Some(error.reason.clone());
        if !comes_too_late(node, pending) {
            node.wait_unpunished(pending, delay, cx);
        }
        return;
    }
    if error.kind == FailureKind::Ambiguous {
        remember(node, pending, end);
    }
    if comes_too_late(node, pending) {
        return;
    }
    match pending.kind {
        CommandKind::CreateLease => create_failed(node, pending, error, cx),
        CommandKind::StartBootstrap => start_failed(node, pending, error, cx),
        kind => {
            node.retry.last_error = Some(error.reason.clone());
            if kind == CommandKind::CancelBootstrap {
                node.retry.failed_cancels = node.retry.failed_cancels.saturating_add(1);
            }
            if !pending.before_delete {
                node.count_and_back_off(kind, cx);
            }
        }
    }
}

/// Folds a submission that an executor would not take: nothing happened, and nobody is to blame.
pub(super) fn refused(
    node: &mut ManagedNode,
    pending: &PendingOperation,
    reason: &Arc<str>,
    cx: &mut Context<'_>,
) {
    node.retry.last_error = Some(reason.clone());
    if !comes_too_late(node, pending) {
        node.wait_unpunished(pending, cx.policy.initial_delay, cx);
    }
}

/// Says whether the failure no longer matters: once joined, nothing that befalls the session fails the
/// attempt, and on a ready node a late answer only clears the pending operation. A start that failed after
/// the join ends in the handoff, which is recorded here.
fn comes_too_late(node: &mut ManagedNode, pending: &PendingOperation) -> bool {
    if node.ready {
        return matches!(
            pending.kind,
            CommandKind::StartBootstrap | CommandKind::ObserveConvergence
        );
    }
    let joined = node.join.is_some() && pending.kind == CommandKind::StartBootstrap && node.is_lively();
    if joined && node.active_bootstrap.is_none() {
        node.hand_off(Stage::Dormant);
    }
    joined
}

/// Remembers a create or start that may have had an effect; of anything else nothing is remembered.
fn remember(node: &mut ManagedNode, pending: &PendingOperation, end: CallEnd) {
    let ended = match end {
        CallEnd::At(at) => Some(at),
        CallEnd::Unknown => None,
    };
    let call = RememberedCall {
        operation: pending.id,
        ended,
    };
    let session = Some(BootstrapSessionId(pending.id));
    match pending.kind {
        CommandKind::CreateLease => node.retry.create = Some(call),
        // A session that was seen is known: there is nothing to remember.
        CommandKind::StartBootstrap if session == node.ended_bootstrap => {}
        CommandKind::StartBootstrap if node.active_bootstrap.is_some() => {}
        CommandKind::StartBootstrap => node.retry.start = Some(call),
        _ => {}
    }
}

fn create_failed(
    node: &mut ManagedNode,
    pending: &PendingOperation,
    error: &EffectError,
    cx: &mut Context<'_>,
) {
    node.retry.last_error = Some(error.reason.clone());
    if !node.is_lively() || pending.before_delete {
        return;
    }
    match error.kind {
        FailureKind::Definite => node.count_and_back_off(CommandKind::CreateLease, cx),
        FailureKind::Fatal => node.halt(error.reason.clone()),
        // The look-up that follows says whether it failed.
        FailureKind::Ambiguous | FailureKind::Throttled { .. } => {}
    }
}

fn start_failed(
    node: &mut ManagedNode,
    pending: &PendingOperation,
    error: &EffectError,
    cx: &mut Context<'_>,
) {
    node.retry.last_error = Some(error.reason.clone());
    if !node.is_lively() {
        return;
    }
    match error.kind {
        FailureKind::Definite => node.fail(error.reason.clone(), cx),
        FailureKind::Fatal => {
            node.fail(error.reason.clone(), cx);
            node.halt(error.reason.clone());
        }
        // The session was seen, so the start worked, whatever its caller heard.
        FailureKind::Ambiguous
            if node.active_bootstrap.is_some()
                || node.ended_bootstrap == Some(BootstrapSessionId(pending.id)) => {}
        FailureKind::Ambiguous | FailureKind::Throttled { .. } => {
            node.count_and_back_off(CommandKind::StartBootstrap, cx);
        }
    }
}

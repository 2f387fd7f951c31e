//! Folding: an observation becomes facts of one node, and emits no effect.
//!
//! Every function here is total: whatever is observed in whatever state leaves a state that holds the
//! invariants. A node that is being deleted or has failed may gain facts, but never moves upward.

mod failed;
mod stream;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::decide::net;
use crate::effect::{CallEnd, CommandKind, Destroyed, Outcome};
use crate::facts::{AgentId, CreatedLease, Endpoint, JoinFacts};
use crate::failure::{Context, PaceSignal};
use crate::id::{BootstrapSessionId, OperationId};
use crate::node::{Failure, Halt, ManagedNode, PendingOperation, Stage, UnendedCall};
use crate::observation::{Folded, Observation};

/// Folds one observation into the node that it speaks of.
pub(crate) fn fold(node: &mut ManagedNode, observation: &Observation, cx: &mut Context<'_>) -> Folded {
    if node.stage == Stage::Destroyed {
        return destroyed(node, observation);
    }
    match observation {
        Observation::Finished {
            operation,
            outcome,
            end,
        } => finished(node, *operation, outcome, *end, cx),
        Observation::Refused { operation, reason } => match take_pending(node, *operation) {
            Some(pending) => {
                failed::refused(node, &pending, reason, cx);
                Folded::Applied
            }
            None => Folded::Stale,
        },
        Observation::CallEnded { operation, at } => call_ended(node, *operation, *at),
        Observation::Stream(stream) => stream::fold(node, stream, cx),
        Observation::Joined(agent) => joined(node, agent, cx),
        Observation::HandedOff => {
            let may = node.is_lively() && !node.ready && node.join.is_some();
            if !may || node.lease.is_none() || node.endpoint.is_none() {
                return Folded::Stale;
            }
            node.hand_off(Stage::HandedOff);
            Folded::Applied
        }
        Observation::EndpointMoved(endpoint) => moved(node, endpoint, cx),
        Observation::NodeLost { reason } if node.is_lively() => {
            node.fail(reason.clone(), cx);
            Folded::Applied
        }
        Observation::NodeLost { .. } => Folded::Stale,
    }
}

/// A destroyed attempt takes no facts: a resource that turns up now is an orphan.
fn destroyed(node: &ManagedNode, observation: &Observation) -> Folded {
    match observation {
        Observation::Finished {
            operation, outcome, ..
        } if operation.attempt == node.attempt && found_lease(outcome).is_some() => Folded::Orphaned,
        _ => Folded::Stale,
    }
}

/// The lease that an outcome shows.
pub(crate) fn found_lease(outcome: &Outcome) -> Option<&CreatedLease> {
    match outcome {
        Outcome::LeaseCreated(created) | Outcome::LeaseFound(Some(created)) => Some(created),
        _ => None,
    }
}

/// Whether an outcome answers a command of this kind.
pub(crate) fn answers(outcome: &Outcome, kind: CommandKind) -> bool {
    match outcome {
        Outcome::LeaseCreated(_) => kind == CommandKind::CreateLease,
        Outcome::LeaseFound(_) => kind == CommandKind::FindLease,
        Outcome::EndpointFound(_) => kind == CommandKind::LookupEndpoint,
        Outcome::BootstrapStarted(_) => kind == CommandKind::StartBootstrap,
        Outcome::ConvergenceAccepted => kind == CommandKind::ObserveConvergence,
        Outcome::BootstrapCancelled => kind == CommandKind::CancelBootstrap,
        Outcome::LeaseDestroyed(_) => kind == CommandKind::DestroyLease,
        Outcome::Failed(_) => true,
    }
}

fn take_pending(node: &mut ManagedNode, operation: OperationId) -> Option<PendingOperation> {
    node.pending.take_if(|pending| pending.id == operation)
}

fn finished(
    node: &mut ManagedNode,
    operation: OperationId,
    outcome: &Outcome,
    end: CallEnd,
    cx: &mut Context<'_>,
) -> Folded {
    let matches = |pending: &PendingOperation| pending.id == operation && answers(outcome, pending.kind);
    let Some(pending) = node.pending.take_if(|pending| matches(pending)) else {
        return Folded::Stale;
    };
    if end == CallEnd::Unknown {
        node.unended = Some(UnendedCall {
            operation,
            kind: pending.kind,
        });
    }
    if let Outcome::Failed(error) = outcome {
        failed::failed(node, &pending, error, end, cx);
        return Folded::Applied;
    }
    cx.signal = Some(PaceSignal::Succeeded);
    node.retry.next_effect_at = None;
    node.retry.failures.remove(&pending.kind);
    match outcome {
        Outcome::LeaseCreated(created) | Outcome::LeaseFound(Some(created)) => {
            lease_known(node, created, cx);
        }
        Outcome::LeaseFound(None) => lease_absent(node, &pending, cx),
        Outcome::EndpointFound(Some(endpoint)) => endpoint_known(node, endpoint, cx),
        Outcome::EndpointFound(None) | Outcome::LeaseDestroyed(Destroyed::Going) => {
            node.wait(&pending, cx.policy.probe_interval, cx);
        }
        Outcome::BootstrapStarted(session) => stream::started(node, *session, cx),
        Outcome::ConvergenceAccepted => {
            if node.is_lively() && !node.ready {
                node.hand_off(Stage::Dormant);
            }
        }
        Outcome::BootstrapCancelled => {
            let started = node
                .retry
                .start
                .take()
                .map(|call| BootstrapSessionId(call.operation));
            node.ended_bootstrap = node.active_bootstrap.take().or(started).or(node.ended_bootstrap);
        }
        Outcome::LeaseDestroyed(Destroyed::Gone) => {
            node.lease = None;
            node.endpoint = None;
            node.retry.start = None;
            node.ended_bootstrap = node.active_bootstrap.take().or(node.ended_bootstrap);
            node.lease_changed = cx.pass;
            node.missing_since = None;
        }
        Outcome::Failed(_) => {}
    }
    Folded::Applied
}

/// A lease was created or found: it is recorded whatever the node's state, so that it can be destroyed.
fn lease_known(node: &mut ManagedNode, created: &CreatedLease, cx: &mut Context<'_>) {
    node.retry.create = None;
    node.lease = Some(Arc::new(created.lease.clone()));
    node.lease_changed = cx.pass;
    node.missing_since = None;
    if let Some(endpoint) = &created.endpoint {
        node.endpoint = Some(endpoint.clone());
    }
    if !node.is_lively() {
        return;
    }
    node.retry.halted = None;
    node.stage = if node.endpoint.is_some() {
        Stage::EndpointKnown
    } else {
        Stage::LeaseCreated
    };
    node.retry.ready_by = Some(cx.after(cx.policy.startup_timeout));
    let made_from = node.spec.as_ref().map(|spec| spec.digest());
    if created.lease.template.is_some() && created.lease.template != made_from {
        node.fail(
            "the provider answered with a machine made from another template".into(),
            cx,
        );
    }
}

/// A look found nothing. That counts only if it was asked when the create could no longer come through.
fn lease_absent(node: &mut ManagedNode, pending: &PendingOperation, cx: &mut Context<'_>) {
    let ended = node.retry.create.as_ref().and_then(|call| call.ended);
    let visible = ended.map(|ended| cx.from(ended, cx.visibility));
    if visible.is_some_and(|visible| pending.dispatched_at >= visible) {
        node.retry.create = None;
        if node.is_lively() {
            node.count_and_back_off(CommandKind::CreateLease, cx);
        }
    } else {
        node.wait(pending, cx.policy.probe_interval, cx);
    }
}

fn endpoint_known(node: &mut ManagedNode, endpoint: &Endpoint, cx: &Context<'_>) {
    node.endpoint = Some(endpoint.clone());
    // An inventory that was asked for before this may show an older one.
    node.lease_changed = cx.pass;
    if node.is_lively() && node.stage < Stage::EndpointKnown {
        node.stage = Stage::EndpointKnown;
    }
}

/// The machine is reached another way than it was. Whoever boots it there is on the wrong way; an agent that
/// joined has its own.
fn moved(node: &mut ManagedNode, endpoint: &Endpoint, cx: &mut Context<'_>) -> Folded {
    let known = node.endpoint.as_ref();
    if node.lease.is_none() || known.is_none_or(|known| known == endpoint) {
        return Folded::Stale;
    }
    node.endpoint = Some(endpoint.clone());
    node.lease_changed = cx.pass;
    if node.join.is_none() {
        node.fail(
            format!("its machine moved to {endpoint} before its agent joined").into(),
            cx,
        );
    }
    Folded::Applied
}

fn call_ended(node: &mut ManagedNode, operation: OperationId, at: Timestamp) -> Folded {
    if node.unended.take_if(|call| call.operation == operation).is_none() {
        return Folded::Stale;
    }
    for memory in [&mut node.retry.create, &mut node.retry.start] {
        if let Some(call) = memory.as_mut().filter(|call| call.operation == operation) {
            call.ended = Some(at);
        }
    }
    Folded::Applied
}

/// The node's agent joined, whoever saw it. The first join counts.
fn joined(node: &mut ManagedNode, agent: &AgentId, cx: &mut Context<'_>) -> Folded {
    if node.lease.is_none() || node.join.is_some() {
        return Folded::Stale;
    }
    node.join = Some(JoinFacts {
        agent: agent.clone(),
        at: cx.now,
    });
    node.retry.stall_at = None;
    node.retry.join_by = None;
    if node.is_lively() && !node.ready {
        if node.active_bootstrap.is_some() || node.is_starting() {
            node.stage = Stage::Joined;
        } else if node.ended_bootstrap.is_some() || node.retry.start.is_some() {
            node.hand_off(Stage::Dormant);
        }
    }
    Folded::Applied
}

impl ManagedNode {
    /// Whether it may still become or stay ready.
    pub(crate) fn is_lively(&self) -> bool {
        self.is_active() && self.stage != Stage::Failed && self.stage != Stage::Destroyed
    }

    /// Whether a start is pending whose session has not been seen to end.
    fn is_starting(&self) -> bool {
        self.pending.as_ref().is_some_and(|pending| {
            pending.kind == CommandKind::StartBootstrap
                && self.ended_bootstrap != Some(BootstrapSessionId(pending.id))
        })
    }

    /// Ends the attempt by a failure; cleanup follows. One death counts once.
    pub(crate) fn fail(&mut self, reason: Arc<str>, cx: &mut Context<'_>) {
        if !self.is_lively() {
            return;
        }
        self.stage = Stage::Failed;
        self.ready = false;
        self.retry.last_error = Some(reason.clone());
        self.failure = Some(Failure { reason, at: cx.now });
        self.retry.failed_attempts = self.retry.failed_attempts.saturating_add(1);
        self.retry.restart_at = Some(cx.backoff(self.attempt, self.retry.failed_attempts));
        if cx
            .policy
            .attempt_limit
            .is_some_and(|limit| self.retry.failed_attempts >= limit.get())
        {
            let count = self.retry.failed_attempts;
            self.halt(format!("{count} attempts in a row failed").into());
        }
    }

    /// Stops trying the slot until its spec changes or somebody asks.
    fn halt(&mut self, reason: Arc<str>) {
        let spec = self.spec.as_ref().map(|spec| spec.digest());
        self.retry.halted = Some(Halt { spec, reason });
    }

    /// Records the handoff: the node is the application's, and ready.
    pub(crate) fn hand_off(&mut self, stage: Stage) {
        self.stage = stage;
        self.ready = true;
        if stage == Stage::Dormant {
            self.ended_bootstrap = self.active_bootstrap.take().or(self.ended_bootstrap);
        }
        let retry = &mut self.retry;
        retry.failures.clear();
        retry.failed_attempts = 0;
        retry.failed_cancels = 0;
        retry.next_effect_at = None;
        retry.restart_at = None;
        retry.last_error = None;
        self.clear_startup();
    }

    /// Forgets the moments by which the attempt had to get on.
    pub(crate) fn clear_startup(&mut self) {
        self.retry.ready_by = None;
        self.retry.stall_at = None;
        self.retry.join_by = None;
    }

    /// Waits before the next effect, unless what is folded began before the attempt began to be deleted.
    fn wait(&mut self, pending: &PendingOperation, delay: Duration, cx: &mut Context<'_>) {
        if !pending.before_delete {
            self.retry.next_effect_at = Some(cx.after(delay));
        }
    }

    /// Waits without losing time for getting ready: the wait is not the node's fault.
    fn wait_unpunished(&mut self, pending: &PendingOperation, delay: Duration, cx: &mut Context<'_>) {
        self.wait(pending, delay, cx);
        if let Some(ready_by) = self.retry.ready_by {
            // The net may hold the command for longer than was asked for.
            let net = cx.from(pending.dispatched_at, net(cx.policy, pending.kind));
            let held = Duration::try_from(net.duration_since(cx.now)).unwrap_or_default();
            self.retry.ready_by = Some(cx.from(ready_by, delay.max(held)));
        }
    }

    fn count_and_back_off(&mut self, kind: CommandKind, cx: &mut Context<'_>) {
        let failures = self.retry.count(kind);
        self.retry.next_effect_at = Some(cx.backoff(self.attempt, failures));
    }
}

#[cfg(test)]
mod tests;

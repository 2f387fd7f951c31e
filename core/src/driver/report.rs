//! What the driver tells of what it did and learned.

use std::sync::Arc;

use jiff::Timestamp;

use super::ClusterDriver;
use crate::effect::{CommandKind, Outcome};
use crate::event::{Event, EventKind};
use crate::failure::{NodeError, NodeFault};
use crate::id::OperationId;
use crate::node::{ManagedNode, Stage};
use crate::observation::Observation;
use crate::pace::Who;
use crate::state::{ClusterState, Slot};

/// What of a node is compared to tell what a change of it means.
#[derive(Debug, Clone, Copy)]
pub(super) struct Glimpse {
    stage: Stage,
    ready: bool,
    next_effect_at: Option<Timestamp>,
    halted: bool,
    pending: Option<CommandKind>,
}

impl Glimpse {
    pub(super) fn of(node: &ManagedNode) -> Self {
        Self {
            stage: node.stage,
            ready: node.ready,
            next_effect_at: node.retry.next_effect_at,
            halted: node.retry.halted.is_some(),
            pending: node.pending.as_ref().map(|pending| pending.kind),
        }
    }
}

/// The operation that an observation answers, and what failed.
pub(super) fn answer(observation: &Observation) -> Option<(OperationId, Option<Arc<str>>)> {
    match observation {
        Observation::Finished {
            operation,
            outcome: Outcome::Failed(error),
            ..
        } => Some((*operation, Some(error.reason.clone()))),
        Observation::Finished { operation, .. } => Some((*operation, None)),
        Observation::Refused { operation, reason } => Some((*operation, Some(reason.clone()))),
        _ => None,
    }
}

impl ClusterDriver {
    pub(super) fn event(&mut self, at: Timestamp, kind: EventKind) {
        self.events.push(Event { at, kind });
    }

    /// Tells what a change of a node means.
    pub(super) fn report_change(
        &mut self,
        slot: Slot,
        before: &Glimpse,
        because: Option<&Observation>,
        now: Timestamp,
    ) {
        let Self { state, events, .. } = self;
        let Some(found) = state.nodes.at(slot) else {
            return;
        };
        let after = Glimpse::of(found);
        let (attempt, retry) = (found.attempt, &found.retry);
        let node = || state.nodes.id(slot);
        let mut tell = |kind| events.push(Event { at: now, kind });
        if let Some((operation, error)) = because.and_then(answer) {
            let command = before.pending.unwrap_or(CommandKind::DestroyLease);
            tell(EventKind::Finished {
                node: node(),
                operation,
                command,
                error,
            });
        }
        if after.stage != before.stage || after.ready != before.ready {
            let (stage, ready) = (after.stage, after.ready);
            match &found.failure {
                Some(failure) if stage == Stage::Failed => {
                    let (reason, restart_at) = (failure.reason.clone(), retry.restart_at);
                    tell(EventKind::AttemptFailed {
                        node: node(),
                        attempt,
                        reason,
                        lost: matches!(because, Some(Observation::NodeLost { .. })),
                        restart_at,
                    });
                }
                _ => tell(EventKind::StageReached {
                    node: node(),
                    attempt,
                    stage,
                    ready,
                }),
            }
        }
        if let Some(halt) = retry.halted.as_ref().filter(|_| !before.halted) {
            tell(EventKind::Halted {
                node: node(),
                attempt,
                reason: halt.reason.clone(),
            });
        }
        let waits_anew = after.next_effect_at != before.next_effect_at;
        if let Some(retry_at) = after.next_effect_at.filter(|_| waits_anew) {
            tell(EventKind::RetryScheduled {
                node: node(),
                attempt,
                retry_at,
            });
        }
    }

    /// Tells of a node or orphan that cannot go on, once.
    pub(super) fn report_fault(&mut self, who: &Who, fault: NodeFault, now: Timestamp) {
        let ClusterState { nodes, orphans, .. } = &mut self.state;
        let found = match who {
            Who::Node(slot) => {
                let id = nodes.id(*slot);
                nodes
                    .at_mut(*slot)
                    .map(|node| (id, node.attempt, &mut node.retry.last_error))
            }
            Who::Orphan(key) => {
                let orphan = orphans.get_mut(&**key);
                orphan.map(|orphan| (key.node.clone(), key.attempt, &mut orphan.last_error))
            }
        };
        let Some((node, attempt, last_error)) = found else {
            return;
        };
        let text = fault.to_string();
        if last_error.as_deref() == Some(&text) {
            return;
        }
        *last_error = Some(text.as_str().into());
        self.index.errors.push(NodeError {
            node: node.clone(),
            attempt,
            fault,
        });
        let fault = text;
        self.event(now, EventKind::NodeFaulty { node, attempt, fault });
    }
}

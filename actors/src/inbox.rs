//! The inbox: what executors, sessions and watches report, coalesced into few messages.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use jiff::Timestamp;
use nodewright_core::effect::{EffectError, EffectResult, Inventory, NodeLoss, StreamReport};
use nodewright_core::id::{LogicalNodeId, NodeAttemptId, ProviderKind};
use nodewright_core::node::PassId;
use nodewright_core::observation::Observation;
use ractor::ActorRef;

use crate::supervisor::SupervisorMessage;

/// Something to fold.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// Something about a node.
    Node(LogicalNodeId, NodeAttemptId, Observation),
    /// A provider's answer to a look.
    Look {
        provider: ProviderKind,
        asked: PassId,
        asked_at: Timestamp,
        answer: Result<Inventory, EffectError>,
    },
}

impl From<EffectResult> for Incoming {
    fn from(result: EffectResult) -> Self {
        let EffectResult {
            node,
            operation,
            outcome,
            end,
        } = result;
        Self::Node(
            node,
            operation.attempt,
            Observation::Finished {
                operation,
                outcome,
                end,
            },
        )
    }
}

impl From<StreamReport> for Incoming {
    fn from(report: StreamReport) -> Self {
        Self::Node(
            report.node,
            report.attempt,
            Observation::Stream(report.observation),
        )
    }
}

impl From<NodeLoss> for Incoming {
    fn from(loss: NodeLoss) -> Self {
        Self::Node(
            loss.node,
            loss.attempt,
            Observation::NodeLost { reason: loss.reason },
        )
    }
}

/// Collects what is to be folded. The supervisor is sent one message when the inbox turns from empty to
/// filled, however many reports follow.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    waiting: Mutex<Vec<Incoming>>,
    supervisor: OnceLock<ActorRef<SupervisorMessage>>,
}

impl Inbox {
    /// Says whose inbox it is, once. What came before is waiting for its owner.
    pub(crate) fn belongs_to(&self, supervisor: ActorRef<SupervisorMessage>) {
        let _ = self.supervisor.set(supervisor);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Incoming>> {
        // Nothing that holds the lock can leave the list half-changed.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, incoming: impl Into<Incoming>) {
        let mut waiting = self.lock();
        waiting.push(incoming.into());
        if waiting.len() == 1
            && let Some(supervisor) = self.supervisor.get()
        {
            // A supervisor that is gone folds nothing any more.
            let _ = supervisor.cast(SupervisorMessage::Wake);
        }
    }

    pub(crate) fn take(&self) -> Vec<Incoming> {
        std::mem::take(&mut *self.lock())
    }
}

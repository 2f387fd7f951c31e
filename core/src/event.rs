//! Events: what the driver did and learned, with the ids that name it, for people and programs to follow.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::decide::DeleteReason;
use crate::effect::CommandKind;
use crate::facts::{Endpoint, LeaseId};
use crate::id::{LogicalNodeId, NodeAttemptId, OperationId, ProviderKind};
use crate::inventory::Findings;
use crate::node::Stage;
use crate::shape::Generation;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Event {
    /// When.
    pub at: Timestamp,
    /// What.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum EventKind {
    /// A shape was accepted.
    ShapeAccepted {
        /// Its generation.
        generation: Generation,
        /// How many nodes it wants.
        nodes: u64,
    },
    /// A slot got its first attempt.
    Inserted {
        /// The slot.
        node: LogicalNodeId,
        /// The attempt.
        attempt: NodeAttemptId,
    },
    /// A slot got a fresh attempt.
    Restarted {
        /// The slot.
        node: LogicalNodeId,
        /// The attempt that is over.
        from: NodeAttemptId,
        /// The fresh one.
        attempt: NodeAttemptId,
    },
    /// An attempt reached a stage.
    StageReached {
        /// The slot.
        node: LogicalNodeId,
        /// The attempt.
        attempt: NodeAttemptId,
        /// The stage.
        stage: Stage,
        /// Whether it is ready with that.
        ready: bool,
    },
    /// An operation was recorded and handed to its provider's executor.
    Dispatched {
        /// The slot.
        node: LogicalNodeId,
        /// The operation; its attempt is the one acted for.
        operation: OperationId,
        /// What it does.
        command: CommandKind,
    },
    /// An operation was answered.
    Finished {
        /// The slot.
        node: LogicalNodeId,
        /// The operation.
        operation: OperationId,
        /// What it did.
        command: CommandKind,
        /// What failed, if it did.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<Arc<str>>,
    },
    /// An attempt failed.
    AttemptFailed {
        /// The slot.
        node: LogicalNodeId,
        /// The attempt.
        attempt: NodeAttemptId,
        /// Why.
        reason: Arc<str>,
        /// Whether its machine was lost: somebody told so, or a sweep found it dead or gone.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        lost: bool,
        /// When the slot may be tried again.
        #[serde(skip_serializing_if = "Option::is_none")]
        restart_at: Option<Timestamp>,
    },
    /// Something is tried again after a wait.
    RetryScheduled {
        /// The slot.
        node: LogicalNodeId,
        /// The attempt.
        attempt: NodeAttemptId,
        /// When.
        retry_at: Timestamp,
    },
    /// An attempt is being taken down.
    DeleteBegan {
        /// The slot.
        node: LogicalNodeId,
        /// The attempt.
        attempt: NodeAttemptId,
        /// Why.
        reason: DeleteReason,
    },
    /// A slot is not tried again until its spec changes or somebody asks.
    Halted {
        /// The slot.
        node: LogicalNodeId,
        /// The attempt.
        attempt: NodeAttemptId,
        /// Why.
        reason: Arc<str>,
    },
    /// A slot is gone with its last attempt.
    Reaped {
        /// The slot.
        node: LogicalNodeId,
        /// The attempt.
        attempt: NodeAttemptId,
    },
    /// An observation spoke of what is no longer so; it changed nothing.
    Stale {
        /// The slot.
        node: LogicalNodeId,
        /// The attempt that it spoke of.
        attempt: NodeAttemptId,
        /// What it was.
        observation: String,
    },
    /// A node cannot go on; only it is concerned.
    NodeFaulty {
        /// The slot.
        node: LogicalNodeId,
        /// The attempt.
        attempt: NodeAttemptId,
        /// Why.
        fault: String,
    },
    /// A first look found a machine of this run that nobody knew of; it is ended before its slot is filled.
    MachineFound {
        /// The slot.
        node: LogicalNodeId,
        /// The attempt.
        attempt: NodeAttemptId,
        /// The provider's name for it.
        lease: LeaseId,
    },
    /// A resource that no node owns was found; it is destroyed, a surplus once its attempt is over.
    OrphanFound {
        /// The slot that it was made for.
        node: LogicalNodeId,
        /// The attempt that it was made for.
        attempt: NodeAttemptId,
        /// The provider's name for it.
        lease: LeaseId,
        /// Whether it is a second resource of a current attempt.
        #[serde(default)]
        surplus: bool,
    },
    /// An orphan is gone.
    OrphanGone {
        /// The slot that it was made for.
        node: LogicalNodeId,
        /// The attempt that it was made for.
        attempt: NodeAttemptId,
        /// The provider's name for it.
        lease: LeaseId,
    },
    /// A provider's first look was answered, or failed.
    Looked {
        /// The provider.
        provider: ProviderKind,
        /// How many resources of this run it showed.
        found: usize,
        /// Whether it is done.
        done: bool,
        /// What failed, if it did.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<Arc<str>>,
    },
    /// A provider showed another endpoint for a machine than the one that was known.
    MachineMoved {
        /// The slot.
        node: LogicalNodeId,
        /// The attempt.
        attempt: NodeAttemptId,
        /// Where it is now.
        endpoint: Endpoint,
    },
    /// A provider was asked for its inventory after its first look: it was answered, or failed.
    Swept {
        /// The provider.
        provider: ProviderKind,
        /// What the answer showed; nothing is concluded from a failure.
        findings: Findings,
        /// What failed, if it did.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<Arc<str>>,
    },
    /// No attempt is left to allocate: nothing is inserted or restarted any more.
    AttemptsExhausted,
}

impl EventKind {
    /// The slot that it speaks of, if it speaks of one.
    pub fn node(&self) -> Option<&LogicalNodeId> {
        match self {
            Self::Inserted { node, .. }
            | Self::Restarted { node, .. }
            | Self::StageReached { node, .. }
            | Self::Dispatched { node, .. }
            | Self::Finished { node, .. }
            | Self::AttemptFailed { node, .. }
            | Self::RetryScheduled { node, .. }
            | Self::DeleteBegan { node, .. }
            | Self::Halted { node, .. }
            | Self::Reaped { node, .. }
            | Self::Stale { node, .. }
            | Self::NodeFaulty { node, .. }
            | Self::MachineFound { node, .. }
            | Self::OrphanFound { node, .. }
            | Self::OrphanGone { node, .. }
            | Self::MachineMoved { node, .. } => Some(node),
            Self::ShapeAccepted { .. }
            | Self::Looked { .. }
            | Self::Swept { .. }
            | Self::AttemptsExhausted => None,
        }
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ShapeAccepted { generation, nodes } => {
                write!(f, "generation {generation} accepted: {nodes} nodes")
            }
            Self::Inserted { node, attempt } => write!(f, "{node}: attempt {attempt} begins"),
            Self::Restarted { node, from, attempt } => {
                write!(f, "{node}: attempt {attempt} begins in place of {from}")
            }
            Self::StageReached {
                node,
                attempt,
                stage,
                ready,
            } => {
                write!(
                    f,
                    "{node}: attempt {attempt} is {stage}{}",
                    if *ready { ", ready" } else { "" }
                )
            }
            Self::Dispatched {
                node,
                operation,
                command,
            } => {
                write!(f, "{node}: {command} sent as {operation}")
            }
            Self::Finished {
                node,
                operation,
                command,
                error: None,
            } => {
                write!(f, "{node}: {command} {operation} done")
            }
            Self::Finished {
                node,
                operation,
                command,
                error: Some(error),
            } => {
                write!(f, "{node}: {command} {operation} failed: {error}")
            }
            Self::AttemptFailed {
                node,
                attempt,
                reason,
                ..
            } => {
                write!(f, "{node}: attempt {attempt} failed: {reason}")
            }
            Self::RetryScheduled {
                node,
                attempt,
                retry_at,
            } => {
                write!(f, "{node}: attempt {attempt} goes on at {retry_at}")
            }
            Self::DeleteBegan {
                node,
                attempt,
                reason,
            } => {
                write!(f, "{node}: attempt {attempt} is taken down: {reason}")
            }
            Self::Halted {
                node,
                attempt,
                reason,
            } => {
                write!(
                    f,
                    "{node}: halted at attempt {attempt}: {reason}; change its spec or ask for a retry"
                )
            }
            Self::Reaped { node, attempt } => write!(f, "{node}: gone with attempt {attempt}"),
            Self::Stale {
                node,
                attempt,
                observation,
            } => {
                write!(f, "{node}: stale for attempt {attempt}: {observation}")
            }
            Self::NodeFaulty { node, attempt, fault } => write!(f, "{node}: attempt {attempt}: {fault}"),
            Self::MachineFound { node, attempt, lease } => {
                write!(f, "{node}: found {lease} of attempt {attempt}; it is ended first")
            }
            Self::OrphanFound {
                node,
                attempt,
                lease,
                surplus,
            } => {
                write!(f, "{node}: found {lease} of attempt {attempt}, which ")?;
                f.write_str(if *surplus {
                    "has another one; it is ended with its attempt"
                } else {
                    "no node owns; it is ended"
                })
            }
            Self::OrphanGone { node, attempt, lease } => {
                write!(f, "{node}: {lease} of attempt {attempt} is gone")
            }
            Self::Looked {
                provider,
                error: Some(error),
                ..
            } => {
                write!(f, "first look at {provider} failed: {error}")
            }
            Self::Looked {
                provider,
                found,
                done,
                error: None,
            } => {
                write!(
                    f,
                    "looked at {provider}: {found} found{}",
                    if *done { ", done" } else { "" }
                )
            }
            Self::MachineMoved {
                node,
                attempt,
                endpoint,
            } => {
                write!(f, "{node}: the machine of attempt {attempt} moved to {endpoint}")
            }
            Self::Swept {
                provider,
                error: Some(error),
                ..
            } => {
                write!(f, "sweep of {provider} failed: {error}")
            }
            Self::Swept {
                provider,
                findings,
                error: None,
            } => {
                write!(f, "swept {provider}: {findings}")
            }
            Self::AttemptsExhausted => f.write_str("no attempt id is left: nothing new is started"),
        }
    }
}

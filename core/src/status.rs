//! What people see: how a node is, and why it waits.

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::decide::{Decision, WaitReason};
use crate::facts::{AgentId, BootstrapStage, Endpoint, LeaseId};
use crate::id::{LogicalNodeId, NodeAttemptId, ProviderKind};
use crate::node::{Intent, ManagedNode, Stage};
use crate::shape::Generation;

/// Why a node does what it does.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// Nothing to do, and nothing to wait for.
    Settled,
    /// The next pass does something for it.
    Acting,
    /// It waits.
    WaitingFor {
        /// For what.
        reason: WaitReason,
        /// Until when at the latest, if that is known.
        until: Option<Timestamp>,
    },
    /// It is not tried again until its spec changes or somebody asks.
    Halted {
        /// Why.
        reason: Arc<str>,
    },
    /// Something about it cannot go on.
    Faulty {
        /// What.
        fault: String,
    },
}

impl Why {
    pub(crate) fn new(decision: Decision, node: Option<&ManagedNode>) -> Self {
        let waiting_since = node.and_then(|node| node.retry.waiting_since);
        match decision {
            Decision::Settled => Self::Settled,
            Decision::Dispatch(kind) if waiting_since.is_some() => Self::WaitingFor {
                reason: WaitReason::Pace(kind),
                until: None,
            },
            Decision::Dispatch(_) | Decision::Step(_) => Self::Acting,
            Decision::Wait { on, until } => Self::WaitingFor { reason: on, until },
            Decision::Halted { .. } => {
                let halt = node.and_then(|node| node.retry.halted.as_ref());
                Self::Halted {
                    reason: halt.map_or_else(|| "halted".into(), |halt| halt.reason.clone()),
                }
            }
            Decision::Faulty { fault, .. } => Self::Faulty {
                fault: fault.to_string(),
            },
        }
    }
}

/// How one slot is, in owned values.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The slot.
    pub node: LogicalNodeId,
    /// The attempt that fills it; none while it is empty.
    pub attempt: Option<NodeAttemptId>,
    /// Its provider.
    pub provider: Option<ProviderKind>,
    /// How far it got.
    pub stage: Option<Stage>,
    /// Whether it is to go.
    pub deleting: bool,
    /// Whether it is ready.
    pub ready: bool,
    /// The resource that it holds.
    pub lease: Option<LeaseId>,
    /// How to reach that.
    pub endpoint: Option<Endpoint>,
    /// How far its bootstrap got.
    pub bootstrap: Option<BootstrapStage>,
    /// Its agent, once that joined.
    pub agent: Option<AgentId>,
    /// Failed attempts in a row.
    pub failed_attempts: u32,
    /// The last thing that went wrong.
    pub last_error: Option<Arc<str>>,
    /// Why it does what it does.
    pub why: Why,
}

impl NodeStatus {
    pub(crate) fn new(node: LogicalNodeId, found: Option<&ManagedNode>, why: Why) -> Self {
        Self {
            node,
            attempt: found.map(|found| found.attempt),
            provider: found.map(|found| found.provider.clone()),
            stage: found.map(|found| found.stage),
            deleting: found.is_some_and(|found| found.intent == Intent::Deleting),
            ready: found.is_some_and(|found| found.ready),
            lease: found.and_then(|found| Some(found.lease.as_ref()?.id.clone())),
            endpoint: found.and_then(|found| found.endpoint.clone()),
            bootstrap: found.and_then(|found| Some(found.bootstrap.as_ref()?.stage)),
            agent: found.and_then(|found| Some(found.join.as_ref()?.agent.clone())),
            failed_attempts: found.map_or(0, |found| found.retry.failed_attempts),
            last_error: found.and_then(|found| found.retry.last_error.clone()),
            why,
        }
    }
}

/// A run in numbers, kept as it changes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Summary {
    /// The accepted generation.
    pub generation: Generation,
    /// Whether all is as that generation wants it.
    pub converged: bool,
    /// Slots that the shape wants.
    pub desired: u64,
    /// Slots that hold a node.
    pub nodes: u64,
    /// Nodes that are ready.
    pub ready: u64,
    /// Nodes that are being taken down.
    pub deleting: u64,
    /// Nodes that are halted.
    pub halted: u64,
    /// Nodes with an operation under way.
    pub pending: u64,
    /// Nodes that wait for their provider's pace.
    pub waiting: u64,
    /// Nodes by stage, in the order of [`Stage::ALL`].
    pub stages: [u64; 10],
    /// Resources that no node owns.
    pub orphans: u64,
    /// Observations that were stale.
    pub stale: u64,
    /// Providers whose first look is not done.
    pub unlooked: Vec<ProviderKind>,
}

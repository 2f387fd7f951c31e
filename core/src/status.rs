//! What people see: how a node is, and why it waits.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::decide::{Decision, WaitReason};
use crate::facts::{AgentId, BootstrapStage, Endpoint, LeaseId};
use crate::id::{GroupId, LogicalNodeId, NodeAttemptId, ProviderKind};
use crate::inventory::FirstLook;
use crate::node::{Intent, ManagedNode, Stage};
use crate::shape::Generation;
use crate::state::ProviderState;

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
        /// For which groups, nearest first, where it waits for groups. They change while the slot does not,
        /// so only who asks is told: a view that is kept leaves them out.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        groups: Vec<Awaited>,
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

/// A group that others wait for: until it is available, or until what is going of it is gone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Awaited {
    /// The group.
    pub group: GroupId,
    /// How many of its slots are not available yet, or not gone yet.
    pub slots: u64,
    /// The first of these that is halted, or else the first that something went wrong with: it may keep the
    /// others waiting until somebody helps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<Trouble>,
}

/// What went wrong with a slot that others wait for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Trouble {
    /// The slot.
    pub node: LogicalNodeId,
    /// Whether it is halted: then it is not tried again by itself.
    pub halted: bool,
    /// What went wrong last.
    pub error: Arc<str>,
}

impl Awaited {
    pub(crate) fn new(group: GroupId) -> Self {
        Self {
            group,
            slots: 0,
            trouble: None,
        }
    }

    /// Counts one more of its slots.
    pub(crate) fn add(&mut self, id: impl FnOnce() -> LogicalNodeId, node: Option<&ManagedNode>) {
        self.slots += 1;
        let Some(retry) = node.map(|node| &node.retry) else {
            return;
        };
        let halt = retry.halted.as_ref();
        let known = self.trouble.as_ref();
        if known.is_none_or(|known| halt.is_some() && !known.halted)
            && let Some(error) = halt.map(|halt| &halt.reason).or(retry.last_error.as_ref())
        {
            self.trouble = Some(Trouble {
                node: id(),
                halted: halt.is_some(),
                error: error.clone(),
            });
        }
    }
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} to wait for", self.group, self.slots)?;
        if let Some(Trouble { node, halted, error }) = &self.trouble {
            let halted = if *halted { " is halted" } else { "" };
            write!(f, "; {node}{halted}: {error}")?;
        }
        f.write_str(")")
    }
}

impl Why {
    /// What a decision means, without the groups that it waits for.
    pub(crate) fn new(decision: Decision, node: Option<&ManagedNode>) -> Self {
        let waiting_since = node.and_then(|node| node.retry.waiting_since);
        match decision {
            Decision::Settled => Self::Settled,
            Decision::Dispatch(kind) if waiting_since.is_some() => Self::WaitingFor {
                reason: WaitReason::Pace(kind),
                until: None,
                groups: Vec::new(),
            },
            Decision::Dispatch(_) | Decision::Step(_) => Self::Acting,
            Decision::Wait { on, until } => Self::WaitingFor {
                reason: on,
                until,
                groups: Vec::new(),
            },
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
    /// Groups that have slots which are halted: these are not tried again until somebody helps.
    #[serde(default)]
    pub degraded: Vec<Degraded>,
    /// How each provider is.
    #[serde(default)]
    pub providers: Vec<ProviderStatus>,
}

/// A group with slots that are halted.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Degraded {
    /// The group.
    pub group: GroupId,
    /// How many of its slots are halted.
    pub halted: u64,
}

/// How a provider is: what it may be asked now, and what it said when it was asked for its inventory.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProviderStatus {
    /// The provider.
    pub provider: ProviderKind,
    /// How many calls may be at work there now. Below `most` it was asked to slow down.
    pub places: u32,
    /// How many the application grants.
    pub most: u32,
    /// Nothing is sent before this moment, as the provider asked for; it may have passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// Whether its first look is done.
    pub looked: bool,
    /// When the last question for its inventory was asked that a sweep was answered; none where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swept: Option<Timestamp>,
    /// What the last look or sweep failed with; none once one is answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub look_error: Option<Arc<str>>,
    /// Resources that no node owns, seen once: the next sweep will tell.
    #[serde(default)]
    pub suspects: usize,
    /// Since which question more of its leases are missing at once than is believed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mass_loss_since: Option<Timestamp>,
}

impl ProviderStatus {
    pub(crate) fn new(provider: ProviderKind, state: &ProviderState) -> Self {
        let sweep = state.sweep.as_ref();
        let look_error = match &state.first_look {
            FirstLook::Due(look) => look.last_error.clone(),
            FirstLook::Done => sweep.and_then(|sweep| sweep.last_error.clone()),
        };
        Self {
            provider,
            places: state.pace.places(),
            most: state.pace.config().max_in_flight.get(),
            not_before: state.pace.not_before(),
            looked: state.first_look == FirstLook::Done,
            swept: sweep.and_then(|sweep| sweep.answered),
            look_error,
            suspects: sweep.map_or(0, |sweep| sweep.suspects.len()),
            mass_loss_since: state.mass_loss_since,
        }
    }
}

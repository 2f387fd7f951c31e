//! The full pass: what every node of a run needs next, from a snapshot.
//!
//! This is the definition that the driver's incremental pass is held to.

mod draft;
mod standing;
mod survey;

use std::collections::BTreeMap;

use jiff::Timestamp;

pub(crate) use self::draft::{Act, Draft, planned, planned_orphan};
use self::standing::Standing;
pub(crate) use self::standing::awaited;
use self::survey::Survey;
use crate::decide::{DeleteReason, Overdue, reconcile_node};
use crate::desired::Desired;
use crate::effect::PlannedEffect;
use crate::failure::NodeError;
use crate::gate::Gate;
use crate::id::{LogicalNodeId, NodeAttemptId, ProviderKind};
use crate::inventory::FirstLook;
use crate::node::ManagedNode;
use crate::orphan::{OrphanKey, Turns, reconcile_orphan};
use crate::pace::{Class, Queue};
use crate::policy::Policy;
use crate::state::ClusterState;
use crate::template::LogicalNodeSpec;

/// One step of one node, with the precondition that it carries.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// Fill an empty slot.
    Insert {
        /// The attempt to allocate, and what it is made from.
        attempt: NodeAttemptId,
        /// The slot and its spec.
        spec: LogicalNodeSpec,
    },
    /// Begin to take an attempt down.
    BeginDelete {
        /// The slot.
        node: LogicalNodeId,
        /// Its current attempt.
        attempt: NodeAttemptId,
        /// Why.
        reason: DeleteReason,
    },
    /// End an attempt that took too long.
    FailAttempt {
        /// The slot.
        node: LogicalNodeId,
        /// Its current attempt.
        attempt: NodeAttemptId,
        /// What it did not do in time.
        overdue: Overdue,
    },
    /// Note that nothing is left of an attempt.
    MarkDestroyed {
        /// The slot.
        node: LogicalNodeId,
        /// Its current attempt.
        attempt: NodeAttemptId,
    },
    /// Replace a destroyed attempt.
    Restart {
        /// The attempt that is over.
        attempt: NodeAttemptId,
        /// The attempt to allocate.
        new_attempt: NodeAttemptId,
        /// The slot and its latest spec.
        spec: LogicalNodeSpec,
    },
    /// Forget a slot.
    Reap {
        /// The slot.
        node: LogicalNodeId,
        /// The attempt that is over.
        attempt: NodeAttemptId,
    },
    /// Send a command.
    Dispatch(PlannedEffect),
    /// Send a command for an orphan.
    DispatchOrphan {
        /// The orphan.
        orphan: OrphanKey,
        /// What is sent.
        effect: PlannedEffect,
    },
}

/// What a pass would do: at most one action per node, in the order of the nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
#[must_use]
pub struct Plan {
    /// The actions.
    pub actions: Vec<Action>,
    /// Nodes that cannot go on, each with its reason.
    pub faults: Vec<NodeError>,
    /// Whether a slot needs an attempt and none is left to allocate.
    pub attempts_exhausted: bool,
    /// Nodes and orphans' slots that go without a place at their provider from now on.
    pub newly_waiting: Vec<LogicalNodeId>,
    /// The earliest moment at which a node that does not act now may have something to do.
    pub requeue_at: Option<Timestamp>,
}

/// Plans one pass over all slots of a run.
///
/// Pure and deterministic: equal arguments give equal plans. Costs O(slots), and with dependencies the groups
/// that each group is tied to, directly or not.
pub fn reconcile(observed: &ClusterState, desired: &Desired, policy: &Policy, now: Timestamp) -> Plan {
    let survey = Survey::new(observed, desired);
    let mut draft = Draft::default();
    let mut providers: BTreeMap<&ProviderKind, (Queue, [u32; 3])> = BTreeMap::new();
    let looked = observed.looks_done();
    let standing = Standing::new(&survey);
    let mut groups = (u32::MAX, Gate::OPEN);
    survey.visit(|slot, node| {
        let template = survey.template(slot);
        if groups.0 != slot.group {
            groups = (slot.group, standing.gate(slot.group));
        }
        let gate = gate(groups.1, observed, looked, || survey.id(slot), node);
        let decision = reconcile_node(node, template, gate, policy, now);
        let claim = draft.consider((slot.group, slot.index), slot, node, decision, now);
        if let Some(node) = node {
            let (queue, holding) = providers.entry(&node.provider).or_default();
            if let Some(class) = node.held_class() {
                holding[class as usize] += 1;
            }
            if let Some((class, claim)) = claim {
                queue.insert(class, claim);
            }
        }
    });
    let mut turns = Turns::default();
    for (key, orphan) in &observed.orphans {
        let (queue, holding) = providers.entry(&key.provider).or_default();
        if orphan.holds_place() {
            holding[Class::Cleanup as usize] += 1;
        }
        let order = (survey.rank(&key.node.group), key.node.index);
        let decision = reconcile_orphan(observed, key, orphan, &mut turns, policy, now);
        if let Some(claim) = draft.consider_orphan(order, key, orphan, decision, now) {
            queue.insert(Class::Cleanup, claim);
        }
    }
    for (kind, (queue, holding)) in providers {
        if let Some(provider) = observed.providers.get(kind) {
            let _ = draft.grant(&queue, &mut provider.pace.clone(), holding, now);
        }
    }
    draft.requeue(looks_at(observed, now));
    draft.finish();
    draft.into_plan(
        observed,
        |slot| survey.id(slot),
        |slot| survey.template(slot).cloned(),
    )
}

/// The gate of one slot, whose group has this one.
pub(crate) fn gate(
    group: Gate,
    state: &ClusterState,
    looked: bool,
    id: impl FnOnce() -> LogicalNodeId,
    node: Option<&ManagedNode>,
) -> Gate {
    let attempt = node.map(|node| node.attempt);
    let orphaned = !state.orphans.is_empty()
        && state
            .orphans_of(&id())
            .any(|(key, _)| Some(key.attempt) != attempt);
    Gate {
        looked,
        orphaned,
        ..group
    }
}

/// The next moment at which a first look is to be taken.
pub(crate) fn looks_at(state: &ClusterState, now: Timestamp) -> Option<Timestamp> {
    let due = state
        .providers
        .values()
        .filter_map(|provider| match &provider.first_look {
            FirstLook::Due(look) => look.moment(provider.pace.not_before()),
            FirstLook::Done => None,
        });
    due.filter(|at| *at > now).min()
}

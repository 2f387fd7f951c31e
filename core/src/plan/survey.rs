//! Every slot of a run, in order: what the full pass walks over.

use std::collections::BTreeSet;

use crate::desired::Desired;
use crate::id::{GroupId, LogicalNodeId};
use crate::node::ManagedNode;
use crate::state::{ClusterState, Slot};
use crate::template::Template;

/// All names of a run in order, so that a slot is its group's rank and its index.
pub(super) struct Survey<'a> {
    pub(super) observed: &'a ClusterState,
    pub(super) desired: &'a Desired,
    pub(super) names: Vec<GroupId>,
}

impl<'a> Survey<'a> {
    pub(super) fn new(observed: &'a ClusterState, desired: &'a Desired) -> Self {
        let mut names: BTreeSet<&GroupId> = observed.nodes.groups().map(|(name, _)| name).collect();
        names.extend(desired.groups().iter().map(|group| &group.id));
        names.extend(observed.orphans.keys().map(|key| &key.node.group));
        for (departed, below) in &observed.departed {
            names.insert(departed);
            names.extend(below);
        }
        Self {
            observed,
            desired,
            names: names.into_iter().cloned().collect(),
        }
    }

    pub(super) fn rank(&self, name: &GroupId) -> u32 {
        self.names
            .binary_search(name)
            .map_or(u32::MAX, |rank| rank as u32)
    }

    pub(super) fn id(&self, slot: Slot) -> LogicalNodeId {
        LogicalNodeId {
            group: self.names[slot.group as usize].clone(),
            index: slot.index,
        }
    }

    pub(super) fn template(&self, slot: Slot) -> Option<&'a Template> {
        let place = self.desired.find(&self.names[slot.group as usize])?;
        let group = &self.desired.groups()[place];
        (slot.index < group.count).then_some(&group.template)
    }

    /// Visits every slot that is desired or holds a node, in order.
    pub(super) fn visit(&self, mut slot_seen: impl FnMut(Slot, Option<&'a ManagedNode>)) {
        for group in 0..self.names.len() as u32 {
            self.visit_group(group, &mut slot_seen);
        }
    }

    /// Visits the slots of one group, likewise.
    pub(super) fn visit_group(&self, group: u32, mut slot_seen: impl FnMut(Slot, Option<&'a ManagedNode>)) {
        let name = &self.names[group as usize];
        let count = self
            .desired
            .find(name)
            .map_or(0, |place| self.desired.groups()[place].count);
        let mut next = 0;
        let found = self.observed.nodes.group(name).into_iter();
        for (found, node) in found.flat_map(|group| self.observed.nodes.slots_of(group)) {
            for index in next..found.index.min(count) {
                slot_seen(Slot { group, index }, None);
            }
            let index = found.index;
            slot_seen(Slot { group, index }, Some(node));
            next = found.index.saturating_add(1);
        }
        for index in next..count {
            slot_seen(Slot { group, index }, None);
        }
    }
}

//! The observed state of a whole run.
//!
//! Slots are dense: a group's nodes stand in a vector, in order, and names are interned once. What no shape
//! asked for (an index found at a provider far beyond any count) stands in a map beside it, so that one odd
//! label cannot eat the machine.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::graph::Graph;
use crate::id::{GroupId, LogicalNodeId, NodeAttemptId, ProviderKind, RunId};
use crate::inventory::{FirstLook, Sweep};
use crate::node::{ManagedNode, PassId};
use crate::orphan::{Orphan, OrphanKey};
use crate::pace::Pace;
use crate::shape::Generation;

/// A slot inside core: its group's place in the table of names, and its index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Slot {
    pub(crate) group: u32,
    pub(crate) index: u32,
}

/// Something per slot: dense where a shape asked for slots, sparse beyond.
#[derive(Debug, Clone)]
pub(crate) struct SlotMap<T> {
    groups: Vec<Slots<T>>,
}

#[derive(Debug, Clone)]
struct Slots<T> {
    dense: Vec<T>,
    beyond: BTreeMap<u32, T>,
}

impl<T> Default for SlotMap<T> {
    fn default() -> Self {
        Self { groups: Vec::new() }
    }
}

impl<T: Default> SlotMap<T> {
    /// Makes the first `count` slots of a group dense.
    pub(crate) fn reserve(&mut self, group: u32, count: u32) {
        self.add_groups(group);
        let slots = &mut self.groups[group as usize];
        let have = slots.dense.len();
        if count as usize > have {
            // An eighth at least, so that a group that grows by one slot at a time is seldom moved.
            let more = (count as usize - have).max(have / 8);
            if slots.dense.capacity() < count as usize {
                slots.dense.reserve_exact(more);
            }
            for index in have as u32..count {
                slots.dense.push(slots.beyond.remove(&index).unwrap_or_default());
            }
        }
    }

    fn add_groups(&mut self, group: u32) {
        while self.groups.len() <= group as usize {
            self.groups.push(Slots {
                dense: Vec::new(),
                beyond: BTreeMap::new(),
            });
        }
    }

    pub(crate) fn get(&self, slot: Slot) -> Option<&T> {
        let slots = self.groups.get(slot.group as usize)?;
        match slots.dense.get(slot.index as usize) {
            Some(value) => Some(value),
            None if slots.beyond.is_empty() => None,
            None => slots.beyond.get(&slot.index),
        }
    }

    /// The value of a slot; a slot that nothing is known of gets one.
    pub(crate) fn entry(&mut self, slot: Slot) -> &mut T {
        self.add_groups(slot.group);
        let slots = &mut self.groups[slot.group as usize];
        match slots.dense.get_mut(slot.index as usize) {
            Some(value) => value,
            None => slots.beyond.entry(slot.index).or_default(),
        }
    }

    pub(crate) fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        let slots = self.groups.get_mut(slot.group as usize)?;
        match slots.dense.get_mut(slot.index as usize) {
            Some(value) => Some(value),
            None => slots.beyond.get_mut(&slot.index),
        }
    }

    /// Forgets a slot beyond the dense ones; a dense one is set to its default.
    pub(crate) fn clear(&mut self, slot: Slot) {
        if let Some(slots) = self.groups.get_mut(slot.group as usize) {
            match slots.dense.get_mut(slot.index as usize) {
                Some(value) => *value = T::default(),
                None => drop(slots.beyond.remove(&slot.index)),
            }
        }
    }

    /// Gives back what a group no longer needs beyond its first `count` slots, as far as those are unused.
    pub(crate) fn trim(&mut self, group: u32, count: u32, unused: impl Fn(&T) -> bool) {
        if let Some(slots) = self.groups.get_mut(group as usize) {
            while slots.dense.len() > count as usize && slots.dense.last().is_some_and(&unused) {
                slots.dense.pop();
            }
            if slots.dense.capacity() > 2 * slots.dense.len() + 64 {
                slots.dense.shrink_to_fit();
            }
        }
    }

    /// How many slots of a group take room, used or not.
    #[cfg(test)]
    pub(crate) fn room(&self, group: u32) -> usize {
        let slots = &self.groups[group as usize];
        slots.dense.len() + slots.beyond.len()
    }

    /// The slots of a group, in order.
    pub(crate) fn iter_group(&self, group: u32) -> impl Iterator<Item = (Slot, &T)> {
        self.groups
            .get(group as usize)
            .into_iter()
            .flat_map(move |slots| {
                let dense = slots
                    .dense
                    .iter()
                    .enumerate()
                    .map(|(index, value)| (index as u32, value));
                let beyond = slots.beyond.iter().map(|(index, value)| (*index, value));
                dense
                    .chain(beyond)
                    .map(move |(index, value)| (Slot { group, index }, value))
            })
    }
}

/// The nodes of a run, by slot.
#[derive(Debug, Clone, Default)]
pub struct Nodes {
    names: Vec<GroupId>,
    groups: BTreeMap<GroupId, u32>,
    slots: SlotMap<Option<Box<ManagedNode>>>,
    /// How many slots of each group hold a node.
    filled: Vec<usize>,
    len: usize,
}

impl Nodes {
    /// How many slots hold a node.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no slot holds one.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The node of a slot.
    pub fn get(&self, id: &LogicalNodeId) -> Option<&ManagedNode> {
        self.at(self.slot(id)?)
    }

    /// All nodes, in order.
    pub fn iter(&self) -> impl Iterator<Item = (LogicalNodeId, &ManagedNode)> {
        self.groups.iter().flat_map(move |(name, group)| {
            self.slots.iter_group(*group).filter_map(move |(slot, node)| {
                let id = LogicalNodeId {
                    group: name.clone(),
                    index: slot.index,
                };
                Some((id, node.as_deref()?))
            })
        })
    }

    /// The interned groups, in the order of their names.
    pub(crate) fn groups(&self) -> impl Iterator<Item = (&GroupId, u32)> {
        self.groups.iter().map(|(name, group)| (name, *group))
    }

    pub(crate) fn group(&self, name: &GroupId) -> Option<u32> {
        self.groups.get(name).copied()
    }

    pub(crate) fn slot(&self, id: &LogicalNodeId) -> Option<Slot> {
        Some(Slot {
            group: self.group(&id.group)?,
            index: id.index,
        })
    }

    pub(crate) fn name(&self, group: u32) -> &GroupId {
        &self.names[group as usize]
    }

    pub(crate) fn id(&self, slot: Slot) -> LogicalNodeId {
        LogicalNodeId {
            group: self.names[slot.group as usize].clone(),
            index: slot.index,
        }
    }

    pub(crate) fn at(&self, slot: Slot) -> Option<&ManagedNode> {
        self.slots.get(slot)?.as_deref()
    }

    pub(crate) fn at_mut(&mut self, slot: Slot) -> Option<&mut ManagedNode> {
        self.slots.get_mut(slot)?.as_deref_mut()
    }

    /// Interns a name; says whether it is new.
    pub(crate) fn intern(&mut self, name: &GroupId) -> (u32, bool) {
        if let Some(group) = self.group(name) {
            return (group, false);
        }
        let group = u32::try_from(self.names.len()).expect("there are fewer groups than slots");
        self.names.push(name.clone());
        self.filled.push(0);
        self.groups.insert(name.clone(), group);
        (group, true)
    }

    pub(crate) fn reserve(&mut self, group: u32, count: u32) {
        self.slots.reserve(group, count);
    }

    pub(crate) fn trim(&mut self, group: u32, count: u32) {
        self.slots.trim(group, count, Option::is_none);
    }

    pub(crate) fn insert(&mut self, slot: Slot, node: ManagedNode) {
        let place = self.slots.entry(slot);
        self.len += usize::from(place.is_none());
        self.filled[slot.group as usize] += usize::from(place.is_none());
        match place {
            Some(old) => **old = node,
            None => *place = Some(Box::new(node)),
        }
    }

    pub(crate) fn remove(&mut self, slot: Slot) {
        if self.at(slot).is_some() {
            self.len -= 1;
            self.filled[slot.group as usize] -= 1;
            self.slots.clear(slot);
        }
    }

    /// Whether no slot of a group holds a node.
    pub(crate) fn is_empty_group(&self, group: u32) -> bool {
        self.filled[group as usize] == 0
    }

    pub(crate) fn slots_of(&self, group: u32) -> impl Iterator<Item = (Slot, &ManagedNode)> {
        self.slots
            .iter_group(group)
            .filter_map(|(slot, node)| Some((slot, node.as_deref()?)))
    }
}

impl PartialEq for Nodes {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl Eq for Nodes {}

impl Hash for Nodes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_usize(self.len);
        self.iter().for_each(|entry| entry.hash(state));
    }
}

impl Serialize for Nodes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Nodes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = BTreeMap::<LogicalNodeId, ManagedNode>::deserialize(deserializer)?;
        let mut nodes = Self::default();
        for (id, node) in read {
            let (group, _) = nodes.intern(&id.group);
            nodes.insert(
                Slot {
                    group,
                    index: id.index,
                },
                node,
            );
        }
        Ok(nodes)
    }
}

/// What is known of a provider.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProviderState {
    /// What it may be asked now.
    pub pace: Pace,
    /// How far the first look is.
    pub first_look: FirstLook,
    /// What is asked of it after that; none without an inventory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sweep: Option<Sweep>,
    /// The first question of a row in which more of its leases were missing at once than is believed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mass_loss_since: Option<Timestamp>,
}

/// The observed state of a run. Only the driver changes it; everybody else reads copies.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ClusterState {
    /// The run.
    pub run_id: RunId,
    /// The last generation that a pass evaluated.
    pub observed_generation: Generation,
    /// The next attempt to allocate; none once they are used up.
    pub next_attempt_id: Option<NodeAttemptId>,
    /// The last pass that changed something.
    #[serde(default)]
    pub pass: PassId,
    /// One node per slot that has one.
    pub nodes: Nodes,
    /// One entry per registered provider.
    pub providers: BTreeMap<ProviderKind, ProviderState>,
    /// What the groups of the accepted shape depend on directly, where they depend on any: whoever takes the state
    /// over with a shape that lacks some of them keeps their order.
    #[serde(default)]
    pub depends_on: BTreeMap<GroupId, BTreeSet<GroupId>>,
    /// What groups that left the shape depended on when they left, as long as they have slots: of what stayed
    /// all, directly or not, and of what left with them the next, which has an entry of its own.
    #[serde(default)]
    pub departed: BTreeMap<GroupId, BTreeSet<GroupId>>,
    /// Resources that no node owns.
    #[serde(default)]
    pub orphans: BTreeMap<OrphanKey, Orphan>,
}

impl ClusterState {
    /// The state of a run that nothing is known of.
    pub fn new(run_id: RunId) -> Self {
        Self {
            run_id,
            observed_generation: Generation::default(),
            next_attempt_id: Some(NodeAttemptId::FIRST),
            pass: PassId::default(),
            nodes: Nodes::default(),
            providers: BTreeMap::new(),
            depends_on: BTreeMap::new(),
            departed: BTreeMap::new(),
            orphans: BTreeMap::new(),
        }
    }

    /// Whether every provider's first look is done.
    pub fn looks_done(&self) -> bool {
        self.providers
            .values()
            .all(|provider| provider.first_look == FirstLook::Done)
    }

    /// The orphans of a slot.
    pub(crate) fn orphans_of(&self, id: &LogicalNodeId) -> impl Iterator<Item = (&OrphanKey, &Orphan)> {
        // Keys begin with the slot, so that its orphans stand in one row.
        let from = OrphanKey {
            node: id.clone(),
            attempt: NodeAttemptId::new(0),
            provider: ProviderKind::new("0").expect("a digit is a name"),
            lease: crate::facts::LeaseId::new(""),
        };
        let id = id.clone();
        self.orphans
            .range(from..)
            .take_while(move |(key, _)| key.node == id)
    }

    /// The sequence with which an attempt's operations go on: its node and its orphans share one row.
    pub(crate) fn next_sequence(&self, id: &LogicalNodeId, attempt: NodeAttemptId) -> u32 {
        let node = self.nodes.get(id).filter(|node| node.attempt == attempt);
        let orphans = self.orphans_of(id).filter(|(key, _)| key.attempt == attempt);
        let sequences = orphans.map(|(_, orphan)| orphan.next_sequence);
        sequences
            .chain(node.map(|node| node.next_sequence))
            .max()
            .unwrap_or(1)
    }

    /// Raises the allocator above an attempt that was seen.
    pub(crate) fn seen_attempt(&mut self, attempt: NodeAttemptId) {
        if self.next_attempt_id.is_some_and(|next| attempt >= next) {
            self.next_attempt_id = attempt.next();
        }
    }

    /// Checks what must hold of every state.
    ///
    /// # Errors
    ///
    /// Every guarantee that is broken, by number, and for which node.
    pub fn check(&self) -> Result<(), Vec<String>> {
        let mut broken = Vec::new();
        let mut attempts = BTreeSet::new();
        for (id, node) in self.nodes.iter() {
            if let Err(what) = node.check() {
                broken.push(format!("{id}: {what}"));
            }
            if !attempts.insert(node.attempt) {
                broken.push(format!("{id}: G4: attempt {} fills two slots", node.attempt));
            }
            if self.next_attempt_id.is_some_and(|next| node.attempt >= next) {
                broken.push(format!(
                    "{id}: G4: attempt {} is not below the allocator",
                    node.attempt
                ));
            }
        }
        // What leads out of them is no circle's part.
        let departed = self.departed.iter().map(|(name, below)| {
            let below = below.iter().filter(|below| self.departed.contains_key(below));
            (name.as_str(), below.map(GroupId::as_str))
        });
        if let Err(problems) = Graph::new(departed) {
            broken.extend(
                problems
                    .iter()
                    .map(|problem| format!("departed groups: {problem}")),
            );
        }
        let named = self.depends_on.keys().chain(self.depends_on.values().flatten());
        let named: BTreeSet<&GroupId> = named.collect();
        let accepted = named.into_iter().map(|name| {
            let below = self.depends_on.get(name).into_iter().flatten();
            (name.as_str(), below.map(GroupId::as_str))
        });
        if let Err(problems) = Graph::new(accepted) {
            broken.extend(
                problems
                    .iter()
                    .map(|problem| format!("accepted groups: {problem}")),
            );
        }
        if broken.is_empty() { Ok(()) } else { Err(broken) }
    }
}

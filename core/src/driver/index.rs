//! What the driver derives from the state so that a pass need not look at every node. Nothing here is true
//! by itself: all of it is rebuilt from the state.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::deadlines::Deadlines;
use super::gates::{Gates, Moved, Side};
use super::tally::{Share, Tally};
use crate::desired::Desired;
use crate::failure::NodeError;
use crate::id::{NodeAttemptId, ProviderKind};
use crate::inventory::FirstLook;
use crate::orphan::OrphanKey;
use crate::pace::{Claim, Class, Queue, Who};
use crate::state::{ClusterState, Nodes, Slot, SlotMap};

/// What is derived for one slot.
#[derive(Debug, Clone, Default)]
pub(super) struct Entry {
    pub(super) dirty: bool,
    /// Whether it stands in the list of slots that changed since the last report.
    pub(super) touched: bool,
    /// The moment that its last decision waits for.
    pub(super) wake: Option<Timestamp>,
    /// The moment at which it stands among the wakes: never later than `wake`.
    pub(super) armed: Option<Timestamp>,
    /// Its place in the queue of its provider.
    pub(super) claim: Option<(Class, Claim)>,
    /// The gate that it stands at.
    pub(super) at: Option<Side>,
}

/// What is derived for one orphan.
#[derive(Debug, Clone, Default)]
pub(super) struct OrphanEntry {
    pub(super) wake: Option<Timestamp>,
    pub(super) claim: Option<Claim>,
}

/// What is derived for one provider.
#[derive(Debug, Clone, Default)]
pub(super) struct Lane {
    pub(super) queue: Queue,
    /// Claims of the pass that is being drafted, not in the queue yet.
    pub(super) fresh: Vec<(Class, Claim)>,
    pub(super) holding: [u32; 3],
}

#[derive(Debug, Clone, Default)]
pub(super) struct Index {
    pub(super) slots: SlotMap<Entry>,
    pub(super) dirty: Vec<Slot>,
    pub(super) wakes: Deadlines<Slot>,
    pub(super) operations: Deadlines<Slot>,
    pub(super) orphans: BTreeMap<OrphanKey, OrphanEntry>,
    pub(super) dirty_orphans: BTreeSet<OrphanKey>,
    pub(super) orphan_wakes: Deadlines<OrphanKey>,
    pub(super) orphan_operations: Deadlines<OrphanKey>,
    pub(super) lanes: BTreeMap<ProviderKind, Lane>,
    /// The place of each interned group in the shape.
    pub(super) places: Vec<Option<u32>>,
    /// The place of each interned group in the order of names.
    ranks: Vec<u32>,
    pub(super) gates: Gates,
    /// Gates that moved and whose slots are to be woken; always empty but while that is done.
    moved: Vec<Moved>,
    pub(super) tally: Tally,
    pub(super) requeue_at: Option<Timestamp>,
    pub(super) errors: Vec<NodeError>,
    pub(super) touched: Vec<Slot>,
    /// Whether it was said that no attempt is left.
    pub(super) exhausted: bool,
    /// Whether a lease changed since the last pass.
    pub(super) lease_changed: bool,
    /// For each provider that is being asked for its inventory, the attempts that ended since: the answer may still
    /// show what was theirs then. It is all that has to be kept of the state as it was when it was asked.
    pub(super) left: BTreeMap<ProviderKind, BTreeSet<NodeAttemptId>>,
    /// How many slots of a group are halted, of those that have such.
    pub(super) halted: BTreeMap<u32, u64>,
}

impl Index {
    /// Derives everything from the state, in which all desired groups are interned; everything is dirty then.
    pub(super) fn build(state: &mut ClusterState, desired: &Desired) -> Self {
        let mut index = Self::default();
        index.learn_names(&state.nodes, desired);
        for (group, place) in (0..).zip(index.places.clone()) {
            let count = place.map_or(0, |place| desired.groups()[place as usize].count);
            state.nodes.reserve(group, count);
            index.slots.reserve(group, count);
        }
        for (_, group) in state.nodes.groups() {
            let wanted = index.places[group as usize].map(|place| &desired.groups()[place as usize]);
            let count = wanted.map_or(0, |wanted| wanted.count);
            let mut empty = u64::from(count);
            for (slot, node) in state.nodes.slots_of(group) {
                let template = wanted
                    .filter(|_| slot.index < count)
                    .map(|wanted| &wanted.template);
                empty -= u64::from(slot.index < count);
                index.count(slot, Share::of(Some(node), template));
                index.hold(&node.provider, None, node.held_class());
                if let Some(at) = operation_deadline(&state.nodes, slot) {
                    index.operations.push(at, slot);
                }
            }
            index.tally.unsatisfied += empty;
            index.gates.count_empty(group, empty);
        }
        for (key, orphan) in &state.orphans {
            index.tally.orphans += 1;
            index.tally.surplus += u64::from(orphan.surplus);
            index.hold(
                &key.provider,
                None,
                orphan.holds_place().then_some(Class::Cleanup),
            );
            if let Some(at) = orphan_deadline(state, key) {
                index.orphan_operations.push(at, key.clone());
            }
        }
        let looks = state
            .providers
            .values()
            .filter(|provider| provider.first_look != FirstLook::Done);
        index.tally.unlooked = looks.count() as u64;
        index.tie(state, desired);
        index.mark_all(state, desired);
        index
    }

    /// Counts a slot. Gates are told later: by [`settle_gates`](Self::settle_gates), or [`tie`](Self::tie).
    pub(super) fn count(&mut self, slot: Slot, share: Share) {
        self.tally.add(share);
        self.count_halted(slot.group, false, share.is_halted());
        self.gates.count(slot.group, None, Some(share));
    }

    /// Counts a slot no more, likewise.
    pub(super) fn discount(&mut self, slot: Slot, share: Share) {
        self.tally.remove(share);
        self.count_halted(slot.group, share.is_halted(), false);
        self.gates.count(slot.group, Some(share), None);
    }

    fn count_halted(&mut self, group: u32, before: bool, after: bool) {
        if before == after {
            return;
        }
        let count = self.halted.entry(group).or_default();
        if after {
            *count += 1;
        } else {
            *count -= 1;
            if *count == 0 {
                self.halted.remove(&group);
            }
        }
    }

    /// An attempt, or a resource of it that nobody owned, is over.
    pub(super) fn note_left(&mut self, attempt: NodeAttemptId) {
        for left in self.left.values_mut() {
            left.insert(attempt);
        }
    }

    /// Counts a slot as what it is now, and wakes those that stand at a gate that moves by that.
    pub(super) fn exchange(&mut self, slot: Slot, before: Share, after: Share) {
        if before == after {
            return;
        }
        self.tally.remove(before);
        self.tally.add(after);
        self.count_halted(slot.group, before.is_halted(), after.is_halted());
        if before.holds_back() != after.holds_back() {
            self.gates.count(slot.group, Some(before), Some(after));
            self.settle_gates(slot.group);
        }
    }

    /// Tells the groups that one is tied to what its counts mean, and wakes those that stand at a gate that
    /// moves by that.
    pub(super) fn settle_gates(&mut self, group: u32) {
        self.gates.settle(group, &mut self.moved);
        if !self.moved.is_empty() {
            self.wake_standing();
        }
    }

    /// Ties the groups anew, and wakes those that stand at a gate that moves by that.
    pub(super) fn tie(&mut self, state: &ClusterState, desired: &Desired) {
        let newly_tied = self
            .gates
            .tie(&state.nodes, desired, &state.departed, &mut self.moved);
        self.wake_standing();
        for group in newly_tied {
            let place = self.places[group as usize];
            let count = place.map_or(0, |place| desired.groups()[place as usize].count);
            for index in 0..count {
                self.mark(Slot { group, index });
            }
        }
    }

    fn wake_standing(&mut self) {
        let mut moved = std::mem::take(&mut self.moved);
        for gate in moved.drain(..) {
            let (_, group) = gate;
            for index in self.gates.take_standing(gate) {
                let slot = Slot { group, index };
                self.slots.entry(slot).at = None;
                self.mark(slot);
            }
        }
        // The emptied vector goes back.
        self.moved = moved;
    }

    /// Has a slot stand at this gate, or at none.
    pub(super) fn stand(&mut self, slot: Slot, at: Option<Side>) {
        let entry = self.slots.entry(slot);
        if entry.at != at {
            let before = std::mem::replace(&mut entry.at, at);
            if let Some(side) = before {
                self.gates.leave(side, slot);
            }
            if let Some(side) = at {
                self.gates.join(side, slot);
            }
        }
    }

    /// Marks a slot dirty, and lists it among those of which something may be otherwise since the last report.
    pub(super) fn mark(&mut self, slot: Slot) {
        self.recheck(slot);
        if !std::mem::replace(&mut self.slots.entry(slot).touched, true) {
            self.touched.push(slot);
        }
    }

    /// Marks a slot dirty of which nothing is known to be otherwise.
    fn recheck(&mut self, slot: Slot) {
        if !std::mem::replace(&mut self.slots.entry(slot).dirty, true) {
            self.dirty.push(slot);
        }
    }

    /// Hands out the slots that changed since the last report.
    pub(super) fn take_touched(&mut self) -> impl Iterator<Item = Slot> {
        let Self { touched, slots, .. } = self;
        touched.drain(..).inspect(|slot| {
            if let Some(entry) = slots.get_mut(*slot) {
                entry.touched = false;
            }
        })
    }

    /// Marks everything dirty, though nothing is known to be otherwise: every slot that is desired or holds a node,
    /// and every orphan.
    pub(super) fn recheck_all(&mut self, state: &ClusterState, desired: &Desired) {
        self.each(state, desired, Self::recheck);
        self.dirty_orphans.extend(state.orphans.keys().cloned());
    }

    /// Marks everything: so begins whoever knows nothing.
    fn mark_all(&mut self, state: &ClusterState, desired: &Desired) {
        self.each(state, desired, Self::mark);
        self.dirty_orphans.extend(state.orphans.keys().cloned());
    }

    fn each(&mut self, state: &ClusterState, desired: &Desired, mark: fn(&mut Self, Slot)) {
        for (name, group) in state.nodes.groups() {
            let count = desired
                .find(name)
                .map_or(0, |place| desired.groups()[place].count);
            for index in 0..count {
                mark(self, Slot { group, index });
            }
            for (slot, _) in state.nodes.slots_of(group) {
                mark(self, slot);
            }
        }
    }

    /// Gives back what a group no longer needs beyond its first `count` slots.
    pub(super) fn trim(&mut self, group: u32, count: u32) {
        self.slots.trim(group, count, |entry| {
            !entry.dirty && entry.wake.is_none() && entry.claim.is_none() && entry.at.is_none()
        });
    }

    /// Learns names and places anew. Claims carry the order of the names, so where that changed those that
    /// wait are put in order again.
    pub(super) fn learn_names(&mut self, nodes: &Nodes, desired: &Desired) {
        let groups = nodes.groups().count();
        self.gates.reserve(groups);
        let mut ranks = vec![0; groups];
        self.places.clear();
        self.places.resize(groups, None);
        for ((name, group), rank) in nodes.groups().zip(0..) {
            ranks[group as usize] = rank;
            self.places[group as usize] = desired.find(name).map(|place| place as u32);
        }
        if self.ranks == ranks {
            return;
        }
        self.ranks = ranks;
        for lane in self.lanes.values_mut() {
            for (class, mut claim) in lane.queue.drain() {
                let group = match &claim.who {
                    Who::Node(slot) => slot.group,
                    Who::Orphan(key) => nodes
                        .group(&key.node.group)
                        .expect("orphans' groups are interned"),
                };
                claim.order.0 = self.ranks[group as usize];
                match &claim.who {
                    Who::Node(slot) => self.slots.entry(*slot).claim = Some((class, claim.clone())),
                    Who::Orphan(key) => {
                        self.orphans.entry((**key).clone()).or_default().claim = Some(claim.clone());
                    }
                }
                lane.queue.insert(class, claim);
            }
        }
    }

    pub(super) fn rank(&self, group: u32) -> u32 {
        self.ranks[group as usize]
    }

    pub(super) fn lane(&mut self, provider: &ProviderKind) -> &mut Lane {
        self.lanes.entry(provider.clone()).or_default()
    }

    /// Moves a place that is held at a provider from one class to another.
    pub(super) fn hold(&mut self, provider: &ProviderKind, before: Option<Class>, after: Option<Class>) {
        if before != after {
            let holding = &mut self.lane(provider).holding;
            if let Some(class) = before {
                holding[class as usize] -= 1;
            }
            if let Some(class) = after {
                holding[class as usize] += 1;
            }
        }
    }

    /// Takes a slot out of the queue of its provider.
    pub(super) fn release(&mut self, slot: Slot, provider: &ProviderKind) {
        if let Some((class, claim)) = self.slots.get_mut(slot).and_then(|entry| entry.claim.take()) {
            self.lane(provider).queue.remove(class, &claim);
        }
    }

    /// Takes an orphan out of the queue of its provider.
    pub(super) fn release_orphan(&mut self, key: &OrphanKey) {
        if let Some(claim) = self.orphans.get_mut(key).and_then(|entry| entry.claim.take()) {
            self.lane(&key.provider).queue.remove(Class::Cleanup, &claim);
        }
    }

    /// Has a slot considered again at this moment, or not at all.
    ///
    /// A moment that is only pushed back is not armed anew: what is armed comes up early, and is then put
    /// where it belongs.
    pub(super) fn wake_at(&mut self, slot: Slot, at: Option<Timestamp>) {
        let entry = self.slots.entry(slot);
        entry.wake = at;
        if let Some(at) = at.filter(|at| entry.armed.is_none_or(|armed| *at < armed)) {
            entry.armed = Some(at);
            self.wakes.push(at, slot);
        }
    }

    /// The earliest moment at which a slot is to be considered again.
    fn next_wake(&mut self) -> Option<(Timestamp, Slot)> {
        loop {
            let (at, slot) = self.wakes.peek()?;
            let entry = self.slots.get_mut(slot).filter(|entry| entry.armed == Some(at));
            let Some(entry) = entry else {
                self.wakes.pop();
                continue;
            };
            if entry.wake == Some(at) {
                return Some((at, slot));
            }
            entry.armed = entry.wake;
            match entry.armed {
                Some(later) => self.wakes.put_off(later),
                None => self.wakes.pop(),
            }
        }
    }

    /// Takes a slot whose moment has come.
    pub(super) fn pop_due_wake(&mut self, now: Timestamp) -> Option<Slot> {
        let (_, slot) = self.next_wake().filter(|(at, _)| *at <= now)?;
        self.wakes.pop();
        let entry = self.slots.entry(slot);
        entry.wake = None;
        entry.armed = None;
        Some(slot)
    }

    /// When to look again, given what the last draft found; drops what is outdated on the way.
    pub(super) fn settle(&mut self, state: &ClusterState, draft_at: Option<Timestamp>) {
        let nodes = state.nodes.len();
        let entries = &self.slots;
        self.wakes
            .compact(nodes, |slot| entries.get(*slot).and_then(|entry| entry.armed));
        let next = self.next_wake().map(|(at, _)| at);
        self.operations
            .compact(nodes, |slot| operation_deadline(&state.nodes, *slot));
        let orphans = &self.orphans;
        let wake = |key: &OrphanKey| orphans.get(key).and_then(|entry| entry.wake);
        self.orphan_wakes.compact(orphans.len(), wake);
        let next_orphan = self.orphan_wakes.next(wake);
        self.orphan_operations
            .compact(orphans.len(), |key| orphan_deadline(state, key));
        self.requeue_at = [next, next_orphan, draft_at].into_iter().flatten().min();
    }
}

/// When a node's pending operation expires, unless it was handed out as due.
pub(super) fn operation_deadline(nodes: &Nodes, slot: Slot) -> Option<Timestamp> {
    let pending = nodes.at(slot)?.pending.as_ref()?;
    (!pending.expiring).then_some(pending.deadline)
}

/// When an orphan's pending operation expires, likewise.
pub(super) fn orphan_deadline(state: &ClusterState, key: &OrphanKey) -> Option<Timestamp> {
    let pending = state.orphans.get(key)?.pending.as_ref()?;
    (!pending.expiring).then_some(pending.deadline)
}

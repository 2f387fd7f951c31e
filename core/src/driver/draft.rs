//! The incremental pass: what the full pass would do, from what may have changed.

use jiff::Timestamp;

use super::ClusterDriver;
use super::index::{Index, OrphanEntry};
use crate::decide::{Decision, reconcile_node};
use crate::orphan::{OrphanKey, Turns, reconcile_orphan};
use crate::pace::{Claim, Class, Who};
use crate::plan::{Draft, gate, looks_at};
use crate::state::Slot;

impl ClusterDriver {
    /// Drafts the next pass: of the dirty slots, of those whose wait has ended, and of those that wait for a
    /// place that is free now. Takes the places that it gives out.
    pub(super) fn draft(&mut self, draft: &mut Draft, now: Timestamp) {
        let index = &mut self.index;
        while let Some(slot) = index.pop_due_wake(now) {
            index.mark(slot);
        }
        let mut slots = std::mem::take(&mut index.dirty);
        let looked = index.tally.unlooked == 0;
        for slot in &slots {
            self.consider(*slot, looked, draft, now);
        }
        slots.clear();
        // The emptied vector goes back, so that a steady flow of events allocates nothing.
        self.index.dirty = slots;
        self.consider_orphans(draft, now);
        self.grant(draft, now);
        draft.requeue(looks_at(&self.state, now));
        draft.finish();
    }

    fn consider(&mut self, slot: Slot, looked: bool, draft: &mut Draft, now: Timestamp) {
        let node = self.state.nodes.at(slot);
        let group = self.index.gates.of(slot.group);
        let gate = gate(group, &self.state, looked, || self.state.nodes.id(slot), node);
        let template = self.template(slot);
        let desired = template.is_some();
        let decision = reconcile_node(node, template, gate, &self.policy, now);
        let order = (self.index.rank(slot.group), slot.index);
        let claim = draft.consider(order, slot, node, decision, now);
        let index = &mut self.index;
        let entry = index.slots.entry(slot);
        entry.dirty = false;
        if entry.wake != decision.until() {
            index.wake_at(slot, decision.until());
        }
        let at = node.and_then(|node| index.gates.side_of(slot, node, desired));
        index.stand(slot, at);
        let Some(node) = node else {
            if decision == Decision::Settled {
                self.give_back(slot);
            }
            return;
        };
        if index.slots.entry(slot).claim != claim {
            index.release(slot, &node.provider);
            if let Some(claim) = claim {
                index.lane(&node.provider).fresh.push(claim);
            }
        }
        if node.retry.waiting_since.is_some() && !matches!(decision, Decision::Dispatch(_)) {
            draft.no_longer_waiting.push(slot);
        }
    }

    /// A slot that is neither wanted nor filled takes no room.
    fn give_back(&mut self, slot: Slot) {
        let place = self.index.places.get(slot.group as usize).copied().flatten();
        let count = place.map_or(0, |place| self.desired.groups()[place as usize].count);
        self.index.slots.clear(slot);
        self.index.trim(slot.group, count);
        self.state.nodes.trim(slot.group, count);
    }

    fn consider_orphans(&mut self, draft: &mut Draft, now: Timestamp) {
        let index = &mut self.index;
        if index.orphans.is_empty() && index.dirty_orphans.is_empty() {
            return;
        }
        loop {
            let entries = &index.orphans;
            let truth = |key: &OrphanKey| entries.get(key).and_then(|entry| entry.wake);
            let Some(key) = index.orphan_wakes.pop_due(now, truth) else {
                break;
            };
            index.dirty_orphans.insert(key);
        }
        let mut turns = Turns::default();
        for key in std::mem::take(&mut index.dirty_orphans) {
            let Some(orphan) = self.state.orphans.get(&key) else {
                continue;
            };
            let decision = reconcile_orphan(&self.state, &key, orphan, &mut turns, &self.policy, now);
            let group = self
                .state
                .nodes
                .group(&key.node.group)
                .expect("orphans' groups are interned");
            let order = (index.rank(group), key.node.index);
            let claim = draft.consider_orphan(order, &key, orphan, decision, now);
            index.release_orphan(&key);
            if let Some(claim) = claim {
                index.lane(&key.provider).fresh.push((Class::Cleanup, claim));
            }
            let wake = decision.until();
            if let Some(at) = wake {
                index.orphan_wakes.push(at, key.clone());
            }
            index.orphans.insert(key, OrphanEntry { wake, claim: None });
        }
    }

    /// Gives out the places of every provider at which somebody wants one.
    fn grant(&mut self, draft: &mut Draft, now: Timestamp) {
        let Index {
            lanes,
            slots,
            orphans,
            ..
        } = &mut self.index;
        for (kind, lane) in lanes {
            let Some(provider) = self.state.providers.get_mut(kind) else {
                continue;
            };
            if lane.queue.is_empty() && provider.pace.has_room(lane.holding, lane.fresh.len(), now) {
                // Nobody contends, so nobody has to queue.
                draft
                    .moves
                    .extend(lane.fresh.drain(..).map(|(_, claim)| claim.into_move()));
                continue;
            }
            let mut claim_of = |who: &Who, claim: Option<(Class, Claim)>| match who {
                Who::Node(slot) => slots.entry(*slot).claim = claim,
                Who::Orphan(key) => {
                    let entry = orphans.entry((**key).clone()).or_default();
                    entry.claim = claim.map(|(_, claim)| claim);
                }
            };
            for (class, claim) in lane.fresh.drain(..) {
                claim_of(&claim.who, Some((class, claim.clone())));
                lane.queue.insert(class, claim);
            }
            for (class, claim) in draft.grant(&lane.queue, &mut provider.pace, lane.holding, now) {
                lane.queue.remove(class, &claim);
                claim_of(&claim.who, None);
            }
        }
    }
}

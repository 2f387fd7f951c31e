//! Resources that no node owns: recorded, folded, and gone.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;

use super::ClusterDriver;
use super::report::answer;
use crate::effect::CommandKind;
use crate::event::EventKind;
use crate::facts::LeaseFacts;
use crate::failure::Context;
use crate::fold::found_lease;
use crate::id::{LogicalNodeId, NodeAttemptId};
use crate::node::{PassId, Stage};
use crate::observation::{Folded, Observation};
use crate::orphan::{self, Orphan, OrphanKey};
use crate::pace::Class;
use crate::state::Slot;

impl ClusterDriver {
    /// The orphans of an attempt.
    pub(super) fn orphan_keys(&self, node: &LogicalNodeId, attempt: NodeAttemptId) -> BTreeSet<OrphanKey> {
        let keys = self.state.orphans_of(node).map(|(key, _)| key);
        keys.filter(|key| key.attempt == attempt).cloned().collect()
    }

    /// Folds an observation into the orphan whose operation it speaks of.
    pub(super) fn fold_orphan(
        &mut self,
        node: &LogicalNodeId,
        attempt: NodeAttemptId,
        observation: &Observation,
        now: Timestamp,
    ) -> Folded {
        for key in self.orphan_keys(node, attempt) {
            let pass = PassId(self.state.pass.0 + 1);
            let run = &self.state.run_id;
            let orphan = self.state.orphans.get_mut(&key).expect("it was listed");
            let held = orphan.holds_place();
            let mut cx = Context::new(run, &self.policy, pass, now);
            let Some(fate) = orphan::fold(orphan, attempt, observation, &mut cx) else {
                continue;
            };
            let signal = cx.signal;
            let class = |holds: bool| holds.then_some(Class::Cleanup);
            self.index
                .hold(&key.provider, class(held), class(orphan.holds_place()));
            self.signal(&key.provider, signal, now);
            if let Some((operation, error)) = answer(observation) {
                let command = CommandKind::DestroyLease;
                self.event(
                    now,
                    EventKind::Finished {
                        node: node.clone(),
                        operation,
                        command,
                        error,
                    },
                );
            }
            if fate == orphan::Fate::Gone {
                self.forget_orphan(&key, now);
            }
            self.mark_orphans(node, attempt);
            return Folded::Applied;
        }
        Folded::Stale
    }

    /// A late answer showed a resource of an attempt that is over.
    pub(super) fn orphan_answered(&mut self, slot: Option<Slot>, observation: &Observation, now: Timestamp) {
        let Observation::Finished { outcome, .. } = observation else {
            return;
        };
        let Some((slot, created)) = slot.zip(found_lease(outcome)) else {
            return;
        };
        let node = self.state.nodes.at(slot).expect("its attempt was compared");
        let key = OrphanKey {
            node: self.state.nodes.id(slot),
            attempt: node.attempt,
            provider: node.provider.clone(),
            lease: created.lease.id.clone(),
        };
        self.record_orphan(key, created.lease.clone(), now, now);
    }

    /// Records a resource that no node owns; of a known one only when it was seen last.
    pub(super) fn record_orphan(
        &mut self,
        key: OrphanKey,
        lease: LeaseFacts,
        seen: Timestamp,
        now: Timestamp,
    ) {
        if let Some(known) = self.state.orphans.get_mut(&key) {
            known.last_seen = known.last_seen.max(seen);
            return;
        }
        let (_, new) = self.state.nodes.intern(&key.node.group);
        if new {
            self.index.learn_names(&self.state.nodes, &self.desired);
        }
        let sequence = self.state.next_sequence(&key.node, key.attempt);
        let node = self
            .state
            .nodes
            .get(&key.node)
            .filter(|node| node.attempt == key.attempt);
        let surplus = node.is_some_and(|node| node.stage != Stage::Destroyed);
        let last = node.and_then(|node| node.retry.last_command);
        let last_destroy = last.filter(|(kind, _)| *kind == CommandKind::DestroyLease);
        let last_destroy = last_destroy.map(|(_, at)| at);
        let mut orphan = Orphan::new(Arc::new(lease), seen, sequence);
        orphan.surplus = surplus;
        // The net is the attempt's: what its node sent last may have been for this very resource.
        orphan.last_dispatch = last_destroy;
        self.index.tally.orphans += 1;
        self.index.tally.surplus += u64::from(surplus);
        self.event(
            now,
            EventKind::OrphanFound {
                node: key.node.clone(),
                attempt: key.attempt,
                lease: key.lease.clone(),
                surplus,
            },
        );
        self.state.orphans.insert(key.clone(), orphan);
        self.mark_orphans(&key.node, key.attempt);
    }

    fn forget_orphan(&mut self, key: &OrphanKey, now: Timestamp) {
        self.index.release_orphan(key);
        self.index.orphans.remove(key);
        let Some(orphan) = self.state.orphans.remove(key) else {
            return;
        };
        self.index.tally.orphans -= 1;
        self.index.tally.surplus -= u64::from(orphan.surplus);
        for sibling in self.orphan_keys(&key.node, key.attempt) {
            let sibling = self.state.orphans.get_mut(&sibling).expect("it was listed");
            sibling.next_sequence = sibling.next_sequence.max(orphan.next_sequence);
        }
        let (node, attempt, lease) = (key.node.clone(), key.attempt, key.lease.clone());
        self.event(now, EventKind::OrphanGone { node, attempt, lease });
        let slot = self.state.nodes.slot(&key.node).filter(|slot| {
            let node = self.state.nodes.at(*slot);
            node.is_some_and(|node| node.attempt == key.attempt)
        });
        // The row of sequences goes on in the attempt's node: another orphan of it may turn up yet.
        if let Some(slot) = slot {
            self.change(slot, |node, _, _| {
                node.next_sequence = node.next_sequence.max(orphan.next_sequence);
            });
        }
        self.index.note_left(key.attempt);
        if slot.is_none() && self.orphan_keys(&key.node, key.attempt).is_empty() {
            self.retired.push(key.attempt);
        }
    }

    /// An attempt is retired: its sequence goes on in its orphans, which are no surplus any more.
    pub(super) fn hand_to_orphans(&mut self, node: &LogicalNodeId, attempt: NodeAttemptId, sequence: u32) {
        let keys = self.orphan_keys(node, attempt);
        self.index.note_left(attempt);
        if keys.is_empty() {
            self.retired.push(attempt);
        }
        for key in keys {
            let orphan = self.state.orphans.get_mut(&key).expect("it was listed");
            orphan.next_sequence = orphan.next_sequence.max(sequence);
            self.index.tally.surplus -= u64::from(orphan.surplus);
            orphan.surplus = false;
            self.index.dirty_orphans.insert(key);
        }
    }

    /// Looks again at the orphans of an attempt, and at its slot.
    pub(super) fn mark_orphans(&mut self, node: &LogicalNodeId, attempt: NodeAttemptId) {
        let keys = self.orphan_keys(node, attempt);
        self.index.dirty_orphans.extend(keys);
        if let Some(slot) = self.state.nodes.slot(node) {
            self.index.mark(slot);
        }
    }
}

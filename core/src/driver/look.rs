//! Looks: the questions that providers are asked for their inventory, and the first of them: what the run
//! already has there, before anything is made.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;

use super::ClusterDriver;
use crate::effect::{EffectError, FailureKind, Inventory, InventoryEntry};
use crate::event::EventKind;
use crate::failure::{PaceSignal, after, throttle_wait};
use crate::id::{LogicalNodeId, OperationId, ProviderKind};
use crate::inventory::{Findings, FirstLook};
use crate::node::{ManagedNode, PassId, RememberedCall, Stage};
use crate::observation::{Folded, Observation};
use crate::orphan::OrphanKey;
use crate::state::Slot;

/// A question that is to be asked of a provider now: one of its first look, or a later one, a sweep.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DueLook {
    /// Who is asked for its inventory of the run.
    pub provider: ProviderKind,
    /// The pass before the question: the answer is judged against the state as it was then.
    pub asked: PassId,
}

impl ClusterDriver {
    /// Hands out the questions that are to be asked now: of first looks, and then of sweeps, each once until it is
    /// answered. It is to be called with every drive, for it is what sets the moments of sweeps. O(providers).
    pub fn due_looks(&mut self, now: Timestamp) -> Vec<DueLook> {
        let Self {
            state, policy, index, ..
        } = self;
        let asked = state.pass;
        let due = state.providers.iter_mut().filter_map(|(kind, provider)| {
            let opens_at = provider.pace.not_before();
            let asks = match &mut provider.first_look {
                FirstLook::Due(look) => look.ask(opens_at, now),
                FirstLook::Done => {
                    let sweep = provider.sweep.as_mut();
                    sweep.is_some_and(|sweep| sweep.ask(asked, opens_at, policy, now))
                }
            };
            asks.then(|| {
                index.left.insert(kind.clone(), BTreeSet::new());
                DueLook {
                    provider: kind.clone(),
                    asked,
                }
            })
        });
        due.collect()
    }

    /// Says that a provider is known to hold nothing of this run: its first look counts as done.
    pub fn declare_fresh(&mut self, provider: &ProviderKind) {
        self.look_done(provider);
    }

    /// Takes a provider's answer, or its failure, to the question that was asked at `asked_at`.
    ///
    /// A failure concludes nothing and is asked again with backoff.
    pub fn inventory(
        &mut self,
        provider: &ProviderKind,
        asked: PassId,
        asked_at: Timestamp,
        answer: Result<Inventory, EffectError>,
        now: Timestamp,
    ) -> Findings {
        let known = self.state.providers.get(provider);
        let looking = known.is_some_and(|known| known.first_look != FirstLook::Done);
        if !looking && !self.is_swept_with(provider, asked) {
            // Nobody waits for it any more: it may be older than what was judged since.
            let passed_over = answer.map_or(0, |inventory| inventory.entries.len());
            return Findings {
                passed_over,
                ..Findings::default()
            };
        }
        match answer {
            Ok(inventory) if looking => {
                let findings = self.judge(provider, asked, asked_at, &inventory, now);
                self.looked(provider, asked_at, inventory.entries.len(), now);
                findings
            }
            Ok(inventory) => self.judge_sweep(provider, (asked, asked_at), &inventory, now),
            Err(error) => {
                if let FailureKind::Throttled { retry_after } = error.kind {
                    let resume_at = after(now, throttle_wait(&self.policy, retry_after));
                    let signal = PaceSignal::Throttled {
                        dispatched_at: asked_at,
                        resume_at: resume_at.unwrap_or(Timestamp::MAX),
                    };
                    self.signal(provider, Some(signal), now);
                }
                self.look_lost(provider, &error, now);
                Findings::default()
            }
        }
    }

    /// A question will not be answered: it is asked again with backoff. Nothing is concluded.
    pub fn look_lost(&mut self, provider: &ProviderKind, error: &EffectError, now: Timestamp) {
        let Self { state, policy, .. } = self;
        self.index.left.remove(provider);
        let Some(known) = state.providers.get_mut(provider) else {
            return;
        };
        let (run, provider, reason) = (&state.run_id, provider.clone(), Some(error.reason.clone()));
        let event = match (&mut known.first_look, &mut known.sweep) {
            (FirstLook::Due(look), _) => look.failed(error, run, policy, now).then_some(EventKind::Looked {
                provider,
                found: 0,
                done: false,
                error: reason,
            }),
            (FirstLook::Done, Some(sweep)) => {
                sweep.failed(error, run, policy, now).then_some(EventKind::Swept {
                    provider,
                    findings: Findings::default(),
                    error: reason,
                })
            }
            (FirstLook::Done, None) => None,
        };
        if let Some(event) = event {
            self.event(now, event);
        }
    }

    /// A question was answered.
    fn looked(&mut self, provider: &ProviderKind, asked_at: Timestamp, found: usize, now: Timestamp) {
        let visibility = self
            .setups
            .get(provider)
            .map(|setup| setup.capabilities.visibility);
        let known = self.state.providers.get_mut(provider);
        let look = known.and_then(|known| known.first_look.look_mut());
        let Some(done) = look
            .zip(visibility)
            .map(|(look, visibility)| look.answered(asked_at, visibility))
        else {
            return;
        };
        if done {
            self.look_done(provider);
        }
        let provider = provider.clone();
        self.event(
            now,
            EventKind::Looked {
                provider,
                found,
                done,
                error: None,
            },
        );
    }

    fn look_done(&mut self, provider: &ProviderKind) {
        let Some(state) = self.state.providers.get_mut(provider) else {
            return;
        };
        if state.first_look == FirstLook::Done {
            return;
        }
        state.first_look = FirstLook::Done;
        self.index.tally.unlooked -= 1;
        if self.index.tally.unlooked == 0 {
            // Every slot that is to be filled has waited for this.
            self.trigger();
        }
    }

    /// Brings what a look showed into the state. One sighting is enough.
    fn judge(
        &mut self,
        provider: &ProviderKind,
        asked: PassId,
        asked_at: Timestamp,
        inventory: &Inventory,
        now: Timestamp,
    ) -> Findings {
        let mut findings = Findings {
            listed: inventory.entries.len(),
            ..Findings::default()
        };
        self.index.left.remove(provider);
        let ours = inventory
            .entries
            .iter()
            .filter(|entry| entry.identity.run == self.state.run_id);
        let mut ours: Vec<&InventoryEntry> = ours.collect();
        findings.passed_over = inventory.entries.len() - ours.len();
        // Of several resources of one slot the highest attempt becomes the node.
        ours.sort_by_key(|entry| {
            (
                &entry.identity.node,
                Reverse(entry.identity.attempt),
                &entry.lease.id,
            )
        });
        let mut taken = None;
        for entry in ours {
            self.state.seen_attempt(entry.identity.attempt);
            let node = &entry.identity.node;
            if self.judge_entry(provider, (asked, asked_at), entry, taken, now, &mut findings) {
                taken = Some(node);
            }
        }
        findings
    }

    /// Judges one entry; says whether it became its slot's node. `taken` is the slot that was filled last by
    /// the same answer: what that says of it further is no older than its node.
    fn judge_entry(
        &mut self,
        provider: &ProviderKind,
        (asked, asked_at): (PassId, Timestamp),
        entry: &InventoryEntry,
        taken: Option<&LogicalNodeId>,
        now: Timestamp,
        findings: &mut Findings,
    ) -> bool {
        let identity = &entry.identity;
        let key = OrphanKey {
            node: identity.node.clone(),
            attempt: identity.attempt,
            provider: provider.clone(),
            lease: entry.lease.id.clone(),
        };
        // What an orphan is stays one, also once its slot is empty; so does what its attempt left beside it.
        let empty = self.state.nodes.get(&identity.node).is_none();
        let beside = empty && !self.orphan_keys(&identity.node, identity.attempt).is_empty();
        if beside || self.state.orphans.contains_key(&key) {
            self.record_orphan(key, entry.lease.clone(), asked_at, now);
            findings.orphans += 1;
            return false;
        }
        let Some(node) = self.state.nodes.get(&identity.node) else {
            self.take_in(provider, entry, now);
            findings.found += 1;
            return true;
        };
        let same = node.attempt == identity.attempt && node.provider == *provider;
        let known = node
            .lease
            .as_ref()
            .is_some_and(|lease| lease.id == entry.lease.id);
        if same && known {
            if !entry.alive && node.is_lively() && node.lease_changed <= asked {
                let reason: Arc<str> = "the provider lists its machine as dead".into();
                let lost = Observation::NodeLost { reason };
                let slot = self.state.nodes.slot(&identity.node);
                let folded = slot.map(|slot| self.fold_node(slot, &lost, now));
                findings.lost += usize::from(folded == Some(Folded::Applied));
            }
            return false;
        }
        // A lease that changed since the question, or a create that is not settled yet, explains the entry.
        let waits_for_one = same && node.lease.is_none() && node.stage != Stage::Destroyed;
        let changed_since = same && node.lease_changed > asked && taken != Some(&identity.node);
        let unsettled = node.retry.create.is_some() || node.pending.is_some() || node.unended.is_some();
        if (waits_for_one && unsettled) || changed_since {
            findings.passed_over += 1;
            return false;
        }
        if waits_for_one {
            let slot = self.state.nodes.slot(&identity.node).expect("it holds a node");
            self.remember_create(slot, asked_at);
            findings.unrecorded += 1;
            return false;
        }
        self.record_orphan(key, entry.lease.clone(), asked_at, now);
        findings.orphans += 1;
        false
    }

    /// A resource of a current attempt was listed that records no lease: somebody's answer was wrong. It is
    /// remembered as an ambiguous create, so that the look-up which follows settles whose it is.
    pub(super) fn remember_create(&mut self, slot: Slot, asked_at: Timestamp) {
        self.change(slot, |node, _, _| {
            let operation = OperationId {
                attempt: node.attempt,
                sequence: node.next_sequence.saturating_sub(1),
            };
            let ended = Some(asked_at);
            node.retry.create = Some(RememberedCall { operation, ended });
        });
    }

    /// Takes a machine that nobody knew of in as its slot's node, to be taken down past every gate.
    fn take_in(&mut self, provider: &ProviderKind, entry: &InventoryEntry, now: Timestamp) {
        let identity = &entry.identity;
        let (group, new) = self.state.nodes.intern(&identity.node.group);
        if new {
            self.index.learn_names(&self.state.nodes, &self.desired);
        }
        let mut node = ManagedNode::found(identity.attempt, provider.clone(), entry.lease.clone());
        node.endpoint = entry.endpoint.clone();
        node.lease_changed = PassId(self.state.pass.0 + 1);
        node.next_sequence = self.state.next_sequence(&identity.node, identity.attempt);
        self.index.lease_changed = true;
        self.fill(
            Slot {
                group,
                index: identity.node.index,
            },
            node,
        );
        let (node, attempt, lease) = (identity.node.clone(), identity.attempt, entry.lease.id.clone());
        self.event(now, EventKind::MachineFound { node, attempt, lease });
    }
}

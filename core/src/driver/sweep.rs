//! Sweeps: what is, compared with what is known, again and again.
//!
//! An answer is judged against the state as it was when it was asked for, of which no copy is kept: each node
//! says in which pass its lease last changed, attempts that ended since are listed in the index, and what is
//! newer than the question is not judged. Of the rest only that counts which work in flight, a remembered
//! ambiguity or the provider's visibility cannot explain.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::ClusterDriver;
use crate::effect::{Inventory, InventoryEntry};
use crate::event::EventKind;
use crate::id::{NodeAttemptId, ProviderKind};
use crate::inventory::{Findings, FirstLook};
use crate::node::{PassId, Stage};
use crate::observation::{Folded, Observation};
use crate::orphan::OrphanKey;
use crate::state::Slot;

/// A sweep's answer while it is judged.
struct Judging<'a> {
    provider: &'a ProviderKind,
    /// The pass before the question.
    asked: PassId,
    asked_at: Timestamp,
    now: Timestamp,
    /// By how much two questions must be apart whose answers count as two.
    apart: Duration,
    /// The attempts that ended since the question.
    left: BTreeSet<NodeAttemptId>,
    /// The slots whose lease was listed.
    sighted: BTreeSet<Slot>,
    suspects: BTreeMap<OrphanKey, Timestamp>,
    findings: Findings,
}

impl Judging<'_> {
    /// Whether a row of questions that began at this one is long enough for the answers to count as two.
    fn is_row(&self, since: Timestamp) -> bool {
        self.asked_at > since && lies_apart(since, self.asked_at, self.apart)
    }
}

fn lies_apart(since: Timestamp, until: Timestamp, apart: Duration) -> bool {
    let least = SignedDuration::try_from(apart).unwrap_or(SignedDuration::MAX);
    until.duration_since(since) >= least
}

impl ClusterDriver {
    /// Asks every provider for its inventory as soon as may be, whatever the interval says; says which will be
    /// asked. One whose first look is not done is asked for that anyway, and one that is being asked just now is
    /// asked again, for that question may be too old. The questions come with [`due_looks`](Self::due_looks).
    pub fn sweep(&mut self, now: Timestamp) -> Vec<ProviderKind> {
        let kinds: Vec<ProviderKind> = self.state.providers.keys().cloned().collect();
        kinds
            .into_iter()
            .filter(|kind| self.sweep_provider(kind, now))
            .collect()
    }

    /// The same for one provider; `false` if it has no inventory.
    pub fn sweep_provider(&mut self, provider: &ProviderKind, now: Timestamp) -> bool {
        let Some(provider) = self.state.providers.get_mut(provider) else {
            return false;
        };
        let looked = provider.first_look == FirstLook::Done;
        match &mut provider.sweep {
            Some(sweep) if looked => sweep.want(now),
            Some(_) => {}
            None => return false,
        }
        true
    }

    /// The next moment at which a provider is to be swept. O(providers).
    ///
    /// It is no part of [`requeue_at`](Self::requeue_at): sweeps go on for ever, and a converged run has nothing
    /// to do and nothing to wait for.
    pub fn sweep_at(&self) -> Option<Timestamp> {
        let looked = self.state.providers.values();
        let looked = looked.filter(|provider| provider.first_look == FirstLook::Done);
        let moments =
            looked.filter_map(|provider| provider.sweep.as_ref()?.moment(provider.pace.not_before()));
        moments.min()
    }

    /// Whether the sweep that is under way at a provider is this one.
    pub(super) fn is_swept_with(&self, provider: &ProviderKind, asked: PassId) -> bool {
        let provider = self.state.providers.get(provider);
        let sweep = provider.and_then(|provider| provider.sweep.as_ref());
        sweep.is_some_and(|sweep| sweep.asking == Some(asked))
    }

    /// Judges the answer to a sweep. O(nodes, and entries times the logarithm of the nodes).
    pub(super) fn judge_sweep(
        &mut self,
        provider: &ProviderKind,
        (asked, asked_at): (PassId, Timestamp),
        inventory: &Inventory,
        now: Timestamp,
    ) -> Findings {
        let setup = self.setups.get(provider);
        let visibility = setup.map_or(Duration::ZERO, |setup| setup.capabilities.visibility);
        let mut judging = Judging {
            provider,
            asked,
            asked_at,
            now,
            apart: visibility.max(self.policy.sweep_interval / 2),
            left: self.index.left.remove(provider).unwrap_or_default(),
            sighted: BTreeSet::new(),
            suspects: BTreeMap::new(),
            findings: Findings::default(),
        };
        judging.findings.listed = inventory.entries.len();
        for entry in &inventory.entries {
            if entry.identity.run == self.state.run_id {
                self.state.seen_attempt(entry.identity.attempt);
                self.judge_sighting(&mut judging, entry);
            } else {
                judging.findings.passed_over += 1;
            }
        }
        self.judge_missing(&mut judging);
        let Judging {
            suspects, findings, ..
        } = judging;
        let known = self.state.providers.get_mut(provider);
        if let Some(sweep) = known.and_then(|known| known.sweep.as_mut()) {
            sweep.suspects = suspects;
            sweep.done(asked_at, &self.policy, now);
        }
        self.event(
            now,
            EventKind::Swept {
                provider: provider.clone(),
                findings: findings.clone(),
                error: None,
            },
        );
        // The safety net under all events.
        self.trigger();
        findings
    }

    /// Judges one resource of this run that was listed.
    fn judge_sighting(&mut self, judging: &mut Judging<'_>, entry: &InventoryEntry) {
        let identity = &entry.identity;
        let key = OrphanKey {
            node: identity.node.clone(),
            attempt: identity.attempt,
            provider: judging.provider.clone(),
            lease: entry.lease.id.clone(),
        };
        if self.state.orphans.contains_key(&key) {
            self.record_orphan(key, entry.lease.clone(), judging.asked_at, judging.now);
            judging.findings.orphans += 1;
            return;
        }
        let slot = self.state.nodes.slot(&identity.node);
        let found = slot.and_then(|slot| Some((slot, self.state.nodes.at(slot)?)));
        let Some((slot, node)) = found.filter(|(_, node)| node.attempt == identity.attempt) else {
            return self.suspect(judging, key, entry);
        };
        let newer = node.lease_changed > judging.asked;
        let here = node.provider == *judging.provider;
        if node.stage == Stage::Destroyed {
            if newer {
                judging.findings.passed_over += 1;
            } else {
                self.suspect(judging, key, entry);
            }
            return;
        }
        match &node.lease {
            Some(lease) if here && lease.id == entry.lease.id => {
                judging.sighted.insert(slot);
                // Also what is newer than the question was there, and ends its row.
                if node.missing_since.is_some() {
                    self.change(slot, |node, _, _| node.missing_since = None);
                }
                if newer {
                    judging.findings.passed_over += 1;
                } else {
                    self.judge_lease(judging, slot, entry);
                }
            }
            _ if newer => judging.findings.passed_over += 1,
            None if here => {
                let retry = &node.retry;
                if node.pending.is_some() || node.unended.is_some() || retry.create.is_some() {
                    // It is being made, looked for or settled just now.
                    judging.findings.passed_over += 1;
                } else {
                    self.remember_create(slot, judging.asked_at);
                    judging.findings.unrecorded += 1;
                }
            }
            _ => {
                self.record_orphan(key, entry.lease.clone(), judging.asked_at, judging.now);
                judging.findings.orphans += 1;
            }
        }
    }

    /// Judges a known lease that was listed.
    fn judge_lease(&mut self, judging: &mut Judging<'_>, slot: Slot, entry: &InventoryEntry) {
        let now = judging.now;
        let Some(node) = self.state.nodes.at(slot) else {
            return;
        };
        let known = node.endpoint.as_ref();
        let moved = entry
            .endpoint
            .as_ref()
            .filter(|shown| known.is_some_and(|known| known != *shown));
        let (attempt, lively) = (node.attempt, node.is_lively());
        if !entry.alive {
            if lively {
                self.lose(judging, slot, "the provider lists its machine as dead");
            }
        } else if let Some(endpoint) = moved {
            judging.findings.moved += 1;
            let (node, endpoint) = (entry.identity.node.clone(), endpoint.clone());
            let moved = Observation::EndpointMoved(endpoint.clone());
            self.event(
                now,
                EventKind::MachineMoved {
                    node,
                    attempt,
                    endpoint,
                },
            );
            let _ = self.fold_node(slot, &moved, now);
        }
    }

    /// A resource was listed whose attempt is over, or never was. Seen twice in a row it is an orphan: what a
    /// provider has just destroyed it may show a while longer.
    fn suspect(&mut self, judging: &mut Judging<'_>, key: OrphanKey, entry: &InventoryEntry) {
        if judging.left.contains(&key.attempt) {
            judging.findings.passed_over += 1;
            return;
        }
        let known = self.state.providers.get(judging.provider);
        let sweep = known.and_then(|known| known.sweep.as_ref());
        let first = sweep.and_then(|sweep| sweep.suspects.get(&key)).copied();
        let first = first.unwrap_or(judging.asked_at);
        if !judging.is_row(first) {
            judging.findings.suspects += 1;
            judging.suspects.insert(key, first);
            return;
        }
        self.record_orphan(key.clone(), entry.lease.clone(), judging.asked_at, judging.now);
        if let Some(orphan) = self.state.orphans.get_mut(&key) {
            orphan.first_seen = first;
        }
        judging.findings.orphans += 1;
    }

    /// Judges the known leases that were not listed. Those that are being taken down are left out: what is going
    /// explains that it is gone.
    fn judge_missing(&mut self, judging: &mut Judging<'_>) {
        let nodes = &self.state.nodes;
        let mut known = 0_u64;
        let mut missing = Vec::new();
        for (slot, node) in nodes.groups().flat_map(|(_, group)| nodes.slots_of(group)) {
            let judged = node.provider == *judging.provider
                && node.lease.is_some()
                && node.is_lively()
                && node.lease_changed <= judging.asked;
            known += u64::from(judged);
            if judged && !judging.sighted.contains(&slot) {
                missing.push(slot);
            }
        }
        let many = missing.len() as u64;
        let share = u64::from(self.policy.max_lost_share_per_mille);
        let mass = many * 1000 > share * known && many >= u64::from(self.policy.max_lost_least);
        let Some(state) = self.state.providers.get_mut(judging.provider) else {
            return;
        };
        let before = state.mass_loss_since;
        state.mass_loss_since = mass.then(|| before.unwrap_or(judging.asked_at));
        let (held_since, hold) = (state.mass_loss_since, self.policy.mass_loss_hold);
        // What was missed in an outage begins a row of its own once that is over.
        let anew = before.is_some() && !mass;
        for slot in missing {
            let since = self.change(slot, |node, _, _| {
                let since = node.missing_since.filter(|_| !anew).unwrap_or(judging.asked_at);
                node.missing_since = Some(since);
                since
            });
            let Some(since) = since else { continue };
            let believed = match held_since {
                Some(held) => lies_apart(since.max(held), judging.asked_at, hold),
                None => judging.is_row(since),
            };
            if believed {
                self.lose(judging, slot, "the provider lists its machine no more");
            } else {
                judging.findings.missing += 1;
            }
        }
        judging.findings.held = mass && judging.findings.missing > 0;
    }

    fn lose(&mut self, judging: &mut Judging<'_>, slot: Slot, reason: &str) {
        let reason: Arc<str> = reason.into();
        let folded = self.fold_node(slot, &Observation::NodeLost { reason }, judging.now);
        judging.findings.lost += usize::from(folded == Folded::Applied);
    }
}

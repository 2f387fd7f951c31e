//! What must hold of an inventory, and of what was concluded from it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use nodewright_core::driver::DueLook;
use nodewright_core::effect::{EffectError, Inventory, InventoryEntry};
use nodewright_core::id::{NodeAttemptId, ProviderKind};
use nodewright_core::node::{ManagedNode, PassId, Stage};
use nodewright_core::orphan::OrphanKey;
use nodewright_core::state::ClusterState;

use super::{Broken, demand};
use crate::sim::Sim;
use crate::subject::Subject;
use crate::trace::Listing;

/// A sweep's answer, and the state before it was judged.
pub(crate) struct Answered<'a> {
    pub(crate) look: &'a DueLook,
    pub(crate) asked_at: Timestamp,
    pub(crate) answer: &'a Result<Inventory, EffectError>,
    pub(crate) before: &'a ClusterState,
}

fn is_lively(node: &ManagedNode) -> bool {
    node.is_active() && !matches!(node.stage, Stage::Failed | Stage::Destroyed)
}

fn is_apart(since: Timestamp, until: Timestamp, least: Duration) -> bool {
    let least = SignedDuration::try_from(least).expect("traces are short");
    until > since && until.duration_since(since) >= least
}

/// Whether a node holds a lease of this provider that an answer to this question may speak of.
fn is_judged(node: &ManagedNode, provider: &ProviderKind, asked: PassId) -> bool {
    let here = node.provider == *provider && node.lease.is_some();
    here && is_lively(node) && node.lease_changed <= asked
}

fn holds(node: &ManagedNode, entry: &InventoryEntry) -> bool {
    let lease = node.lease.as_ref();
    node.attempt == entry.identity.attempt && lease.is_some_and(|lease| lease.id == entry.lease.id)
}

impl<S: Subject> Sim<S> {
    /// G27 and G28, of one answer.
    pub(crate) fn check_sweep(&mut self, answered: &Answered<'_>) -> Result<(), Broken> {
        let Answered { before, answer, .. } = *answered;
        let after = self.driver.state();
        let Ok(inventory) = answer else {
            demand!(
                before.nodes == after.nodes && before.orphans == after.orphans,
                "G28: something was concluded from a failed answer"
            );
            return Ok(());
        };
        let provider = &answered.look.provider;
        let listing = self.providers[provider].backend.control().last_listing();
        let honest = listing == Some(Listing::Full);
        let living = self.providers[provider].subject.living();
        let living: BTreeSet<NodeAttemptId> = living.iter().map(|one| one.identity.attempt).collect();
        let shown: BTreeMap<NodeAttemptId, &InventoryEntry> = inventory
            .entries
            .iter()
            .map(|entry| (entry.identity.attempt, entry))
            .collect();
        self.note_rows(answered, inventory, &shown);
        self.g28_what_a_sweep_changes_it_has_a_reason_for(answered, &shown, honest, &living)?;
        self.g28_orphans_are_what_two_answers_showed(answered, inventory, honest, &living)
    }

    /// Keeps the rows of answers that missed or showed something.
    fn note_rows(
        &mut self,
        answered: &Answered<'_>,
        inventory: &Inventory,
        shown: &BTreeMap<NodeAttemptId, &InventoryEntry>,
    ) {
        let (provider, before) = (&answered.look.provider, answered.before);
        let mut missed = BTreeMap::new();
        for (_, node) in before.nodes.iter() {
            let listed = shown.get(&node.attempt).is_some_and(|entry| holds(node, entry));
            if is_judged(node, provider, answered.look.asked) && !listed {
                let key = (provider.clone(), node.attempt);
                let since = self.history.missed.get(&key).copied();
                missed.insert(key, since.unwrap_or(answered.asked_at));
            }
        }
        self.history.missed.retain(|(of, _), _| of != provider);
        self.history.missed.extend(missed);
        let mut row = BTreeMap::new();
        for entry in &inventory.entries {
            let key = OrphanKey {
                node: entry.identity.node.clone(),
                attempt: entry.identity.attempt,
                provider: provider.clone(),
                lease: entry.lease.id.clone(),
            };
            let since = self.history.shown.get(&key).copied();
            row.insert(key, since.unwrap_or(answered.asked_at));
        }
        self.history.shown.retain(|key, _| key.provider != *provider);
        self.history.shown.extend(row);
    }

    fn g28_what_a_sweep_changes_it_has_a_reason_for(
        &self,
        answered: &Answered<'_>,
        shown: &BTreeMap<NodeAttemptId, &InventoryEntry>,
        honest: bool,
        living: &BTreeSet<NodeAttemptId>,
    ) -> Result<(), Broken> {
        let (provider, asked) = (&answered.look.provider, answered.look.asked);
        let (before, after) = (answered.before, self.driver.state());
        let policy = self.driver.policy();
        let judged = before
            .nodes
            .iter()
            .filter(|(_, node)| is_judged(node, provider, asked));
        let known = judged.count() as u64;
        let rows = self.history.missed.keys();
        let missing = rows.filter(|(of, _)| of == provider).count() as u64;
        let mass = missing * 1000 > u64::from(policy.max_lost_share_per_mille) * known
            && missing >= u64::from(policy.max_lost_least);
        let apart = self.apart(provider);
        for (id, old) in before.nodes.iter() {
            let new = after.nodes.get(&id);
            let new = new.ok_or_else(|| Broken(format!("G28: a sweep emptied {id}")))?;
            let listed = shown.get(&old.attempt).filter(|entry| holds(old, entry));
            let judged = is_judged(old, provider, asked);
            let dead = listed.is_some_and(|entry| !entry.alive);
            demand!(
                !(judged && dead && is_lively(new)),
                "G27: {id} is listed as dead and goes on"
            );
            let mut same = new.clone();
            same.missing_since = old.missing_since;
            if same == *old {
                continue;
            }
            if is_lively(old) && new.stage == Stage::Failed {
                demand!(
                    judged,
                    "G28: {id} was lost by an answer that is older than its lease"
                );
                let moved =
                    listed.is_some_and(|entry| entry.endpoint.is_some() && entry.endpoint != old.endpoint);
                if dead || moved {
                    continue;
                }
                let row = self.history.missed.get(&(provider.clone(), old.attempt)).copied();
                let least = if mass { policy.mass_loss_hold } else { apart };
                demand!(
                    row.is_some_and(|since| is_apart(since, answered.asked_at, least)),
                    "G28: {id} was lost, and answers miss it since {row:?}, {missing} of {known} are missing"
                );
                demand!(
                    !honest || !living.contains(&old.attempt),
                    "G28: {id} was lost, and its machine lives"
                );
                continue;
            }
            let in_flight = old.pending.is_some() || old.unended.is_some() || old.retry.create.is_some();
            let unrecorded = old.lease.is_none() && new.retry.create.is_some() && !in_flight;
            let moved = listed.is_some_and(|entry| entry.endpoint == new.endpoint);
            demand!(
                (unrecorded && shown.contains_key(&old.attempt)) || moved,
                "G28: a sweep changed {id} from {old:?} to {new:?}"
            );
        }
        demand!(
            after.nodes.len() == before.nodes.len(),
            "G28: a sweep took something in"
        );
        Ok(())
    }

    fn g28_orphans_are_what_two_answers_showed(
        &self,
        answered: &Answered<'_>,
        inventory: &Inventory,
        honest: bool,
        living: &BTreeSet<NodeAttemptId>,
    ) -> Result<(), Broken> {
        let (before, after) = (answered.before, self.driver.state());
        let apart = self.apart(&answered.look.provider);
        for (key, orphan) in &after.orphans {
            if before.orphans.contains_key(key) {
                continue;
            }
            let ours = inventory.entries.iter().any(|entry| {
                entry.identity.attempt == key.attempt
                    && entry.identity.run == after.run_id
                    && entry.lease.id == key.lease
            });
            demand!(ours, "G28: {key} became an orphan, and is not listed as ours");
            let node = before.nodes.get(&key.node);
            let current = node.filter(|node| node.attempt == key.attempt && node.stage != Stage::Destroyed);
            let row = self.history.shown.get(key).copied();
            demand!(
                current.is_some() == orphan.surplus,
                "G28: {key} is a surplus, or its attempt is over: {orphan:?}"
            );
            demand!(
                orphan.surplus || row.is_some_and(|since| is_apart(since, answered.asked_at, apart)),
                "G28: {key} became an orphan, and answers show it since {row:?}"
            );
            demand!(
                !honest || living.contains(&key.attempt),
                "G28: {key} became an orphan, and is not there"
            );
        }
        demand!(
            before.orphans.keys().all(|key| after.orphans.contains_key(key)),
            "G28: a sweep made an orphan forgotten"
        );
        Ok(())
    }

    /// By how much two questions must be apart whose answers count as two.
    fn apart(&self, provider: &ProviderKind) -> Duration {
        use nodewright_core::effect::EffectBackend as _;
        let visibility = self.providers[provider].backend.capabilities().visibility;
        visibility.max(self.driver.policy().sweep_interval / 2)
    }
}

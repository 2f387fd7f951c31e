//! What must hold of a sweep: of what its answer changed, and of what it kept for the next one.
//!
//! Judged by what was known when the question was asked, which is kept with the question, and by rows of answers
//! that are kept here, beside those of the driver.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use nodewright_core::effect::{EffectError, Inventory, InventoryEntry};
use nodewright_core::facts::LeaseId;
use nodewright_core::node::{ManagedNode, Stage};
use nodewright_core::state::ClusterState;

use super::{Held, lively};
use crate::exhaustive::setup::Setup;
use crate::exhaustive::world::{Looking, Rows, World, hold};

/// An answer, by the leases that it lists.
type Listed<'a> = BTreeMap<&'a LeaseId, &'a InventoryEntry>;

impl World {
    /// G27 and G28, of one answer to a sweep.
    pub(in crate::exhaustive) fn check_answer(
        &mut self,
        setup: &Setup,
        looking: &Looking,
        answer: &Result<Inventory, EffectError>,
        before: &ClusterState,
    ) -> Held {
        let after = self.driver.state();
        let Ok(inventory) = answer else {
            hold!(
                "G28",
                before.nodes == after.nodes && before.orphans == after.orphans,
                "something was concluded from a failed answer"
            );
            return Ok(());
        };
        let entries = inventory.entries.iter();
        let listed: Listed<'_> = entries.map(|entry| (&entry.lease.id, entry)).collect();
        self.rows = self.rows.after(looking, &listed);
        let least = self.least_row(setup, looking, &listed, before);
        self.what_an_answer_loses_it_has_a_reason_for(looking, &listed, before, least)?;
        self.orphans_are_what_two_answers_showed(setup, looking, &listed, before)
    }

    /// How long a row of answers must be that loses what all of them miss: longer if much is missing at once.
    fn least_row(
        &self,
        setup: &Setup,
        looking: &Looking,
        listed: &Listed<'_>,
        before: &ClusterState,
    ) -> Duration {
        let nodes = before
            .nodes
            .iter()
            .filter(|(_, node)| lively(node) && looking.may_judge(node));
        let leases: Vec<&LeaseId> = nodes
            .filter_map(|(_, node)| Some(&node.lease.as_ref()?.id))
            .collect();
        let known = leases.len() as u64;
        let missing = leases.iter().filter(|lease| !listed.contains_key(*lease)).count() as u64;
        let policy = &setup.policy;
        let mass = missing * 1000 > u64::from(policy.max_lost_share_per_mille) * known
            && missing >= u64::from(policy.max_lost_least);
        if mass {
            policy.mass_loss_hold
        } else {
            setup.apart()
        }
    }

    /// G27: what is listed as dead is lost. G28: nothing else changes that was not missed by two answers, had
    /// not moved, or was not there though nobody knew; and nothing that is newer than the question.
    fn what_an_answer_loses_it_has_a_reason_for(
        &mut self,
        looking: &Looking,
        listed: &Listed<'_>,
        before: &ClusterState,
        least: Duration,
    ) -> Held {
        let after = self.driver.state();
        hold!(
            "G28",
            after.nodes.len() == before.nodes.len(),
            "an answer filled a slot or emptied one"
        );
        for (id, was) in before.nodes.iter() {
            let is = after.nodes.get(&id).expect("no slot was emptied");
            let judged = looking.may_judge(was);
            let entry = was.lease.as_ref().and_then(|lease| listed.get(&lease.id));
            let dead = judged && entry.is_some_and(|entry| !entry.alive);
            let moved = judged
                && entry.is_some_and(|entry| {
                    entry.alive && was.endpoint.is_some() && entry.endpoint != was.endpoint
                });
            hold!(
                "G27",
                !(dead && lively(was) && lively(is)),
                "{id} is listed as dead and goes on"
            );
            hold!(
                "G28",
                !moved || entry.is_some_and(|entry| entry.endpoint == is.endpoint),
                "{id} moved, and nobody noticed"
            );
            let marked = is.missing_since.is_some() && is.missing_since != was.missing_since;
            hold!(
                "G28",
                !marked || (judged && lively(was) && entry.is_none()),
                "{id} counts as missing, by an answer that does not say so"
            );
            let mut same = is.clone();
            same.missing_since = was.missing_since;
            if same == *was {
                continue;
            }
            if lively(was) && is.stage == Stage::Failed {
                let since = was
                    .lease
                    .as_ref()
                    .and_then(|lease| self.rows.missed.get(&lease.id));
                let missing = judged && entry.is_none() && is_row(since, looking.asked_at, least);
                hold!(
                    "G28",
                    dead || missing || (moved && was.join.is_none()),
                    "attempt {} of {id} was lost, and answers miss it since {since:?}",
                    was.attempt
                );
                self.done.lost.insert(was.attempt);
                continue;
            }
            let settling = was.pending.is_some() || was.unended.is_some() || was.retry.create.is_some();
            let shown = listed.values().any(|entry| entry.identity.attempt == was.attempt);
            let unrecorded = was.lease.is_none() && is.retry.create.is_some() && !settling && shown;
            hold!(
                "G28",
                moved || unrecorded,
                "an answer changed attempt {} of {id} and had no reason to",
                was.attempt
            );
        }
        Ok(())
    }

    /// G28: what two answers showed and nobody owned since the first question is an orphan, and nothing else is.
    fn orphans_are_what_two_answers_showed(
        &self,
        setup: &Setup,
        looking: &Looking,
        listed: &Listed<'_>,
        before: &ClusterState,
    ) -> Held {
        let after = self.driver.state();
        for (key, orphan) in &after.orphans {
            if before.orphans.contains_key(key) {
                continue;
            }
            let since = self.rows.shown.get(&key.lease);
            let node = before.nodes.get(&key.node);
            let current = node.filter(|node| node.attempt == key.attempt && node.stage != Stage::Destroyed);
            let beside = current
                .and_then(|node| node.lease.as_ref())
                .is_some_and(|lease| lease.id != key.lease && looking.leases.contains_key(&lease.id));
            let shown = if orphan.surplus {
                beside
            } else {
                current.is_none() && is_row(since, looking.asked_at, setup.apart())
            };
            hold!(
                "G28",
                shown && listed.contains_key(&key.lease),
                "{key} became an orphan, and answers show it since {since:?}"
            );
        }
        hold!(
            "G28",
            before.orphans.keys().all(|key| after.orphans.contains_key(key)),
            "an answer made an orphan forgotten"
        );
        let mut sweeps = after
            .providers
            .values()
            .filter_map(|provider| provider.sweep.as_ref());
        let mut suspects = sweeps.by_ref().flat_map(|sweep| &sweep.suspects);
        let foreign = suspects.find(|(key, _)| !self.rows.shown.contains_key(&key.lease));
        hold!(
            "G28",
            foreign.is_none(),
            "{foreign:?} is suspected, and is newer than the question"
        );
        Ok(())
    }
}

impl Looking {
    /// Whether the node holds what it held when this was asked, so that the answer may speak of it.
    fn may_judge(&self, node: &ManagedNode) -> bool {
        let then = node.lease.as_ref().and_then(|lease| self.leases.get(&lease.id));
        then.is_some_and(|endpoint| *endpoint == node.endpoint)
    }
}

impl Rows {
    /// The rows after one more answer.
    fn after(&self, looking: &Looking, listed: &Listed<'_>) -> Self {
        let begun = |row: &BTreeMap<LeaseId, Timestamp>, lease: &LeaseId| {
            let since = row.get(lease).copied().unwrap_or(looking.asked_at);
            (lease.clone(), since)
        };
        let missed = looking.leases.keys().filter(|lease| !listed.contains_key(lease));
        let nobodys = |entry: &&&InventoryEntry| {
            let attempt = &entry.identity.attempt;
            !looking.lived.contains(attempt) && !looking.ended.contains(attempt)
        };
        let shown = listed.values().filter(nobodys);
        Self {
            missed: missed.map(|lease| begun(&self.missed, lease)).collect(),
            shown: shown.map(|entry| begun(&self.shown, &entry.lease.id)).collect(),
        }
    }
}

/// Whether a row of answers that began then is long enough with the one to this question.
fn is_row(since: Option<&Timestamp>, asked_at: Timestamp, least: Duration) -> bool {
    let until = since.and_then(|since| since.checked_add(least).ok());
    until.is_some_and(|until| until <= asked_at && since.is_some_and(|since| *since < asked_at))
}

//! What really lives at the providers, and what was asked of them.

use std::collections::BTreeMap;

use nodewright_core::id::{AttemptIdentity, LogicalNodeId};
use nodewright_core::ledger::Ledger;

use super::{Broken, demand};
use crate::sim::Sim;
use crate::subject::Subject;

impl<S: Subject> Sim<S> {
    pub(super) fn check_providers(&mut self) -> Result<(), Broken> {
        for provider in self.providers.values() {
            if let Some(broken) = provider.backend.control().take_broken().pop() {
                return Err(Broken(broken));
            }
        }
        if std::mem::take(&mut self.stirred) {
            self.g10_a_slot_has_one_resource()?;
            self.g7_a_lease_is_held_by_whose_it_is()?;
        }
        self.g30_ledgers_know_what_lives()?;
        self.pace_is_kept()
    }

    /// Per attempt one resource at most, per slot those of one attempt at most: in this moment, and of an
    /// attempt at any time.
    fn g10_a_slot_has_one_resource(&mut self) -> Result<(), Broken> {
        let mut holders: BTreeMap<LogicalNodeId, AttemptIdentity> = BTreeMap::new();
        for (kind, provider) in &self.providers {
            let living = provider.subject.living();
            for one in &living {
                let other = holders.insert(one.identity.node.clone(), one.identity.clone());
                demand!(other.is_none(), "G10: {} lives beside {other:?}", one.identity);
            }
            self.history.g10_an_attempt_has_one_resource_ever(kind, &living)?;
        }
        Ok(())
    }

    /// What a node holds, if it lives, is its own attempt's. Of an orphan a list says whose it is.
    fn g7_a_lease_is_held_by_whose_it_is(&self) -> Result<(), Broken> {
        let nodes = &self.driver.state().nodes;
        for (kind, provider) in &self.providers {
            let living = provider.subject.living().into_iter();
            let living: BTreeMap<_, _> = living.map(|one| (one.name, one.identity)).collect();
            for (id, node) in nodes.iter().filter(|(_, node)| node.provider == *kind) {
                let lease = node.lease.as_ref();
                let whose = lease.and_then(|lease| living.get(lease.id.as_str()));
                let own = |whose: &AttemptIdentity| whose.node == id && whose.attempt == node.attempt;
                demand!(
                    whose.is_none_or(own),
                    "G7: {id}, attempt {}, holds what is {whose:?}'s",
                    node.attempt
                );
            }
        }
        Ok(())
    }

    /// A ledger knows live attempts and calls that are at work, and nothing else.
    fn g30_ledgers_know_what_lives(&self) -> Result<(), Broken> {
        let state = self.driver.state();
        let ledgers = self.providers.values().map(|provider| &provider.ledger);
        let known: usize = ledgers.map(Ledger::len).sum();
        let live = state.nodes.len() + state.orphans.len() + self.running.len();
        demand!(
            known <= live,
            "G30: the ledgers know {known} attempts, and {live} live"
        );
        Ok(())
    }

    /// A provider is never asked more at once than it may be.
    fn pace_is_kept(&self) -> Result<(), Broken> {
        let most = self.config.pace.max_in_flight.get() as usize;
        for (kind, provider) in &self.providers {
            let running = self.running.iter();
            let at_work = running.filter(|call| call.effect.provider == *kind).count();
            let asked = at_work + provider.submitted.len();
            demand!(
                asked <= most,
                "pace: {asked} calls at {kind} at once, and {most} are granted"
            );
        }
        Ok(())
    }
}

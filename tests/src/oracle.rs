//! What must hold, compared with what there is.

use std::collections::BTreeMap;

use futures_util::FutureExt;
use jiff::Timestamp;
use nodewright_core::driver::ClusterDriver;
use nodewright_core::effect::{EffectBackend, InventoryEntry, PlannedEffect};
use nodewright_core::facts::LeaseId;
use nodewright_core::id::{AttemptIdentity, LogicalNodeId, NodeAttemptId, ProviderKind};
use nodewright_core::node::{Intent, Stage};
use nodewright_core::plan::reconcile;

use crate::sim::{Broken, Sim};

type Held = BTreeMap<(ProviderKind, LogicalNodeId, NodeAttemptId, LeaseId), usize>;

macro_rules! demand {
    ($holds:expr, $($what:tt)*) => {
        if !$holds {
            return Err(Broken(format!($($what)*)));
        }
    };
}

/// G29, before a pass: what it would do is what the full pass plans. It speaks of a node that cannot go on
/// when that begins, and the full pass always.
pub(crate) fn check_preview(driver: &ClusterDriver, now: Timestamp) -> Result<(), Broken> {
    let mut full = reconcile(driver.state(), driver.desired(), driver.policy(), now);
    let mut preview = driver.preview(now);
    let faults = std::mem::take(&mut full.faults);
    let known = std::mem::take(&mut preview.faults)
        .iter()
        .all(|fault| faults.contains(fault));
    demand!(
        known && preview == full,
        "G29: incremental {preview:#?}\nfull {full:#?}"
    );
    Ok(())
}

/// G29 and G3, after a drive: nothing is left to do now, and the next moment lies ahead.
pub(crate) fn check_rest(driver: &ClusterDriver, now: Timestamp) -> Result<(), Broken> {
    let full = reconcile(driver.state(), driver.desired(), driver.policy(), now);
    demand!(
        full.actions.is_empty(),
        "G29: left to do after a drive: {:#?}",
        full.actions
    );
    let requeue_at = driver.requeue_at();
    demand!(
        requeue_at == full.requeue_at,
        "G29: requeue {requeue_at:?}, in full {:?}",
        full.requeue_at
    );
    demand!(
        requeue_at.is_none_or(|at| at > now),
        "G3: requeue at {requeue_at:?}, and it is {now}"
    );
    Ok(())
}

impl<B: EffectBackend> Sim<B> {
    /// What all providers hold of the run.
    pub fn live(&self) -> Vec<(ProviderKind, InventoryEntry)> {
        let mut live = Vec::new();
        for (kind, provider) in &self.providers {
            let listed = provider.backend.list_leases(&self.shape.run_id).now_or_never();
            let listed = listed.and_then(Result::ok).unwrap_or_default();
            live.extend(listed.entries.into_iter().map(|entry| (kind.clone(), entry)));
        }
        live
    }

    /// G8: whatever was handed over is pending in the state. G30: an attempt repeats a command no sooner than
    /// the net of chapter 2 allows.
    pub(crate) fn check_recorded(&mut self, accepted: &[PlannedEffect]) -> Result<(), Broken> {
        let (state, policy) = (self.driver.state(), &self.config.policy);
        for PlannedEffect {
            node,
            operation,
            command,
            ..
        } in accepted
        {
            let node = state.nodes.get(node).and_then(|node| node.pending.as_ref());
            if node.is_none_or(|pending| pending.id != *operation) {
                let orphans = state.orphans.values();
                let mut pending = orphans.filter_map(|orphan| orphan.pending.as_ref());
                demand!(
                    pending.any(|pending| pending.id == *operation),
                    "G8: {operation} is not recorded"
                );
                continue;
            }
            let kind = command.kind();
            let net = if kind.is_look_up() {
                policy.probe_interval
            } else {
                policy.initial_delay
            };
            let last = self.dispatched.insert(operation.attempt, (kind, self.now));
            let last = last.filter(|(last, _)| *last == kind);
            let soonest = last.map(|(_, at)| at.checked_add(net).expect("traces are short"));
            demand!(
                soonest.is_none_or(|soonest| soonest <= self.now),
                "G30: {kind} was sent for attempt {} and again within {net:?}",
                operation.attempt
            );
        }
        Ok(())
    }

    /// After a drive.
    pub(crate) fn check_after_drive(&self) -> Result<(), Broken> {
        check_rest(&self.driver, self.now)?;
        self.check()
    }

    /// What must hold after every step.
    pub(crate) fn check(&self) -> Result<(), Broken> {
        let state = self.driver.state();
        if let Err(broken) = state.check() {
            return Err(Broken(broken.join("; ")));
        }
        self.check_orphans()?;
        self.check_numbers()?;
        self.check_provider()?;
        self.check_ledgers()?;
        self.check_pace()
    }

    fn check_orphans(&self) -> Result<(), Broken> {
        let state = self.driver.state();
        let mut pending: BTreeMap<NodeAttemptId, usize> = BTreeMap::new();
        let mut next: BTreeMap<NodeAttemptId, u32> = BTreeMap::new();
        for (_, node) in state.nodes.iter() {
            *pending.entry(node.attempt).or_default() += usize::from(node.pending.is_some());
            next.insert(node.attempt, node.next_sequence);
        }
        for (key, orphan) in &state.orphans {
            *pending.entry(key.attempt).or_default() += usize::from(orphan.pending.is_some());
            let next = next.entry(key.attempt).or_default();
            *next = (*next).max(orphan.next_sequence);
            let node = state
                .nodes
                .get(&key.node)
                .filter(|node| node.attempt == key.attempt);
            let current = node.filter(|node| node.stage != Stage::Destroyed);
            let own = current.and_then(|node| node.lease.as_ref());
            let provider = current.map(|node| &node.provider);
            demand!(
                own.is_none_or(|own| own.id != key.lease) || provider != Some(&key.provider),
                "G7: {key} is an orphan and held by its node"
            );
            demand!(
                !orphan.surplus || node.is_some(),
                "orphan {key} is a surplus of no attempt"
            );
            demand!(
                state.next_attempt_id.is_none_or(|next| key.attempt < next),
                "G4: orphan {key} is not below the allocator"
            );
        }
        for (key, orphan) in &state.orphans {
            let Some(operation) = orphan.pending.as_ref().map(|pending| pending.id) else {
                continue;
            };
            demand!(
                operation.attempt == key.attempt && operation.sequence < next[&key.attempt],
                "G5: orphan {key} has {operation} pending"
            );
        }
        for (attempt, count) in pending {
            demand!(count <= 1, "G9: attempt {attempt} has {count} operations pending");
        }
        Ok(())
    }

    /// The kept numbers are what counting gives.
    fn check_numbers(&self) -> Result<(), Broken> {
        let (state, desired) = (self.driver.state(), self.driver.desired());
        let summary = self.driver.summary();
        let count = |what: &dyn Fn(&nodewright_core::node::ManagedNode) -> bool| {
            state.nodes.iter().filter(|(_, node)| what(node)).count() as u64
        };
        let mut stages = [0; 10];
        for (_, node) in state.nodes.iter() {
            stages[node.stage as usize] += 1;
        }
        for (what, kept, counted) in [
            ("nodes", summary.nodes, count(&|_| true)),
            ("desired", summary.desired, desired.expand().count() as u64),
            ("ready", summary.ready, count(&|node| node.ready)),
            (
                "deleting",
                summary.deleting,
                count(&|node| node.intent == Intent::Deleting),
            ),
            (
                "halted",
                summary.halted,
                count(&|node| node.retry.halted.is_some()),
            ),
            ("pending", summary.pending, count(&|node| node.pending.is_some())),
            (
                "waiting",
                summary.waiting,
                count(&|node| node.retry.waiting_since.is_some()),
            ),
            ("orphans", summary.orphans, state.orphans.len() as u64),
        ] {
            demand!(
                kept == counted,
                "summary says {kept} {what}, and there are {counted}"
            );
        }
        demand!(
            summary.stages == stages,
            "summary says {:?}, and there are {stages:?}",
            summary.stages
        );
        let satisfied = desired.expand().all(|spec| {
            state.nodes.get(&spec.id).is_some_and(|node| {
                node.ready
                    && node.intent == Intent::Active
                    && !node.retry.replace
                    && node.is_made_from(&spec.template)
                    && node.pending.is_none()
            })
        });
        let nothing_else = state
            .nodes
            .iter()
            .all(|(id, _)| desired.template_of(&id).is_some());
        let orphaned = state.orphans.iter().any(|(key, _)| {
            let node = state
                .nodes
                .get(&key.node)
                .filter(|node| node.attempt == key.attempt);
            node.is_none_or(|node| node.stage == Stage::Destroyed)
        });
        let evaluated = state.observed_generation == desired.generation();
        let converged = satisfied && nothing_else && !orphaned && state.looks_done() && evaluated;
        demand!(
            self.driver.is_converged() == converged && summary.converged == converged,
            "is_converged says {}, and by definition it is {converged}",
            self.driver.is_converged()
        );
        Ok(())
    }

    /// G10: per attempt one resource at most, per slot those of one attempt at most.
    fn check_provider(&self) -> Result<(), Broken> {
        let mut holders: BTreeMap<LogicalNodeId, AttemptIdentity> = BTreeMap::new();
        for (_, entry) in self.live() {
            let other = holders.insert(entry.identity.node.clone(), entry.identity.clone());
            demand!(other.is_none(), "G10: {} lives beside {other:?}", entry.identity);
        }
        Ok(())
    }

    /// G30: a ledger knows live attempts and calls that are at work, and nothing else.
    fn check_ledgers(&self) -> Result<(), Broken> {
        let state = self.driver.state();
        let known: usize = self
            .ledgers
            .values()
            .map(nodewright_core::ledger::Ledger::len)
            .sum();
        let live = state.nodes.len() + state.orphans.len() + self.running.len();
        demand!(
            known <= live,
            "G30: the ledgers know {known} attempts, and {live} live"
        );
        Ok(())
    }

    /// A provider is never asked more at once than it may be.
    fn check_pace(&self) -> Result<(), Broken> {
        let most = self.config.pace.max_in_flight.get() as usize;
        for kind in self.providers.keys() {
            let at_work = self
                .running
                .iter()
                .filter(|call| call.effect.provider == *kind)
                .count();
            demand!(
                at_work <= most,
                "pace: {at_work} calls at {kind} at once, and {most} are granted"
            );
        }
        Ok(())
    }

    /// G22, G23 and G3, once nothing is left to do.
    pub(crate) fn check_settled(&mut self) -> Result<(), Broken> {
        demand!(
            self.driver.is_converged(),
            "G22: at rest and not converged: {}",
            self.describe()
        );
        let state = self.driver.state();
        let mut held = Held::new();
        for (id, node) in state.nodes.iter() {
            if let Some(lease) = &node.lease {
                *held
                    .entry((node.provider.clone(), id, node.attempt, lease.id.clone()))
                    .or_default() += 1;
            }
        }
        for key in state.orphans.keys() {
            let key = key.clone();
            *held
                .entry((key.provider, key.node, key.attempt, key.lease))
                .or_default() += 1;
        }
        let mut live = Held::new();
        for (kind, entry) in self.live() {
            let identity = entry.identity;
            *live
                .entry((kind, identity.node, identity.attempt, entry.lease.id))
                .or_default() += 1;
        }
        demand!(
            held == live,
            "G23: the state holds {held:?}, and there live {live:?}"
        );
        demand!(
            self.driver.requeue_at().is_none(),
            "G3: converged, and a moment is waited for"
        );
        let before = self.driver.state().clone();
        let calls = self.calls.len();
        self.driver.trigger();
        self.drive()?;
        demand!(
            *self.driver.state() == before && self.calls.len() == calls && self.driver.requeue_at().is_none(),
            "G3: a forced pass changed something"
        );
        Ok(())
    }

    /// What keeps it from being converged, for people.
    pub(crate) fn describe(&self) -> String {
        let mut text = format!("{:?}", self.driver.summary());
        for (id, node) in self.driver.state().nodes.iter() {
            if !node.ready || !node.is_active() {
                let why = self.driver.why(&id, self.now);
                text.push_str(&format!("\n{id}: {why:?} {node:?}"));
            }
        }
        for (key, orphan) in &self.driver.state().orphans {
            text.push_str(&format!("\norphan {key}: {orphan:?}"));
        }
        text.push_str(&format!("\n{self:?}"));
        text
    }
}

//! What has to be remembered from step to step.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use nodewright_core::driver::DueOperation;
use nodewright_core::effect::{Command, CommandKind, Outcome, PlannedEffect};
use nodewright_core::facts::LeaseId;
use nodewright_core::id::{AttemptIdentity, LogicalNodeId, NodeAttemptId, OperationId, ProviderKind};
use nodewright_core::node::PendingOperation;
use nodewright_core::orphan::OrphanKey;
use nodewright_core::policy::Policy;
use nodewright_core::state::ClusterState;

use super::{Broken, demand};
use crate::subject::Living;

/// What a run has done so far.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// What each attempt sent last, when and for which lease, as far as this process knows. Orphans of an attempt
    /// are destroyed one after the other, each with a command of its own.
    dispatched: BTreeMap<NodeAttemptId, (CommandKind, Option<LeaseId>, Timestamp)>,
    /// What this process sent, or found pending.
    sent: BTreeSet<OperationId>,
    /// What it was told to have come of that.
    told: BTreeMap<OperationId, Outcome>,
    /// The slot of every attempt that there ever was.
    attempts: BTreeMap<NodeAttemptId, LogicalNodeId>,
    /// How many attempts each slot took since nothing goes wrong any more.
    taken: BTreeMap<LogicalNodeId, u64>,
    /// Every resource that ever lived, by whose it was.
    resources: BTreeMap<(ProviderKind, AttemptIdentity), BTreeSet<String>>,
    /// The first answer of the row that misses the machine of an attempt.
    pub(super) missed: BTreeMap<(ProviderKind, NodeAttemptId), Timestamp>,
    /// The first answer of the row that shows a resource which no node owns.
    pub(super) shown: BTreeMap<OrphanKey, Timestamp>,
}

/// The operation that the state holds as pending.
fn pending(state: &ClusterState, node: &LogicalNodeId, operation: OperationId) -> Option<PendingOperation> {
    let node = state.nodes.get(node).and_then(|node| node.pending.as_ref());
    let orphans = state.orphans.values();
    let orphans = orphans.filter_map(|orphan| orphan.pending.as_ref());
    let mut all = node.into_iter().chain(orphans);
    all.find(|pending| pending.id == operation).cloned()
}

impl History {
    /// The process ends. What is pending with it is told of to the next, if that has its state; the names of
    /// all other operations may be used again.
    pub(crate) fn process_ends(&mut self) {
        self.dispatched.clear();
        self.sent.clear();
        self.told.clear();
        self.missed.clear();
        self.shown.clear();
    }

    /// A process goes on with this state.
    pub(crate) fn handed_over(&mut self, state: &ClusterState) {
        let nodes = state.nodes.iter().filter_map(|(_, node)| node.pending.as_ref());
        let orphans = state.orphans.values();
        let orphans = orphans.filter_map(|orphan| orphan.pending.as_ref());
        self.sent = nodes.chain(orphans).map(|pending| pending.id).collect();
    }

    /// The process ended, and the next one knows nothing. Of the attempts before it can know those that what
    /// lives tells of.
    pub(crate) fn forgotten(&mut self, living: &BTreeMap<ProviderKind, Vec<Living>>) {
        let told = living.iter();
        let told = told.flat_map(|(kind, living)| living.iter().map(move |one| (kind.clone(), one.clone())));
        let told: BTreeMap<_, _> = told
            .map(|(kind, one)| ((kind, one.identity), BTreeSet::from([one.name])))
            .collect();
        let attempts = told.keys();
        let attempts = attempts.map(|(_, identity)| (identity.attempt, identity.node.clone()));
        self.attempts = attempts.collect();
        self.resources = told;
    }

    /// A resource was deleted by hand.
    pub(crate) fn vanished(&mut self, provider: &ProviderKind, identity: &AttemptIdentity) {
        self.resources.remove(&(provider.clone(), identity.clone()));
    }

    /// From now on nothing goes wrong.
    pub(crate) fn faults_end(&mut self) {
        self.taken.clear();
    }

    pub(super) fn taken_since_the_faults(&self) -> &BTreeMap<LogicalNodeId, u64> {
        &self.taken
    }

    /// Counts the attempts that a drive began.
    pub(super) fn attempts_begun(&mut self, before: &ClusterState, after: &ClusterState) {
        for (id, node) in after.nodes.iter() {
            let old = before.nodes.get(&id).map(|old| old.attempt);
            if old != Some(node.attempt) {
                *self.taken.entry(id).or_default() += 1;
            }
        }
    }

    /// G8: the backend is about to see this operation.
    pub(crate) fn begins(&self, state: &ClusterState, effect: &PlannedEffect) -> Result<(), Broken> {
        // A call whose end is unknown was recorded, and may reach the backend as late as it likes.
        let node = state
            .nodes
            .get(&effect.node)
            .and_then(|node| node.unended.as_ref());
        let orphans = state
            .orphans
            .values()
            .filter_map(|orphan| orphan.unended.as_ref());
        let mut unended = node.into_iter().chain(orphans);
        demand!(
            pending(state, &effect.node, effect.operation).is_some()
                || unended.any(|call| call.operation == effect.operation),
            "G8: the backend sees {}, and the state does not hold it as pending",
            effect.operation
        );
        Ok(())
    }

    /// G24: an operation is handed out as due.
    pub(crate) fn expires(
        &self,
        state: &ClusterState,
        due: &DueOperation,
        now: Timestamp,
    ) -> Result<(), Broken> {
        let deadline = pending(state, &due.node, due.operation).map(|pending| pending.deadline);
        demand!(
            deadline.is_some_and(|deadline| deadline <= now),
            "G24: {} is due at {now}, and its deadline is {deadline:?}",
            due.operation
        );
        Ok(())
    }

    /// What a drive sent.
    pub(super) fn sends(&mut self, accepted: &[PlannedEffect]) {
        self.sent.extend(accepted.iter().map(|effect| effect.operation));
    }

    /// G5, G24: what is told to have come of an operation is of one that was sent, and is the same each time.
    /// That a fold drops what is not so is no excuse for whoever tells it.
    pub(crate) fn is_told(&mut self, operation: OperationId, outcome: &Outcome) -> Result<(), Broken> {
        demand!(
            self.sent.contains(&operation),
            "G5: {outcome:?} is told of {operation}, which was never sent"
        );
        let first = self.told.entry(operation).or_insert_with(|| outcome.clone());
        demand!(
            first == outcome,
            "G24: {operation} was told as {first:?}, and then as {outcome:?}"
        );
        Ok(())
    }

    /// G30: an attempt repeats a command no sooner than the net of chapter 2 allows.
    pub(super) fn g30_no_command_is_repeated_too_soon(
        &mut self,
        accepted: &[PlannedEffect],
        policy: &Policy,
        now: Timestamp,
    ) -> Result<(), Broken> {
        for effect in accepted {
            let kind = effect.command.kind();
            let net = if kind.is_look_up() {
                policy.probe_interval
            } else {
                policy.initial_delay
            };
            let lease = match &effect.command {
                Command::DestroyLease(lease) => Some(lease.id.clone()),
                _ => None,
            };
            let attempt = effect.operation.attempt;
            let last = self.dispatched.insert(attempt, (kind, lease.clone(), now));
            let last = last.filter(|(last, of, _)| *last == kind && *of == lease);
            let soonest = last.map(|(_, _, at)| at.checked_add(net).expect("traces are short"));
            demand!(
                soonest.is_none_or(|soonest| soonest <= now),
                "G30: {kind} was sent for attempt {attempt} and again within {net:?}"
            );
        }
        Ok(())
    }

    /// G4: an attempt is never used again, and each is newer than all of its slot before.
    pub(super) fn g4_no_attempt_is_used_again(&mut self, state: &ClusterState) -> Result<(), Broken> {
        for (id, node) in state.nodes.iter() {
            let of = self.attempts.entry(node.attempt).or_insert_with(|| id.clone());
            demand!(
                *of == id,
                "G4: attempt {} fills {id}, and was {of}'s",
                node.attempt
            );
        }
        Ok(())
    }

    /// G10, over time: an attempt never has a second resource, not even after its first is gone.
    pub(super) fn g10_an_attempt_has_one_resource_ever(
        &mut self,
        provider: &ProviderKind,
        living: &[Living],
    ) -> Result<(), Broken> {
        for one in living {
            let names = self
                .resources
                .entry((provider.clone(), one.identity.clone()))
                .or_default();
            names.insert(one.name.clone());
            demand!(
                names.len() == 1,
                "G10: {} had {names:?} at {provider}",
                one.identity
            );
        }
        Ok(())
    }

    /// How many resources ever lived, as far as this process could know.
    pub(crate) fn resources(&self) -> usize {
        self.resources.values().map(BTreeSet::len).sum()
    }
}

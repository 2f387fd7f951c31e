//! The driver: the one writer of observed state.
//!
//! Synchronous, without runtime, clock or I/O. Folding marks a node dirty, nothing more; a pass asks the
//! ladder for the dirty nodes and for those whose wait has ended, and does what the full pass would do. Its
//! work follows what changed, not how many nodes there are.

mod apply;
mod deadlines;
mod departed;
mod draft;
mod gates;
mod index;
mod look;
mod orphans;
mod report;
mod restore;
mod revise;
mod seam;
mod sweep;
mod tally;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use self::index::Index;
pub use self::look::DueLook;
use self::report::Glimpse;
pub use self::seam::{Accepted, DriveReport, DriverError, DueOperation, EffectSink, ProviderSetup, Refused};
use crate::decide::{Decision, reconcile_node};
use crate::desired::Desired;
use crate::event::{Event, EventKind};
use crate::failure::{Context, PaceSignal};
use crate::fold::fold;
use crate::gate::Gate;
use crate::id::{GroupId, LogicalNodeId, NodeAttemptId, OperationId, ProviderKind, RunId};
use crate::inventory::{FirstLook, Sweep};
use crate::node::{ManagedNode, PassId, Stage};
use crate::observation::{Folded, Observation};
use crate::pace::{Pace, Who};
use crate::plan::{Draft, Plan, awaited, gate};
use crate::policy::Policy;
use crate::shape::{ClusterShape, ShapeLimits};
use crate::state::{ClusterState, ProviderState, Slot};
use crate::status::{Degraded, NodeStatus, ProviderStatus, Summary, Why};
use crate::template::Template;

/// The one writer of a run's observed state.
#[derive(Debug, Clone)]
pub struct ClusterDriver {
    policy: Policy,
    limits: ShapeLimits,
    setups: BTreeMap<ProviderKind, ProviderSetup>,
    state: ClusterState,
    desired: Desired,
    index: Index,
    events: Vec<Event>,
    /// Attempts that the sink is still to be told of.
    retired: Vec<NodeAttemptId>,
    /// The room that passes are drafted in.
    spare: Draft,
}

impl ClusterDriver {
    /// A driver of a run that nothing is known of.
    ///
    /// # Errors
    ///
    /// A policy or a shape that cannot work, with all that is wrong.
    pub fn new(
        shape: ClusterShape,
        policy: Policy,
        providers: BTreeMap<ProviderKind, ProviderSetup>,
    ) -> Result<Self, DriverError> {
        let state = ClusterState::new(shape.run_id.clone());
        Self::assemble(state, shape, policy, providers)
    }

    /// Puts a driver around a state whose slots are all still to be looked at.
    fn assemble(
        mut state: ClusterState,
        shape: ClusterShape,
        policy: Policy,
        setups: BTreeMap<ProviderKind, ProviderSetup>,
    ) -> Result<Self, DriverError> {
        policy.validate()?;
        let limits = ShapeLimits::default();
        let desired = accept(shape, &limits, &setups)?;
        for (kind, setup) in &setups {
            let provider = state
                .providers
                .entry(kind.clone())
                .or_insert_with(|| ProviderState {
                    pace: Pace::new(setup.pace),
                    first_look: FirstLook::Done,
                    sweep: None,
                    mass_loss_since: None,
                });
            provider.pace.configure(setup.pace);
            // Whatever was asked before, the first look comes first, and rows of answers begin anew.
            provider.sweep = setup.capabilities.inventory.then(Sweep::default);
            provider.mass_loss_since = None;
            let looks = setup.capabilities.inventory && !setup.fresh;
            provider.first_look = if looks { FirstLook::due() } else { FirstLook::Done };
        }
        let orphaned = state.orphans.keys().map(|key| &key.node.group);
        let departed = state.departed.iter();
        let departed = departed.flat_map(|(departed, below)| below.iter().chain([departed]));
        let wanted = desired.groups().iter().map(|group| &group.id);
        let names: BTreeSet<GroupId> = orphaned.chain(departed).chain(wanted).cloned().collect();
        for name in &names {
            state.nodes.intern(name);
        }
        departed::settle_departed(&mut state, &desired);
        let index = Index::build(&mut state, &desired);
        Ok(Self {
            policy,
            limits,
            setups,
            state,
            desired,
            index,
            events: Vec::new(),
            retired: Vec::new(),
            spare: Draft::default(),
        })
    }

    /// Takes the next revision of the shape.
    ///
    /// The latest wins; revisions between may never be seen by a pass. Costs O(groups + changed slots).
    ///
    /// # Errors
    ///
    /// A shape that is wrong, of another run, older, or changed without a new generation. The state and the
    /// accepted shape are untouched then.
    pub fn update_desired(&mut self, shape: ClusterShape, now: Timestamp) -> Result<Accepted, DriverError> {
        self.revise(shape, now)
    }

    /// Folds one observation of an attempt of a slot. Emits no effect: the next [`drive`](Self::drive) does.
    ///
    /// A stale one changes nothing and is counted.
    pub fn fold(
        &mut self,
        node: &LogicalNodeId,
        attempt: NodeAttemptId,
        observation: &Observation,
        now: Timestamp,
    ) -> Folded {
        let slot = self.state.nodes.slot(node);
        let slot = slot.filter(|slot| {
            self.state
                .nodes
                .at(*slot)
                .is_some_and(|node| node.attempt == attempt)
        });
        let folded = match slot {
            Some(slot) => self.fold_node(slot, observation, now),
            None => Folded::Stale,
        };
        let folded = match folded {
            Folded::Stale if !self.state.orphans.is_empty() => {
                self.fold_orphan(node, attempt, observation, now)
            }
            folded => folded,
        };
        match folded {
            Folded::Applied => {}
            Folded::Orphaned => self.orphan_answered(slot, observation, now),
            Folded::Stale => {
                self.index.tally.stale += 1;
                let observation = observation.to_string();
                self.event(
                    now,
                    EventKind::Stale {
                        node: node.clone(),
                        attempt,
                        observation,
                    },
                );
            }
        }
        folded
    }

    fn fold_node(&mut self, slot: Slot, observation: &Observation, now: Timestamp) -> Folded {
        let Some(node) = self.state.nodes.at(slot) else {
            return Folded::Stale;
        };
        let before = Glimpse::of(node);
        let visibility = self
            .setups
            .get(&node.provider)
            .map(|setup| setup.capabilities.visibility);
        let pass = PassId(self.state.pass.0 + 1);
        let folded = self.change(slot, |node, run, policy| {
            let mut cx = Context::new(run, policy, pass, now);
            cx.visibility = visibility.unwrap_or_default();
            let folded = fold(node, observation, &mut cx);
            (folded, cx.signal, cx.fault, node.provider.clone())
        });
        let Some((folded, signal, fault, provider)) = folded else {
            return Folded::Stale;
        };
        self.signal(&provider, signal, now);
        if folded == Folded::Applied {
            self.report_change(slot, &before, Some(observation), now);
        }
        if let Some(fault) = fault {
            self.report_fault(&Who::Node(slot), fault, now);
        }
        folded
    }

    /// What a result says about its provider's pace.
    fn signal(&mut self, provider: &ProviderKind, signal: Option<PaceSignal>, now: Timestamp) {
        let Some(signal) = signal else { return };
        if let Some(provider) = self.state.providers.get_mut(provider) {
            match signal {
                PaceSignal::Succeeded => provider.pace.succeeded(now),
                PaceSignal::Throttled {
                    dispatched_at,
                    resume_at,
                } => {
                    provider.pace.throttled(dispatched_at, resume_at, now);
                }
            }
        }
    }

    /// Lifts a halt and forgets counts and backoffs: the slot is tried again now. `false` if it is empty.
    pub fn retry(&mut self, node: &LogicalNodeId) -> bool {
        self.by_hand(node, |node| {
            node.retry.halted = None;
            node.retry.failures.clear();
            node.retry.failed_attempts = 0;
            node.retry.failed_cancels = 0;
            node.retry.next_effect_at = None;
            node.retry.restart_at = None;
        })
    }

    /// Asks for a replacement, without failure or backoff, and lifts a halt. Of what is going already it
    /// lifts the halt only. `false` if the slot is empty.
    pub fn replace(&mut self, node: &LogicalNodeId) -> bool {
        self.by_hand(node, |node| {
            node.retry.halted = None;
            if node.is_active() && node.stage != Stage::Destroyed {
                node.retry.replace = true;
            }
        })
    }

    fn by_hand(&mut self, node: &LogicalNodeId, hand: impl FnOnce(&mut ManagedNode)) -> bool {
        let slot = self.state.nodes.slot(node);
        slot.is_some_and(|slot| self.change(slot, |node, _, _| hand(node)).is_some())
    }

    /// Marks everything dirty: the next drive is a full pass. The safety net under all events. Its report names the
    /// slots of which something changed, and not all that were looked at.
    pub fn trigger(&mut self) {
        self.index.recheck_all(&self.state, &self.desired);
    }

    /// Runs passes until nothing is left to do now, handing effects to `sink`.
    ///
    /// Every effect is recorded as pending before the sink sees it. Afterwards
    /// [`requeue_at`](Self::requeue_at) lies after `now`.
    pub fn drive(&mut self, now: Timestamp, sink: &mut impl EffectSink) -> DriveReport {
        self.drive_passes(now, sink)
    }

    /// What the next pass would do. For tools and tests: it costs what a pass costs, and changes nothing.
    pub fn preview(&self, now: Timestamp) -> Plan {
        let mut copy = self.clone();
        let mut draft = Draft::default();
        copy.draft(&mut draft, now);
        // Those that the draft did not look at go on waiting for the moments that they wait for.
        copy.index.settle(&copy.state, draft.requeue_at);
        draft.requeue_at = copy.index.requeue_at;
        let template = |slot| copy.template(slot).cloned();
        draft.into_plan(&self.state, |slot| self.state.nodes.id(slot), template)
    }

    /// The earliest moment at which something may have to be done. O(1), as of the last drive.
    ///
    /// The moments of sweeps are not among them: see [`sweep_at`](Self::sweep_at). Whoever sleeps wakes up at the
    /// earlier of both.
    pub fn requeue_at(&self) -> Option<Timestamp> {
        self.index.requeue_at
    }

    /// Hands out the operations whose deadline has come, each once: O(due). Until its executor has
    /// classified it, an operation stays pending.
    pub fn due_operations(&mut self, now: Timestamp, due: &mut Vec<DueOperation>) {
        self.expire(now, due);
    }

    /// The operations that are under way at a provider. O(nodes): for an executor that takes over.
    pub fn pending_at(&self, provider: &ProviderKind) -> Vec<(LogicalNodeId, OperationId)> {
        let nodes = self
            .state
            .nodes
            .iter()
            .filter(|(_, node)| node.provider == *provider);
        let nodes = nodes.filter_map(|(id, node)| Some((id, node.pending.as_ref()?.id)));
        let orphans = self
            .state
            .orphans
            .iter()
            .filter(|(key, _)| key.provider == *provider);
        let orphans =
            orphans.filter_map(|(key, orphan)| Some((key.node.clone(), orphan.pending.as_ref()?.id)));
        nodes.chain(orphans).collect()
    }

    /// Wants nothing any more: everything is taken down. The generation rises by one.
    pub fn drain(&mut self, now: Timestamp) {
        self.want_nothing(now);
    }

    /// Whether all is as the accepted shape wants it. O(1).
    pub fn is_converged(&self) -> bool {
        self.index.tally.unsatisfied == 0
            && self.index.tally.unlooked == 0
            && self.index.tally.orphans == self.index.tally.surplus
            && self.state.observed_generation == self.desired.generation()
    }

    /// Whether nothing is left at any provider as far as is known: no node, no orphan, and nothing that the last
    /// sweep showed and nobody owns.
    pub fn holds_nothing(&self) -> bool {
        let suspects =
            |provider: &ProviderState| provider.sweep.as_ref().map_or(0, |sweep| sweep.suspects.len());
        self.state.nodes.is_empty()
            && self.state.orphans.is_empty()
            && self
                .state
                .providers
                .values()
                .all(|provider| suspects(provider) == 0)
    }

    /// The observed state.
    pub fn state(&self) -> &ClusterState {
        &self.state
    }

    /// The accepted shape.
    pub fn desired(&self) -> &Desired {
        &self.desired
    }

    /// The policy.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The run in numbers. O(providers and degraded groups).
    pub fn summary(&self) -> Summary {
        let tally = &self.index.tally;
        let unlooked = self.state.providers.iter();
        let unlooked = unlooked.filter(|(_, provider)| provider.first_look != FirstLook::Done);
        let degraded = self.index.halted.iter();
        let degraded = degraded.map(|(group, slots)| Degraded {
            group: self.state.nodes.name(*group).clone(),
            halted: *slots,
        });
        let providers = self.state.providers.iter();
        let providers = providers.map(|(kind, provider)| ProviderStatus::new(kind.clone(), provider));
        Summary {
            generation: self.desired.generation(),
            converged: self.is_converged(),
            desired: self.desired.node_count(),
            nodes: self.state.nodes.len() as u64,
            ready: tally.ready,
            deleting: tally.deleting,
            halted: tally.halted,
            pending: tally.pending,
            waiting: tally.waiting,
            stages: tally.stages,
            orphans: tally.orphans,
            stale: tally.stale,
            unlooked: unlooked.map(|(kind, _)| kind.clone()).collect(),
            degraded: degraded.collect(),
            providers: providers.collect(),
        }
    }

    /// Why a slot does what it does now. Of one that waits for groups it names them, which costs what there
    /// is of groups, and of slots in those that it waits for.
    pub fn why(&self, node: &LogicalNodeId, now: Timestamp) -> Why {
        let mut why = self.why_at_a_glance(node, now);
        if let Why::WaitingFor { reason, groups, .. } = &mut why {
            *groups = awaited(&self.state, &self.desired, &node.group, *reason);
        }
        why
    }

    fn why_at_a_glance(&self, node: &LogicalNodeId, now: Timestamp) -> Why {
        let slot = self.state.nodes.slot(node);
        let found = slot.and_then(|slot| self.state.nodes.at(slot));
        Why::new(self.decide(slot, node, now), found)
    }

    /// How a slot is now, and [why](Self::why).
    pub fn node_status(&self, node: &LogicalNodeId, now: Timestamp) -> NodeStatus {
        NodeStatus::new(node.clone(), self.state.nodes.get(node), self.why(node, now))
    }

    /// How a slot is now, as a view can keep it: of one that waits for groups it does not name them, for
    /// they change while the slot does not. O(log n).
    pub fn node_glance(&self, node: &LogicalNodeId, now: Timestamp) -> NodeStatus {
        let found = self.state.nodes.get(node);
        NodeStatus::new(node.clone(), found, self.why_at_a_glance(node, now))
    }

    /// Whether the slot is wanted or holds a node.
    pub fn knows(&self, node: &LogicalNodeId) -> bool {
        self.state.nodes.get(node).is_some() || self.desired.template_of(node).is_some()
    }

    fn decide(&self, slot: Option<Slot>, id: &LogicalNodeId, now: Timestamp) -> Decision {
        let node = slot.and_then(|slot| self.state.nodes.at(slot));
        let desired = self.desired.template_of(id);
        let group = slot.map_or(Gate::OPEN, |slot| self.index.gates.of(slot.group));
        let looked = self.index.tally.unlooked == 0;
        let gate = gate(group, &self.state, looked, || id.clone(), node);
        reconcile_node(node, desired, gate, &self.policy, now)
    }

    /// The template of a slot that the shape wants.
    fn template(&self, slot: Slot) -> Option<&Template> {
        let place = self.index.places.get(slot.group as usize).copied().flatten()?;
        let group = &self.desired.groups()[place as usize];
        (slot.index < group.count).then_some(&group.template)
    }

    /// Changes a node, keeping tallies and indexes true, and marks it dirty. Every change of a node goes
    /// through here.
    fn change<R>(
        &mut self,
        slot: Slot,
        change: impl FnOnce(&mut ManagedNode, &RunId, &Policy) -> R,
    ) -> Option<R> {
        let place = self.index.places.get(slot.group as usize).copied().flatten();
        let group = place.map(|place| &self.desired.groups()[place as usize]);
        let template = group
            .filter(|group| slot.index < group.count)
            .map(|group| &group.template);
        let node = self.state.nodes.at_mut(slot)?;
        let before = tally::Share::of(Some(node), template);
        let held = node.held_class();
        let result = change(node, &self.state.run_id, &self.policy);
        let after = tally::Share::of(Some(node), template);
        self.index.exchange(slot, before, after);
        self.index.hold(&node.provider, held, node.held_class());
        let lease_changed = node.lease_changed > self.state.pass;
        self.index.lease_changed |= lease_changed;
        self.index.mark(slot);
        Some(result)
    }
}

/// Checks a shape and interns it.
fn accept(
    shape: ClusterShape,
    limits: &ShapeLimits,
    setups: &BTreeMap<ProviderKind, ProviderSetup>,
) -> Result<Desired, DriverError> {
    let known: BTreeSet<ProviderKind> = setups.keys().cloned().collect();
    let run = shape.run_id.clone();
    Desired::new(shape, limits, &known).map_err(|problems| DriverError::Shape { run, problems })
}

#[cfg(test)]
mod tests;

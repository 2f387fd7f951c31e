//! Applying a pass: transitions change the state, dispatches are recorded before they are handed over.

use jiff::{SignedDuration, Timestamp};

use super::index::{operation_deadline, orphan_deadline};
use super::report::Glimpse;
use super::tally::Share;
use super::{ClusterDriver, DriveReport, DueOperation, EffectSink, Refused};
use crate::decide::Step;
use crate::effect::{CommandKind, PlannedEffect};
use crate::event::EventKind;
use crate::failure::{Context, after};
use crate::id::NodeAttemptId;
use crate::node::{Intent, ManagedNode, PassId, PendingOperation, Retry, Stage};
use crate::observation::Observation;
use crate::orphan::OrphanKey;
use crate::pace::{Class, Who};
use crate::plan::{Act, Draft, planned, planned_orphan};
use crate::policy::Policy;
use crate::state::Slot;

/// For how many events room is made ahead.
const EVENTS_KEPT: usize = 64;

impl ClusterDriver {
    pub(super) fn drive_passes(&mut self, now: Timestamp, sink: &mut impl EffectSink) -> DriveReport {
        let mut report = DriveReport::default();
        let mut effects = Vec::new();
        // What a pass is drafted in is kept, so that a steady flow of events allocates little.
        let mut draft = std::mem::take(&mut self.spare);
        loop {
            draft.clear();
            report.considered += self.draft(&mut draft, now);
            self.state.observed_generation = self.desired.generation();
            let did = self.apply(&draft, now, &mut effects);
            if std::mem::take(&mut self.index.lease_changed) || did {
                self.state.pass = PassId(self.state.pass.0 + 1);
            }
            for attempt in std::mem::take(&mut self.retired) {
                sink.retire(attempt);
            }
            if !did {
                self.index.settle(&self.state, draft.requeue_at);
                break;
            }
            report.passes += 1;
            report.effects += effects.len() as u64;
            if !effects.is_empty() {
                for refused in sink.submit(std::mem::take(&mut effects)) {
                    self.fold_refusal(refused, now);
                }
            }
        }
        self.spare = draft;
        report.errors = std::mem::take(&mut self.index.errors);
        // As many events as now are to be expected the next time.
        let room = self.events.len().min(EVENTS_KEPT);
        report.events = std::mem::replace(&mut self.events, Vec::with_capacity(room));
        let nodes = &self.state.nodes;
        report.touched = self.index.take_touched().map(|slot| nodes.id(slot)).collect();
        report
    }

    fn fold_refusal(&mut self, refused: Refused, now: Timestamp) {
        let Refused {
            node,
            operation,
            reason,
        } = refused;
        let observation = Observation::Refused { operation, reason };
        let _ = self.fold(&node, operation.attempt, &observation, now);
    }

    /// Applies a draft; says whether it did anything.
    fn apply(&mut self, draft: &Draft, now: Timestamp, effects: &mut Vec<PlannedEffect>) -> bool {
        let mut did = !draft.newly_waiting.is_empty() || !draft.no_longer_waiting.is_empty();
        for (who, fault) in &draft.faults {
            self.report_fault(who, *fault, now);
        }
        for slot in &draft.no_longer_waiting {
            self.change(*slot, |node, _, _| stop_waiting(node, now));
        }
        for claim in &draft.newly_waiting {
            match &claim.who {
                Who::Node(slot) => {
                    self.change(*slot, |node, _, _| node.retry.waiting_since = Some(claim.since));
                }
                Who::Orphan(key) => {
                    if let Some(orphan) = self.state.orphans.get_mut(&**key) {
                        orphan.waiting_since = Some(claim.since);
                    }
                }
            }
        }
        for one in &draft.moves {
            did |= match (&one.who, one.act) {
                (Who::Node(slot), Act::Step(step)) => self.step(*slot, step, now),
                (Who::Node(slot), Act::Dispatch(kind)) => self.dispatch(*slot, kind, now, effects),
                (Who::Orphan(key), _) => self.dispatch_orphan(key, now, effects),
            };
        }
        did
    }

    fn step(&mut self, slot: Slot, step: Step, now: Timestamp) -> bool {
        let id = self.state.nodes.id(slot);
        let attempt = self.state.nodes.at(slot).map(|node| node.attempt);
        match (step, attempt) {
            (Step::Insert, None) => {
                let (Some(attempt), Some(template)) = (self.allocate(now), self.template(slot).cloned())
                else {
                    return false;
                };
                self.fill(slot, ManagedNode::new(attempt, template));
                self.event(now, EventKind::Inserted { node: id, attempt });
            }
            (Step::Restart, Some(from)) => {
                let (Some(attempt), Some(template)) = (self.allocate(now), self.template(slot).cloned())
                else {
                    return false;
                };
                let mut fresh = ManagedNode::new(attempt, template);
                if let Some(old) = self.state.nodes.at(slot) {
                    fresh.retry = inherit(old, &fresh);
                    let sequence = old.next_sequence;
                    self.hand_to_orphans(&id, from, sequence);
                }
                self.fill(slot, fresh);
                self.event(
                    now,
                    EventKind::Restarted {
                        node: id,
                        from,
                        attempt,
                    },
                );
            }
            (Step::Reap, Some(attempt)) => {
                self.reap(slot, attempt);
                self.event(now, EventKind::Reaped { node: id, attempt });
            }
            (Step::BeginDelete(reason), Some(attempt)) => {
                self.change(slot, |node, _, _| begin_delete(node));
                self.event(
                    now,
                    EventKind::DeleteBegan {
                        node: id,
                        attempt,
                        reason,
                    },
                );
            }
            (Step::FailAttempt(overdue), Some(_)) => {
                let before = self.state.nodes.at(slot).map(Glimpse::of);
                let pass = self.state.pass;
                let fault = self.change(slot, |node, run, policy| {
                    let mut cx = Context::new(run, policy, pass, now);
                    node.fail(overdue.to_string().into(), &mut cx);
                    cx.fault
                });
                if let Some(before) = before {
                    self.report_change(slot, &before, None, now);
                }
                if let Some(fault) = fault.flatten() {
                    self.report_fault(&Who::Node(slot), fault, now);
                }
            }
            (Step::MarkDestroyed, Some(attempt)) => {
                let before = self.state.nodes.at(slot).map(Glimpse::of);
                self.change(slot, |node, _, _| mark_destroyed(node, now));
                if let Some(before) = before {
                    self.report_change(slot, &before, None, now);
                }
                self.mark_orphans(&id, attempt);
            }
            _ => return false,
        }
        true
    }

    /// Takes the next attempt from the allocator. Says once that there is none.
    fn allocate(&mut self, now: Timestamp) -> Option<NodeAttemptId> {
        let attempt = self.state.next_attempt_id;
        match attempt {
            Some(attempt) => self.state.next_attempt_id = attempt.next(),
            None if !self.index.exhausted => {
                self.index.exhausted = true;
                self.event(now, EventKind::AttemptsExhausted);
            }
            None => {}
        }
        attempt
    }

    /// Puts a node into a slot, in place of the one that is there.
    pub(super) fn fill(&mut self, slot: Slot, node: ManagedNode) {
        let template = self.template(slot);
        let before = Share::of(self.state.nodes.at(slot), template);
        let after = Share::of(Some(&node), template);
        self.index.exchange(slot, before, after);
        self.state.nodes.insert(slot, node);
        self.index.mark(slot);
    }

    fn reap(&mut self, slot: Slot, attempt: NodeAttemptId) {
        let Some(node) = self.state.nodes.at(slot) else {
            return;
        };
        let sequence = node.next_sequence;
        let template = self.template(slot);
        let (before, after) = (Share::of(Some(node), template), Share::of(None, template));
        self.index.exchange(slot, before, after);
        self.hand_to_orphans(&self.state.nodes.id(slot), attempt, sequence);
        self.state.nodes.remove(slot);
        self.index.mark(slot);
        self.forget_departed(slot.group);
    }

    /// Records an operation as pending, then adds it to the batch: nobody ever sees an unrecorded effect.
    fn dispatch(
        &mut self,
        slot: Slot,
        kind: CommandKind,
        now: Timestamp,
        effects: &mut Vec<PlannedEffect>,
    ) -> bool {
        let id = self.state.nodes.id(slot);
        let Some(node) = self.state.nodes.at(slot) else {
            return false;
        };
        let Some(effect) = planned(id, node, kind) else {
            return false;
        };
        let before = Glimpse::of(node);
        let recorded = self.change(slot, |node, _, policy| record(node, kind, policy, now));
        let Some(Some(deadline)) = recorded else {
            return false;
        };
        self.index.operations.push(deadline, slot);
        let (node, operation) = (effect.node.clone(), effect.operation);
        self.report_change(slot, &before, None, now);
        self.event(
            now,
            EventKind::Dispatched {
                node,
                operation,
                command: kind,
            },
        );
        effects.push(effect);
        true
    }

    fn dispatch_orphan(&mut self, key: &OrphanKey, now: Timestamp, effects: &mut Vec<PlannedEffect>) -> bool {
        let Ok(deadline) = after(now, self.policy.operation_timeout) else {
            return false;
        };
        if !self.state.orphans.contains_key(key) {
            return false;
        }
        let effect = planned_orphan(&self.state, key);
        let orphan = self.state.orphans.get_mut(key).expect("it was looked up");
        let held = orphan.holds_place();
        let kind = CommandKind::DestroyLease;
        orphan.pending = Some(PendingOperation {
            id: effect.operation,
            kind,
            dispatched_at: now,
            deadline,
            expiring: false,
            before_delete: false,
        });
        orphan.next_sequence = effect.operation.sequence + 1;
        orphan.last_dispatch = Some(now);
        orphan.waiting_since = None;
        let class = |holds: bool| holds.then_some(Class::Cleanup);
        self.index.hold(&key.provider, class(held), class(true));
        self.index.orphan_operations.push(deadline, key.clone());
        let (node, operation) = (effect.node.clone(), effect.operation);
        self.event(
            now,
            EventKind::Dispatched {
                node,
                operation,
                command: kind,
            },
        );
        self.mark_orphans(&key.node, key.attempt);
        effects.push(effect);
        true
    }

    pub(super) fn expire(&mut self, now: Timestamp, due: &mut Vec<DueOperation>) {
        loop {
            let nodes = &self.state.nodes;
            let truth = |slot: &Slot| operation_deadline(nodes, *slot);
            let Some(slot) = self.index.operations.pop_due(now, truth) else {
                break;
            };
            let found = self.change(slot, |node, _, _| {
                let pending = node.pending.as_mut()?;
                pending.expiring = true;
                Some((node.provider.clone(), pending.id))
            });
            if let Some((provider, operation)) = found.flatten() {
                due.push(DueOperation {
                    node: self.state.nodes.id(slot),
                    provider,
                    operation,
                });
            }
        }
        loop {
            let state = &self.state;
            let truth = |key: &OrphanKey| orphan_deadline(state, key);
            let Some(key) = self.index.orphan_operations.pop_due(now, truth) else {
                break;
            };
            let orphan = self.state.orphans.get_mut(&key);
            if let Some(pending) = orphan.and_then(|orphan| orphan.pending.as_mut()) {
                pending.expiring = true;
                let (node, provider) = (key.node.clone(), key.provider.clone());
                due.push(DueOperation {
                    node,
                    provider,
                    operation: pending.id,
                });
            }
            self.index.dirty_orphans.insert(key);
        }
    }
}

/// What a fresh attempt inherits: a failed one hands on its count, unless the spec changed, for then the
/// illness may be over.
fn inherit(old: &ManagedNode, fresh: &ManagedNode) -> Retry {
    let same = old.spec == fresh.spec;
    Retry {
        failed_attempts: if same { old.retry.failed_attempts } else { 0 },
        ..Retry::default()
    }
}

/// Begins to take an attempt down. Cleanup starts at once, whatever was being backed off from.
fn begin_delete(node: &mut ManagedNode) {
    node.intent = Intent::Deleting;
    node.ready = false;
    node.retry.next_effect_at = None;
    node.retry.waiting_since = None;
    node.clear_startup();
    if let Some(pending) = &mut node.pending {
        pending.before_delete = true;
    }
}

fn mark_destroyed(node: &mut ManagedNode, now: Timestamp) {
    node.stage = Stage::Destroyed;
    node.destroyed_at = Some(now);
    node.endpoint = None;
    node.ended_bootstrap = node.active_bootstrap.take().or(node.ended_bootstrap);
    node.retry.start = None;
    node.retry.next_effect_at = None;
}

/// Records an operation as pending; says when it expires.
fn record(node: &mut ManagedNode, kind: CommandKind, policy: &Policy, now: Timestamp) -> Option<Timestamp> {
    let deadline = after(now, policy.operation_timeout).ok()?;
    let id = crate::id::OperationId {
        attempt: node.attempt,
        sequence: node.next_sequence,
    };
    node.next_sequence = node.next_sequence.checked_add(1)?;
    node.pending = Some(PendingOperation {
        id,
        kind,
        dispatched_at: now,
        deadline,
        expiring: false,
        before_delete: false,
    });
    node.retry.last_command = Some((kind, now));
    stop_waiting(node, now);
    if kind == CommandKind::CreateLease && node.stage < Stage::LeaseRequested {
        node.stage = Stage::LeaseRequested;
    }
    Some(deadline)
}

/// A place was taken, or is needed no more: the time waited does not count for getting ready.
fn stop_waiting(node: &mut ManagedNode, now: Timestamp) {
    if let Some(since) = node.retry.waiting_since.take()
        && let Some(ready_by) = node.retry.ready_by
    {
        // A clock that went back takes nothing away.
        let waited = now.duration_since(since).max(SignedDuration::ZERO);
        node.retry.ready_by = Some(ready_by.checked_add(waited).unwrap_or(Timestamp::MAX));
    }
}

//! The guarantees, each a function over a state, or over a state and the one before.

use std::collections::{BTreeMap, BTreeSet};

use nodewright_core::backoff;
use nodewright_core::decide::DeleteReason;
use nodewright_core::effect::{Command, CommandKind, Destroyed, FailureKind, Outcome, PlannedEffect};
use nodewright_core::event::{Event, EventKind};
use nodewright_core::id::{LogicalNodeId, NodeAttemptId};
use nodewright_core::node::{ManagedNode, Stage};
use nodewright_core::observation::{Folded, Observation};

use super::setup::Setup;
use super::world::{News, Violation, World, hold};

type Held = Result<(), Violation>;

/// Every rule that a search can break, by number.
pub(super) const RULES: [&str; 27] = [
    "G3", "G4", "G5", "G6", "G7", "G8", "G9", "G10", "G11", "G12", "G13", "G14", "G15", "G17", "G19", "G20",
    "G21", "G22", "G23", "G24", "G25", "G26", "G29", "G30", "G31", "G32", "G33",
];

impl World {
    /// What must hold after every step.
    pub(super) fn check(&self, setup: &Setup, before: &Self) -> Held {
        self.whole_state()?;
        self.orphans_have_operations_of_their_own()?;
        self.every_call_is_waited_for()?;
        self.one_resource_per_slot()?;
        self.nothing_is_unknown()?;
        self.what_is_destroyed_is_gone()?;
        self.held_is_own()?;
        self.what_starts_has_its_moments()?;
        self.deadlines_are_exact(setup)?;
        self.ledger_is_small()?;
        self.numbers_are_true()?;
        self.memories_are_settled(before)?;
        self.cleanup_keeps_its_facts(before)?;
        self.joined_is_proof(before)?;
        self.backoff_is_kept(before)?;
        self.cleanup_waits_for_nothing_older(before)?;
        self.failures_are_counted(setup, before)?;
        self.deleted_for_a_reason(before)
    }

    /// G5, G7, G9, G11, G12, G13 as the state itself checks them.
    fn whole_state(&self) -> Held {
        let Err(broken) = self.driver.state().check() else {
            return Ok(());
        };
        let what = broken.join("; ");
        let named = |rule: &&&str| what.contains(&format!("{rule}:"));
        let rule = RULES.iter().find(named).copied().unwrap_or("G4");
        Err(Violation { rule, what })
    }

    /// G4: an attempt that fills a slot is above all that were made before, and below the allocator.
    pub(super) fn check_attempts(&mut self, events: &[Event]) -> Held {
        for event in events {
            let (EventKind::Inserted { attempt, .. } | EventKind::Restarted { attempt, .. }) = &event.kind
            else {
                continue;
            };
            hold!(
                "G32",
                self.driver.state().looks_done(),
                "attempt {attempt} begins before the first look is done"
            );
            hold!(
                "G4",
                *attempt > self.allocated,
                "attempt {attempt} was made after {}",
                self.allocated
            );
            self.allocated = *attempt;
        }
        let next = self.driver.state().next_attempt_id;
        hold!(
            "G4",
            next.is_some_and(|next| next > self.allocated),
            "{next:?} is next after {}",
            self.allocated
        );
        Ok(())
    }

    /// G5 and G9 of orphans; G7: what is an orphan is held by no node.
    fn orphans_have_operations_of_their_own(&self) -> Held {
        let state = self.driver.state();
        let mut pending = BTreeSet::new();
        for (_, node) in state.nodes.iter() {
            pending.extend(node.pending.as_ref().map(|_| node.attempt));
        }
        for (key, orphan) in &state.orphans {
            if let Some(operation) = orphan.pending.as_ref().map(|pending| pending.id) {
                hold!(
                    "G5",
                    operation.attempt == key.attempt && operation.sequence < orphan.next_sequence,
                    "orphan {key} has {operation} pending"
                );
                hold!(
                    "G9",
                    pending.insert(key.attempt),
                    "attempt {} has two operations pending",
                    key.attempt
                );
            }
            let node = state
                .nodes
                .get(&key.node)
                .filter(|node| node.attempt == key.attempt);
            let lease = node.and_then(|node| node.lease.as_ref());
            hold!(
                "G7",
                lease.is_none_or(|lease| lease.id != key.lease),
                "{key} is an orphan and held"
            );
        }
        Ok(())
    }

    /// G9: of every attempt one call is at work at most, and somebody waits for it.
    fn every_call_is_waited_for(&self) -> Held {
        let state = self.driver.state();
        let mut at_work = BTreeSet::new();
        for call in &self.calls {
            let operation = call.effect.operation;
            hold!(
                "G9",
                at_work.insert(operation.attempt),
                "two calls of attempt {} are at work",
                operation.attempt
            );
            let waits = |node: &ManagedNode| {
                let pending = node.pending.as_ref().map(|pending| pending.id);
                let unended = node.unended.as_ref().map(|call| call.operation);
                pending == Some(operation) || unended == Some(operation)
            };
            let node = state.nodes.get(&call.effect.node).is_some_and(waits);
            let mut orphans = state.orphans.values();
            let orphan = orphans.any(|orphan| {
                orphan
                    .pending
                    .as_ref()
                    .is_some_and(|pending| pending.id == operation)
                    || orphan
                        .unended
                        .as_ref()
                        .is_some_and(|call| call.operation == operation)
            });
            hold!(
                "G9",
                node || orphan,
                "nobody waits for {operation}, and its call is at work"
            );
        }
        Ok(())
    }

    /// G10: per attempt one resource at most, and per slot those of one attempt at most.
    fn one_resource_per_slot(&self) -> Held {
        let mut slots: BTreeMap<&LogicalNodeId, NodeAttemptId> = BTreeMap::new();
        for machine in &self.cloud.machines {
            let other = slots.insert(&machine.node, machine.attempt);
            hold!(
                "G10",
                other.is_none(),
                "{} has machines of attempts {} and {other:?}",
                machine.node,
                machine.attempt
            );
        }
        Ok(())
    }

    /// G15 and G23: nothing lives or is still to come of which the state does not know, or will not learn by a
    /// look that is due.
    fn nothing_is_unknown(&self) -> Held {
        let state = self.driver.state();
        if !state.looks_done() {
            return Ok(());
        }
        let may_find = |node: &LogicalNodeId, attempt: NodeAttemptId| {
            let node = state.nodes.get(node).filter(|node| node.attempt == attempt);
            node.is_some_and(|node| {
                let creates = |kind| matches!(kind, CommandKind::CreateLease | CommandKind::FindLease);
                node.retry.create.is_some()
                    || node.pending.as_ref().is_some_and(|pending| creates(pending.kind))
                    || node.unended.as_ref().is_some_and(|call| creates(call.kind))
            })
        };
        for machine in &self.cloud.machines {
            let node = state
                .nodes
                .get(&machine.node)
                .filter(|node| node.attempt == machine.attempt);
            let held = node
                .and_then(|node| node.lease.as_ref())
                .is_some_and(|lease| lease.id == machine.lease.id);
            let orphan = state.orphans.keys().any(|key| key.lease == machine.lease.id);
            hold!(
                "G23",
                held || orphan || may_find(&machine.node, machine.attempt),
                "machine {} of {} is known to nobody",
                machine.lease.id,
                machine.node
            );
        }
        for late in &self.cloud.late {
            hold!(
                "G15",
                may_find(&late.node, late.attempt) || self.cloud.machine(late.attempt).is_some(),
                "a create of attempt {} of {} may come through, and nobody remembers it",
                late.attempt,
                late.node
            );
        }
        Ok(())
    }

    /// G11 and G14: of an attempt that is destroyed nothing lives or is at work, but for its known orphans.
    fn what_is_destroyed_is_gone(&self) -> Held {
        let state = self.driver.state();
        for (id, node) in state
            .nodes
            .iter()
            .filter(|(_, node)| node.stage == Stage::Destroyed)
        {
            let attempt = node.attempt;
            let orphan = state.orphans.keys().any(|key| key.attempt == attempt);
            let machine = self.cloud.machine(attempt).is_some();
            let late = self.cloud.late.iter().any(|late| late.attempt == attempt);
            hold!(
                "G14",
                orphan || !(machine || late),
                "attempt {attempt} of {id} is destroyed, and not gone"
            );
            let session = self
                .cloud
                .sessions
                .iter()
                .any(|session| session.id.attempt() == attempt);
            hold!(
                "G14",
                !session,
                "attempt {attempt} of {id} is destroyed, and its session lives"
            );
        }
        Ok(())
    }

    /// G7, G13 and G32: what a node holds is its own attempt's, and what is ready is made from its spec.
    fn held_is_own(&self) -> Held {
        for (id, node) in self.driver.state().nodes.iter() {
            let Some(lease) = &node.lease else { continue };
            let own = lease.id.as_str().starts_with(&format!("m{}-", node.attempt));
            hold!("G7", own, "attempt {} of {id} holds {}", node.attempt, lease.id);
            let made_from = node.spec.as_ref().map(|spec| spec.digest());
            hold!(
                "G13",
                !node.ready || lease.template == made_from,
                "{id} is ready, and {} is made from something else",
                lease.id
            );
        }
        Ok(())
    }

    /// G26: a node on its way has the moments by which it has to get on.
    fn what_starts_has_its_moments(&self) -> Held {
        for (id, node) in self.driver.state().nodes.iter() {
            if !lively(node) || node.ready {
                continue;
            }
            let retry = &node.retry;
            hold!(
                "G26",
                node.lease.is_none() || retry.ready_by.is_some(),
                "{id} may take for ever to get ready"
            );
            let live = node.active_bootstrap.is_some() && node.join.is_none();
            hold!(
                "G26",
                !live || retry.stall_at.is_some(),
                "the session of {id} may be silent for ever"
            );
        }
        Ok(())
    }

    /// G24: a deadline is counted from the dispatch.
    fn deadlines_are_exact(&self, setup: &Setup) -> Held {
        for (id, node) in self.driver.state().nodes.iter() {
            let Some(pending) = &node.pending else { continue };
            let exact = pending.dispatched_at.checked_add(setup.policy.operation_timeout);
            hold!(
                "G24",
                exact.is_ok_and(|at| at == pending.deadline),
                "{} of {id} expires at another moment",
                pending.id
            );
            let missed = pending.deadline <= self.now && !pending.expiring;
            hold!("G24", !missed, "{} of {id} should have expired", pending.id);
        }
        Ok(())
    }

    /// G30: the ledger knows live attempts and calls that are at work.
    fn ledger_is_small(&self) -> Held {
        let state = self.driver.state();
        let live = state.nodes.len() + state.orphans.len() + self.calls.len();
        // Who is retired is told by the next pass.
        hold!(
            "G30",
            !self.passed || self.ledger.len() <= live,
            "the ledger knows {}, and {live} live",
            self.ledger.len()
        );
        Ok(())
    }

    /// What is kept is what counting gives; and converged means it.
    fn numbers_are_true(&self) -> Held {
        let (state, desired) = (self.driver.state(), self.driver.desired());
        let satisfied = desired.expand().all(|spec| {
            let node = state.nodes.get(&spec.id);
            node.is_some_and(|node| node.is_available(&spec.template) && node.pending.is_none())
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
        hold!(
            "G13",
            self.driver.is_converged() == converged,
            "is_converged says {}, and by definition it is {converged}",
            self.driver.is_converged()
        );
        Ok(())
    }

    /// G15: an ambiguous create is remembered until its resource is known, or is known not to be.
    fn memories_are_settled(&self, before: &Self) -> Held {
        if !self.same_process() {
            return Ok(());
        }
        for (id, was) in before.driver.state().nodes.iter() {
            let Some(call) = &was.retry.create else { continue };
            let is = self
                .driver
                .state()
                .nodes
                .get(&id)
                .filter(|node| node.attempt == was.attempt);
            let found_absent = self.found_absent(&id, was);
            let Some(is) = is else {
                hold!(
                    "G15",
                    found_absent,
                    "{} of {id} is forgotten with its attempt",
                    call.operation
                );
                continue;
            };
            let settled = is.lease.is_some() || found_absent;
            hold!(
                "G15",
                is.retry.create.is_some() || settled,
                "{} of {id} is forgotten",
                call.operation
            );
            hold!(
                "G15",
                is.retry.create.is_none() || is.stage != Stage::Destroyed,
                "{id} is destroyed, {} being open",
                call.operation
            );
        }
        Ok(())
    }

    fn found_absent(&self, id: &LogicalNodeId, was: &ManagedNode) -> bool {
        let found = |news: &News| {
            matches!(
                &news.observation,
                Observation::Finished { operation, outcome: Outcome::LeaseFound(None), .. }
                    if was.pending.as_ref().is_some_and(|pending| pending.id == *operation)
            )
        };
        self.done
            .told
            .as_ref()
            .is_some_and(|news| news.node == *id && found(news))
    }

    /// G12: what is being cleaned up keeps its lease until that is gone.
    fn cleanup_keeps_its_facts(&self, before: &Self) -> Held {
        if !self.same_process() {
            return Ok(());
        }
        let gone = |news: &News| {
            matches!(
                &news.observation,
                Observation::Finished {
                    outcome: Outcome::LeaseDestroyed(Destroyed::Gone),
                    ..
                }
            )
        };
        for (id, was) in before.driver.state().nodes.iter() {
            let Some(lease) = &was.lease else { continue };
            let is = self
                .driver
                .state()
                .nodes
                .get(&id)
                .filter(|node| node.attempt == was.attempt);
            let kept = is
                .and_then(|node| node.lease.as_ref())
                .is_some_and(|is| is.id == lease.id);
            let destroyed = self
                .done
                .told
                .as_ref()
                .is_some_and(|news| news.node == id && gone(news));
            hold!("G12", kept || destroyed, "{id} forgot {}", lease.id);
        }
        Ok(())
    }

    /// G33: nothing that befalls a session fails what has joined.
    fn joined_is_proof(&self, before: &Self) -> Held {
        let told_lost = |news: &News| matches!(news.observation, Observation::NodeLost { .. });
        let lost = self.done.told.as_ref().is_some_and(told_lost);
        let dead =
            |attempt| self.done.looked && self.cloud.machine(attempt).is_some_and(|machine| !machine.alive);
        for (id, was) in before.driver.state().nodes.iter() {
            if was.join.is_none() || !lively(was) || !self.same_process() {
                continue;
            }
            let overdue = was.retry.ready_by.is_some_and(|at| at <= self.now);
            let failed = self.done.events.iter().find(|event| {
                matches!(&event.kind, EventKind::AttemptFailed { attempt, .. } if *attempt == was.attempt)
            });
            let is = self
                .driver
                .state()
                .nodes
                .get(&id)
                .filter(|node| node.attempt == was.attempt);
            let failed = failed.is_some() || is.is_some_and(|node| node.stage == Stage::Failed);
            hold!(
                "G33",
                !failed || lost || overdue || dead(was.attempt),
                "attempt {} of {id} had joined, and failed",
                was.attempt
            );
        }
        Ok(())
    }

    /// G17: a failed attempt is not replaced before its backoff is over, unless its spec changed or somebody
    /// asked.
    fn backoff_is_kept(&self, before: &Self) -> Held {
        for event in &self.done.events {
            let EventKind::Restarted { node, from, .. } = &event.kind else {
                continue;
            };
            let was = before
                .driver
                .state()
                .nodes
                .get(node)
                .filter(|node| node.attempt == *from);
            let spec = self.driver.desired().template_of(node);
            let asked = self.done.retried.as_ref() == Some(node);
            if asked || !was.is_some_and(|was| spec.is_some_and(|spec| was.is_made_from(spec))) {
                continue;
            }
            let failed = self.done.events.iter().find_map(|event| match &event.kind {
                EventKind::AttemptFailed {
                    attempt, restart_at, ..
                } if attempt == from => *restart_at,
                _ => None,
            });
            let restart_at = failed.or(was.and_then(|was| was.retry.restart_at));
            hold!(
                "G17",
                restart_at.is_none_or(|at| at <= self.now),
                "attempt {from} of {node} is replaced, and was to wait until {restart_at:?}"
            );
        }
        Ok(())
    }

    /// G17: what arrives for an operation that began before the delete sets no new wait. These commands are sent
    /// for nothing that is being deleted.
    fn cleanup_waits_for_nothing_older(&self, before: &Self) -> Held {
        let Some((news, was, is)) = self.answered(before) else {
            return Ok(());
        };
        let kind = was.pending.as_ref().map(|pending| pending.kind);
        let older = matches!(
            kind,
            Some(
                CommandKind::CreateLease
                    | CommandKind::LookupEndpoint
                    | CommandKind::StartBootstrap
                    | CommandKind::ObserveConvergence
            )
        );
        let waits = is.retry.next_effect_at.filter(|at| *at > self.now);
        let new = waits.is_some() && waits != was.retry.next_effect_at;
        hold!(
            "G17",
            was.is_active() || !older || !new,
            "{} makes cleanup of {} wait",
            news.observation,
            news.node
        );
        Ok(())
    }

    /// G17: a failure is counted once, and waited for as long as the policy says.
    fn failures_are_counted(&self, setup: &Setup, before: &Self) -> Held {
        let Some((news, was, is)) = self.answered(before) else {
            return Ok(());
        };
        let (
            Observation::Finished {
                outcome: Outcome::Failed(error),
                ..
            },
            Some(pending),
        ) = (&news.observation, &was.pending)
        else {
            return Ok(());
        };
        let counted = matches!(
            pending.kind,
            CommandKind::CreateLease | CommandKind::FindLease | CommandKind::LookupEndpoint
        );
        if !counted || !lively(was) || !lively(is) || error.kind != FailureKind::Definite {
            return Ok(());
        }
        let count = |node: &ManagedNode| {
            node.retry
                .failures
                .get(&pending.kind)
                .copied()
                .unwrap_or_default()
        };
        let run = &self.driver.state().run_id;
        let delay = backoff(&setup.policy, run, is.attempt, count(is));
        hold!(
            "G17",
            count(is) == count(was) + 1,
            "{} of {} was counted {} times",
            pending.id,
            news.node,
            count(is) - count(was)
        );
        let waits = is.retry.next_effect_at;
        hold!(
            "G17",
            waits == Some(self.after(delay)),
            "{} waits until {waits:?}, and {delay:?} are due",
            news.node
        );
        Ok(())
    }

    /// The result that was told, and its node as it was and is, if it was waited for and the node still is.
    fn answered<'a>(&'a self, before: &'a Self) -> Option<(&'a News, &'a ManagedNode, &'a ManagedNode)> {
        let news = self.done.told.as_ref()?;
        let Observation::Finished { operation, .. } = &news.observation else {
            return None;
        };
        let was = before.driver.state().nodes.get(&news.node)?;
        let is = self.driver.state().nodes.get(&news.node)?;
        let waited = was
            .pending
            .as_ref()
            .is_some_and(|pending| pending.id == *operation);
        (waited && is.attempt == was.attempt).then_some((news, was, is))
    }

    /// G21: what the shape wants as it is, is not taken down because it is not wanted.
    fn deleted_for_a_reason(&self, before: &Self) -> Held {
        let desired = self.driver.desired();
        for event in &self.done.events {
            let EventKind::DeleteBegan {
                node,
                attempt,
                reason,
            } = &event.kind
            else {
                continue;
            };
            let wanted = desired.template_of(node);
            let state = before.driver.state();
            let was = state.nodes.get(node).filter(|was| was.attempt == *attempt);
            let holds = match reason {
                DeleteReason::Undesired => wanted.is_none(),
                DeleteReason::Drifted => {
                    was.is_none_or(|was| wanted.is_some_and(|spec| !was.is_made_from(spec)))
                }
                DeleteReason::Replaced => {
                    was.is_some_and(|was| was.retry.replace) || self.done.replaced.as_ref() == Some(node)
                }
                _ => true,
            };
            hold!(
                "G21",
                holds,
                "attempt {attempt} of {node} is taken down, it is said: {reason}"
            );
        }
        Ok(())
    }

    /// G8: what was sent is recorded. G14: find, cancel, destroy. G30: a command is not repeated at once.
    pub(super) fn check_sent(&mut self, setup: &Setup, sent: &[PlannedEffect]) -> Held {
        for effect in sent {
            let PlannedEffect {
                node,
                operation,
                command,
                ..
            } = effect;
            let state = self.driver.state();
            let own = state
                .nodes
                .get(node)
                .filter(|node| node.attempt == operation.attempt);
            let pending = own
                .and_then(|node| node.pending.as_ref())
                .is_some_and(|pending| pending.id == *operation);
            let mut orphans = state.orphans.values();
            let orphan = orphans.any(|orphan| {
                orphan
                    .pending
                    .as_ref()
                    .is_some_and(|pending| pending.id == *operation)
            });
            hold!(
                "G8",
                pending || orphan,
                "{operation} was sent, and is not recorded"
            );
            if let Some(own) = own.filter(|_| pending) {
                let open = own.retry.create.is_some() && command.kind() != CommandKind::FindLease;
                hold!(
                    "G15",
                    !open,
                    "{} was sent for {node}, a create being open",
                    command.kind()
                );
                let session = own.active_bootstrap.is_some() || own.retry.start.is_some();
                let tried = own.retry.failed_cancels >= setup.policy.cancel_attempts;
                let destroys = matches!(command, Command::DestroyLease(_));
                hold!(
                    "G14",
                    !destroys || tried || !session,
                    "the lease of {node} is destroyed before its session is ended"
                );
                hold!(
                    "G32",
                    !matches!(command, Command::CreateLease(_)) || state.looks_done(),
                    "{node} is made before the first look is done"
                );
            }
            let kind = command.kind();
            let last = self.last_sent.insert(operation.attempt, (kind, self.now));
            let soonest = last.filter(|(last, _)| *last == kind && pending);
            let soonest = soonest.map(|(_, at)| at.checked_add(setup.net(kind)).expect("traces are short"));
            hold!(
                "G30",
                soonest.is_none_or(|at| at <= self.now),
                "{kind} was sent again for attempt {} at once",
                operation.attempt
            );
        }
        let attempts: BTreeSet<NodeAttemptId> = self
            .driver
            .state()
            .nodes
            .iter()
            .map(|(_, node)| node.attempt)
            .collect();
        self.last_sent.retain(|attempt, _| attempts.contains(attempt));
        Ok(())
    }

    /// G6: what is told a second time changes nothing.
    pub(super) fn check_told_twice(&self, news: &News) -> Held {
        // That a machine is lost may be said twice.
        if matches!(news.observation, Observation::NodeLost { .. }) {
            return Ok(());
        }
        let mut driver = self.driver.clone();
        let stale = driver.summary().stale;
        let folded = driver.fold(&news.node, news.attempt, &news.observation, self.now);
        let unchanged = folded == Folded::Stale
            && driver.state() == self.driver.state()
            && driver.summary().stale == stale + 1;
        // A lease that a destroyed attempt is told of is looked after again: it may be another one.
        hold!(
            "G6",
            unchanged || folded == Folded::Orphaned,
            "{} was told twice, and was {folded:?}",
            news.observation
        );
        Ok(())
    }

    /// Whether the process before is this one.
    fn same_process(&self) -> bool {
        !self.done.restarted
    }
}

fn lively(node: &ManagedNode) -> bool {
    node.is_active() && !matches!(node.stage, Stage::Failed | Stage::Destroyed)
}

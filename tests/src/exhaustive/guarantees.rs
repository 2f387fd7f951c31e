//! The guarantees, each a function over a state, or, in the rooms below, over what led to it.

mod answered;
mod passed;
mod stepped;

use std::collections::{BTreeMap, BTreeSet};

use nodewright_core::effect::CommandKind;
use nodewright_core::id::{LogicalNodeId, NodeAttemptId};
use nodewright_core::node::{ManagedNode, Stage};

use super::cloud::Late;
use super::setup::Setup;
use super::world::{Violation, World, hold};

type Held = Result<(), Violation>;

/// Every rule that a search can break, by number.
pub(super) const RULES: [&str; 29] = [
    "G3", "G4", "G5", "G6", "G7", "G8", "G9", "G10", "G11", "G12", "G13", "G14", "G15", "G17", "G19", "G20",
    "G21", "G22", "G23", "G24", "G25", "G26", "G27", "G28", "G29", "G30", "G31", "G32", "G33",
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

    /// G10: per attempt one resource at most, and per slot those of one attempt at most; but for what is there
    /// against its provider's word.
    fn one_resource_per_slot(&self) -> Held {
        let mut slots: BTreeMap<&LogicalNodeId, NodeAttemptId> = BTreeMap::new();
        for machine in self.cloud.promised() {
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
        // What is there against its provider's word only sweeps can find.
        for machine in self.cloud.promised() {
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
        let strayed = |late: &&Late| self.cloud.strays.contains(&late.attempt);
        for late in self.cloud.late.iter().filter(|late| !strayed(late)) {
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

    /// G11 and G14: of an attempt that is destroyed nothing lives or is at work, but for its known orphans. What a
    /// first look found and had ended may have a create of the process before still to come: the look is repeated
    /// for that, and until then no slot is filled.
    fn what_is_destroyed_is_gone(&self) -> Held {
        let state = self.driver.state();
        let is_destroyed = |node: &ManagedNode| node.stage == Stage::Destroyed;
        for (id, node) in state.nodes.iter().filter(|(_, node)| is_destroyed(node)) {
            let attempt = node.attempt;
            let orphan = state.orphans.keys().any(|key| key.attempt == attempt);
            let mut machines = self.cloud.promised();
            let machine = machines.any(|machine| machine.attempt == attempt);
            let strayed = self.cloud.strays.contains(&attempt);
            let late = !strayed && self.cloud.late.iter().any(|late| late.attempt == attempt);
            hold!(
                "G14",
                orphan || !(machine || late) || !state.looks_done(),
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
}

fn lively(node: &ManagedNode) -> bool {
    node.is_active() && !matches!(node.stage, Stage::Failed | Stage::Destroyed)
}

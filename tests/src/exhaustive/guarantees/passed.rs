//! What must hold of a drive: of what it made, of what it sent, and of what it was told.

use std::collections::BTreeSet;

use nodewright_core::effect::{Command, CommandKind, PlannedEffect};
use nodewright_core::event::{Event, EventKind};
use nodewright_core::id::NodeAttemptId;
use nodewright_core::observation::{Folded, Observation};

use super::Held;
use crate::exhaustive::setup::Setup;
use crate::exhaustive::world::{News, World, hold};

impl World {
    /// G4: an attempt that fills a slot is above all that were made before, and below the allocator.
    pub(in crate::exhaustive) fn check_attempts(&mut self, events: &[Event]) -> Held {
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

    /// G8: what was sent is recorded. G14: find, cancel, destroy. G30: a command is not repeated at once.
    pub(in crate::exhaustive) fn check_sent(&mut self, setup: &Setup, sent: &[PlannedEffect]) -> Held {
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
            let mut orphans = state.orphans.iter().filter(|(key, _)| key.node == *node);
            hold!(
                "G10",
                !matches!(command, Command::CreateLease(_)) || orphans.all(|(_, orphan)| orphan.surplus),
                "{node} is made beside an orphan of its slot"
            );
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
    pub(in crate::exhaustive) fn check_told_twice(&self, news: &News) -> Held {
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
}

//! What must hold of a step: of what was told, and of what became of each node.

use nodewright_core::backoff;
use nodewright_core::decide::DeleteReason;
use nodewright_core::effect::{CommandKind, Destroyed, FailureKind, Outcome};
use nodewright_core::event::EventKind;
use nodewright_core::id::LogicalNodeId;
use nodewright_core::node::{ManagedNode, Stage};
use nodewright_core::observation::Observation;

use super::{Held, lively};
use crate::exhaustive::setup::Setup;
use crate::exhaustive::world::{News, World, hold};

impl World {
    /// G15: an ambiguous create is remembered until its resource is known, or is known not to be.
    pub(super) fn memories_are_settled(&self, before: &Self) -> Held {
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
    pub(super) fn cleanup_keeps_its_facts(&self, before: &Self) -> Held {
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
    pub(super) fn joined_is_proof(&self, before: &Self) -> Held {
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
                !failed || lost || overdue || dead(was.attempt) || self.done.lost.contains(&was.attempt),
                "attempt {} of {id} had joined, and failed",
                was.attempt
            );
        }
        Ok(())
    }

    /// G17: a failed attempt is not replaced before its backoff is over, unless its spec changed or somebody
    /// asked.
    pub(super) fn backoff_is_kept(&self, before: &Self) -> Held {
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
    pub(super) fn cleanup_waits_for_nothing_older(&self, before: &Self) -> Held {
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
    pub(super) fn failures_are_counted(&self, setup: &Setup, before: &Self) -> Held {
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
    pub(super) fn deleted_for_a_reason(&self, before: &Self) -> Held {
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

    /// Whether the process before is this one.
    fn same_process(&self) -> bool {
        !self.done.restarted
    }
}

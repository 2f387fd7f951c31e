//! What must hold of one observation, and of what it made of its node.

use jiff::Timestamp;
use nodewright_core::bootstrap::StreamEvent;
use nodewright_core::effect::{CommandKind, Destroyed, Outcome};
use nodewright_core::id::{BootstrapSessionId, LogicalNodeId, NodeAttemptId, RunId};
use nodewright_core::node::{ManagedNode, Stage};
use nodewright_core::observation::{Folded, Observation};
use nodewright_core::policy::Policy;

use super::failures::{g16_as_many_failures_as_are_allowed_halt, lively};
use super::{Broken, demand};

/// An observation that the driver was told, and its node before and after.
pub(crate) struct Told<'a> {
    pub(crate) node: &'a LogicalNodeId,
    pub(crate) attempt: NodeAttemptId,
    pub(crate) observation: &'a Observation,
    pub(crate) folded: Folded,
    pub(crate) before: Option<&'a ManagedNode>,
    pub(crate) after: Option<&'a ManagedNode>,
    /// By how much the count of stale observations rose.
    pub(crate) counted: u64,
    pub(crate) policy: &'a Policy,
    pub(crate) run: &'a RunId,
    pub(crate) now: Timestamp,
}

impl Told<'_> {
    pub(crate) fn check(&self) -> Result<(), Broken> {
        self.g6_what_is_stale_changes_nothing_and_is_counted()?;
        let (Some(before), Some(after)) = (self.before, self.after) else {
            demand!(
                self.before.is_none() == self.after.is_none(),
                "an observation of {} filled or emptied its slot",
                self.node
            );
            return Ok(());
        };
        self.g7_an_observation_changes_its_own_attempt(before, after)?;
        self.g2_a_join_counts_whatever_came_before_it(before, after)?;
        self.g13_a_complete_handoff_makes_ready(before, after)?;
        self.g23_what_an_answer_shows_is_recorded(before, after)?;
        self.g12_what_is_going_moves_nowhere_else(before, after)?;
        self.g15_a_remembered_create_is_settled_by_what_settles_it(before, after)?;
        self.g27_a_lost_node_fails(before, after)?;
        self.g33_nothing_that_befalls_a_session_ends_what_joined(before, after)?;
        g16_as_many_failures_as_are_allowed_halt(before, after, self.policy, self.is_fatal())?;
        self.g16_a_refusal_is_waited_for(before, after)?;
        self.g16_and_g17(before, after)
    }

    fn g6_what_is_stale_changes_nothing_and_is_counted(&self) -> Result<(), Broken> {
        let stale = self.folded == Folded::Stale;
        demand!(
            self.counted == u64::from(stale),
            "G6: {} was {:?}, and {} were counted",
            self.observation,
            self.folded,
            self.counted
        );
        // The sequence of a node goes on above that of its orphans, so an orphan's answer may raise it.
        demand!(
            !stale || self.before == self.after,
            "G6: {} was stale and changed {}",
            self.observation,
            self.node
        );
        Ok(())
    }

    fn g7_an_observation_changes_its_own_attempt(
        &self,
        before: &ManagedNode,
        after: &ManagedNode,
    ) -> Result<(), Broken> {
        demand!(
            before.attempt == after.attempt && before.intent == after.intent,
            "{} changed the attempt or the intent of {}",
            self.observation,
            self.node
        );
        demand!(
            before.attempt == self.attempt || before == after,
            "G7: {} of attempt {} changed attempt {}",
            self.observation,
            self.attempt,
            before.attempt
        );
        Ok(())
    }

    fn g2_a_join_counts_whatever_came_before_it(
        &self,
        before: &ManagedNode,
        after: &ManagedNode,
    ) -> Result<(), Broken> {
        let joins = match self.observation {
            Observation::Joined(_) => true,
            Observation::Stream(seen) => {
                matches!(seen.event, StreamEvent::Joined(_)) && seen.session.attempt() == before.attempt
            }
            _ => false,
        };
        let may = before.attempt == self.attempt && before.lease.is_some();
        demand!(
            !(joins && may) || after.join.is_some(),
            "G2: {} said that {} joined, and it is not believed",
            self.observation,
            self.node
        );
        // The answer to a start that is under way names the session: it is awaited.
        let starting = before.pending.as_ref().is_some_and(|pending| {
            pending.kind == CommandKind::StartBootstrap
                && before.ended_bootstrap != Some(BootstrapSessionId(pending.id))
        });
        let rises = lively(before) && !before.ready && before.join.is_none();
        demand!(
            !(joins && may && rises && starting) || after.stage == Stage::Joined,
            "G2: {} joined while its start was under way, and is {}",
            self.node,
            after.stage
        );
        Ok(())
    }

    fn g23_what_an_answer_shows_is_recorded(
        &self,
        before: &ManagedNode,
        after: &ManagedNode,
    ) -> Result<(), Broken> {
        let Observation::Finished {
            operation, outcome, ..
        } = self.observation
        else {
            return Ok(());
        };
        let pending = before.pending.as_ref().map(|pending| pending.id);
        let held = after.lease.as_ref().map(|lease| &lease.id);
        let as_shown = match outcome {
            _ if self.folded != Folded::Applied || pending != Some(*operation) => true,
            Outcome::LeaseCreated(shown) | Outcome::LeaseFound(Some(shown)) => {
                held == Some(&shown.lease.id)
                    && (shown.endpoint.is_none() || after.endpoint == shown.endpoint)
            }
            Outcome::EndpointFound(Some(shown)) => after.endpoint.as_ref() == Some(shown),
            Outcome::LeaseDestroyed(Destroyed::Gone) => held.is_none() && after.endpoint.is_none(),
            _ => true,
        };
        demand!(
            as_shown,
            "G23: {} is not what {} holds: {after:?}",
            self.observation,
            self.node
        );
        Ok(())
    }

    fn g13_a_complete_handoff_makes_ready(
        &self,
        before: &ManagedNode,
        after: &ManagedNode,
    ) -> Result<(), Broken> {
        let handed_off = *self.observation == Observation::HandedOff && before.attempt == self.attempt;
        let whole = before.lease.is_some() && before.endpoint.is_some() && before.join.is_some();
        demand!(
            !(handed_off && whole && lively(before)) || after.ready,
            "G13: {} was handed off whole and is not ready",
            self.node
        );
        Ok(())
    }

    fn g12_what_is_going_moves_nowhere_else(
        &self,
        before: &ManagedNode,
        after: &ManagedNode,
    ) -> Result<(), Broken> {
        let going = !lively(before);
        demand!(
            !going || (before.stage == after.stage && !after.ready),
            "G12: {} moved {}, which is going, from {} to {}",
            self.observation,
            self.node,
            before.stage,
            after.stage
        );
        let failed = self.failure(before).is_some();
        demand!(
            !(going && failed) || (before.lease == after.lease && before.endpoint == after.endpoint),
            "G12: {} failed and took the facts of {} away",
            self.observation,
            self.node
        );
        Ok(())
    }

    fn g15_a_remembered_create_is_settled_by_what_settles_it(
        &self,
        before: &ManagedNode,
        after: &ManagedNode,
    ) -> Result<(), Broken> {
        let settles = matches!(
            self.observation,
            Observation::Finished {
                outcome: Outcome::LeaseCreated(_) | Outcome::LeaseFound(_),
                ..
            }
        );
        demand!(
            before.retry.create.is_none() || after.retry.create.is_some() || settles,
            "G15: {} made {} forget its ambiguous create",
            self.observation,
            self.node
        );
        Ok(())
    }

    fn g27_a_lost_node_fails(&self, before: &ManagedNode, after: &ManagedNode) -> Result<(), Broken> {
        let lost = matches!(self.observation, Observation::NodeLost { .. });
        demand!(
            !(lost && lively(before) && before.attempt == self.attempt) || after.stage == Stage::Failed,
            "G27: {} was lost and is {}",
            self.node,
            after.stage
        );
        Ok(())
    }

    fn g33_nothing_that_befalls_a_session_ends_what_joined(
        &self,
        before: &ManagedNode,
        after: &ManagedNode,
    ) -> Result<(), Broken> {
        let session = match self.observation {
            Observation::Stream(seen) => !matches!(seen.event, StreamEvent::Joined(_)),
            Observation::Finished { .. } | Observation::Refused { .. } => {
                let pending = before.pending.as_ref();
                pending.is_some_and(|pending| {
                    matches!(
                        pending.kind,
                        CommandKind::StartBootstrap | CommandKind::ObserveConvergence
                    )
                })
            }
            _ => false,
        };
        let answered = matches!(self.observation, Observation::Finished { .. });
        demand!(
            !(answered && session && before.ready) || after.active_bootstrap <= before.active_bootstrap,
            "G33: {} gave {}, which is ready, a session",
            self.observation,
            self.node
        );
        let joined = before.join.is_some() && before.stage != Stage::Failed;
        demand!(
            !(session && joined) || after.stage != Stage::Failed,
            "G33: {} ended {}, which had joined",
            self.observation,
            self.node
        );
        Ok(())
    }
}

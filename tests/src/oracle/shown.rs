//! What must be made of what is shown: facts are recorded, in whatever order they come, and what ends an attempt
//! or is not taken has its consequences.

use std::num::NonZeroU32;

use nodewright_core::bootstrap::StreamEvent;
use nodewright_core::effect::{CommandKind, Destroyed, FailureKind, Outcome};
use nodewright_core::id::BootstrapSessionId;
use nodewright_core::node::{ManagedNode, Stage};
use nodewright_core::observation::{Folded, Observation};
use nodewright_core::policy::Policy;

use super::told::Told;
use super::{Broken, demand};

/// Whether a node may still become or stay ready.
pub(super) fn lively(node: &ManagedNode) -> bool {
    node.is_active() && !matches!(node.stage, Stage::Failed | Stage::Destroyed)
}

/// Where an attempt ends, its slot is halted if as many in a row failed as the policy allows, and else only if
/// nothing helps.
pub(super) fn g16_as_many_failures_as_are_allowed_halt(
    before: &ManagedNode,
    after: &ManagedNode,
    policy: &Policy,
    fatal: bool,
) -> Result<(), Broken> {
    let ended = before.attempt == after.attempt && before.failure.is_none() && after.failure.is_some();
    let limit = policy.attempt_limit.map(NonZeroU32::get);
    let reached = limit.is_some_and(|limit| after.retry.failed_attempts >= limit);
    let halts = reached || fatal || before.retry.halted.is_some();
    demand!(
        !ended || after.retry.halted.is_some() == halts,
        "G16: {} attempts in a row failed, {limit:?} are allowed, and the halt is {:?}",
        after.retry.failed_attempts,
        after.retry.halted
    );
    Ok(())
}

impl Told<'_> {
    pub(super) fn g2_a_join_counts_whatever_came_before_it(
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

    pub(super) fn g13_a_complete_handoff_makes_ready(
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

    pub(super) fn g23_what_an_answer_shows_is_recorded(
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

    /// A submission that was not taken is tried again after the first delay, which takes no time from the node.
    pub(super) fn g16_a_refusal_is_waited_for(
        &self,
        before: &ManagedNode,
        after: &ManagedNode,
    ) -> Result<(), Broken> {
        let Observation::Refused { operation, .. } = self.observation else {
            return Ok(());
        };
        let pending = before.pending.as_ref();
        let Some(pending) = pending.filter(|pending| pending.id == *operation) else {
            return Ok(());
        };
        let said = format!("{} of {} was refused", pending.kind, self.node);
        demand!(
            before.retry.failures == after.retry.failures || after.ready,
            "G16: {said} and was counted"
        );
        self.waits_for(after, pending, self.policy.initial_delay, &said)?;
        // Once its agent joined, nothing waits for a start any more.
        let late = before.join.is_some() && pending.kind == CommandKind::StartBootstrap;
        let waits = lively(before) && after.stage == before.stage && !after.ready && !late;
        let longer = before.retry.ready_by < after.retry.ready_by;
        demand!(
            !waits || pending.before_delete || before.retry.ready_by.is_none() || longer,
            "G18: {said} and the wait counts for getting ready"
        );
        Ok(())
    }

    /// Whether nothing helps.
    pub(super) fn is_fatal(&self) -> bool {
        let Observation::Finished { outcome, .. } = self.observation else {
            return false;
        };
        matches!(outcome, Outcome::Failed(error) if error.kind == FailureKind::Fatal)
    }
}

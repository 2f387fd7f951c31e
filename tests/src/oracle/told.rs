//! What must hold of one observation, and of what it made of its node.

use std::time::Duration;

use jiff::Timestamp;
use nodewright_core::backoff;
use nodewright_core::bootstrap::StreamEvent;
use nodewright_core::effect::{CommandKind, EffectError, FailureKind, Outcome};
use nodewright_core::id::{BootstrapSessionId, LogicalNodeId, NodeAttemptId, RunId};
use nodewright_core::node::{ManagedNode, PendingOperation, Stage};
use nodewright_core::observation::{Folded, Observation};
use nodewright_core::policy::Policy;

use super::shown::{g16_as_many_failures_as_are_allowed_halt, lively};
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

    /// The operation that failed, and how.
    fn failure<'a>(&'a self, before: &'a ManagedNode) -> Option<(&'a PendingOperation, &'a EffectError)> {
        let Observation::Finished {
            operation,
            outcome: Outcome::Failed(error),
            ..
        } = self.observation
        else {
            return None;
        };
        let pending = before.pending.as_ref()?;
        (pending.id == *operation).then_some((pending, error))
    }

    /// Chapter 3's table, row by row, and the exact delay where one is counted.
    fn g16_and_g17(&self, before: &ManagedNode, after: &ManagedNode) -> Result<(), Broken> {
        let Some((pending, error)) = self.failure(before) else {
            return Ok(());
        };
        let kind = pending.kind;
        let lively = lively(before);
        let unready = lively && !before.ready;
        let said = format!("{kind} of {} said {:?}", self.node, error.kind);
        demand!(after.pending.is_none(), "G16: {said} and is still pending");
        let ended = lively && after.stage == Stage::Failed;
        match (kind, error.kind) {
            (_, FailureKind::Throttled { retry_after }) => {
                demand!(!ended, "G16: {said} and ended the attempt");
                demand!(
                    after.ready || before.retry.failures == after.retry.failures,
                    "G16: {said} and was counted"
                );
                self.waits_for(after, pending, self.throttled_for(retry_after), &said)?;
            }
            (CommandKind::CreateLease, FailureKind::Definite) if unready && !pending.before_delete => {
                demand!(!ended, "G16: {said} and ended the attempt");
                self.counts_and_backs_off(before, after, kind, &said)?;
            }
            (CommandKind::CreateLease, FailureKind::Ambiguous) => {
                demand!(!ended, "G16: {said} and ended the attempt");
                demand!(
                    after
                        .retry
                        .create
                        .as_ref()
                        .is_some_and(|call| call.operation == pending.id),
                    "G15: {said} and was not remembered"
                );
            }
            (CommandKind::CreateLease, FailureKind::Fatal) if unready && !pending.before_delete => {
                demand!(after.retry.halted.is_some(), "G16: {said} and did not halt");
            }
            (CommandKind::StartBootstrap, FailureKind::Definite | FailureKind::Fatal)
                if unready && before.join.is_none() =>
            {
                demand!(ended, "G16: {said} and the attempt goes on");
                let fatal = error.kind == FailureKind::Fatal;
                demand!(
                    !fatal || after.retry.halted.is_some(),
                    "G16: {said} and did not halt"
                );
                self.restarts_with_backoff(before, after, &said)?;
            }
            (CommandKind::StartBootstrap, FailureKind::Ambiguous) if unready && before.join.is_none() => {
                demand!(!ended, "G16: {said} and ended the attempt");
                // A session that was seen was started, whatever its caller heard.
                let session = BootstrapSessionId(pending.id);
                if before.active_bootstrap.is_some() || before.ended_bootstrap == Some(session) {
                    demand!(
                        before.retry.failures == after.retry.failures,
                        "G16: {said}, its session was seen, and it was counted"
                    );
                } else {
                    self.counts_and_backs_off(before, after, kind, &said)?;
                }
            }
            (CommandKind::CancelBootstrap, _) => {
                demand!(
                    after.retry.failed_cancels == before.retry.failed_cancels + 1,
                    "G16: {said} and was not counted"
                );
            }
            (
                CommandKind::FindLease
                | CommandKind::LookupEndpoint
                | CommandKind::ObserveConvergence
                | CommandKind::DestroyLease,
                _,
            ) => {
                demand!(!ended, "G16: {said} and ended the attempt");
                demand!(before.lease == after.lease, "G16: {said} and took the lease away");
                let late = before.ready && kind == CommandKind::ObserveConvergence;
                if !pending.before_delete && !late {
                    self.counts_and_backs_off(before, after, kind, &said)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn throttled_for(&self, retry_after: Option<Duration>) -> Duration {
        let asked = retry_after.unwrap_or_default().max(self.policy.initial_delay);
        asked.min(self.policy.max_throttle)
    }

    pub(super) fn waits_for(
        &self,
        after: &ManagedNode,
        pending: &PendingOperation,
        delay: Duration,
        said: &str,
    ) -> Result<(), Broken> {
        let settled = after.ready || pending.before_delete || after.stage == Stage::Joined;
        let at = self.now.checked_add(delay).ok();
        demand!(
            settled || after.retry.next_effect_at == at,
            "G16: {said} and waits until {:?}, not {at:?}",
            after.retry.next_effect_at
        );
        Ok(())
    }

    fn counts_and_backs_off(
        &self,
        before: &ManagedNode,
        after: &ManagedNode,
        kind: CommandKind,
        said: &str,
    ) -> Result<(), Broken> {
        let count = |node: &ManagedNode| node.retry.failures.get(&kind).copied().unwrap_or_default();
        demand!(
            count(after) == count(before) + 1,
            "G16: {said} and {} failures became {}",
            count(before),
            count(after)
        );
        let delay = backoff(self.policy, self.run, after.attempt, count(after));
        demand!(
            delay >= self.policy.initial_delay && delay <= self.policy.max_delay,
            "G17: {said}, and {delay:?} is no delay of the policy"
        );
        let at = self.now.checked_add(delay).ok();
        demand!(
            after.retry.next_effect_at == at,
            "G17: {said} and waits until {:?}, not {at:?}",
            after.retry.next_effect_at
        );
        Ok(())
    }

    fn restarts_with_backoff(
        &self,
        before: &ManagedNode,
        after: &ManagedNode,
        said: &str,
    ) -> Result<(), Broken> {
        let failed = after.retry.failed_attempts;
        demand!(
            failed == before.retry.failed_attempts + 1,
            "G17: {said} and {} failed attempts became {failed}",
            before.retry.failed_attempts
        );
        let delay = backoff(self.policy, self.run, after.attempt, failed);
        let at = self.now.checked_add(delay).ok();
        demand!(
            after.retry.restart_at == at,
            "G17: {said} and is replaced at {:?}, not {at:?}",
            after.retry.restart_at
        );
        Ok(())
    }
}

//! The failure table, and the exact delay where one is counted.

use std::num::NonZeroU32;
use std::time::Duration;

use nodewright_core::backoff;
use nodewright_core::effect::{CommandKind, EffectError, FailureKind, Outcome};
use nodewright_core::id::BootstrapSessionId;
use nodewright_core::node::{ManagedNode, PendingOperation, Stage};
use nodewright_core::observation::Observation;
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
    /// Whether nothing helps.
    pub(super) fn is_fatal(&self) -> bool {
        let Observation::Finished { outcome, .. } = self.observation else {
            return false;
        };
        matches!(outcome, Outcome::Failed(error) if error.kind == FailureKind::Fatal)
    }

    /// The operation that failed, and how.
    pub(super) fn failure<'a>(
        &'a self,
        before: &'a ManagedNode,
    ) -> Option<(&'a PendingOperation, &'a EffectError)> {
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
        let waits = lively(before) && after.stage == before.stage && !after.ready;
        let longer = before.retry.ready_by < after.retry.ready_by;
        demand!(
            !waits || pending.before_delete || before.retry.ready_by.is_none() || longer,
            "G18: {said} and the wait counts for getting ready"
        );
        Ok(())
    }

    /// Chapter 3's table, row by row, and the exact delay where one is counted.
    pub(super) fn g16_and_g17(&self, before: &ManagedNode, after: &ManagedNode) -> Result<(), Broken> {
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

    fn waits_for(
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

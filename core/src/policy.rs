//! Every delay, limit and bound in one place, with the reason for each default.

use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How patient nodewright is. Build it from [`Policy::default`] and change what should differ.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Policy {
    /// The first backoff, and the least time between two dispatches of one command for one attempt.
    /// One second: long enough to be polite, short enough that nobody waits for it.
    pub initial_delay: Duration,
    /// The longest backoff, jitter included. One minute.
    pub max_delay: Duration,
    /// How far backoffs are spread, in per mille of the delay. A tenth: enough to keep a crowd from
    /// coming back as one.
    pub jitter_per_mille: u16,
    /// How long one provider call may take before its outcome counts as unknown. Two minutes: clouds that
    /// rent machines answer slowly.
    pub operation_timeout: Duration,
    /// How often a look-up repeats that answered "not yet". Two seconds.
    pub probe_interval: Duration,
    /// From the lease being known to ready. A quarter of an hour: images are large.
    pub startup_timeout: Duration,
    /// How long a live session that has not joined may report nothing at all. Five minutes.
    pub stall_timeout: Duration,
    /// How long the join may still come another way once the session is over. Five seconds.
    pub join_grace: Duration,
    /// The longest wait that a provider's "slow down" can ask for. Ten minutes.
    pub max_throttle: Duration,
    /// How many cancels may fail before the lease is destroyed all the same. Three.
    pub cancel_attempts: u32,
    /// How long a cancelled call may take to end before its task is aborted. Five seconds.
    pub abort_grace: Duration,
    /// How often each provider is asked for its inventory, to compare it with what is known. One minute: one call
    /// per provider. What is missing twice, at least half of this apart, is believed.
    pub sweep_interval: Duration,
    /// Above this share of a provider's leases missing at once, in per mille, the brake holds. Half.
    pub max_lost_share_per_mille: u16,
    /// Below this many missing leases the brake never holds. Three.
    pub max_lost_least: u32,
    /// How long the same leases must be missing in every answer before a mass loss is believed. Ten minutes: an
    /// interface that answers "nothing" in an outage must not burn a cluster down.
    pub mass_loss_hold: Duration,
    /// After how many failed attempts in a row a slot is halted. None: it is tried for ever.
    pub attempt_limit: Option<NonZeroU32>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            initial_delay: Duration::from_secs(1),
            max_delay: Duration::from_secs(60),
            jitter_per_mille: 100,
            operation_timeout: Duration::from_secs(120),
            probe_interval: Duration::from_secs(2),
            startup_timeout: Duration::from_secs(15 * 60),
            stall_timeout: Duration::from_secs(5 * 60),
            join_grace: Duration::from_secs(5),
            max_throttle: Duration::from_secs(10 * 60),
            cancel_attempts: 3,
            abort_grace: Duration::from_secs(5),
            sweep_interval: Duration::from_secs(60),
            max_lost_share_per_mille: 500,
            max_lost_least: 3,
            mass_loss_hold: Duration::from_secs(10 * 60),
            attempt_limit: None,
        }
    }
}

/// What is wrong with a policy: all of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("policy: {}", .0.join("; "))]
pub struct PolicyError(pub Vec<String>);

impl Policy {
    /// Checks every number and the relations between them.
    ///
    /// # Errors
    ///
    /// Names every field that cannot work, and why.
    pub fn validate(&self) -> Result<(), PolicyError> {
        let mut problems = Vec::new();
        for (field, value) in [
            ("initial_delay", self.initial_delay),
            ("max_delay", self.max_delay),
            ("operation_timeout", self.operation_timeout),
            ("probe_interval", self.probe_interval),
            ("startup_timeout", self.startup_timeout),
            ("stall_timeout", self.stall_timeout),
            ("join_grace", self.join_grace),
            ("max_throttle", self.max_throttle),
            ("abort_grace", self.abort_grace),
            ("sweep_interval", self.sweep_interval),
            ("mass_loss_hold", self.mass_loss_hold),
        ] {
            if value.is_zero() {
                problems.push(format!("{field} is zero: a wait of nothing would spin"));
            }
        }
        if self.max_delay < self.initial_delay {
            problems.push(format!(
                "max_delay {:?} is below initial_delay {:?}",
                self.max_delay, self.initial_delay
            ));
        }
        if self.max_throttle < self.initial_delay {
            problems.push(format!(
                "max_throttle {:?} is below initial_delay {:?}",
                self.max_throttle, self.initial_delay
            ));
        }
        for (field, value) in [
            ("jitter_per_mille", self.jitter_per_mille),
            ("max_lost_share_per_mille", self.max_lost_share_per_mille),
        ] {
            if value > 1000 {
                problems.push(format!("{field} {value} is above 1000"));
            }
        }
        if self.cancel_attempts == 0 {
            problems.push("cancel_attempts is zero: no session would ever be asked to end".to_owned());
        }
        if problems.is_empty() {
            Ok(())
        } else {
            Err(PolicyError(problems))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_every_bad_number_is_named_at_once() {
        assert_eq!(Policy::default().validate(), Ok(()));
        let bad = Policy {
            initial_delay: Duration::from_secs(2),
            max_delay: Duration::from_secs(1),
            probe_interval: Duration::ZERO,
            jitter_per_mille: 1001,
            cancel_attempts: 0,
            ..Policy::default()
        };
        let text = bad.validate().unwrap_err().to_string();
        for field in [
            "max_delay",
            "probe_interval",
            "jitter_per_mille",
            "cancel_attempts",
        ] {
            assert!(text.contains(field), "{text}");
        }
    }
}

//! Failure classes become waits: backoff, its jitter, and moments that cannot be represented.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use jiff::Timestamp;

use crate::id::{LogicalNodeId, NodeAttemptId, RunId};
use crate::node::PassId;
use crate::policy::Policy;

/// What is wrong with one node, and with it alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum NodeFault {
    /// Every sequence of the attempt was used.
    #[error("operation sequences are used up; replace the node")]
    SequencesExhausted,
    /// A moment that it would have to wait for lies outside of representable time.
    #[error("a deadline lies outside of representable time; check the clock")]
    MomentOutOfRange,
}

/// A fault, and the node that it concerns.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
#[error("node {node}, attempt {attempt}: {fault}")]
pub struct NodeError {
    /// The slot.
    pub node: LogicalNodeId,
    /// Its attempt.
    pub attempt: NodeAttemptId,
    /// What is wrong.
    pub fault: NodeFault,
}

/// The moment that lies `delay` after `now`.
pub(crate) fn after(now: Timestamp, delay: Duration) -> Result<Timestamp, NodeFault> {
    now.checked_add(delay).map_err(|_| NodeFault::MomentOutOfRange)
}

/// How long to wait after the `failures`-th failure in a row.
///
/// Doubles from `initial_delay` up to `max_delay`, then spread upward by up to `jitter_per_mille` of itself.
/// The spread is sampled from run, attempt and count, so that equal traces give equal waits; at the cap the
/// delay is lowered first by what the spread may add, so that a crowd at the cap is spread, too, and none
/// waits longer than `max_delay`.
pub fn backoff(policy: &Policy, run: &RunId, attempt: NodeAttemptId, failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(64);
    let initial = policy.initial_delay.as_nanos();
    let doubled = if doublings < 64 {
        initial.saturating_mul(1 << doublings)
    } else {
        u128::MAX
    };
    let jitter = u128::from(policy.jitter_per_mille);
    let cap = policy.max_delay.as_nanos();
    let base = doubled.min(cap * 1000 / (1000 + jitter));
    let spread = base * jitter / 1000;
    let sample = u128::from(sample(run, attempt, failures) >> 32);
    let nanos = (base + ((spread * sample) >> 32)).clamp(initial, cap);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// 64 bits that depend on nothing but the arguments: FNV-1a over them, finished as splitmix64 does.
fn sample(run: &RunId, attempt: NodeAttemptId, failures: u32) -> u64 {
    let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
    (run.as_str(), attempt.number(), failures).hash(&mut hash);
    let mut mixed = hash.finish();
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

struct Fnv(u64);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

/// How long a throttled node waits.
pub(crate) fn throttle_wait(policy: &Policy, retry_after: Option<Duration>) -> Duration {
    retry_after
        .unwrap_or_default()
        .max(policy.initial_delay)
        .min(policy.max_throttle)
}

/// What the fold of one observation has at hand, and what it leaves for the driver.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub(crate) run: &'a RunId,
    pub(crate) policy: &'a Policy,
    /// The provider's visibility, where a look-up is folded.
    pub(crate) visibility: Duration,
    pub(crate) now: Timestamp,
    /// The pass that will see what is folded now.
    pub(crate) pass: PassId,
    pub(crate) signal: Option<PaceSignal>,
    pub(crate) fault: Option<NodeFault>,
}

/// What a result says about the provider's pace.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PaceSignal {
    Succeeded,
    Throttled {
        dispatched_at: Timestamp,
        resume_at: Timestamp,
    },
}

impl<'a> Context<'a> {
    pub(crate) fn new(run: &'a RunId, policy: &'a Policy, pass: PassId, now: Timestamp) -> Self {
        Self {
            run,
            policy,
            visibility: Duration::ZERO,
            now,
            pass,
            signal: None,
            fault: None,
        }
    }

    /// The moment that lies `delay` ahead. One that cannot be represented is the node's fault, and the node
    /// waits for the end of time.
    pub(crate) fn after(&mut self, delay: Duration) -> Timestamp {
        self.from(self.now, delay)
    }

    pub(crate) fn from(&mut self, start: Timestamp, delay: Duration) -> Timestamp {
        after(start, delay).unwrap_or_else(|fault| {
            self.fault = Some(fault);
            Timestamp::MAX
        })
    }

    pub(crate) fn backoff(&mut self, attempt: NodeAttemptId, failures: u32) -> Timestamp {
        let delay = backoff(self.policy, self.run, attempt, failures);
        self.after(delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_to_the_cap_and_jitter_never_lifts_it_over() {
        let run = RunId::new("r").unwrap();
        let plain = Policy {
            jitter_per_mille: 0,
            ..Policy::default()
        };
        let delays: Vec<u64> = (1..=9)
            .map(|failures| backoff(&plain, &run, NodeAttemptId::FIRST, failures).as_secs())
            .collect();
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(
            backoff(&plain, &run, NodeAttemptId::FIRST, u32::MAX).as_secs(),
            60
        );

        let spread = Policy::default();
        let at_cap: Vec<Duration> = (1..200)
            .map(|attempt| backoff(&spread, &run, NodeAttemptId::new(attempt), 40))
            .collect();
        assert!(
            at_cap.iter().all(|delay| *delay <= spread.max_delay),
            "{at_cap:?}"
        );
        assert!(
            at_cap
                .iter()
                .max()
                .unwrap()
                .abs_diff(*at_cap.iter().min().unwrap())
                .as_secs()
                >= 3
        );
        let second = backoff(&spread, &run, NodeAttemptId::FIRST, 2);
        assert!(
            second >= Duration::from_secs(2) && second <= Duration::from_millis(2200),
            "{second:?}"
        );
        assert_eq!(
            second,
            backoff(&spread, &run, NodeAttemptId::FIRST, 2),
            "equal traces wait equally"
        );
    }

    #[test]
    fn a_cap_at_the_first_delay_keeps_that_delay() {
        let policy = Policy {
            max_delay: Duration::from_secs(1),
            ..Policy::default()
        };
        let run = RunId::new("r").unwrap();
        for failures in [1, 2, 50] {
            let delay = backoff(&policy, &run, NodeAttemptId::FIRST, failures);
            assert_eq!(delay, Duration::from_secs(1));
        }
    }

    #[test]
    fn a_throttle_waits_as_asked_within_bounds() {
        let policy = Policy::default();
        let wait = |asked: Option<u64>| throttle_wait(&policy, asked.map(Duration::from_secs)).as_secs();
        assert_eq!(
            (wait(None), wait(Some(0)), wait(Some(30)), wait(Some(86_400))),
            (1, 1, 30, 600)
        );
    }
}

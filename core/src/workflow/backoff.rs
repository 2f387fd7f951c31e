//! How long a workflow waits before it is run again, and how often.

use std::num::NonZeroU32;
use std::time::Duration;

/// How often a workflow is run, and how long it is left alone in between: doubling from `initial_delay` up to
/// `max_delay`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Backoff {
    /// The wait after the first run that did not end it.
    pub initial_delay: Duration,
    /// The longest wait.
    pub max_delay: Duration,
    /// How many runs there are at most.
    pub attempts: NonZeroU32,
}

impl Default for Backoff {
    /// A second, as a service that failed once is often back by then; at most a minute, so that one that is
    /// back is noticed; ten runs, which take some four minutes: an outage that lasts longer is for people.
    fn default() -> Self {
        Self {
            initial_delay: Duration::from_secs(1),
            max_delay: Duration::from_secs(60),
            attempts: const { NonZeroU32::new(10).expect("ten is not zero") },
        }
    }
}

impl Backoff {
    /// The wait after this many runs in a row.
    pub fn delay(&self, runs: u32) -> Duration {
        let doublings = runs.saturating_sub(1);
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        self.initial_delay.saturating_mul(factor).min(self.max_delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_its_cap_and_never_overflows() {
        let backoff = Backoff::default();
        let seconds: Vec<u64> = (1..=8).map(|runs| backoff.delay(runs).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(backoff.delay(u32::MAX), backoff.max_delay);
        assert_eq!(backoff.delay(0), backoff.initial_delay);
    }
}

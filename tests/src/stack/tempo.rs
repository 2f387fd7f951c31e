//! How fast a trace is played: in virtual time as it is written, in real time far faster.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use nodewright::Clock;
use tokio::runtime::{Builder, Runtime};

use crate::faulty::Time;
use crate::shapes::TAIL;
use crate::sim::SimConfig;

/// The tempo of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tempo {
    Virtual,
    Real,
}

/// How much later than asked a timer may fire under the paused clock.
pub(super) const TICK: Duration = Duration::from_millis(2);

/// By how much real time is faster than a trace.
const FASTER: u32 = 100;

impl Tempo {
    pub(super) const VIRTUAL: Self = Self::Virtual;
    pub(super) const REAL: Self = Self::Real;

    pub(super) fn is_real(self) -> bool {
        self == Self::Real
    }

    /// How long so many milliseconds of a trace take. In real time at least long enough for a few calls.
    pub(super) fn pass(self, milliseconds: u32) -> Duration {
        let written = Duration::from_millis(milliseconds.into());
        match self {
            Self::Virtual => written,
            Self::Real => (written / FASTER).max(Duration::from_millis(5)),
        }
    }

    /// Within which time everything has to come to rest.
    pub(super) fn tail(self) -> Duration {
        match self {
            Self::Virtual => TAIL,
            Self::Real => Duration::from_secs(60),
        }
    }

    /// For how many milliseconds of the trace nothing may happen once everything is at rest.
    pub(super) fn quiet(self) -> u32 {
        match self {
            Self::Virtual => 3_600_000,
            Self::Real => 20_000,
        }
    }

    /// Makes a configuration as fast as the run is.
    pub(super) fn suit(self, config: &mut SimConfig) {
        if self == Self::Virtual {
            return;
        }
        config.stated.visibility /= FASTER;
        if let Some(rate) = &mut config.pace.rate {
            rate.per /= FASTER;
        }
        let policy = &mut config.policy;
        for time in [
            &mut policy.initial_delay,
            &mut policy.max_delay,
            &mut policy.probe_interval,
            &mut policy.join_grace,
            &mut policy.max_throttle,
            &mut policy.abort_grace,
            &mut policy.sweep_interval,
            &mut policy.mass_loss_hold,
        ] {
            *time = (*time / FASTER).max(Duration::from_millis(20));
        }
        // Real calls take real time, on a machine that others use, too.
        policy.operation_timeout = Duration::from_secs(2);
        policy.stall_timeout = Duration::from_secs(10);
        policy.startup_timeout = Duration::from_secs(20);
    }
}

/// A runtime whose clock stands still while anybody is at work.
pub(super) fn paused() -> Arc<Runtime> {
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    Arc::new(runtime.expect("a runtime can be built"))
}

/// The moment at which every run begins.
pub(super) fn start() -> Timestamp {
    Timestamp::from_second(1_900_000_000).expect("it is a moment")
}

/// The time of a cluster's clock, for a provider.
pub(super) struct ClockTime(pub(super) Clock);

impl Time for ClockTime {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        tokio::time::sleep(self.0.until(at)).boxed()
    }

    fn run_at(&self, at: Timestamp, work: BoxFuture<'static, ()>) -> Option<BoxFuture<'static, ()>> {
        let until = self.0.until(at);
        tokio::spawn(async move {
            tokio::time::sleep(until).await;
            work.await;
        });
        None
    }
}

//! The one place where time is read.

use std::time::Duration;

use jiff::Timestamp;
use nodewright_core::timing::Timing;
use tokio::time::Instant;

/// Monotonic time, anchored once to wall time: a step of the wall clock expires nothing. Under tokio's paused
/// time it stands still with everything else.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    wall: Timestamp,
    anchor: Instant,
}

impl Clock {
    /// A clock that is anchored to the wall clock of this moment.
    pub fn system() -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "this is the clock: wall time is read here, once"
        )]
        Self::anchored(Timestamp::now())
    }

    /// A clock for which it is `wall` now.
    pub fn anchored(wall: Timestamp) -> Self {
        Self {
            wall,
            anchor: Instant::now(),
        }
    }

    /// The present moment. At the end of representable time it stays there.
    pub fn now(&self) -> Timestamp {
        self.wall
            .checked_add(self.anchor.elapsed())
            .unwrap_or(Timestamp::MAX)
    }

    /// How long it is until a moment; nothing for one that has passed.
    pub fn until(&self, at: Timestamp) -> Duration {
        Duration::try_from(at.duration_since(self.now())).unwrap_or_default()
    }
}

impl Timing for Clock {
    fn now(&self) -> Timestamp {
        Self::now(self)
    }

    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

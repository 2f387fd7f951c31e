//! The one clock of the program: its own lines and the events of the cluster count on from the same moment, so
//! that a step of the wall clock tears nothing apart.

use std::sync::LazyLock;

use jiff::Timestamp;
use nodewright::Clock;

static CLOCK: LazyLock<Clock> = LazyLock::new(Clock::system);

/// The clock, for the cluster to go by.
pub(crate) fn shared() -> Clock {
    *CLOCK
}

/// Now, for what people read.
pub(crate) fn now() -> Timestamp {
    CLOCK.now()
}

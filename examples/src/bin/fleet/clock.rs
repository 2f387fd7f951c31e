//! The time of day, for the lines that fleet itself writes.

use jiff::Timestamp;

/// Now. Only what people read depends on it: nothing is decided by it.
#[expect(
    clippy::disallowed_methods,
    reason = "lines of an output carry the time of day, and there is no caller to take it from"
)]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}

//! The one door through which time comes to what waits: core has no clock.

use std::future::Future;
use std::time::Duration;

use jiff::Timestamp;

/// A clock, and a way to wait by it.
///
/// # Guarantees that an implementation gives
///
/// - `now` never goes back, whatever is done to the wall clock.
/// - After `sleep(d)` at least `d` has passed by `now`.
///
/// ```
/// use std::sync::Mutex;
/// use std::time::Duration;
///
/// use jiff::Timestamp;
/// use nodewright_core::timing::Timing;
///
/// /// Time that passes only while somebody sleeps.
/// struct Virtual(Mutex<Timestamp>);
///
/// impl Timing for Virtual {
///     fn now(&self) -> Timestamp {
///         *self.0.lock().unwrap()
///     }
///
///     async fn sleep(&self, duration: Duration) {
///         *self.0.lock().unwrap() += duration;
///     }
/// }
/// ```
pub trait Timing: Send + Sync {
    /// The present moment.
    fn now(&self) -> Timestamp;

    /// Resolves when this long has passed. Cancel safe.
    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send;

    /// How long ago a moment was; nothing for one that is still to come.
    fn since(&self, moment: Timestamp) -> Duration {
        Duration::try_from(self.now().duration_since(moment)).unwrap_or_default()
    }
}

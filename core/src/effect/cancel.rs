//! A signal that something is to end, without a runtime.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use event_listener::Event;

/// A signal that can be raised once and never lowered. Clones share it.
#[derive(Clone, Default)]
pub struct Cancel(Arc<Signal>);

#[derive(Default)]
struct Signal {
    raised: AtomicBool,
    event: Event,
}

impl Cancel {
    /// A signal that nobody has raised.
    pub fn new() -> Self {
        Self::default()
    }

    /// Raises it; everyone who waits is woken. Raising it again does nothing.
    pub fn cancel(&self) {
        self.0.raised.store(true, Ordering::SeqCst);
        self.0.event.notify(usize::MAX);
    }

    /// Whether it was raised.
    pub fn is_cancelled(&self) -> bool {
        self.0.raised.load(Ordering::SeqCst)
    }

    /// Resolves once it is raised, at once if it was. Cancel safe.
    pub async fn cancelled(&self) {
        while !self.is_cancelled() {
            let raised = self.0.event.listen();
            if self.is_cancelled() {
                return;
            }
            raised.await;
        }
    }
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cancel").field(&self.is_cancelled()).finish()
    }
}

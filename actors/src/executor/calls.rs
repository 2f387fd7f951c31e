//! The tasks of one provider's calls.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::task::JoinSet;

/// The tasks of one provider's calls, shared between the incarnations of its executor. Dropping the last
/// share ends them.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    tasks: Mutex<JoinSet<()>>,
    watching: AtomicBool,
    closed: AtomicBool,
}

impl Calls {
    pub(crate) fn spawn(&self, call: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        if !self.closed.load(Ordering::SeqCst) {
            tasks.spawn(call);
        }
    }

    /// Runs the watch, unless it runs already: it outlives the incarnation that began it.
    pub(crate) fn watch(&self, watch: impl Future<Output = ()> + Send + 'static) {
        if !self.watching.swap(true, Ordering::SeqCst) {
            self.spawn(watch);
        }
    }

    /// Aborts them all, and resolves once each has ended. Nothing is run from now on.
    pub(crate) async fn close(&self) {
        let mut tasks = {
            let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            self.closed.store(true, Ordering::SeqCst);
            std::mem::take(&mut *tasks)
        };
        tasks.shutdown().await;
    }
}

//! The tasks of one provider's calls.

use std::future::Future;
use std::sync::{Mutex, PoisonError};

use tokio::task::JoinSet;

/// The tasks of one provider's calls, shared between the incarnations of its executor. Dropping the last
/// share ends them.
#[derive(Debug, Default)]
pub(crate) struct Calls(Mutex<JoinSet<()>>);

impl Calls {
    pub(crate) fn spawn(&self, call: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(call);
    }
}

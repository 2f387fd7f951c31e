//! One call at a time per machine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::OwnedMutexGuard;

/// Lets the calls for one machine take turns; calls for different machines never wait for each other.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<BTreeMap<PathBuf, Weak<tokio::sync::Mutex<()>>>>);

impl Turns {
    /// Waits for the turn at this machine, and holds it until the guard is dropped. Cancel safe.
    pub(super) async fn take(&self, machine: &Path) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let live = turns.get(machine).and_then(Weak::upgrade);
            live.unwrap_or_else(|| {
                turns.retain(|_, turn| turn.strong_count() > 0);
                let turn = Arc::default();
                turns.insert(machine.to_owned(), Arc::downgrade(&turn));
                turn
            })
        };
        turn.lock_owned().await
    }
}

//! The providers that come with nodewright, as subjects.

use std::sync::Arc;

use nodewright_backends::MemoryBackend;
use nodewright_core::id::AttemptIdentity;

use crate::subject::{Living, Subject};

/// The provider in memory.
#[derive(Debug)]
pub struct Memory(MemoryBackend);

impl Subject for Memory {
    type Backend = MemoryBackend;

    fn new() -> Self {
        Self(MemoryBackend::new())
    }

    fn open(&self) -> Arc<MemoryBackend> {
        Arc::new(self.0.reopened())
    }

    fn living(&self) -> Vec<Living> {
        let living = self.0.live().into_iter();
        living
            .map(|(identity, lease)| Living {
                identity,
                name: lease.to_string(),
            })
            .collect()
    }

    fn kill(&self, identity: &AttemptIdentity) -> bool {
        self.0.kill(identity)
    }
}

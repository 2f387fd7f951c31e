//! The providers in memory.

use std::sync::Arc;

use nodewright_backends::{JoinMode, MemoryBackend, MemoryPlugin, MemoryTransports};
use nodewright_core::facts::LeaseId;
use nodewright_core::id::AttemptIdentity;
use nodewright_core::plugin::PluginBackend;

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
        self.0.live().into_iter().map(living).collect()
    }

    fn kill(&self, identity: &AttemptIdentity) -> bool {
        self.0.kill(identity)
    }

    fn vanish(&self, identity: &AttemptIdentity) -> bool {
        self.0.vanish(identity)
    }
}

/// A plugin in memory, lifted to the provider seam.
#[derive(Debug)]
pub struct Plugin(MemoryPlugin);

impl Subject for Plugin {
    type Backend = PluginBackend<MemoryPlugin, MemoryTransports>;

    fn new() -> Self {
        Self(MemoryPlugin::new())
    }

    fn open(&self) -> Arc<Self::Backend> {
        let transports = self.0.transports(JoinMode::AtOnce);
        Arc::new(PluginBackend::new(self.0.clone(), transports))
    }

    fn living(&self) -> Vec<Living> {
        self.0.live().into_iter().map(living).collect()
    }

    fn kill(&self, identity: &AttemptIdentity) -> bool {
        self.0.kill(identity)
    }

    fn vanish(&self, identity: &AttemptIdentity) -> bool {
        self.0.vanish(identity)
    }
}

fn living((identity, lease): (AttemptIdentity, LeaseId)) -> Living {
    Living {
        identity,
        name: lease.to_string(),
    }
}

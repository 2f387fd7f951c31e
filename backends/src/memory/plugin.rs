//! The provider in memory for the smaller seam.

use std::fmt;

use nodewright_core::effect::{
    Call, Capabilities, Destroyed, EffectError, Inventory, InventoryEntry, LossSink,
};
use nodewright_core::facts::{CreatedLease, LeaseFacts, LeaseId};
use nodewright_core::id::{AttemptIdentity, RunId};
use nodewright_core::plugin::ProvisionPlugin;
use nodewright_core::template::LogicalNodeSpec;

use super::world::{World, world_handles};
use super::{CAPABILITIES, JoinMode, MemoryTransports};

/// A plugin in memory: makes, finds, lists and destroys machines, and never looks before it makes one. A
/// clone shares its machines.
///
/// ```
/// use nodewright_backends::{JoinMode, MemoryPlugin};
/// use nodewright_core::plugin::PluginBackend;
///
/// let plugin = MemoryPlugin::new();
/// let transports = plugin.transports(JoinMode::AtOnce);
/// let backend = PluginBackend::new(plugin, transports);
/// assert!(backend.plugin().live().is_empty());
/// ```
#[derive(Clone, Default)]
pub struct MemoryPlugin {
    world: World,
}

impl MemoryPlugin {
    /// A provider without machines.
    pub fn new() -> Self {
        Self::default()
    }

    /// The ways into its machines, whose agents follow this mode.
    pub fn transports(&self, joins: JoinMode) -> MemoryTransports {
        MemoryTransports::new(self.world.clone(), joins)
    }
}

world_handles!(MemoryPlugin);

impl ProvisionPlugin for MemoryPlugin {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    async fn make(&self, call: &Call, spec: &LogicalNodeSpec) -> Result<CreatedLease, EffectError> {
        let machine = self.world.make(&call.identity, spec.template.digest())?;
        Ok(machine.created())
    }

    async fn find(&self, call: &Call) -> Result<Option<InventoryEntry>, EffectError> {
        let machine = self.world.find(&call.identity);
        Ok(machine.map(|machine| machine.entry(&call.identity)))
    }

    async fn list(&self, run: &RunId) -> Result<Inventory, EffectError> {
        Ok(self.world.list(run))
    }

    async fn destroy(&self, call: &Call, lease: &LeaseFacts) -> Result<Destroyed, EffectError> {
        self.world.destroy(&call.identity, lease);
        Ok(Destroyed::Gone)
    }

    async fn watch(&self, run: &RunId, sink: LossSink) {
        self.world.watch(run, sink).await;
    }
}

impl fmt::Debug for MemoryPlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryPlugin")
            .field("machines", &self.world.live().len())
            .finish()
    }
}

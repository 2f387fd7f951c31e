//! Providers whose machines are entries of a map: honest, instant, and never at fault.
//!
//! [`MemoryBackend`] implements the whole seam, [`MemoryPlugin`] the smaller one. What their machines are, and
//! what befalls these from outside, is the world's. Neither has a clock, and neither scripts faults.

mod plugin;
mod transport;
mod world;

use std::fmt;
use std::time::Duration;

use nodewright_core::bootstrap::{Session, Sessions};
use nodewright_core::effect::{
    BootstrapSpec, Call, Capabilities, Destroyed, EffectBackend, EffectError, Inventory, LossSink,
    ObservationSink,
};
use nodewright_core::facts::{CreatedLease, Endpoint, LeaseFacts, LeaseId};
use nodewright_core::id::{AttemptIdentity, BootstrapSessionId, RunId};
use nodewright_core::template::LogicalNodeSpec;

pub use self::plugin::MemoryPlugin;
pub use self::transport::{MemoryTransport, MemoryTransports};
use self::world::{World, world_handles};

/// What agents in memory do about joining.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum JoinMode {
    /// Each joins as soon as its start command runs, under the name of its node.
    #[default]
    AtOnce,
    /// None ever says that it joined.
    Never,
}

/// What these providers can do, stated once.
const CAPABILITIES: Capabilities = Capabilities {
    visibility: Duration::ZERO,
    inventory: true,
    watch: true,
    abortable: true,
};

/// A provider in memory. A clone shares its machines and sessions.
///
/// Every call takes effect at once and succeeds, but for those that need a machine which is not there.
///
/// ```
/// use nodewright_backends::{JoinMode, MemoryBackend};
///
/// let backend = MemoryBackend::new().joins(JoinMode::Never);
/// assert!(backend.live().is_empty());
/// ```
#[derive(Clone, Default)]
pub struct MemoryBackend {
    world: World,
    sessions: Sessions,
    joins: JoinMode,
}

impl MemoryBackend {
    /// A provider without machines, whose agents join at once.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same provider, where sessions that are started through this handle follow this mode.
    #[must_use]
    pub fn joins(mut self, mode: JoinMode) -> Self {
        self.joins = mode;
        self
    }

    /// The same provider, as a process meets it that has just begun: sessions of this handle are not its own.
    #[must_use]
    pub fn reopened(&self) -> Self {
        Self {
            world: self.world.clone(),
            sessions: Sessions::default(),
            joins: self.joins,
        }
    }

    /// The sessions that are live.
    pub const fn sessions(&self) -> &Sessions {
        &self.sessions
    }
}

world_handles!(MemoryBackend);

impl EffectBackend for MemoryBackend {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    async fn create_lease(&self, call: &Call, spec: &LogicalNodeSpec) -> Result<CreatedLease, EffectError> {
        let template = spec.template.digest();
        Ok(self.world.find_or_make(&call.identity, template).created())
    }

    async fn find_lease(&self, call: &Call) -> Result<Option<CreatedLease>, EffectError> {
        let machine = self.world.find(&call.identity);
        Ok(machine.map(|machine| machine.created()))
    }

    async fn lookup_endpoint(
        &self,
        call: &Call,
        lease: &LeaseFacts,
    ) -> Result<Option<Endpoint>, EffectError> {
        Ok(Some(self.world.of(&call.identity, lease)?.endpoint))
    }

    async fn start_bootstrap(
        &self,
        call: &Call,
        spec: &BootstrapSpec,
        sink: ObservationSink,
    ) -> Result<Session, EffectError> {
        let machine = self.world.of(&call.identity, &spec.lease)?;
        let transport = || MemoryTransport::new(call.identity.node.clone(), self.joins, machine.died);
        Ok(self.sessions.start(call, spec, transport, sink))
    }

    async fn observe_convergence(&self, call: &Call, session: BootstrapSessionId) -> Result<(), EffectError> {
        self.sessions.may_end(&call.identity, session);
        Ok(())
    }

    async fn cancel_bootstrap(&self, call: &Call) -> Result<(), EffectError> {
        self.sessions.cancel(&call.identity).await;
        Ok(())
    }

    async fn destroy_lease(&self, call: &Call, lease: &LeaseFacts) -> Result<Destroyed, EffectError> {
        self.world.destroy(&call.identity, lease);
        Ok(Destroyed::Gone)
    }

    async fn list_leases(&self, run: &RunId) -> Result<Inventory, EffectError> {
        Ok(self.world.list(run))
    }

    async fn watch(&self, run: &RunId, sink: LossSink) {
        self.world.watch(run, sink).await;
    }
}

impl fmt::Debug for MemoryBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBackend")
            .field("machines", &self.world.live().len())
            .field("sessions", &self.sessions.len())
            .field("joins", &self.joins)
            .finish()
    }
}

#[cfg(test)]
mod tests;

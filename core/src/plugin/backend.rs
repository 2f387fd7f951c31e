//! A plugin, lifted to the provider seam.

use std::fmt;

use super::{ProvisionPlugin, Transports};
use crate::bootstrap::{Session, SessionLimits, Sessions};
use crate::effect::{
    BootstrapSpec, Call, Capabilities, Destroyed, EffectBackend, EffectError, Inventory, InventoryEntry,
    LossSink, ObservationSink,
};
use crate::facts::{CreatedLease, Endpoint, LeaseFacts};
use crate::id::{BootstrapSessionId, RunId};
use crate::template::LogicalNodeSpec;

/// An [`EffectBackend`] made of a plugin, for the machines, and of transports, for the sessions in them.
///
/// # Guarantees
///
/// - A create looks first. What the plugin finds of that identity is adopted as it is, dead or of another
///   template: the core judges that. Nothing is made after a look that failed, or once nobody waits for it.
/// - Only a machine that carries exactly the call's identity is answered.
/// - An attempt has one live session. A second start adopts it.
/// - The plugin's errors come through unchanged, and each call asks it once (a create twice).
///
/// It remembers live sessions and no machine, so that a new one over the same plugin finds all there is.
pub struct PluginBackend<P, T> {
    plugin: P,
    transports: T,
    sessions: Sessions,
}

impl<P: ProvisionPlugin, T: Transports> PluginBackend<P, T> {
    /// Lifts a plugin whose machines are reached by these transports.
    pub fn new(plugin: P, transports: T) -> Self {
        Self {
            plugin,
            transports,
            sessions: Sessions::default(),
        }
    }

    /// The same backend without sessions, with these limits for the transport calls of all that will be.
    #[must_use]
    pub fn limits(mut self, limits: SessionLimits) -> Self {
        self.sessions = Sessions::new(limits);
        self
    }

    /// The plugin.
    pub const fn plugin(&self) -> &P {
        &self.plugin
    }

    /// The sessions that are live.
    pub const fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// The machine of the call's attempt. From one of another attempt nothing can be concluded, absence
    /// least of all: the plugin may have taken it for ours, or missed ours over it.
    async fn find(&self, call: &Call) -> Result<Option<InventoryEntry>, EffectError> {
        let found = self.plugin.find(call).await?;
        match &found {
            Some(machine) if machine.identity != call.identity => Err(EffectError::definite(format!(
                "{} was looked for, and {} found that is of {}",
                call.identity, machine.lease.id, machine.identity
            ))),
            _ => Ok(found),
        }
    }
}

impl<P: ProvisionPlugin, T: Transports> EffectBackend for PluginBackend<P, T> {
    fn capabilities(&self) -> Capabilities {
        self.plugin.capabilities()
    }

    async fn create_lease(&self, call: &Call, spec: &LogicalNodeSpec) -> Result<CreatedLease, EffectError> {
        if let Some(machine) = self.find(call).await? {
            return Ok(lease_of(machine));
        }
        if call.cancel.is_cancelled() {
            return Err(EffectError::definite("cancelled before anything was made"));
        }
        self.plugin.make(call, spec).await
    }

    async fn find_lease(&self, call: &Call) -> Result<Option<CreatedLease>, EffectError> {
        Ok(self.find(call).await?.map(lease_of))
    }

    async fn lookup_endpoint(
        &self,
        call: &Call,
        lease: &LeaseFacts,
    ) -> Result<Option<Endpoint>, EffectError> {
        match self.find(call).await? {
            Some(machine) if machine.lease.id == lease.id => Ok(machine.endpoint),
            _ => Err(EffectError::definite(format!(
                "{} has no machine {}",
                call.identity, lease.id
            ))),
        }
    }

    async fn start_bootstrap(
        &self,
        call: &Call,
        spec: &BootstrapSpec,
        sink: ObservationSink,
    ) -> Result<Session, EffectError> {
        let transport = || self.transports.reach(&call.identity, spec);
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
        self.plugin.destroy(call, lease).await
    }

    async fn list_leases(&self, run: &RunId) -> Result<Inventory, EffectError> {
        let mut inventory = self.plugin.list(run).await?;
        inventory.entries.retain(|entry| entry.identity.run == *run);
        Ok(inventory)
    }

    async fn watch(&self, run: &RunId, sink: LossSink) {
        self.plugin.watch(run, sink).await;
    }
}

impl<P, T> fmt::Debug for PluginBackend<P, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PluginBackend")
            .field("sessions", &self.sessions.len())
            .finish_non_exhaustive()
    }
}

/// The answer of a call that made or found this machine.
fn lease_of(machine: InventoryEntry) -> CreatedLease {
    CreatedLease {
        lease: machine.lease,
        endpoint: machine.endpoint,
    }
}

//! A provider whose machines are entries of a map: honest, instant, and never at fault.
//!
//! It owns its machines and knows their identities and templates. It has no clock and scripts no faults; what
//! befalls a machine from outside is done to it with [`MemoryBackend::kill`] and [`MemoryBackend::vanish`].

mod transport;

use std::collections::BTreeMap;
use std::fmt;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nodewright_core::bootstrap::{Session, Sessions};
use nodewright_core::effect::{
    BootstrapSpec, Call, Cancel, Capabilities, Destroyed, EffectBackend, EffectError, Inventory,
    InventoryEntry, LossSink, NodeLoss, ObservationSink,
};
use nodewright_core::facts::{CreatedLease, Endpoint, LeaseFacts, LeaseId};
use nodewright_core::id::{AttemptIdentity, BootstrapSessionId, RunId};
use nodewright_core::template::LogicalNodeSpec;

use self::transport::MemoryTransport;

/// What the agents of a [`MemoryBackend`] do about joining.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum JoinMode {
    /// Each joins as soon as its start command runs, under the name of its node.
    #[default]
    AtOnce,
    /// None ever says that it joined.
    Never,
}

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
    world: Arc<Mutex<World>>,
    sessions: Sessions,
    joins: JoinMode,
}

#[derive(Default)]
struct World {
    machines: BTreeMap<AttemptIdentity, Machine>,
    counts: BTreeMap<AttemptIdentity, Counts>,
    watchers: BTreeMap<u64, (RunId, LossSink)>,
    last_lease: u64,
    last_watcher: u64,
}

struct Machine {
    lease: LeaseFacts,
    endpoint: Endpoint,
    alive: bool,
    /// Raised when it dies, in whatever way: what runs on it ends then.
    died: Cancel,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    created: u64,
    destroyed: u64,
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

    /// All machines that it holds, dead ones included, in the order of their identities.
    pub fn live(&self) -> Vec<(AttemptIdentity, LeaseId)> {
        let world = self.lock();
        let machines = world.machines.iter();
        machines
            .map(|(identity, machine)| (identity.clone(), machine.lease.id.clone()))
            .collect()
    }

    /// How many machines were ever made for this attempt; adopting one makes none.
    pub fn created(&self, identity: &AttemptIdentity) -> u64 {
        self.counts(identity).created
    }

    /// How many machines of this attempt were given back; one that was gone already is not counted.
    pub fn destroyed(&self, identity: &AttemptIdentity) -> u64 {
        self.counts(identity).destroyed
    }

    /// The sessions that are live.
    pub const fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// The machine of this attempt dies: it is listed as dead, its session breaks, and watchers are told.
    /// False where there is none that lives.
    pub fn kill(&self, identity: &AttemptIdentity) -> bool {
        let mut world = self.lock();
        let machine = world.machines.get_mut(identity);
        let Some(machine) = machine.filter(|machine| machine.alive) else {
            return false;
        };
        machine.alive = false;
        let died = machine.died.clone();
        let watchers = world.watchers.values();
        let watchers: Vec<LossSink> = watchers
            .filter(|(run, _)| *run == identity.run)
            .map(|(_, sink)| sink.clone())
            .collect();
        drop(world);
        // Nobody is told under the lock: whoever listens may ask the provider at once.
        died.cancel();
        for watcher in watchers {
            watcher.report(NodeLoss {
                node: identity.node.clone(),
                attempt: identity.attempt,
                reason: "the machine died".into(),
            });
        }
        true
    }

    /// The machine of this attempt is deleted by hand: it is listed no more, its session breaks, and nobody
    /// is told. False where there is none.
    pub fn vanish(&self, identity: &AttemptIdentity) -> bool {
        let removed = self.lock().machines.remove(identity);
        if let Some(machine) = &removed {
            machine.died.cancel();
        }
        removed.is_some()
    }

    fn counts(&self, identity: &AttemptIdentity) -> Counts {
        self.lock().counts.get(identity).copied().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, World> {
        // Nothing of the caller's runs under the lock, and each change is complete when it is made.
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EffectBackend for MemoryBackend {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            visibility: Duration::ZERO,
            inventory: true,
            watch: true,
            abortable: true,
        }
    }

    async fn create_lease(&self, call: &Call, spec: &LogicalNodeSpec) -> Result<CreatedLease, EffectError> {
        let mut world = self.lock();
        if let Some(machine) = world.machines.get(&call.identity) {
            return Ok(machine.answer());
        }
        world.last_lease += 1;
        let name = format!("m-{}", world.last_lease);
        let mut lease = LeaseFacts::new(LeaseId::new(name.as_str()));
        lease.template = Some(spec.template.digest());
        let endpoint = Endpoint {
            host: name.into(),
            port: None,
        };
        let machine = Machine {
            lease,
            endpoint,
            alive: true,
            died: Cancel::new(),
        };
        let answer = machine.answer();
        world.machines.insert(call.identity.clone(), machine);
        world.counts.entry(call.identity.clone()).or_default().created += 1;
        Ok(answer)
    }

    async fn find_lease(&self, call: &Call) -> Result<Option<CreatedLease>, EffectError> {
        Ok(self.lock().machines.get(&call.identity).map(Machine::answer))
    }

    async fn lookup_endpoint(
        &self,
        call: &Call,
        lease: &LeaseFacts,
    ) -> Result<Option<Endpoint>, EffectError> {
        let world = self.lock();
        let machine = world.of(call, lease)?;
        Ok(Some(machine.endpoint.clone()))
    }

    async fn start_bootstrap(
        &self,
        call: &Call,
        spec: &BootstrapSpec,
        sink: ObservationSink,
    ) -> Result<Session, EffectError> {
        let died = self.lock().of(call, &spec.lease)?.died.clone();
        let transport = || MemoryTransport::new(call.identity.node.clone(), self.joins, died);
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
        let mut world = self.lock();
        if world.of(call, lease).is_ok() {
            let removed = world.machines.remove(&call.identity);
            world.counts.entry(call.identity.clone()).or_default().destroyed += 1;
            drop(world);
            if let Some(machine) = removed {
                machine.died.cancel();
            }
        }
        Ok(Destroyed::Gone)
    }

    async fn list_leases(&self, run: &RunId) -> Result<Inventory, EffectError> {
        let world = self.lock();
        let machines = world.machines.iter();
        let entries = machines
            .filter(|(identity, _)| identity.run == *run)
            .map(|(identity, machine)| InventoryEntry {
                identity: identity.clone(),
                lease: machine.lease.clone(),
                endpoint: Some(machine.endpoint.clone()),
                alive: machine.alive,
            });
        Ok(Inventory {
            entries: entries.collect(),
        })
    }

    async fn watch(&self, run: &RunId, sink: LossSink) {
        let _registered = Watcher::register(self, run, sink);
        pending().await
    }
}

impl World {
    /// The machine of the call's attempt, if it is the one of this lease.
    fn of(&self, call: &Call, lease: &LeaseFacts) -> Result<&Machine, EffectError> {
        self.machines
            .get(&call.identity)
            .filter(|machine| machine.lease.id == lease.id)
            .ok_or_else(|| EffectError::definite(format!("{} has no machine {}", call.identity, lease.id)))
    }
}

impl Machine {
    fn answer(&self) -> CreatedLease {
        CreatedLease {
            lease: self.lease.clone(),
            endpoint: Some(self.endpoint.clone()),
        }
    }
}

/// A watch that goes on until this is dropped.
struct Watcher {
    backend: MemoryBackend,
    number: u64,
}

impl Watcher {
    fn register(backend: &MemoryBackend, run: &RunId, sink: LossSink) -> Self {
        let mut world = backend.lock();
        world.last_watcher += 1;
        let number = world.last_watcher;
        world.watchers.insert(number, (run.clone(), sink));
        let backend = backend.clone();
        Self { backend, number }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let removed = self.backend.lock().watchers.remove(&self.number);
        drop(removed);
    }
}

impl fmt::Debug for MemoryBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBackend")
            .field("machines", &self.lock().machines.len())
            .field("sessions", &self.sessions.len())
            .field("joins", &self.joins)
            .finish()
    }
}

#[cfg(test)]
mod tests;

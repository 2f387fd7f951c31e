//! The machines in memory, and what befalls them from outside.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nodewright_core::effect::{Cancel, EffectError, Inventory, InventoryEntry, LossSink, NodeLoss};
use nodewright_core::facts::{CreatedLease, Endpoint, LeaseFacts, LeaseId};
use nodewright_core::id::{AttemptIdentity, RunId, TemplateDigest};

/// All machines of a provider in memory, one per attempt at most. A clone shares them.
#[derive(Clone, Default)]
pub(super) struct World(Arc<Mutex<Machines>>);

#[derive(Default)]
struct Machines {
    held: BTreeMap<AttemptIdentity, Machine>,
    counts: BTreeMap<AttemptIdentity, Counts>,
    watchers: BTreeMap<u64, (RunId, LossSink)>,
    last_lease: u64,
    last_watcher: u64,
}

/// A machine, as it was when it was asked for.
#[derive(Clone)]
pub(super) struct Machine {
    lease: LeaseFacts,
    pub(super) endpoint: Endpoint,
    alive: bool,
    /// Raised when it dies, in whatever way: what runs on it ends then.
    pub(super) died: Cancel,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) created: u64,
    pub(super) destroyed: u64,
}

impl World {
    /// Makes a machine for this attempt.
    ///
    /// # Errors
    ///
    /// It has one already: names are unique here, as with most providers.
    pub(super) fn make(
        &self,
        identity: &AttemptIdentity,
        template: TemplateDigest,
    ) -> Result<Machine, EffectError> {
        let mut machines = self.lock();
        if machines.held.contains_key(identity) {
            return Err(EffectError::definite(format!("{identity} has a machine already")));
        }
        Ok(machines.make(identity, template))
    }

    /// Finds this attempt's machine or makes one, in one step.
    pub(super) fn find_or_make(&self, identity: &AttemptIdentity, template: TemplateDigest) -> Machine {
        let mut machines = self.lock();
        let found = machines.held.get(identity).cloned();
        found.unwrap_or_else(|| machines.make(identity, template))
    }

    /// The machine of this attempt.
    pub(super) fn find(&self, identity: &AttemptIdentity) -> Option<Machine> {
        self.lock().held.get(identity).cloned()
    }

    /// The machine of this attempt, if it is the one of this lease.
    pub(super) fn of(&self, identity: &AttemptIdentity, lease: &LeaseFacts) -> Result<Machine, EffectError> {
        let machine = self.find(identity).filter(|machine| machine.lease.id == lease.id);
        machine.ok_or_else(|| EffectError::definite(format!("{identity} has no machine {}", lease.id)))
    }

    /// Gives this attempt's machine back, if it is the one of this lease.
    pub(super) fn destroy(&self, identity: &AttemptIdentity, lease: &LeaseFacts) {
        let mut machines = self.lock();
        let machine = machines.held.get(identity);
        if machine.is_none_or(|machine| machine.lease.id != lease.id) {
            return;
        }
        let removed = machines.held.remove(identity);
        machines.counts.entry(identity.clone()).or_default().destroyed += 1;
        drop(machines);
        if let Some(machine) = removed {
            machine.died.cancel();
        }
    }

    /// All machines of the run.
    pub(super) fn list(&self, run: &RunId) -> Inventory {
        let machines = self.lock();
        let ours = machines.held.iter().filter(|(identity, _)| identity.run == *run);
        Inventory {
            entries: ours.map(|(identity, machine)| machine.entry(identity)).collect(),
        }
    }

    /// Reports deaths in the run until it is dropped.
    pub(super) async fn watch(&self, run: &RunId, sink: LossSink) {
        let _registered = Watcher::register(self, run, sink);
        pending().await
    }

    pub(super) fn live(&self) -> Vec<(AttemptIdentity, LeaseId)> {
        let machines = self.lock();
        let held = machines.held.iter();
        held.map(|(identity, machine)| (identity.clone(), machine.lease.id.clone()))
            .collect()
    }

    pub(super) fn counts(&self, identity: &AttemptIdentity) -> Counts {
        self.lock().counts.get(identity).copied().unwrap_or_default()
    }

    pub(super) fn kill(&self, identity: &AttemptIdentity) -> bool {
        let mut machines = self.lock();
        let machine = machines.held.get_mut(identity);
        let Some(machine) = machine.filter(|machine| machine.alive) else {
            return false;
        };
        machine.alive = false;
        let died = machine.died.clone();
        let watchers = machines.watchers.values();
        let watchers: Vec<LossSink> = watchers
            .filter(|(run, _)| *run == identity.run)
            .map(|(_, sink)| sink.clone())
            .collect();
        drop(machines);
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

    pub(super) fn vanish(&self, identity: &AttemptIdentity) -> bool {
        let removed = self.lock().held.remove(identity);
        if let Some(machine) = &removed {
            machine.died.cancel();
        }
        removed.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Machines> {
        // Nothing of the caller's runs under the lock, and each change is complete when it is made.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Machines {
    fn make(&mut self, identity: &AttemptIdentity, template: TemplateDigest) -> Machine {
        self.last_lease += 1;
        let name = format!("m-{}", self.last_lease);
        let mut lease = LeaseFacts::new(LeaseId::new(name.as_str()));
        lease.template = Some(template);
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
        self.held.insert(identity.clone(), machine.clone());
        self.counts.entry(identity.clone()).or_default().created += 1;
        machine
    }
}

impl Machine {
    /// What is answered when it was made or found.
    pub(super) fn created(self) -> CreatedLease {
        CreatedLease {
            lease: self.lease,
            endpoint: Some(self.endpoint),
        }
    }

    /// What a list says of it.
    pub(super) fn entry(&self, identity: &AttemptIdentity) -> InventoryEntry {
        InventoryEntry {
            identity: identity.clone(),
            lease: self.lease.clone(),
            endpoint: Some(self.endpoint.clone()),
            alive: self.alive,
        }
    }
}

/// A watch that goes on until this is dropped.
struct Watcher {
    world: World,
    number: u64,
}

impl Watcher {
    fn register(world: &World, run: &RunId, sink: LossSink) -> Self {
        let mut machines = world.lock();
        machines.last_watcher += 1;
        let number = machines.last_watcher;
        machines.watchers.insert(number, (run.clone(), sink));
        let world = world.clone();
        Self { world, number }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let removed = self.world.lock().watchers.remove(&self.number);
        drop(removed);
    }
}

/// The handles by which a provider's world is looked at and meddled with, the same for all in memory.
macro_rules! world_handles {
    ($provider:ident) => {
        impl $provider {
            /// All machines that it holds, dead ones included, in the order of their identities.
            pub fn live(&self) -> Vec<(AttemptIdentity, LeaseId)> {
                self.world.live()
            }

            /// How many machines were ever made for this attempt; adopting one makes none.
            pub fn created(&self, identity: &AttemptIdentity) -> u64 {
                self.world.counts(identity).created
            }

            /// How many machines of this attempt were given back; one that was gone already is not counted.
            pub fn destroyed(&self, identity: &AttemptIdentity) -> u64 {
                self.world.counts(identity).destroyed
            }

            /// The machine of this attempt dies: it is listed as dead, its session breaks, and watchers are
            /// told. False where there is none that lives.
            pub fn kill(&self, identity: &AttemptIdentity) -> bool {
                self.world.kill(identity)
            }

            /// The machine of this attempt is deleted by hand: it is listed no more, its session breaks, and
            /// nobody is told. False where there is none.
            pub fn vanish(&self, identity: &AttemptIdentity) -> bool {
                self.world.vanish(identity)
            }
        }
    };
}

pub(super) use world_handles;

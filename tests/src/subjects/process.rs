//! Real processes of this machine.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use nodewright_backends::process::{ProcessBackend, ProcessConfig, census};
use nodewright_core::effect::{Call, Cancel, EffectBackend, Inventory, InventoryEntry};
use nodewright_core::id::{AttemptIdentity, OperationId};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::shapes::RUN;
use crate::subject::{Living, Pump, Subject};

/// Processes of this machine below a directory of their own. Whatever still runs there is ended when this is
/// dropped.
#[derive(Debug)]
pub struct Process {
    directory: TempDir,
    runtime: Arc<Runtime>,
    /// The way in of whoever looks from outside.
    outside: ProcessBackend,
}

thread_local! {
    /// One runtime for all providers of a test, so that each may wait for any.
    static RUNTIME: Arc<Runtime> = Arc::new(
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime can be built"),
    );
}

impl Process {
    fn backend(directory: &TempDir, runtime: &Runtime) -> ProcessBackend {
        let _entered = runtime.enter();
        let mut config = ProcessConfig::new(directory.path());
        // Its agents end when they are asked to: nobody has to wait for one that would not.
        config.term_grace = Duration::from_millis(200);
        ProcessBackend::open(config).expect("a temporary directory can be used")
    }

    fn take_down(&self, entry: InventoryEntry) {
        let call = Call {
            operation: OperationId {
                attempt: entry.identity.attempt,
                sequence: u32::MAX,
            },
            identity: entry.identity,
            cancel: Cancel::new(),
        };
        let ended = self.outside.destroy_lease(&call, &entry.lease);
        let _ = self.runtime.block_on(ended);
    }

    fn list(&self) -> Inventory {
        let run = RUN.parse().expect("a name");
        let listed = self.runtime.block_on(self.outside.list_leases(&run));
        listed.expect("the directory can be read")
    }
}

impl Subject for Process {
    type Backend = ProcessBackend;

    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let runtime = RUNTIME.with(Arc::clone);
        let outside = Self::backend(&directory, &runtime);
        Self {
            directory,
            runtime,
            outside,
        }
    }

    fn open(&self) -> Arc<ProcessBackend> {
        Arc::new(Self::backend(&self.directory, &self.runtime))
    }

    /// The machines on disk, and every process that carries an identity which none of them has.
    fn living(&self) -> Vec<Living> {
        let entries = self.list().entries.into_iter();
        let mut living: Vec<Living> = entries
            .map(|entry| Living {
                identity: entry.identity,
                name: entry.lease.id.to_string(),
            })
            .collect();
        let known: BTreeSet<AttemptIdentity> = living.iter().map(|one| one.identity.clone()).collect();
        let run = RUN.parse().expect("a name");
        let survivors = census(self.directory.path(), &run).expect("/proc can be read");
        let strays = survivors.into_iter().filter(|one| !known.contains(&one.identity));
        let strays: BTreeSet<AttemptIdentity> = strays.map(|one| one.identity).collect();
        living.extend(strays.into_iter().map(|identity| Living {
            identity,
            name: "processes without a machine".to_owned(),
        }));
        living
    }

    /// A real signal: the holder is killed, as by an accident.
    fn kill(&self, identity: &AttemptIdentity) -> bool {
        let _entered = self.runtime.enter();
        let killed = self.outside.kill_holder(identity);
        killed.expect("own processes may be signalled")
    }

    /// Somebody else takes it down: the machine is gone, with its directory and its processes.
    fn vanish(&self, identity: &AttemptIdentity) -> bool {
        let mut entries = self.list().entries.into_iter();
        let Some(entry) = entries.find(|entry| entry.identity == *identity) else {
            return false;
        };
        self.take_down(entry);
        true
    }

    fn pump(&self) -> Pump {
        Pump::Tokio(self.runtime.clone())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        for entry in self.list().entries {
            self.take_down(entry);
        }
    }
}

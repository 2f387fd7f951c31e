//! Machines that are processes of this host.
//!
//! A *machine* is a holder process, leader of a session of its own, with a working directory below the
//! state directory. The holder takes the names of jobs from a FIFO there and runs them; their output and
//! exit status stay in files. So a machine outlives us, and a later process of ours finds it again, by its
//! directory and by the identity that everything in it carries in its environment.
//!
//! What is deliberately not here: any book that must be right. What runs is asked of the operating system;
//! what this process remembers only saves looking.
//!
//! **Invariants**
//!
//! - The record of a machine is on disk before anything of it runs, and is removed after all of it ended.
//! - No process is signalled but through a pidfd that was compared with the process meant: a number that
//!   was given to another process is never hit.
//! - Nothing polls: deaths are seen by pidfd, output by file events.
//!
//! A process that leaves both its session and its environment behind is nobody's, and is not found.

mod census;
mod ending;
mod events;
mod handle;
mod holder;
mod host;
mod job;
mod lock;
mod machine;
mod output;
mod place;
mod stamp;
mod stat;
mod steps;
mod table;
#[cfg(test)]
mod tests;
mod transport;
mod turns;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nodewright_core::bootstrap::{Session, SessionLimits, Sessions};
use nodewright_core::effect::{
    BootstrapSpec, Call, Capabilities, Destroyed, EffectBackend, EffectError, Inventory, LossSink,
    ObservationSink,
};
use nodewright_core::facts::{CreatedLease, Endpoint, LeaseFacts};
use nodewright_core::id::{AttemptIdentity, BootstrapSessionId, RunId};
use nodewright_core::template::LogicalNodeSpec;
use rustix::process::Signal;

use self::host::Host;
use self::place::Record;

pub use self::census::{Survivor, census, raise_open_files_limit};
pub use self::lock::{LockError, RunLock};
pub use self::transport::ProcessTransport;

/// How a [`ProcessBackend`] works.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ProcessConfig {
    /// Where machines lie. Two programs may share one only for different runs.
    pub state_dir: PathBuf,
    /// Environment of all machines, beside what this process has itself.
    pub env: BTreeMap<String, String>,
    /// How long a machine's processes have to end when they are asked to, before they are killed.
    pub term_grace: Duration,
    /// How many bytes of each output file stay on disk behind its reader.
    pub output_limit: u64,
    /// How long the calls of a session may take.
    pub session_limits: SessionLimits,
    /// Whether deaths are reported as they happen. Without it the capabilities state no watch, and what died
    /// is found by whoever lists the machines.
    pub watch: bool,
}

impl ProcessConfig {
    /// Machines below this directory. Two seconds to end: enough to flush a file, and no drain hangs on it.
    /// One MiB of output: the last thousands of lines for people to look at. Deaths are reported.
    pub fn new(state_dir: impl Into<PathBuf>) -> Self {
        Self {
            state_dir: state_dir.into(),
            env: BTreeMap::new(),
            term_grace: Duration::from_secs(2),
            output_limit: 1024 * 1024,
            session_limits: SessionLimits::default(),
            watch: true,
        }
    }
}

/// A provider whose machines are processes of this host. A clone shares it.
///
/// Its methods need a tokio runtime with I/O and time, of any flavour. Once the last clone, and the last
/// session and transport made by it, are dropped, no task of it is left; machines go on.
#[derive(Debug, Clone)]
pub struct ProcessBackend {
    host: Arc<Host>,
    sessions: Sessions,
}

impl ProcessBackend {
    /// How many open files one machine takes in this process at most, further followed files excepted: two
    /// pidfds of its minder and one of its session, two output files, and, while it is created or
    /// destroyed, its FIFO, its log, the pipe of the spawning, or a pidfd for each of its processes.
    pub const FILES_PER_MACHINE: u64 = 10;

    /// Opens the state directory; makes it where it is missing. Whether another program works on it is the
    /// business of [`RunLock`].
    ///
    /// # Errors
    ///
    /// What the system says about the directory, or about watching files.
    pub fn open(config: ProcessConfig) -> io::Result<Self> {
        Ok(Self {
            sessions: Sessions::new(config.session_limits),
            host: Arc::new(Host::open(config)?),
        })
    }

    /// Kills the holder of this machine, as an accident would, and nothing else of it. False where it is
    /// not alive. Like all methods it is called inside a runtime.
    ///
    /// # Errors
    ///
    /// What the system says where it cannot be looked for or signalled.
    pub fn kill_holder(&self, identity: &AttemptIdentity) -> io::Result<bool> {
        let place = self.host.places.of(identity);
        let Some(record) = Record::read(&place.directory)? else {
            return Ok(false);
        };
        let Some(machine) = self.host.machines.meet(&place, &record)? else {
            return Ok(false);
        };
        if machine.holder.has_ended() {
            return Ok(false);
        }
        machine.holder.signal(Signal::KILL)?;
        Ok(true)
    }

    /// A way into the machine of this identity.
    pub fn transport(&self, identity: &AttemptIdentity) -> ProcessTransport {
        ProcessTransport::new(self.host.machines.clone(), self.host.places.of(identity))
    }
}

impl EffectBackend for ProcessBackend {
    /// All steps of a create are made at once, without a moment at which its caller could give up, so that
    /// nothing comes through later; a fifth of a second covers that a process in the middle of an exec
    /// shows no environment.
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            visibility: Duration::from_millis(200),
            inventory: true,
            watch: self.host.config.watch,
            abortable: true,
        }
    }

    async fn create_lease(&self, call: &Call, spec: &LogicalNodeSpec) -> Result<CreatedLease, EffectError> {
        unless_cancelled(call, self.host.create(call, spec)).await
    }

    async fn find_lease(&self, call: &Call) -> Result<Option<CreatedLease>, EffectError> {
        let found = async {
            let found = self.host.find(&call.identity).await;
            found.map_err(|error| EffectError::definite(format!("looking for the machine: {error}")))
        };
        unless_cancelled(call, found).await
    }

    async fn lookup_endpoint(
        &self,
        call: &Call,
        lease: &LeaseFacts,
    ) -> Result<Option<Endpoint>, EffectError> {
        let place = self.host.places.of(&call.identity);
        let record = Record::read(&place.directory)
            .map_err(|error| EffectError::definite(format!("looking for the machine: {error}")))?;
        let held = record.filter(|record| record.lease == lease.id);
        Ok(held.map(|_| place.endpoint()))
    }

    async fn start_bootstrap(
        &self,
        call: &Call,
        spec: &BootstrapSpec,
        sink: ObservationSink,
    ) -> Result<Session, EffectError> {
        let transport = || self.transport(&call.identity);
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
        unless_cancelled(call, self.host.destroy(call, &lease.id)).await
    }

    /// Lists what has a record, or a process that carries the run's identity.
    ///
    /// - Alive is a machine whose holder lives, and whose agent was not seen to end: what the watch reports as
    ///   a death the list shows as one, too.
    /// - A machine whose directory somebody deleted is listed as dead for as long as any process of it lives:
    ///   without its record nothing can be done in it but to end it. After that it is not listed any more.
    /// - Of what carries another run's identity, or none, nothing is listed, wherever it lies.
    async fn list_leases(&self, run: &RunId) -> Result<Inventory, EffectError> {
        let listed = self.host.list(run).await;
        listed.map_err(|error| EffectError::definite(format!("listing the machines: {error}")))
    }

    async fn watch(&self, run: &RunId, sink: LossSink) {
        if !self.host.config.watch {
            return std::future::pending().await;
        }
        let _listening = self.host.machines.losses.listen(run, sink);
        if let Err(error) = self.host.meet_all(run) {
            tracing::warn!(%run, %error, "machines of an earlier process are not watched");
        }
        std::future::pending().await
    }
}

/// Does the work of a call, unless nobody waits for it any more.
async fn unless_cancelled<T>(
    call: &Call,
    work: impl Future<Output = Result<T, EffectError>>,
) -> Result<T, EffectError> {
    tokio::select! {
        biased;
        done = work => done,
        () = call.cancel.cancelled() => Err(EffectError::ambiguous("the call was cancelled")),
    }
}

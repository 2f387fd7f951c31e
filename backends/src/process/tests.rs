//! With real processes, each test in a state directory of its own.

mod jobs;
mod leases;
mod outputs;
mod watching;

use std::collections::BTreeMap;
use std::time::Duration;

use nodewright_core::bootstrap::{JobCommand, Line, START_JOB, Transport as _, TransportEvent};
use nodewright_core::effect::{Call, Cancel, EffectBackend as _, LossSink, NodeLoss};
use nodewright_core::facts::CreatedLease;
use nodewright_core::id::{AttemptIdentity, NodeAttemptId, OperationId};
use nodewright_core::template::{
    BootSpec, LogicalNodeSpec, NodeShape, NodeTemplate, SwarmJoinSpec, Template,
};
use tokio::sync::mpsc;

use super::place::{Place, Record};
use super::{ProcessBackend, ProcessConfig, ProcessTransport, census};

/// Longer than anything here may take; a test that waits for this long has failed.
const LIMIT: Duration = Duration::from_secs(20);

/// A state directory and a backend on it. Whatever still runs there is ended when it is dropped.
struct World {
    directory: tempfile::TempDir,
    backend: ProcessBackend,
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let backend = ProcessBackend::open(config(directory.path())).unwrap();
        Self { directory, backend }
    }

    /// Forgets all that this process knew, as another process would.
    fn restart(&mut self) {
        self.backend = ProcessBackend::open(config(self.directory.path())).unwrap();
    }

    async fn create(&self, node: &str) -> CreatedLease {
        self.backend
            .create_lease(&call(node), &spec(node, "true"))
            .await
            .unwrap()
    }

    async fn destroy(&self, node: &str, created: &CreatedLease) {
        let gone = nodewright_core::effect::Destroyed::Gone;
        assert_eq!(
            self.backend.destroy_lease(&call(node), &created.lease).await,
            Ok(gone)
        );
    }

    fn place(&self, node: &str) -> Place {
        self.backend.host.places.of(&call(node).identity)
    }

    fn record(&self, node: &str) -> Record {
        Record::read(&self.place(node).directory).unwrap().unwrap()
    }

    /// The numbers of all processes that carry the run's identity.
    fn census(&self) -> Vec<u32> {
        let survivors = census(self.directory.path(), &call("w-0").identity.run).unwrap();
        survivors.iter().map(|survivor| survivor.pid).collect()
    }

    async fn open(&self, node: &str) -> ProcessTransport {
        let mut transport = self.backend.transport(&call(node).identity);
        transport.open(LIMIT).await.unwrap();
        transport
    }

    /// A way into the machine, with this line started there as its agent.
    async fn start(&self, node: &str, line: &str) -> ProcessTransport {
        let mut transport = self.open(node).await;
        transport.start(&job(START_JOB, line), LIMIT).await.unwrap();
        transport
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let directory = self.directory.path().to_owned();
        let clean = move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let mut config = config(&directory);
                config.term_grace = Duration::ZERO;
                let backend = ProcessBackend::open(config).unwrap();
                let listed = backend.list_leases(&call("w-0").identity.run).await.unwrap();
                for entry in listed.entries {
                    let call = Call {
                        identity: entry.identity,
                        ..call("w-0")
                    };
                    backend.destroy_lease(&call, &entry.lease).await.unwrap();
                }
            });
        };
        // The test's own runtime may not block, and may be gone.
        let cleaned = std::thread::spawn(clean).join();
        if !std::thread::panicking() {
            cleaned.unwrap();
        }
    }
}

fn config(directory: &std::path::Path) -> ProcessConfig {
    let mut config = ProcessConfig::new(directory);
    config.term_grace = Duration::from_millis(200);
    config
}

fn call(node: &str) -> Call {
    Call {
        identity: AttemptIdentity {
            run: "test".parse().unwrap(),
            node: node.parse().unwrap(),
            attempt: NodeAttemptId::FIRST,
        },
        operation: OperationId {
            attempt: NodeAttemptId::FIRST,
            sequence: 1,
        },
        cancel: Cancel::new(),
    }
}

fn spec(node: &str, start: &str) -> LogicalNodeSpec {
    LogicalNodeSpec {
        id: node.parse().unwrap(),
        template: Template::new(NodeTemplate {
            role: "worker".parse().unwrap(),
            provider: "process".parse().unwrap(),
            shape: NodeShape::new("none"),
            boot: BootSpec::new(start),
            join: SwarmJoinSpec::default(),
        }),
    }
}

fn job(name: &str, line: &str) -> JobCommand {
    JobCommand {
        name: name.to_owned(),
        line: line.to_owned(),
        env: BTreeMap::new(),
        extra_stdout: Vec::new(),
        extra_stderr: Vec::new(),
    }
}

/// The text of the next lines, until one of them is this one.
async fn lines_until(transport: &mut ProcessTransport, last: &str) -> Vec<Line> {
    let mut seen = Vec::new();
    while seen.last().is_none_or(|line: &Line| line.text != last) {
        match tokio::time::timeout(LIMIT, transport.next())
            .await
            .unwrap()
            .unwrap()
        {
            TransportEvent::Lines(lines) => seen.extend(lines),
            TransportEvent::Exited(status) => panic!("ended with {status} after {seen:?}"),
        }
    }
    seen
}

/// Listens for deaths of the run in a task of its own.
fn losses(backend: &ProcessBackend) -> mpsc::UnboundedReceiver<NodeLoss> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let backend = backend.clone();
    let sink = LossSink::new(move |loss| drop(sender.send(loss)));
    tokio::spawn(async move { backend.watch(&call("w-0").identity.run, sink).await });
    receiver
}

async fn next_loss(losses: &mut mpsc::UnboundedReceiver<NodeLoss>) -> NodeLoss {
    tokio::time::timeout(LIMIT, losses.recv()).await.unwrap().unwrap()
}

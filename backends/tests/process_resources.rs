//! What machines of processes take of this process. In a binary of its own: others would be counted with it.
#![cfg(all(feature = "process", target_os = "linux"))]

use std::time::Duration;

use futures_util::future::join_all;
use nodewright_backends::process::{ProcessBackend, ProcessConfig, census, raise_open_files_limit};
use nodewright_core::bootstrap::{JobCommand, START_JOB, Transport as _};
use nodewright_core::effect::{Call, Cancel, Destroyed, EffectBackend as _};
use nodewright_core::id::{AttemptIdentity, NodeAttemptId, OperationId};
use nodewright_core::template::{
    BootSpec, LogicalNodeSpec, NodeShape, NodeTemplate, SwarmJoinSpec, Template,
};

const MACHINES: u32 = 20;
const LIMIT: Duration = Duration::from_secs(20);

fn call(index: u32) -> Call {
    Call {
        identity: AttemptIdentity {
            run: "resources".parse().unwrap(),
            node: format!("w-{index}").parse().unwrap(),
            attempt: NodeAttemptId::FIRST,
        },
        operation: OperationId {
            attempt: NodeAttemptId::FIRST,
            sequence: 1,
        },
        cancel: Cancel::new(),
    }
}

fn spec(index: u32) -> LogicalNodeSpec {
    LogicalNodeSpec {
        id: call(index).identity.node,
        template: Template::new(NodeTemplate {
            role: "worker".parse().unwrap(),
            provider: "process".parse().unwrap(),
            shape: NodeShape::new("none"),
            boot: BootSpec::new("true"),
            join: SwarmJoinSpec::default(),
        }),
    }
}

fn open_files() -> u64 {
    std::fs::read_dir("/proc/self/fd").unwrap().count() as u64
}

/// How often any thread of this process gave up its processor because it had to wait.
fn wake_ups() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("status")).ok())
        .filter_map(|status| {
            let count = status
                .lines()
                .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            count?.trim().parse::<u64>().ok()
        })
        .sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_machines_take_no_more_files_than_stated_and_wake_nobody() {
    raise_open_files_limit().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let backend = ProcessBackend::open(ProcessConfig::new(directory.path())).unwrap();
    let before = open_files();
    let mut leases = Vec::new();
    let mut transports = Vec::new();
    for index in 0..MACHINES {
        leases.push(
            backend
                .create_lease(&call(index), &spec(index))
                .await
                .unwrap()
                .lease,
        );
        let mut transport = backend.transport(&call(index).identity);
        transport.open(LIMIT).await.unwrap();
        let agent = JobCommand {
            name: START_JOB.to_owned(),
            line: "exec sleep 1000".to_owned(),
            env: Default::default(),
            extra_stdout: Vec::new(),
            extra_stderr: Vec::new(),
        };
        transport.start(&agent, LIMIT).await.unwrap();
        // Everybody is where they wait.
        let waited = tokio::time::timeout(Duration::from_millis(10), transport.next()).await;
        assert!(waited.is_err());
        transports.push(transport);
    }
    let taken = open_files() - before;
    let stated = ProcessBackend::FILES_PER_MACHINE * u64::from(MACHINES);
    assert!(taken <= stated, "{taken} files where {stated} are stated");

    // A span to measure over, not to wait for something.
    let (begin, span) = (wake_ups(), Duration::from_secs(2));
    std::thread::sleep(span);
    let woken = wake_ups().saturating_sub(begin);
    assert!(woken < 10, "{woken} wake-ups in {span:?}");

    drop(transports);
    let destroyed = (0..MACHINES).zip(&leases).map(async |(index, lease)| {
        assert_eq!(
            backend.destroy_lease(&call(index), lease).await,
            Ok(Destroyed::Gone)
        );
    });
    join_all(destroyed).await;
    assert_eq!(census(directory.path(), &call(0).identity.run).unwrap(), []);
    tokio::task::yield_now().await;
    assert!(open_files() <= before + ProcessBackend::FILES_PER_MACHINE);
}

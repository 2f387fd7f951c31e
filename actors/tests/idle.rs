//! A day in which nothing happens to ten thousand nodes, under paused time: what it costs.
//!
//! Alone in its process, for the memory is the whole process's.

use std::collections::BTreeSet;
use std::time::Duration;

use nodewright::id::RunId;
use nodewright::shape::{ClusterShape, Generation, NodeGroupSpec};
use nodewright::template::{BootSpec, NodeShape, NodeTemplate, SwarmJoinSpec, Template};
use nodewright::{Cluster, Config, Shutdown};
use nodewright_backends::MemoryBackend;
use peak_alloc::PeakAlloc;
use tokio::runtime::Handle;
use tokio::time::sleep;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const NODES: u32 = 10_000;

const HOUR: Duration = Duration::from_secs(3600);

/// How often the process's one thread woke up from having nothing to do.
fn wake_ups() -> u64 {
    Handle::current().metrics().worker_park_count(0)
}

/// G3, G30: a sweep a minute, a few wake-ups for each, and no byte more in the evening than in the morning.
#[tokio::test(start_paused = true)]
#[expect(clippy::print_stdout, reason = "the figures are for whoever asks for them")]
async fn ten_thousand_idle_nodes_for_a_day_keep_their_memory_and_wake_up_for_sweeps_alone() {
    let run_id: RunId = "day".parse().unwrap();
    let template = Template::new(NodeTemplate {
        role: "worker".parse().unwrap(),
        provider: "memory".parse().unwrap(),
        shape: NodeShape::new("image"),
        boot: BootSpec::new("agent"),
        join: SwarmJoinSpec::default(),
    });
    let shape = ClusterShape {
        run_id: run_id.clone(),
        generation: Generation(1),
        groups: vec![NodeGroupSpec {
            run_id,
            group_id: "w".parse().unwrap(),
            count: NODES,
            depends_on: BTreeSet::new(),
            template,
        }],
    };
    let backend = MemoryBackend::new();
    let config = Config::new(shape).provider("memory".parse().unwrap(), backend.clone());
    let cluster = Cluster::spawn(config.fresh()).await.unwrap();
    cluster.converged(Generation(1)).await.unwrap();
    let machines = backend.live();
    // Whatever is built once is built in the first hour.
    sleep(HOUR).await;
    let (memory, woken) = (ALLOCATOR.current_usage(), wake_ups());
    sleep(23 * HOUR).await;
    let (grown, woken) = (ALLOCATOR.current_usage().abs_diff(memory), wake_ups() - woken);
    println!("{memory} bytes, {grown} more or less after a day; {woken} wake-ups");
    assert!(
        grown < memory / 1000,
        "{memory} bytes became {grown} more or less"
    );
    let sweeps = 23 * 60;
    assert!(
        woken >= sweeps && woken <= 6 * sweeps,
        "{woken} wake-ups for {sweeps} sweeps"
    );
    assert_eq!(backend.live(), machines);
    let status = cluster.status().await.unwrap();
    assert!(status.converged && status.orphans == 0);
    cluster.shutdown(Shutdown::Drain).await.unwrap();
}

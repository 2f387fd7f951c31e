//! The whole actor stack over the memory backend, under paused time.

use std::time::Duration;

use nodewright::shape::{ClusterShape, Generation, NodeGroupSpec};
use nodewright::template::{BootSpec, NodeShape, NodeTemplate, SwarmJoinSpec, Template};
use nodewright::{Cluster, Config, Heard, Shutdown};
use nodewright_backends::MemoryBackend;

fn shape(generation: u64, count: u32) -> ClusterShape {
    let template = Template::new(NodeTemplate {
        role: "worker".parse().unwrap(),
        provider: "memory".parse().unwrap(),
        shape: NodeShape::new("image"),
        boot: BootSpec::new("agent"),
        join: SwarmJoinSpec::default(),
    });
    let run_id: nodewright::id::RunId = "run".parse().unwrap();
    ClusterShape {
        run_id: run_id.clone(),
        generation: Generation(generation),
        groups: vec![NodeGroupSpec {
            run_id,
            group_id: "w".parse().unwrap(),
            count,
            depends_on: Default::default(),
            template,
        }],
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_converges_scales_and_drains() {
    let backend = MemoryBackend::new();
    let config = Config::new(shape(1, 3)).provider("memory".parse().unwrap(), backend.clone());
    let cluster = Cluster::spawn(config).await.unwrap();
    let mut events = cluster.subscribe();
    tokio::time::timeout(Duration::from_secs(60), cluster.converged(Generation(1)))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(backend.live().len(), 3);
    assert_eq!(
        cluster.view().all().iter().filter(|status| status.ready).count(),
        3
    );
    cluster.update(shape(2, 5)).await.unwrap();
    cluster.converged(Generation(2)).await.unwrap();
    assert_eq!(backend.live().len(), 5);
    cluster
        .lost(
            "w-2".parse().unwrap(),
            cluster
                .view()
                .get(&"w-2".parse().unwrap())
                .unwrap()
                .attempt
                .unwrap(),
            "gone",
        )
        .unwrap();
    loop {
        let status = cluster.node(&"w-2".parse().unwrap()).await.unwrap().unwrap();
        if status.attempt.unwrap().number() == 6 && status.ready {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let state = cluster.shutdown(Shutdown::Drain).await.unwrap();
    assert!(state.nodes.is_empty() && backend.live().is_empty());
    let mut heard = Vec::new();
    while let Some(Heard::Event(event)) = events.recv().await {
        heard.push(event.kind.to_string());
    }
    assert!(
        heard.contains(&"w-2: attempt 6 begins in place of 3".to_owned()),
        "{heard:#?}"
    );
}

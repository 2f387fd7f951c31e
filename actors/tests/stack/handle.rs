//! What the handle promises: answers, views, events, and how a cluster ends.

use std::time::Duration;

use nodewright::driver::{Accepted, DriverError};
use nodewright::effect::CommandKind::{CreateLease, DestroyLease};
use nodewright::node::Stage;
use nodewright::shape::Generation;
use nodewright::status::Why;
use nodewright::{Cluster, Heard, Shutdown, SpawnError, Stopped, UpdateError};
use nodewright_backends::{JoinMode, MemoryBackend};

use crate::support::{Fault, Scripted, config, converge, node, shape, shape_of};

#[tokio::test(start_paused = true)]
async fn a_cluster_converges_scales_and_drains() {
    let backend = MemoryBackend::new();
    let cluster = Cluster::spawn(config(3, backend.clone())).await.unwrap();
    converge(&cluster, 1).await;
    assert_eq!(backend.live().len(), 3);
    let accepted = cluster.update(shape(2, 5)).await.unwrap();
    assert_eq!(accepted, Accepted::Changed(Generation(2)));
    converge(&cluster, 2).await;
    assert_eq!(backend.live().len(), 5);
    cluster.update(shape(3, 1)).await.unwrap();
    converge(&cluster, 3).await;
    let left: Vec<String> = backend
        .live()
        .iter()
        .map(|(identity, _)| identity.node.to_string())
        .collect();
    assert_eq!(left, ["w-0"], "only the highest indices go");
    let state = cluster.shutdown(Shutdown::Drain).await.unwrap();
    assert!(state.nodes.is_empty() && backend.live().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_wrong_configuration_starts_nothing_and_names_what_is_wrong() {
    let backend = MemoryBackend::new();
    let mut config = config(1, backend.clone());
    config = config.policy(policy_without_delay());
    let error = Cluster::spawn(config).await.unwrap_err();
    assert!(
        matches!(error, SpawnError::Config(DriverError::Policy(_))),
        "{error}"
    );
    assert!(error.to_string().contains("initial_delay"), "{error}");
    let error = Cluster::spawn(nodewright::Config::new(shape(1, 1)))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("memory"), "{error}");
    assert!(backend.live().is_empty());
}

fn policy_without_delay() -> nodewright::policy::Policy {
    let mut policy = nodewright::policy::Policy::default();
    policy.initial_delay = Duration::ZERO;
    policy
}

#[tokio::test(start_paused = true)]
async fn a_refused_shape_leaves_everything_as_it_was() {
    let backend = MemoryBackend::new();
    let cluster = Cluster::spawn(config(2, backend.clone())).await.unwrap();
    converge(&cluster, 1).await;
    let silent = cluster.update(shape(1, 3)).await.unwrap_err();
    assert!(
        matches!(silent, UpdateError::Refused(DriverError::SilentChange { .. })),
        "{silent}"
    );
    let old = cluster.update(shape(0, 3)).await.unwrap_err();
    assert!(
        matches!(old, UpdateError::Refused(DriverError::OldGeneration { .. })),
        "{old}"
    );
    assert_eq!(
        cluster.update(shape(1, 2)).await.unwrap(),
        Accepted::Unchanged(Generation(1))
    );
    let status = cluster.status().await.unwrap();
    assert!(status.converged && status.desired == 2 && backend.live().len() == 2);
    cluster.shutdown(Shutdown::Drain).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_stopped_cluster_answers_every_question_with_an_error() {
    let cluster = Cluster::spawn(config(1, MemoryBackend::new())).await.unwrap();
    let drain = cluster.shutdown(Shutdown::Drain).await;
    assert!(drain.is_ok());
    assert_eq!(cluster.status().await, Err(Stopped));
    assert_eq!(cluster.converged(Generation(1)).await, Err(Stopped));
    assert_eq!(cluster.node(&node("w-0")).await, Err(Stopped));
    assert_eq!(cluster.retry(&node("w-0")).await, Err(Stopped));
    assert_eq!(
        cluster.lost(node("w-0"), nodewright::id::NodeAttemptId::FIRST, "x"),
        Err(Stopped)
    );
    assert!(matches!(
        cluster.update(shape(2, 1)).await,
        Err(UpdateError::Stopped(Stopped))
    ));
    assert_eq!(cluster.shutdown(Shutdown::Detach).await, Err(Stopped));
    assert_eq!(cluster.subscribe().recv().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_draining_cluster_takes_no_shape_and_can_still_be_detached() {
    let backend = Scripted::new([(DestroyLease, Fault::Hang)]);
    let cluster = Cluster::spawn(config(1, backend.clone())).await.unwrap();
    converge(&cluster, 1).await;
    let draining = tokio::spawn({
        let cluster = cluster.clone();
        async move { cluster.shutdown(Shutdown::Drain).await }
    });
    backend.until_called(DestroyLease, 1).await;
    assert!(matches!(
        cluster.update(shape(9, 1)).await,
        Err(UpdateError::Draining)
    ));
    let state = cluster.shutdown(Shutdown::Detach).await.unwrap();
    assert_eq!(state.nodes.len(), 1, "the machine stays, and is known");
    assert_eq!(
        draining.await.unwrap().unwrap(),
        state,
        "whoever waited for the drain is told what is left"
    );
    assert_eq!(backend.memory.live().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_detached_state_is_resumed_and_what_lives_is_kept() {
    let backend = MemoryBackend::new();
    let cluster = Cluster::spawn(config(3, backend.clone())).await.unwrap();
    converge(&cluster, 1).await;
    let before = backend.live();
    let state = cluster.shutdown(Shutdown::Detach).await.unwrap();
    backend.kill(&before[1].0);
    let cluster = Cluster::spawn(config(3, backend.clone()).resume(state))
        .await
        .unwrap();
    converge(&cluster, 1).await;
    let after = backend.live();
    assert_eq!(
        (&after[0], &after[2]),
        (&before[0], &before[2]),
        "what lives is kept"
    );
    assert_ne!(after[1], before[1], "what died meanwhile is replaced");
    assert_eq!(after[1].0.attempt.number(), 4);
    cluster.shutdown(Shutdown::Drain).await.unwrap();
    assert!(backend.live().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_new_process_ends_every_machine_it_finds_before_it_fills_the_slot_anew() {
    let backend = MemoryBackend::new();
    let cluster = Cluster::spawn(config(3, backend.clone())).await.unwrap();
    converge(&cluster, 1).await;
    let old = backend.live();
    let _ = cluster.shutdown(Shutdown::Detach).await.unwrap();
    let again = Scripted::over(backend.clone());
    let cluster = Cluster::spawn(config(3, again.clone())).await.unwrap();
    converge(&cluster, 1).await;
    assert!(old.iter().all(|(identity, _)| backend.destroyed(identity) == 1));
    assert!(
        backend
            .live()
            .iter()
            .all(|(identity, _)| identity.attempt.number() > 3)
    );
    for index in 0..3 {
        let calls = again.calls();
        let of_slot = calls
            .iter()
            .filter(|(_, call)| call.starts_with(&format!("w-{index} ")));
        let kinds: Vec<_> = of_slot.map(|(kind, _)| *kind).take(2).collect();
        assert_eq!(kinds, [DestroyLease, CreateLease]);
    }
    cluster.shutdown(Shutdown::Drain).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_changed_template_replaces_every_node_and_a_changed_count_replaces_none() {
    let backend = MemoryBackend::new();
    let cluster = Cluster::spawn(config(2, backend.clone())).await.unwrap();
    converge(&cluster, 1).await;
    cluster.update(shape(2, 3)).await.unwrap();
    converge(&cluster, 2).await;
    let attempts = |backend: &MemoryBackend| -> Vec<u64> {
        backend
            .live()
            .iter()
            .map(|(identity, _)| identity.attempt.number())
            .collect()
    };
    assert_eq!(attempts(&backend), [1, 2, 3]);
    cluster.update(shape_of(3, 3, "other")).await.unwrap();
    converge(&cluster, 3).await;
    assert_eq!(attempts(&backend), [4, 5, 6]);
    cluster.shutdown(Shutdown::Drain).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_application_may_see_the_join_and_take_the_node_over() {
    let backend = MemoryBackend::new().joins(JoinMode::Never);
    let cluster = Cluster::spawn(config(1, backend)).await.unwrap();
    let mut events = cluster.subscribe();
    let attempt = loop {
        let Some(Heard::Event(event)) = events.recv().await else {
            panic!("the cluster stopped")
        };
        if let nodewright::event::EventKind::StageReached {
            attempt,
            stage: Stage::BootstrapRunning,
            ..
        } = event.kind
        {
            break attempt;
        }
    };
    cluster
        .joined(node("w-0"), attempt, nodewright::facts::AgentId::new("agent-7"))
        .unwrap();
    cluster.handed_off(node("w-0"), attempt).unwrap();
    converge(&cluster, 1).await;
    let status = cluster.node(&node("w-0")).await.unwrap().unwrap();
    assert_eq!((status.stage, status.why), (Some(Stage::HandedOff), Why::Settled));
    assert_eq!(status.agent.unwrap().as_str(), "agent-7");
    cluster.shutdown(Shutdown::Drain).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_view_says_what_the_supervisor_would_answer() {
    let backend = MemoryBackend::new();
    let cluster = Cluster::spawn(config(3, backend)).await.unwrap();
    converge(&cluster, 1).await;
    cluster.replace(&node("w-1")).await.unwrap();
    converge(&cluster, 1).await;
    cluster.update(shape(2, 2)).await.unwrap();
    converge(&cluster, 2).await;
    let view = cluster.view();
    assert_eq!(view.len(), 2);
    for status in view.all() {
        assert_eq!(Some(status.clone()), cluster.node(&status.node).await.unwrap());
    }
    assert_eq!(view.get(&node("w-2")), None);
    cluster.shutdown(Shutdown::Drain).await.unwrap();
    assert!(view.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_slow_subscriber_loses_the_oldest_and_is_told_how_many() {
    let cluster = Cluster::spawn(config(1200, MemoryBackend::new())).await.unwrap();
    let mut slow = cluster.subscribe();
    converge(&cluster, 1).await;
    let first = slow.recv().await.unwrap();
    let Heard::Missed(missed) = first else {
        panic!("1200 nodes make more events than one lags behind")
    };
    let mut heard = 0;
    cluster.shutdown(Shutdown::Detach).await.unwrap();
    while let Some(Heard::Event(_)) = slow.recv().await {
        heard += 1;
    }
    assert!(missed > 0 && heard == 8192, "{missed} missed, {heard} heard");
}

#[tokio::test(start_paused = true)]
async fn the_published_state_follows_within_its_interval() {
    let cluster = Cluster::spawn(config(2, MemoryBackend::new())).await.unwrap();
    let mut published = cluster.published();
    converge(&cluster, 1).await;
    let wait = published.wait_for(|state| state.nodes.iter().filter(|(_, node)| node.ready).count() == 2);
    tokio::time::timeout(Duration::from_millis(1100), wait)
        .await
        .expect("it is published in time")
        .unwrap();
    cluster.shutdown(Shutdown::Drain).await.unwrap();
}

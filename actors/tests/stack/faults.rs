//! Chapter 6's table: what follows when an actor dies, or a provider misbehaves.

use std::sync::Arc;
use std::time::Duration;

use nodewright::effect::CommandKind::{CreateLease, DestroyLease, FindLease, StartBootstrap};
use nodewright::effect::EffectError;
use nodewright::event::EventKind;
use nodewright::node::Stage;
use nodewright::{Clock, Cluster, Heard, Shutdown};
use nodewright_backends::{JoinMode, MemoryBackend};
use ractor::ActorCell;

use crate::support::{Fault, Parent, Scripted, children, config, converge, node};

/// One live machine per slot, made once per attempt.
fn assert_one_machine_each(memory: &MemoryBackend, count: usize) {
    let live = memory.live();
    assert_eq!(live.len(), count, "{live:?}");
    assert!(
        live.iter().all(|(identity, _)| memory.created(identity) == 1),
        "{live:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn g31_an_executor_that_dies_loses_no_node_and_leaks_nothing() {
    for fault in [
        Fault::Hang,
        Fault::Slow(Duration::from_secs(1)),
        Fault::After(EffectError::ambiguous("?")),
    ] {
        let backend = Scripted::new([(CreateLease, fault)]);
        let (parent, _heard) = Parent::spawn().await;
        let cluster = Cluster::spawn_linked(config(3, backend.clone()), parent.clone())
            .await
            .unwrap();
        backend.until_called(CreateLease, 3).await;
        let executor = children(&parent)[2].clone();
        executor.kill();
        converge(&cluster, 1).await;
        assert_one_machine_each(&backend.memory, 3);
        assert!(
            !children(&parent)
                .iter()
                .any(|child| child.get_id() == executor.get_id())
        );
        cluster.shutdown(Shutdown::Drain).await.unwrap();
        assert!(backend.memory.live().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn g31_a_timer_that_dies_is_armed_anew_from_the_stored_moments() {
    let backend = Scripted::new([(CreateLease, Fault::Before(EffectError::definite("no room")))]);
    let (parent, _heard) = Parent::spawn().await;
    let cluster = Cluster::spawn_linked(config(1, backend.clone()), parent.clone())
        .await
        .unwrap();
    let mut events = cluster.subscribe();
    loop {
        let Some(Heard::Event(event)) = events.recv().await else {
            panic!("the cluster stopped")
        };
        if matches!(event.kind, EventKind::RetryScheduled { .. }) {
            break;
        }
    }
    children(&parent)[0].kill();
    converge(&cluster, 1).await;
    assert_one_machine_each(&backend.memory, 1);
    cluster.shutdown(Shutdown::Drain).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn g31_sessions_whose_actor_dies_are_observed_as_failed() {
    let backend = MemoryBackend::new().joins(JoinMode::Never);
    let (parent, _heard) = Parent::spawn().await;
    let cluster = Cluster::spawn_linked(config(2, backend.clone()), parent.clone())
        .await
        .unwrap();
    let mut events = cluster.subscribe();
    let mut running = 0;
    while running < 2 {
        let Some(Heard::Event(event)) = events.recv().await else {
            panic!("the cluster stopped")
        };
        running += usize::from(matches!(
            event.kind,
            EventKind::StageReached {
                stage: Stage::BootstrapRunning,
                ..
            }
        ));
    }
    children(&parent)[1].kill();
    let mut failed = 0;
    while failed < 2 {
        let Some(Heard::Event(event)) = events.recv().await else {
            panic!("the cluster stopped")
        };
        if let EventKind::AttemptFailed { reason, .. } = event.kind {
            assert!(reason.contains("ended without a word"), "{reason}");
            failed += 1;
        }
    }
    cluster.shutdown(Shutdown::Drain).await.unwrap();
    assert!(backend.live().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_panicking_call_is_ambiguous_and_nothing_else_notices() {
    for fault in [Fault::PanicBefore, Fault::PanicAfter] {
        let backend = Scripted::new([(CreateLease, fault)]);
        let (parent, _heard) = Parent::spawn().await;
        let cluster = Cluster::spawn_linked(config(3, backend.clone()), parent.clone())
            .await
            .unwrap();
        backend.until_called(CreateLease, 3).await;
        let executor = children(&parent)[2].get_id();
        converge(&cluster, 1).await;
        assert_eq!(
            backend.count(FindLease),
            1,
            "it is looked for before it is made again"
        );
        assert_one_machine_each(&backend.memory, 3);
        assert_eq!(children(&parent)[2].get_id(), executor, "the executor lives on");
        cluster.shutdown(Shutdown::Drain).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn g24_a_call_that_never_returns_expires_at_its_deadline_and_not_before() {
    let backend = Scripted::new([(CreateLease, Fault::Hang)]);
    let cluster = Cluster::spawn(config(2, backend.clone())).await.unwrap();
    let mut events = cluster.subscribe();
    backend.until_called(CreateLease, 2).await;
    let started = tokio::time::Instant::now();
    loop {
        let Some(Heard::Event(event)) = events.recv().await else {
            panic!("the cluster stopped")
        };
        if let EventKind::Finished {
            error: Some(error), ..
        } = event.kind
        {
            assert!(error.contains("deadline"), "{error}");
            break;
        }
    }
    // Two minutes to the deadline, five seconds of grace; the timer's grain is a millisecond.
    let took = started.elapsed();
    let expected = Duration::from_secs(125);
    assert!(
        took >= expected && took < expected + Duration::from_millis(20),
        "{took:?}"
    );
    converge(&cluster, 1).await;
    assert_one_machine_each(&backend.memory, 2);
    cluster.shutdown(Shutdown::Drain).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn g9_a_call_that_cannot_be_ended_keeps_its_attempt_to_itself_until_it_has_ended() {
    let slow = Fault::Slow(Duration::from_secs(600));
    let backend = Scripted::new([(CreateLease, slow)]).unabortable();
    let cluster = Cluster::spawn(config(1, backend.clone())).await.unwrap();
    backend.until_called(CreateLease, 1).await;
    let started = tokio::time::Instant::now();
    tokio::time::sleep(Duration::from_secs(590)).await;
    assert_eq!(
        backend.calls().len(),
        1,
        "nothing else is asked meanwhile: {:?}",
        backend.calls()
    );
    converge(&cluster, 1).await;
    assert!(started.elapsed() >= Duration::from_secs(600));
    assert_one_machine_each(&backend.memory, 1);
    assert_eq!(
        backend.count(CreateLease),
        1,
        "the late machine was found and adopted"
    );
    cluster.shutdown(Shutdown::Drain).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn g18_a_provider_that_fails_one_node_never_stops_another() {
    let failing = (0..200).map(|_| (StartBootstrap, Fault::Before(EffectError::definite("no"))));
    let backend = Scripted::new(failing.take(1));
    let cluster = Cluster::spawn(config(5, backend.clone())).await.unwrap();
    let mut ready = 0;
    let mut events = cluster.subscribe();
    while ready < 4 {
        let Some(Heard::Event(event)) = events.recv().await else {
            panic!("the cluster stopped")
        };
        match event.kind {
            EventKind::StageReached { ready: true, .. } => ready += 1,
            EventKind::Restarted { .. } => panic!("the others do not wait for the failed one"),
            _ => {}
        }
    }
    converge(&cluster, 1).await;
    cluster.shutdown(Shutdown::Drain).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn g27_a_machine_that_dies_after_it_was_ready_is_replaced() {
    let backend = MemoryBackend::new();
    let cluster = Cluster::spawn(config(3, backend.clone())).await.unwrap();
    converge(&cluster, 1).await;
    let victim = backend.live()[1].0.clone();
    let mut events = cluster.subscribe();
    assert!(backend.kill(&victim));
    let restarted = loop {
        let Some(Heard::Event(event)) = events.recv().await else {
            panic!("the cluster stopped")
        };
        if let EventKind::Restarted { node, from, .. } = event.kind {
            break (node, from);
        }
    };
    assert_eq!(restarted, (victim.node.clone(), victim.attempt));
    converge(&cluster, 1).await;
    assert_one_machine_each(&backend, 3);
    cluster.shutdown(Shutdown::Drain).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_parent_hears_of_a_dead_supervisor_and_resumes_from_what_was_published() {
    let backend = MemoryBackend::new();
    let (parent, mut heard) = Parent::spawn().await;
    let cluster = Cluster::spawn_linked(config(3, backend.clone()), parent.clone())
        .await
        .unwrap();
    converge(&cluster, 1).await;
    let mut published = cluster.published();
    published
        .wait_for(|state| state.nodes.iter().all(|(_, node)| node.ready) && state.nodes.len() == 3)
        .await
        .unwrap();
    let before = backend.live();
    let family: Vec<ActorCell> = children(&parent);
    parent.get_children()[0].kill();
    assert!(heard.0.recv().await.unwrap().contains("kill"));
    for child in family {
        child.wait(None).await.unwrap();
    }
    assert_eq!(cluster.status().await, Err(nodewright::Stopped));
    assert_eq!(backend.live(), before, "the machines live on");
    let state = (**published.borrow()).clone();
    let cluster = Cluster::spawn_linked(config(3, backend.clone()).resume(state), parent)
        .await
        .unwrap();
    converge(&cluster, 1).await;
    assert_eq!(backend.live(), before, "and are kept");
    cluster.shutdown(Shutdown::Drain).await.unwrap();
}

#[test]
fn a_host_that_drops_everything_frees_the_backend() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let token = Arc::new(());
    let backend = Scripted::new([(CreateLease, Fault::Hang)]).holding(token.clone());
    runtime.block_on(async move {
        let cluster = Cluster::spawn(config(5, backend.clone())).await.unwrap();
        backend.until_called(CreateLease, 5).await;
        drop(cluster);
    });
    drop(runtime);
    assert_eq!(Arc::strong_count(&token), 1, "nobody holds the backend any more");
}

#[tokio::test]
async fn a_detached_cluster_frees_the_backend() {
    let token = Arc::new(());
    let backend = Scripted::new([(CreateLease, Fault::Hang)]).holding(token.clone());
    let cluster = Cluster::spawn(config(5, backend.clone())).await.unwrap();
    backend.until_called(CreateLease, 5).await;
    cluster.shutdown(Shutdown::Detach).await.unwrap();
    drop(backend);
    while Arc::strong_count(&token) > 1 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn g1_one_faulty_trace_run_twice_gives_the_same_event_log_byte_for_byte() {
    let first = faulty_trace().await;
    let second = faulty_trace().await;
    assert!(first.lines().count() > 200, "{first}");
    assert_eq!(first, second);
}

/// Twenty nodes, of which calls fail in every way, an executor dies, a machine dies, and the shape changes.
async fn faulty_trace() -> String {
    let backend = Scripted::new([
        (
            CreateLease,
            Fault::After(EffectError::ambiguous("the answer was lost")),
        ),
        (CreateLease, Fault::PanicBefore),
        (CreateLease, Fault::Hang),
        (
            CreateLease,
            Fault::Before(EffectError::throttled("slow down", Some(Duration::from_secs(7)))),
        ),
        (StartBootstrap, Fault::Before(EffectError::definite("refused"))),
        (
            StartBootstrap,
            Fault::After(EffectError::ambiguous("the answer was lost")),
        ),
        (DestroyLease, Fault::Before(EffectError::definite("not now"))),
    ]);
    let (parent, _heard) = Parent::spawn().await;
    let clock = Clock::anchored("2030-01-01T00:00:00Z".parse().unwrap());
    let config = config(20, backend.clone()).clock(clock);
    let cluster = Cluster::spawn_linked(config, parent.clone()).await.unwrap();
    let mut events = cluster.subscribe();
    backend.until_called(StartBootstrap, 3).await;
    children(&parent)[2].kill();
    converge(&cluster, 1).await;
    let victim = backend.memory.live()[4].0.clone();
    backend.memory.kill(&victim);
    cluster
        .update(crate::support::shape_of(2, 12, "other"))
        .await
        .unwrap();
    converge(&cluster, 2).await;
    cluster.retry(&node("w-0")).await.unwrap();
    cluster.shutdown(Shutdown::Drain).await.unwrap();
    let mut log = String::new();
    while let Some(heard) = events.recv().await {
        let Heard::Event(event) = heard else {
            panic!("events were missed")
        };
        log.push_str(&serde_json::to_string(&event).unwrap());
        log.push('\n');
    }
    log
}

//! What gets lost on the way between actors, and must not be missed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use nodewright::effect::CommandKind::{CreateLease, FindLease};
use nodewright::policy::Policy;
use nodewright::shape::Generation;
use nodewright::{Cluster, Shutdown, Stopped};
use nodewright_backends::{JoinMode, MemoryBackend};
use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::mpsc;

use crate::support::{Fault, Parent, Scripted, children, config, converge};

/// Resolves once this is so; whoever waits for a minute has failed. Lets all others run, and paused time pass,
/// meanwhile.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting)
        .await
        .unwrap_or_else(|_| panic!("{what}"));
}

#[tokio::test(start_paused = true)]
async fn g23_a_first_look_that_panics_before_it_begins_is_taken_again() {
    let backend = Scripted::new([]);
    backend.broken_looks.store(2, Ordering::SeqCst);
    let cluster = Cluster::spawn(config(2, backend.clone())).await.unwrap();
    converge(&cluster, 1).await;
    cluster.shutdown(Shutdown::Drain).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_first_pass_of_a_fresh_run_finds_its_executor_open() {
    let backend = Scripted::new([]);
    let cluster = Cluster::spawn(config(2, backend.clone()).fresh()).await.unwrap();
    let started = tokio::time::Instant::now();
    backend.until_called(CreateLease, 2).await;
    assert_eq!(started.elapsed(), Duration::ZERO, "nothing was refused first");
    converge(&cluster, 1).await;
    cluster.shutdown(Shutdown::Drain).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn g31_an_executor_that_dies_leaves_one_watch_that_goes_on() {
    let backend = Scripted::new([]);
    let (parent, _heard) = Parent::spawn().await;
    let cluster = Cluster::spawn_linked(config(2, backend.clone()), parent.clone())
        .await
        .unwrap();
    converge(&cluster, 1).await;
    for _ in 0..3 {
        let executor = children(&parent)[2].clone();
        executor.kill();
        until("a new one takes over", || {
            let family = children(&parent);
            family.len() == 3 && family.iter().all(|child| child.get_id() != executor.get_id())
        })
        .await;
        cluster.replace(&crate::support::node("w-0")).await.unwrap();
        converge(&cluster, 1).await;
    }
    assert_eq!(backend.watches.now(), 1);
    let victim = backend.memory.live()[0].0.clone();
    backend.memory.kill(&victim);
    until("it is replaced", || {
        let live = backend.memory.live();
        live.len() == 2 && live[0].0.attempt > victim.attempt
    })
    .await;
    cluster.shutdown(Shutdown::Drain).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn g27_a_watch_that_panics_is_begun_again() {
    let backend = Scripted::new([]);
    backend.broken_watches.store(2, Ordering::SeqCst);
    let cluster = Cluster::spawn(config(1, backend.clone())).await.unwrap();
    converge(&cluster, 1).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(backend.watches.now(), 1);
    cluster.shutdown(Shutdown::Drain).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_generation_is_not_told_that_a_drain_reached_it() {
    let backend = MemoryBackend::new().joins(JoinMode::Never);
    let cluster = Cluster::spawn(config(1, backend.clone())).await.unwrap();
    let waiting = tokio::spawn({
        let cluster = cluster.clone();
        async move { cluster.converged(Generation(1)).await }
    });
    tokio::task::yield_now().await;
    cluster.shutdown(Shutdown::Drain).await.unwrap();
    assert_eq!(waiting.await.unwrap(), Err(Stopped));
}

/// A supervisor that is slow: it keeps what it hears, as a mailbox would.
struct Keeper;

#[ractor::actor(message = (), state = mpsc::UnboundedSender<SupervisionEvent>, arguments = mpsc::UnboundedSender<SupervisionEvent>)]
impl Keeper {
    async fn pre_start(
        &self,
        _myself: ActorRef<()>,
        kept: mpsc::UnboundedSender<SupervisionEvent>,
    ) -> Result<mpsc::UnboundedSender<SupervisionEvent>, ActorProcessingErr> {
        Ok(kept)
    }

    async fn handle_supervisor_evt(
        &self,
        _myself: ActorRef<()>,
        event: SupervisionEvent,
        kept: &mut mpsc::UnboundedSender<SupervisionEvent>,
    ) -> Result<(), ActorProcessingErr> {
        let _ = kept.send(event);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_stopped_cluster_frees_questions_and_backend_also_while_its_parent_has_not_heard_of_it() {
    let token = Arc::new(());
    let backend = Scripted::new([(CreateLease, Fault::Hang)]).holding(token.clone());
    let (keep, mut kept) = mpsc::unbounded_channel();
    let (parent, _) = Actor::spawn(None, Keeper, keep).await.unwrap();
    let cluster = Cluster::spawn_linked(config(1, backend.clone()), parent.get_cell())
        .await
        .unwrap();
    backend.until_called(CreateLease, 1).await;
    let waiting = tokio::spawn({
        let cluster = cluster.clone();
        async move { cluster.converged(Generation(1)).await }
    });
    tokio::task::yield_now().await;
    cluster.shutdown(Shutdown::Detach).await.unwrap();
    let mut mailbox = Vec::new();
    while !matches!(mailbox.last(), Some(SupervisionEvent::ActorTerminated(..))) {
        mailbox.push(kept.recv().await.unwrap());
    }
    let answer = tokio::time::timeout(Duration::from_secs(60), waiting).await;
    assert_eq!(answer.expect("it is answered").unwrap(), Err(Stopped));
    drop(backend);
    until("the backend is freed", || Arc::strong_count(&token) == 1).await;
    drop(mailbox);
}

/// How long a call lingers that is to be caught lingering.
const LINGER: Duration = Duration::from_millis(300);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g32_a_detach_is_over_only_when_no_call_is_at_work_any_more() {
    let backend = Scripted::new([(CreateLease, Fault::Lingering(LINGER))]);
    let cluster = Cluster::spawn(config(3, backend.clone())).await.unwrap();
    backend.until_called(CreateLease, 3).await;
    assert!(backend.at_work.now() > 0);
    let state = cluster.shutdown(Shutdown::Detach).await.unwrap();
    assert_eq!((backend.at_work.now(), backend.watches.now()), (0, 0));
    assert!(state.nodes.iter().any(|(_, node)| node.pending.is_some()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g9_an_aborted_call_has_ended_before_its_end_is_told() {
    let backend = Scripted::new([(CreateLease, Fault::Lingering(LINGER))]);
    let mut policy = Policy::default();
    policy.operation_timeout = Duration::from_millis(50);
    policy.abort_grace = Duration::from_millis(20);
    policy.initial_delay = Duration::from_millis(10);
    policy.probe_interval = Duration::from_millis(10);
    let cluster = Cluster::spawn(config(1, backend.clone()).policy(policy))
        .await
        .unwrap();
    backend.until_called(FindLease, 1).await;
    assert!(backend.lingering.now() == 0, "the create is still at work");
    converge(&cluster, 1).await;
    cluster.shutdown(Shutdown::Drain).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn g31_a_child_that_dies_at_any_moment_of_the_start_takes_nothing_with_it() {
    for child in 0..3 {
        for turns in 0..60 {
            let backend = Scripted::new([]);
            let (parent, _heard) = Parent::spawn().await;
            let cluster = Cluster::spawn_linked(config(2, backend.clone()), parent.clone())
                .await
                .unwrap();
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
            if let Some(victim) = children(&parent).get(child) {
                victim.kill();
            }
            converge(&cluster, 1).await;
            let live = backend.memory.live();
            assert_eq!(live.len(), 2, "child {child} after {turns} turns: {live:?}");
            cluster.shutdown(Shutdown::Drain).await.unwrap();
            assert!(backend.memory.live().is_empty());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn g31_an_executor_that_dies_with_effects_in_its_mailbox_loses_no_node() {
    for turns in 0..12 {
        let backend = Scripted::new([]);
        let (parent, _heard) = Parent::spawn().await;
        let cluster = Cluster::spawn_linked(config(1, backend.clone()), parent.clone())
            .await
            .unwrap();
        converge(&cluster, 1).await;
        let update = tokio::spawn({
            let cluster = cluster.clone();
            async move { cluster.update(crate::support::shape(2, 3)).await }
        });
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
        children(&parent)[2].kill();
        let killed = tokio::time::Instant::now();
        update.await.unwrap().unwrap();
        converge(&cluster, 2).await;
        // What had not begun is refused at once; nobody waits for its deadline, two minutes later.
        assert!(killed.elapsed() < Duration::from_secs(60), "after {turns} turns");
        assert_eq!(backend.memory.live().len(), 3, "after {turns} turns");
        cluster.shutdown(Shutdown::Drain).await.unwrap();
    }
}

//! Sweeps, through the actors.

use std::num::NonZeroU32;
use std::sync::atomic::Ordering;
use std::time::Duration;

use nodewright::event::EventKind;
use nodewright::id::AttemptIdentity;
use nodewright::policy::Policy;
use nodewright::shape::Generation;
use nodewright::{Clock, Cluster, Heard, Shutdown};

use crate::support::{Parent, Scripted, children, config, converge};

/// The interval of sweeps, as the default policy has it.
const INTERVAL: Duration = Duration::from_secs(60);

fn first(backend: &Scripted) -> AttemptIdentity {
    backend.memory.live()[0].0.clone()
}

/// The attempts that live.
fn attempts(backend: &Scripted) -> Vec<u64> {
    let live = backend.memory.live().into_iter();
    live.map(|(identity, _)| identity.attempt.number()).collect()
}

#[tokio::test(start_paused = true)]
async fn g27_a_machine_that_dies_unseen_is_replaced_by_the_next_sweep() {
    let backend = Scripted::new([]).unwatched();
    let cluster = Cluster::spawn(config(2, backend.clone())).await.unwrap();
    converge(&cluster, 1).await;
    backend.memory.kill(&first(&backend));
    tokio::time::sleep(INTERVAL - Duration::from_secs(5)).await;
    assert_eq!(attempts(&backend), [1, 2], "nobody has noticed");
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(attempts(&backend), [3, 2]);
    converge(&cluster, 1).await;
    cluster.shutdown(Shutdown::Drain).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn g27_a_machine_that_was_deleted_by_hand_is_replaced_after_two_sweeps() {
    let backend = Scripted::new([]);
    let cluster = Cluster::spawn(config(2, backend.clone())).await.unwrap();
    converge(&cluster, 1).await;
    backend.memory.vanish(&first(&backend));
    tokio::time::sleep(INTERVAL + Duration::from_secs(5)).await;
    assert_eq!(attempts(&backend), [2]);
    tokio::time::sleep(INTERVAL).await;
    assert_eq!(attempts(&backend), [3, 2]);
    cluster.shutdown(Shutdown::Drain).await.unwrap();
}

/// One death that the watch, the application and a sweep tell of is one failure, and one new machine. Counted twice
/// it would halt the slot.
#[tokio::test(start_paused = true)]
async fn g27_a_death_that_all_three_sources_tell_of_counts_once() {
    let backend = Scripted::new([]);
    let mut policy = Policy::default();
    policy.attempt_limit = NonZeroU32::new(2);
    let config = config(2, backend.clone()).fresh().policy(policy);
    let mut events = config.subscribe();
    let cluster = Cluster::spawn(config).await.unwrap();
    converge(&cluster, 1).await;
    let dead = first(&backend);
    backend.memory.kill(&dead);
    let told = || cluster.lost(dead.node.clone(), dead.attempt, "the swarm misses it");
    told().unwrap();
    told().unwrap();
    let (swept, again) = tokio::join!(cluster.sweep(), async { told() });
    swept.unwrap();
    again.unwrap();
    converge(&cluster, 1).await;
    told().unwrap();
    tokio::time::sleep(2 * INTERVAL).await;
    assert_eq!(attempts(&backend), [3, 2]);
    cluster.shutdown(Shutdown::Drain).await.unwrap();
    let mut failed = 0;
    while let Some(heard) = events.recv().await {
        let Heard::Event(event) = heard else {
            panic!("events were missed")
        };
        failed += u32::from(matches!(event.kind, EventKind::AttemptFailed { .. }));
    }
    assert_eq!(failed, 1);
}

#[tokio::test(start_paused = true)]
async fn whoever_asks_for_a_sweep_is_told_what_it_showed_and_what_failed() {
    let backend = Scripted::new([]);
    let cluster = Cluster::spawn(config(2, backend.clone()).fresh()).await.unwrap();
    converge(&cluster, 1).await;
    assert_eq!(backend.looks.load(Ordering::SeqCst), 0);
    backend.memory.vanish(&first(&backend));
    let (one, other) = tokio::join!(cluster.sweep(), cluster.sweep());
    let (one, other) = (one.unwrap(), other.unwrap());
    assert_eq!(one, other);
    assert_eq!(
        backend.looks.load(Ordering::SeqCst),
        1,
        "one question answers both"
    );
    let findings = one.values().next().unwrap().clone().unwrap();
    assert_eq!((findings.listed, findings.missing), (1, 1));
    backend.broken_looks.store(1, Ordering::SeqCst);
    let failed = cluster.sweep().await.unwrap();
    assert!(failed.values().next().unwrap().is_err());
    let status = cluster.status().await.unwrap();
    assert!(status.providers[0].look_error.is_some());
    cluster.shutdown(Shutdown::Drain).await.unwrap();
    assert!(cluster.sweep().await.is_err());
}

/// G31: a sweep that died with its executor is asked again, and whoever waits for it is told.
#[tokio::test(start_paused = true)]
async fn g31_a_sweep_whose_executor_dies_is_told_as_failed_and_asked_again() {
    let backend = Scripted::new([]);
    let (parent, _heard) = Parent::spawn().await;
    let cluster = Cluster::spawn_linked(config(1, backend.clone()).fresh(), parent.clone())
        .await
        .unwrap();
    converge(&cluster, 1).await;
    let slow = Duration::from_secs(30);
    backend.slow_looks.store(1, Ordering::SeqCst);
    let asking = tokio::spawn({
        let cluster = cluster.clone();
        async move { cluster.sweep().await }
    });
    tokio::time::sleep(slow / 10).await;
    children(&parent)[2].kill();
    let answer = asking.await.unwrap().unwrap();
    assert!(answer.values().next().unwrap().is_err(), "{answer:?}");
    tokio::time::sleep(slow / 10).await;
    let status = cluster.status().await.unwrap();
    assert!(
        status.providers[0].swept.is_some(),
        "it was asked again: {status:?}"
    );
    cluster.shutdown(Shutdown::Drain).await.unwrap();
}

/// G3, G30: a day of nothing is a look a minute, and no call. Each look is one wake for its moment.
#[tokio::test(start_paused = true)]
async fn an_idle_day_is_a_look_a_minute_and_nothing_else() {
    let backend = Scripted::new([]);
    let cluster = Cluster::spawn(config(20, backend.clone()).fresh()).await.unwrap();
    converge(&cluster, 1).await;
    let calls = backend.calls().len();
    tokio::time::sleep(Duration::from_secs(24 * 3600)).await;
    assert_eq!(backend.calls().len(), calls);
    let looks = backend.looks.load(Ordering::SeqCst);
    assert!((24 * 60 - 2..=24 * 60).contains(&looks), "{looks}");
    assert!(cluster.status().await.unwrap().converged);
    cluster.shutdown(Shutdown::Drain).await.unwrap();
}

/// Time is read from the wall once and then only counted on: whatever that clock is set to, nothing expires and
/// nothing waits for it.
#[tokio::test(start_paused = true)]
async fn a_wall_clock_that_jumps_expires_nothing() {
    for wall in [
        "2000-01-01T00:00:00Z",
        "2030-01-01T00:00:00Z",
        "2200-01-01T00:00:00Z",
    ] {
        let clock = Clock::anchored(wall.parse().unwrap());
        let begun = clock.now();
        tokio::time::advance(INTERVAL).await;
        assert_eq!(clock.now(), begun.checked_add(INTERVAL).unwrap());
        let backend = Scripted::new([]);
        let cluster = Cluster::spawn(config(2, backend.clone()).fresh().clock(clock))
            .await
            .unwrap();
        cluster.converged(Generation(1)).await.unwrap();
        tokio::time::sleep(3 * INTERVAL).await;
        assert_eq!(attempts(&backend), [1, 2]);
        cluster.shutdown(Shutdown::Drain).await.unwrap();
    }
}

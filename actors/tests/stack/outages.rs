//! Providers and machines that go wrong for hours: what they cost, and that nothing is left in the end.

use std::num::NonZeroU32;
use std::sync::atomic::Ordering;
use std::time::Duration;

use nodewright::backoff;
use nodewright::effect::CommandKind::{
    self, CancelBootstrap, CreateLease, DestroyLease, LookupEndpoint, StartBootstrap,
};
use nodewright::effect::EffectError;
use nodewright::id::{NodeAttemptId, RunId};
use nodewright::pace::{PaceConfig, Rate};
use nodewright::policy::Policy;
use nodewright::{Cluster, Config, Shutdown};
use nodewright_backends::{JoinMode, MemoryBackend};
use tokio::time::{Instant, sleep};

use crate::support::{Fault, Made, Scripted, config, converge, node, shape};

const HOUR: Duration = Duration::from_secs(3600);

/// How many calls may be at work, as the default pace has it.
const PLACES: usize = 64;

/// The attempts that live.
fn attempts(backend: &Scripted) -> Vec<u64> {
    let live = backend.memory.live().into_iter();
    let mut attempts: Vec<u64> = live.map(|(identity, _)| identity.attempt.number()).collect();
    attempts.sort_unstable();
    attempts
}

/// Drains, and demands that nothing is left.
async fn drain(cluster: Cluster, backend: &Scripted) {
    let drained = tokio::time::timeout(2 * HOUR, cluster.shutdown(Shutdown::Drain)).await;
    drained.expect("a drain ends").unwrap();
    assert!(backend.memory.live().is_empty());
    assert!(backend.memory.sessions().is_empty());
}

/// How often an attempt of the one slot begins within this long, if each fails that long after it began and the
/// next begins when the backoff after it is over.
fn attempts_within(span: Duration, each_takes: Duration) -> usize {
    let (policy, run): (Policy, RunId) = (Policy::default(), "run".parse().unwrap());
    let mut begins = Duration::ZERO;
    let mut number = 0;
    while begins < span {
        number += 1;
        begins += each_takes + backoff(&policy, &run, NodeAttemptId::new(number), number as u32);
    }
    number as usize
}

/// What a provider in an outage of ten minutes, which answers every call with "slow down", is asked by a
/// thousand nodes.
struct Throttled {
    during: usize,
    after: Vec<Made>,
    ended: Instant,
    cluster: Cluster,
    backend: Scripted,
}

const OUTAGE: Duration = Duration::from_secs(600);

impl Throttled {
    async fn play(error: EffectError, pace: PaceConfig) -> Self {
        let backend = Scripted::new([]).latency(Duration::from_millis(100));
        let ended = Instant::now() + OUTAGE;
        backend.befall(None, Some(ended), Fault::Before(error));
        let config = Config::new(shape(1, 1000));
        let config = config.provider_at("memory".parse().unwrap(), backend.clone(), pace);
        let cluster = Cluster::spawn(config.fresh()).await.unwrap();
        converge(&cluster, 1).await;
        let (during, after): (Vec<Made>, Vec<Made>) =
            backend.made().into_iter().partition(|made| made.at < ended);
        Self {
            during: during.len(),
            after,
            ended,
            cluster,
            backend,
        }
    }

    /// When this many calls may be at work again, counted from the end of the outage.
    fn at_full_speed(&self) -> Duration {
        let full = self.after.iter().find(|made| made.answered + 1 >= PLACES);
        full.expect("there are thousands").at - self.ended
    }

    async fn end(self) {
        let every: Vec<u64> = (1..=1000).collect();
        assert_eq!(attempts(&self.backend), every, "no attempt failed for it");
        for made in &self.after {
            let most = PLACES.min(made.answered + 1);
            assert!(made.at_work <= most, "{made:?}");
        }
        let status = self.cluster.status().await.unwrap();
        assert_eq!(status.providers[0].places as usize, PLACES);
        drain(self.cluster, &self.backend).await;
    }
}

/// The crowds of the first seconds, each half of the one before, down to one call at a time.
const CROWDS: usize = 64 + 32 + 16 + 8 + 4 + 2;

#[tokio::test(start_paused = true)]
async fn a_provider_that_says_slow_down_for_ten_minutes_fails_nobody_and_is_asked_once_a_second() {
    let slow_down = EffectError::throttled("too many requests", None);
    let played = Throttled::play(slow_down, PaceConfig::default()).await;
    let most = CROWDS + OUTAGE.as_secs() as usize;
    assert!(
        played.during > most / 2 && played.during <= most,
        "{}",
        played.during
    );
    // One place more with each answer: the crowd doubles with each round of calls.
    assert!(
        played.at_full_speed() < Duration::from_secs(3),
        "{:?}",
        played.at_full_speed()
    );
    played.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_says_for_how_long_is_left_alone_for_as_long() {
    let slow_down = EffectError::throttled("too many requests", Some(Duration::from_secs(30)));
    let played = Throttled::play(slow_down, PaceConfig::default()).await;
    assert!(played.during <= CROWDS + 20, "{}", played.during);
    assert!(played.at_full_speed() < Duration::from_secs(33));
    played.end().await;
}

/// A rate is slowed down in the same measure: at one place of 64 ten calls a second are one in 6.4 seconds.
#[tokio::test(start_paused = true)]
async fn a_provider_with_a_rate_is_asked_at_a_64th_of_it_and_then_at_all_of_it() {
    let number = |number| NonZeroU32::new(number).unwrap();
    let pace = PaceConfig {
        max_in_flight: number(64),
        rate: Some(Rate {
            calls: number(10),
            per: Duration::from_secs(1),
            burst: number(10),
        }),
    };
    let slow_down = EffectError::throttled("too many requests", None);
    let played = Throttled::play(slow_down, pace).await;
    // Each crowd is what the rate of its moment lets through; none is more than a second's worth.
    let most = 7 * 10 + (OUTAGE.as_secs_f64() / 6.4).ceil() as usize;
    assert!(played.during <= most, "{}", played.during);
    assert!(
        played.at_full_speed() < Duration::from_secs(60),
        "{:?}",
        played.at_full_speed()
    );
    let seconds = |made: &Made| (made.at - played.ended).as_secs();
    let mut each = vec![0_u32; seconds(played.after.last().unwrap()) as usize + 1];
    played
        .after
        .iter()
        .for_each(|made| each[seconds(made) as usize] += 1);
    assert!(each.iter().all(|calls| *calls <= 20), "{each:?}");
    played.end().await;
}

/// What goes wrong with every attempt of the one slot.
async fn troubled(backend: &Scripted, span: Duration) -> Cluster {
    let cluster = Cluster::spawn(config(1, backend.clone()).fresh()).await.unwrap();
    sleep(span).await;
    assert!(
        backend.memory.live().len() <= 1,
        "never two of a slot: {:?}",
        attempts(backend)
    );
    cluster
}

fn counts(backend: &Scripted, kinds: [CommandKind; 4]) -> [usize; 4] {
    kinds.map(|kind| backend.count(kind))
}

#[tokio::test(start_paused = true)]
async fn a_bootstrap_that_stays_silent_is_ended_and_begun_again_with_backoff() {
    let memory = MemoryBackend::new().joins(JoinMode::Never);
    let backend = Scripted::over(memory);
    let cluster = troubled(&backend, HOUR).await;
    let begun = attempts_within(HOUR, Policy::default().stall_timeout);
    assert!((8..=12).contains(&begun), "{begun}");
    let made = counts(
        &backend,
        [CreateLease, StartBootstrap, CancelBootstrap, DestroyLease],
    );
    assert!(made[0] == begun && made[1] == begun, "{made:?}");
    assert!(made[2] <= begun && made[3] <= begun, "{made:?}");
    drain(cluster, &backend).await;
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_never_comes_is_asked_for_until_the_time_to_start_is_over() {
    let backend = Scripted::new([]).without_endpoints();
    let cluster = troubled(&backend, HOUR).await;
    let policy = Policy::default();
    let begun = attempts_within(HOUR, policy.startup_timeout);
    let made = counts(
        &backend,
        [CreateLease, LookupEndpoint, StartBootstrap, DestroyLease],
    );
    let most = (HOUR.as_secs() / policy.probe_interval.as_secs()) as usize;
    assert_eq!((made[0], made[2]), (begun, 0), "{made:?}");
    assert!(
        made[1] > most / 2 && made[1] <= most && made[3] <= begun,
        "{made:?}"
    );
    drain(cluster, &backend).await;
}

#[tokio::test(start_paused = true)]
async fn a_start_that_is_never_answered_ends_with_the_time_to_start() {
    let backend = Scripted::new([]);
    backend.befall(Some(StartBootstrap), None, Fault::Hang);
    let cluster = troubled(&backend, 2 * HOUR).await;
    let policy = Policy::default();
    let begun = attempts_within(2 * HOUR, policy.startup_timeout);
    let made = counts(
        &backend,
        [CreateLease, StartBootstrap, CancelBootstrap, DestroyLease],
    );
    let each = (policy.startup_timeout.as_secs() / policy.operation_timeout.as_secs()) as usize + 1;
    assert!(made[0] <= begun && made[0] + 1 >= begun, "{begun}: {made:?}");
    assert!(
        made[1] > begun && made[1] <= begun * each && made[3] <= begun,
        "{made:?}"
    );
    drain(cluster, &backend).await;
}

/// The session of a dead machine may be beyond reach: its lease is destroyed all the same.
#[tokio::test(start_paused = true)]
async fn a_cancel_that_always_fails_is_given_up_and_the_machine_is_destroyed() {
    let memory = MemoryBackend::new().joins(JoinMode::Never);
    let backend = Scripted::over(memory);
    let fails = Fault::Before(EffectError::definite("no route"));
    backend.befall(Some(CancelBootstrap), None, fails);
    let cluster = troubled(&backend, HOUR).await;
    let policy = Policy::default();
    let made = counts(
        &backend,
        [CreateLease, StartBootstrap, CancelBootstrap, DestroyLease],
    );
    let least = attempts_within(HOUR, policy.stall_timeout + 2 * policy.max_delay);
    assert!(made[0] >= least, "{made:?}, at least {least}");
    assert!(
        made[2] <= made[0] * policy.cancel_attempts as usize && made[3] + 1 >= made[0],
        "{made:?}"
    );
    drain(cluster, &backend).await;
}

#[tokio::test(start_paused = true)]
async fn a_destroy_that_fails_for_an_hour_is_asked_again_and_nothing_is_made_beside_it() {
    let backend = Scripted::new([]);
    let cluster = Cluster::spawn(config(1, backend.clone()).fresh()).await.unwrap();
    converge(&cluster, 1).await;
    let fails = Fault::Before(EffectError::definite("it is locked"));
    backend.befall(Some(DestroyLease), Some(Instant::now() + HOUR), fails);
    cluster.replace(&node("w-0")).await.unwrap();
    sleep(HOUR - Duration::from_secs(1)).await;
    assert_eq!(attempts(&backend), [1], "it lives, and nothing beside it");
    assert_eq!(backend.count(CreateLease), 1);
    let made = backend.count(DestroyLease);
    // A minute at most between two, and six shorter waits first.
    assert!((59..=68).contains(&made), "{made}");
    let kept = cluster.status().await.unwrap();
    assert_eq!(kept.deleting, 1);
    converge(&cluster, 1).await;
    assert_eq!(attempts(&backend), [2]);
    drain(cluster, &backend).await;
}

/// Renting machines for ever costs what the backoff allows, to the machine.
#[tokio::test(start_paused = true)]
async fn a_day_of_bootstraps_that_always_fail_makes_as_many_machines_as_the_backoff_allows() {
    let backend = Scripted::new([]);
    let fails = Fault::Before(EffectError::definite("no such program"));
    backend.befall(Some(StartBootstrap), None, fails);
    let day = 24 * HOUR;
    let cluster = troubled(&backend, day).await;
    let begun = attempts_within(day, Duration::ZERO);
    let made = counts(
        &backend,
        [CreateLease, StartBootstrap, CancelBootstrap, DestroyLease],
    );
    assert_eq!(made, [begun, begun, 0, begun]);
    assert!(
        backend.memory.live().is_empty(),
        "between two attempts nothing is kept"
    );
    drain(cluster, &backend).await;
}

/// G28: an API that answers "nothing" in an outage burns nobody down; what is missing for longer than the hold
/// is believed.
#[tokio::test(start_paused = true)]
async fn an_inventory_that_is_empty_for_five_minutes_replaces_nobody_and_one_that_stays_so_all() {
    let policy = Policy::default();
    let backend = Scripted::new([]);
    let cluster = Cluster::spawn(config(10, backend.clone()).fresh()).await.unwrap();
    converge(&cluster, 1).await;
    for outage in [1, 5] {
        backend.empty_looks.store(outage, Ordering::SeqCst);
        sleep(policy.sweep_interval * (outage as u32 + 2)).await;
        assert_eq!(backend.empty_looks.load(Ordering::SeqCst), 0);
        assert_eq!(attempts(&backend), (1..=10).collect::<Vec<u64>>());
        assert_eq!(backend.count(CreateLease), 10);
        let status = cluster.status().await.unwrap();
        assert!(status.converged && status.providers[0].mass_loss_since.is_none());
    }
    // One of ten is no mass.
    let gone = backend.memory.live()[3].0.clone();
    backend.memory.vanish(&gone);
    sleep(2 * policy.sweep_interval + Duration::from_secs(5)).await;
    assert_eq!(attempts(&backend), [1, 2, 3, 5, 6, 7, 8, 9, 10, 11]);
    for (identity, _) in backend.memory.live() {
        backend.memory.vanish(&identity);
    }
    sleep(policy.mass_loss_hold - Duration::from_secs(5)).await;
    assert!(attempts(&backend).is_empty());
    let status = cluster.status().await.unwrap();
    assert!(status.providers[0].mass_loss_since.is_some());
    sleep(2 * policy.sweep_interval).await;
    converge(&cluster, 1).await;
    assert_eq!(attempts(&backend), (12..=21).collect::<Vec<u64>>());
    drain(cluster, &backend).await;
}

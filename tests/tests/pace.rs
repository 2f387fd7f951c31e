//! Politeness: what a provider is asked at once, and who goes first.

use std::num::NonZeroU32;
use std::time::Duration;

use nodewright_conformance::{ByHand, group, policy, shape, template};
use nodewright_core::effect::{Command, EffectError, Outcome, PlannedEffect};
use nodewright_core::facts::AgentId;
use nodewright_core::id::BootstrapSessionId;
use nodewright_core::observation::Observation;
use nodewright_core::pace::PaceConfig;

fn places(count: u32) -> PaceConfig {
    PaceConfig {
        max_in_flight: NonZeroU32::new(count).unwrap(),
        rate: None,
    }
}

fn run(nodes: u32, count: u32) -> ByHand {
    let shape = shape(1, vec![group("w", nodes, template("alpha", "one"))]);
    ByHand::fresh(shape, policy(), places(count))
}

fn places_now(run: &ByHand) -> u32 {
    let alpha = "alpha".parse().unwrap();
    run.driver.state().providers[&alpha].pace.places()
}

/// Chapter 5: in flight is what is pending, and that never exceeds what is granted.
#[test]
fn no_more_is_in_flight_than_is_granted_and_a_freed_place_wakes_one() {
    let mut run = run(20, 4);
    let mut flying = run.drive();
    assert_eq!(flying.len(), 4);
    assert_eq!(run.driver.summary().waiting, 16);
    while !flying.is_empty() {
        let one = flying.remove(0);
        let _ = run.succeed(&one);
        let woken = run.drive();
        let all_ready = run.driver.summary().ready == 20;
        assert!(
            woken.len() == 1 || flying.len() < 4 || all_ready,
            "{} were woken",
            woken.len()
        );
        assert!(woken.len() <= 1, "{:?}", ByHand::text(&woken));
        flying.extend(woken);
        assert!(flying.len() <= 4 && run.driver.summary().pending <= 4);
    }
    assert!(run.driver.is_converged());
}

/// G18, G24: our own back-pressure never ends an attempt.
#[test]
fn waiting_for_a_place_does_not_count_for_getting_ready_in_time() {
    let mut run = run(2, 1);
    let create = run.drive();
    let _ = run.succeed(&create[0]);
    let ready_by = run.node("w-0").retry.ready_by.unwrap();
    let start = run.drive();
    let started = Outcome::BootstrapStarted(BootstrapSessionId(start[0].operation));
    let _ = run.answer(&start[0], started);
    // The other node's create takes the place. Now w-0 joins, and waits far longer than it may take to start.
    let hog = run.drive();
    assert_eq!(ByHand::text(&hog), ["w-1 2.1 create-lease"]);
    let joined = Observation::Joined(AgentId::new("w-0"));
    let _ = run.observe(&start[0].node, start[0].operation.attempt, &joined);
    run.drive();
    assert_eq!(run.driver.summary().waiting, 1);
    let since = run.now;
    run.pass(3600);
    let waiting = run.node("w-0").retry.waiting_since;
    assert!(
        waiting.is_some() && run.node("w-0").failure.is_none(),
        "{:?}",
        run.node("w-0")
    );
    let _ = run.succeed(&hog[0]);
    let next = run.drive();
    let moved = run.node("w-0").retry.ready_by.unwrap().duration_since(ready_by);
    let waited = run.now.duration_since(since.max(waiting.unwrap()));
    assert!(moved >= waited, "it waited {waited:?}, and got {moved:?}");
    let _ = run.succeed(&next[0]);
    run.succeed_all();
    assert_eq!(run.driver.summary().ready, 2);
    assert_eq!(run.node("w-0").retry.failed_attempts, 0);
}

/// Chapter 5: a throttle halves the places once for one crowd; each success adds one.
#[test]
fn a_throttled_provider_is_asked_less_and_recovers() {
    let mut run = run(40, 16);
    let flying = run.drive();
    assert_eq!(flying.len(), 16);
    for effect in &flying {
        let _ = run.fail(
            effect,
            EffectError::throttled("slow down", Some(Duration::from_secs(30))),
        );
    }
    assert_eq!(places_now(&run), 8);
    assert!(
        run.drive().is_empty(),
        "nothing is sent before the moment that was asked for"
    );
    assert!(run.pass(29).is_empty());
    let flying = run.pass(1);
    assert_eq!(flying.len(), 8);
    for (done, effect) in (1..).zip(&flying) {
        let _ = run.succeed(effect);
        assert_eq!(places_now(&run), 8 + done);
    }
    run.succeed_all();
    assert_eq!((places_now(&run), run.driver.summary().ready), (16, 40));
}

/// Chapters 4 and 5: another grant is taken at once, and what a provider asked for holds in the next process.
#[test]
fn a_restored_process_with_another_grant_keeps_to_the_slow_down() {
    let mut first = run(40, 16);
    for effect in &first.drive() {
        let slow = EffectError::throttled("slow down", Some(Duration::from_secs(30)));
        let _ = first.fail(effect, slow);
    }
    let setup = ByHand::setup(places(8), true);
    let wanted = shape(1, vec![group("w", 40, template("alpha", "one"))]);
    let state = first.driver.state().clone();
    let mut run = ByHand::restored(state, wanted, policy(), [("alpha", setup)], first.now);
    assert_eq!(places_now(&run), 8);
    let alpha = "alpha".parse().unwrap();
    let pace = |run: &ByHand| run.driver.state().providers[&alpha].pace.clone();
    assert_eq!(pace(&run).not_before(), pace(&first).not_before());
    assert!(run.drive().is_empty());
    assert!(run.pass(29).is_empty());
    assert_eq!(run.pass(1).len(), 8);
}

/// Chapter 5: cleanup first, then nodes that hold a lease, then creation, each with its share.
#[test]
fn while_all_classes_wait_none_takes_more_than_its_share() {
    let mut run = run(48, 16);
    run.succeed_all();
    // Half of it goes; of the rest, that many new ones get a lease first, then more are to be made.
    let groups = |old: u32, new: u32| {
        let old = group("w", old, template("alpha", "one"));
        shape(2, vec![old, group("x", new, template("alpha", "one"))])
    };
    run.driver.update_desired(groups(48, 16), run.now).unwrap();
    let creates = run.drive();
    assert_eq!(creates.len(), 16);
    let mut next = groups(16, 48);
    next.generation.0 = 3;
    run.driver.update_desired(next, run.now).unwrap();
    run.drive();
    for effect in &creates {
        let _ = run.succeed(effect);
    }
    let count = |sent: &[PlannedEffect], is: fn(&Command) -> bool| {
        sent.iter().filter(|effect| is(&effect.command)).count()
    };
    let sent = run.drive();
    assert_eq!(sent.len(), 16);
    assert_eq!(
        count(&sent, |command| matches!(command, Command::DestroyLease(_))),
        12
    );
    assert_eq!(
        count(&sent, |command| matches!(command, Command::StartBootstrap(_))),
        3
    );
    assert_eq!(
        count(&sent, |command| matches!(command, Command::CreateLease(_))),
        1
    );
    // Cleanup holds its share: while the others wait, whatever they free is theirs.
    let others = sent
        .iter()
        .filter(|effect| !matches!(effect.command, Command::DestroyLease(_)));
    for effect in others {
        let _ = run.succeed(effect);
    }
    let sent = run.drive();
    assert_eq!(sent.len(), 4);
    assert_eq!(
        count(&sent, |command| matches!(command, Command::DestroyLease(_))),
        0
    );
}

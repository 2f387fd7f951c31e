//! "Failure, by operation": every kind of failure of every command, wherever it may be under way.

use super::*;
use crate::effect::FailureKind;

/// What became of the samples' pending operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Definite,
    Ambiguous,
    /// Asking for half a minute.
    Throttled,
    Fatal,
    /// The submission was refused.
    Refused,
}

const KINDS: [Kind; 5] = [
    Kind::Definite,
    Kind::Ambiguous,
    Kind::Throttled,
    Kind::Fatal,
    Kind::Refused,
];

fn observation(kind: Kind) -> Observation {
    let [definite, ambiguous, throttled, fatal] = errors();
    let error = match kind {
        Kind::Definite => definite,
        Kind::Ambiguous => ambiguous,
        Kind::Throttled => throttled,
        Kind::Fatal => fatal,
        Kind::Refused => {
            return Observation::Refused {
                operation: operation(10),
                reason: "restarting".into(),
            };
        }
    };
    result(Outcome::Failed(error))
}

/// What a failure leaves, in the terms of the table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Left {
    /// Seconds until the next effect.
    wait: Option<i64>,
    /// Counted failures of that command.
    counted: u32,
    /// Seconds by which `ready_by` moved.
    moved: i64,
    failed_cancels: u32,
    remembered: bool,
    failed: bool,
    halted: bool,
    handed_off: bool,
}

/// Folds a failure into a node, compares what it left, and that everything else was kept.
#[track_caller]
fn check(node: &ManagedNode, kind: Kind, expected: Left) {
    let command = node.pending.as_ref().unwrap().kind;
    let after = see(node, &observation(kind));
    let throttled = matches!(after.signal, Some(PaceSignal::Throttled { .. }));
    assert_eq!(
        throttled,
        kind == Kind::Throttled,
        "the whole provider slows down"
    );
    let after = after.applied();
    let memory = |node: &ManagedNode| match command {
        CommandKind::StartBootstrap => node.retry.start.clone(),
        _ => node.retry.create.clone(),
    };
    let seconds_between = |later: Option<Timestamp>, earlier: Option<Timestamp>| {
        later
            .zip(earlier)
            .map(|(later, earlier)| later.as_second() - earlier.as_second())
    };
    let left = Left {
        wait: seconds_between(after.retry.next_effect_at, Some(at(NOW))),
        counted: after.retry.failures.get(&command).copied().unwrap_or(0)
            - node.retry.failures.get(&command).copied().unwrap_or(0),
        moved: seconds_between(after.retry.ready_by, node.retry.ready_by).unwrap_or(0),
        failed_cancels: after.retry.failed_cancels - node.retry.failed_cancels,
        remembered: memory(&after) == Some(remembered(10, Some(NOW))),
        failed: after.stage == Stage::Failed && node.stage != Stage::Failed,
        halted: after.retry.halted.is_some() && node.retry.halted.is_none(),
        handed_off: after.ready && !node.ready,
    };
    assert_eq!(
        left, expected,
        "{command} {kind:?}, {:?} {:?}",
        node.intent, node.stage
    );
    assert_eq!(after.pending, None);
    assert_eq!(
        (&after.lease, &after.endpoint, &after.bootstrap, &after.join),
        (&node.lease, &node.endpoint, &node.bootstrap, &node.join),
        "facts are kept"
    );
    assert_eq!(after.intent, node.intent);
    if !expected.failed && !expected.handed_off {
        assert_eq!((after.stage, after.ready), (node.stage, node.ready));
        assert_eq!(after.active_bootstrap, node.active_bootstrap);
    }
    if !expected.remembered {
        assert_eq!(
            memory(&after),
            memory(node),
            "no failure settles what is remembered"
        );
    }
    assert_eq!(
        after.retry.failed_attempts,
        node.retry.failed_attempts + u32::from(expected.failed)
    );
}

fn waits(seconds: i64) -> Left {
    Left {
        wait: Some(seconds),
        ..Left::default()
    }
}

fn counted(left: Left) -> Left {
    Left { counted: 1, ..left }
}

const NOTHING: Left = Left {
    wait: None,
    counted: 0,
    moved: 0,
    failed_cancels: 0,
    remembered: false,
    failed: false,
    halted: false,
    handed_off: false,
};

/// The wait of what is nobody's fault moves the startup deadline along.
fn unpunished(kind: Kind, leased: bool) -> Left {
    let wait = if kind == Kind::Throttled { 30 } else { 1 };
    Left {
        moved: if leased { wait } else { 0 },
        ..waits(wait)
    }
}

#[test]
fn an_active_create_is_retried_remembered_waited_for_or_halts_the_slot() {
    for kind in KINDS {
        let expected = match kind {
            Kind::Definite => counted(waits(1)),
            Kind::Ambiguous => Left {
                remembered: true,
                ..NOTHING
            },
            Kind::Fatal => Left {
                halted: true,
                ..NOTHING
            },
            Kind::Throttled | Kind::Refused => unpunished(kind, false),
        };
        check(&creating(), kind, expected);
    }
}

#[test]
fn an_active_look_up_keeps_everything_and_is_retried() {
    for (node, leased) in [
        (finding(Some(0)), false),
        (busy(leased(), LookupEndpoint), true),
        (busy(joined_node(), ObserveConvergence), true),
    ] {
        for kind in KINDS {
            let expected = match kind {
                Kind::Definite | Kind::Ambiguous | Kind::Fatal => counted(waits(1)),
                Kind::Throttled | Kind::Refused => unpunished(kind, leased),
            };
            check(&node, kind, expected);
        }
    }
}

#[test]
fn an_active_start_fails_the_attempt_unless_something_may_have_happened() {
    for kind in KINDS {
        let expected = match kind {
            Kind::Definite => Left {
                failed: true,
                ..NOTHING
            },
            Kind::Ambiguous => Left {
                remembered: true,
                ..counted(waits(1))
            },
            Kind::Fatal => Left {
                failed: true,
                halted: true,
                ..NOTHING
            },
            Kind::Throttled | Kind::Refused => unpunished(kind, true),
        };
        check(&busy(reachable(), StartBootstrap), kind, expected);
    }
}

#[test]
fn cleanup_keeps_its_facts_and_is_retried() {
    let memory = busy(deleting(fresh()), FindLease).but(|node| node.retry.create = Some(remembered(9, None)));
    for (node, cancels) in [
        (memory, 0),
        (busy(deleting(running()), CancelBootstrap), 1),
        (busy(deleting(running()), DestroyLease), 0),
    ] {
        for kind in KINDS {
            let expected = match kind {
                Kind::Definite | Kind::Ambiguous | Kind::Fatal => Left {
                    failed_cancels: cancels,
                    ..counted(waits(1))
                },
                Kind::Throttled | Kind::Refused => unpunished(kind, false),
            };
            check(&node, kind, expected);
        }
    }
}

#[test]
fn what_began_before_the_deletion_sets_no_wait_and_only_an_ambiguity_is_kept() {
    for node in [
        creating(),
        finding(Some(0)),
        busy(leased(), LookupEndpoint),
        busy(reachable(), StartBootstrap),
        busy(joined_node(), ObserveConvergence),
    ] {
        let command = node.pending.as_ref().unwrap().kind;
        for kind in KINDS {
            let remembers = matches!(command, CreateLease | StartBootstrap);
            let expected = Left {
                remembered: kind == Kind::Ambiguous && remembers,
                ..NOTHING
            };
            check(&deleting(node.clone()), kind, expected);
        }
    }
}

#[test]
fn a_failed_attempt_neither_fails_again_nor_halts() {
    for (node, leased) in [
        (failed(creating()), false),
        (failed(busy(reachable(), StartBootstrap)), true),
    ] {
        for kind in KINDS {
            let expected = match kind {
                Kind::Definite | Kind::Fatal => NOTHING,
                // A wait that is set here goes with the deletion that follows.
                Kind::Ambiguous => Left {
                    remembered: true,
                    ..NOTHING
                },
                Kind::Throttled | Kind::Refused => unpunished(kind, leased),
            };
            check(&node, kind, expected);
        }
    }
}

#[test]
fn once_ready_a_late_failure_only_clears_the_pending_operation() {
    for node in [dormant(), handed_off()] {
        for command in [StartBootstrap, ObserveConvergence] {
            for kind in KINDS {
                // A session that may live is remembered all the same, to be cancelled one day.
                let unsure =
                    command == StartBootstrap && kind == Kind::Ambiguous && node.active_bootstrap.is_none();
                let expected = Left {
                    remembered: unsure,
                    ..NOTHING
                };
                check(&busy(node.clone(), command), kind, expected);
            }
        }
    }
}

#[test]
fn once_joined_a_start_that_came_to_nothing_ends_in_the_handoff() {
    let early = busy(reachable(), StartBootstrap).but(|node| node.join = Some(join()));
    for kind in KINDS {
        let after = see(&early, &observation(kind)).applied();
        assert_eq!((after.stage, after.ready), (Stage::Dormant, true), "{kind:?}");
        assert_eq!(after.failure, None);
        assert_eq!(after.retry.start.is_some(), kind == Kind::Ambiguous);
    }
}

#[test]
fn a_remembered_ambiguity_outlives_every_later_failure() {
    // Whatever becomes of a later create, the earlier one may still come through.
    let again = creating().but(|node| node.retry.create = Some(remembered(9, Some(0))));
    let unsure =
        busy(reachable(), StartBootstrap).but(|node| node.retry.start = Some(remembered(9, Some(0))));
    for phase in [|node| node, failed, deleting] {
        for kind in KINDS {
            let last = if kind == Kind::Ambiguous {
                remembered(10, Some(NOW))
            } else {
                remembered(9, Some(0))
            };
            let after = see(&phase(again.clone()), &observation(kind)).applied();
            assert_eq!(after.retry.create, Some(last.clone()), "create {kind:?}");
            let after = see(&phase(unsure.clone()), &observation(kind)).applied();
            assert_eq!(after.retry.start, Some(last), "start {kind:?}");
        }
    }
    for kind in KINDS {
        let after = see(&finding(Some(0)), &observation(kind)).applied();
        assert_eq!(after.retry.create, Some(remembered(9, Some(0))), "find {kind:?}");
    }
}

#[test]
fn a_fatal_create_halts_for_its_spec_and_one_that_comes_too_late_halts_nothing() {
    let after = see(&creating(), &observation(Kind::Fatal)).applied();
    let halt = after.retry.halted.unwrap();
    assert_eq!(halt.spec, Some(template("plain").digest()));
    assert_eq!(halt.reason, "fatal".into());
    let after = see(&deleting(creating()), &observation(Kind::Fatal)).applied();
    assert_eq!(after.retry.halted, None);
    assert_eq!(after.retry.last_error, Some("fatal".into()));
}

#[test]
fn failures_of_one_command_double_its_wait_and_a_success_of_another_kind_forgets_nothing() {
    for (before, wait) in [(0, 1), (1, 2), (3, 8), (9, 60), (u32::MAX, 60)] {
        let node = creating().but(|node| {
            node.retry.failures.insert(CreateLease, before);
        });
        let after = see(&node, &observation(Kind::Definite)).applied();
        assert_eq!(after.retry.next_effect_at, Some(at(NOW + wait)));
    }
    let node = busy(leased(), LookupEndpoint).but(|node| {
        node.retry.failures.insert(CreateLease, 4);
        node.retry.failures.insert(LookupEndpoint, 4);
    });
    let after = answer(&node, Outcome::EndpointFound(None)).applied();
    assert_eq!(after.retry.failures.get(&CreateLease), Some(&4));
    assert_eq!(after.retry.failures.get(&LookupEndpoint), None);
}

#[test]
fn a_throttle_waits_between_the_initial_delay_and_the_longest_throttle() {
    for (asked, waited) in [(None, 1), (Some(0), 1), (Some(30), 30), (Some(86_400), 600)] {
        let error = EffectError::throttled("slow", asked.map(seconds));
        assert!(matches!(error.kind, FailureKind::Throttled { .. }));
        let after = fails(&creating(), error);
        let Some(PaceSignal::Throttled {
            dispatched_at,
            resume_at,
        }) = after.signal
        else {
            panic!("no signal");
        };
        assert_eq!((dispatched_at, resume_at), (at(NOW - 10), at(NOW + waited)));
        assert_eq!(after.applied().retry.next_effect_at, Some(at(NOW + waited)));
    }
}

#[test]
fn a_refusal_is_no_failure_however_often_it_comes() {
    let mut node = busy(reachable(), StartBootstrap);
    for round in 1..=50 {
        node = see(&node, &observation(Kind::Refused)).applied();
        assert_eq!(node.retry.next_effect_at, Some(at(NOW + 1)));
        assert_eq!(node.retry.ready_by, Some(at(NOW + 900 + round)));
        assert_eq!((node.stage, node.retry.failures.len()), (Stage::EndpointKnown, 0));
        node = busy(node, StartBootstrap);
    }
}

use proptest::prelude::*;

use super::*;
use crate::effect::{Destroyed, FailureKind};
use crate::facts::{LeaseFacts, LeaseId};

fn effect(node: &str, operation: &str, command: Command) -> PlannedEffect {
    PlannedEffect {
        node: node.parse().unwrap(),
        provider: "memory".parse().unwrap(),
        operation: operation.parse().unwrap(),
        command,
    }
}

fn find(operation: &str) -> PlannedEffect {
    effect("w-0", operation, Command::FindLease)
}

fn destroy(operation: &str) -> PlannedEffect {
    let lease = Arc::new(LeaseFacts::new(LeaseId::new("m")));
    effect("w-0", operation, Command::DestroyLease(lease))
}

fn op(operation: &str) -> OperationId {
    operation.parse().unwrap()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

const ABSENT: Outcome = Outcome::LeaseFound(None);

/// A ledger in which this operation runs.
fn running(operation: &str) -> Ledger {
    let mut ledger = Ledger::new();
    assert_eq!(ledger.submit(&find(operation)), Verdict::Run);
    ledger
}

/// A ledger in which this operation was answered at second 1.
fn finished(operation: &str) -> Ledger {
    let mut ledger = running(operation);
    reported(ledger.complete(op(operation), ABSENT, at(1)));
    ledger
}

/// A ledger in which the call of this operation could not be ended.
fn unended(operation: &str) -> Ledger {
    let mut ledger = running(operation);
    assert_eq!(expire(&mut ledger, operation), Expiry::Cancel);
    let result = ledger.abandoned(op(operation)).unwrap();
    assert!(is_ambiguous(&result.outcome) && result.end == CallEnd::Unknown);
    ledger
}

fn reported(completion: Completion) -> EffectResult {
    match completion {
        Completion::Report(result) => result,
        other => panic!("nothing to report: {other:?}"),
    }
}

fn expire(ledger: &mut Ledger, operation: &str) -> Expiry {
    ledger.expire(&"w-0".parse().unwrap(), op(operation), at(100))
}

fn is_ambiguous(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed(error) if error.kind == FailureKind::Ambiguous)
}

#[test]
fn a_new_operation_of_an_idle_attempt_runs() {
    let mut ledger = finished("1.1");
    assert_eq!(ledger.submit(&find("1.2")), Verdict::Run);
    assert_eq!(ledger.latest(NodeAttemptId::FIRST), Some(op("1.2")));
    assert_eq!(ledger.len(), 1);
}

#[test]
fn the_same_operation_while_it_runs_is_accepted_and_starts_nothing() {
    let mut ledger = running("1.1");
    assert_eq!(ledger.submit(&find("1.1")), Verdict::AlreadyRunning);
    assert_eq!(expire(&mut ledger, "1.1"), Expiry::Cancel);
    assert_eq!(ledger.submit(&find("1.1")), Verdict::AlreadyRunning);
}

#[test]
fn the_same_operation_once_finished_is_answered_as_before() {
    let mut ledger = finished("1.1");
    let Verdict::Replay(result) = ledger.submit(&find("1.1")) else {
        panic!()
    };
    assert_eq!(
        result,
        EffectResult {
            node: "w-0".parse().unwrap(),
            operation: op("1.1"),
            outcome: ABSENT,
            end: CallEnd::At(at(1)),
        }
    );
    assert_eq!(ledger.running().count(), 0);
}

#[test]
fn the_same_operation_with_another_input_is_refused() {
    for mut ledger in [running("1.1"), finished("1.1")] {
        let refused = Verdict::Refused(Refusal::DifferentInput(op("1.1")));
        let before = ledger.clone();
        assert_eq!(ledger.submit(&destroy("1.1")), refused);
        let elsewhere = effect("w-1", "1.2", Command::FindLease);
        assert_eq!(ledger.submit(&elsewhere), refused, "an attempt has one slot");
        assert_eq!(ledger, before);
    }
}

#[test]
fn an_older_operation_than_the_latest_is_refused() {
    for mut ledger in [running("1.2"), finished("1.2")] {
        let refused = Verdict::Refused(Refusal::OlderSequence(op("1.2")));
        assert_eq!(ledger.submit(&find("1.1")), refused);
    }
}

#[test]
fn nothing_else_runs_while_a_call_of_the_attempt_is_at_work() {
    let mut expired = running("1.1");
    assert_eq!(expire(&mut expired, "1.1"), Expiry::Cancel);
    for mut ledger in [running("1.1"), expired, unended("1.1")] {
        let busy = Verdict::Refused(Refusal::Busy(op("1.1")));
        assert_eq!(ledger.submit(&find("1.2")), busy);
        assert_eq!(ledger.submit(&destroy("1.2")), busy);
        assert_eq!(ledger.running().collect::<Vec<_>>(), [op("1.1")]);
        let _ = ledger.ended(op("1.1"), at(7));
        assert_eq!(ledger.submit(&find("1.2")), Verdict::Run);
    }
}

#[test]
fn an_older_attempt_of_the_slot_is_refused_but_for_its_cleanup() {
    let mut ledger = finished("2.1");
    let older = Verdict::Refused(Refusal::OlderAttempt(NodeAttemptId::new(2)));
    assert_eq!(ledger.submit(&find("1.1")), older);
    assert_eq!(
        ledger.submit(&effect("w-0", "1.1", Command::CancelBootstrap)),
        older
    );
    assert_eq!(
        ledger.submit(&effect("w-1", "1.1", Command::FindLease)),
        Verdict::Run
    );

    let mut ledger = finished("2.1");
    assert_eq!(ledger.submit(&destroy("1.1")), Verdict::Run);
}

#[test]
fn a_newer_orphan_does_not_lock_out_the_node_of_its_slot() {
    let mut ledger = finished("2.1");
    assert_eq!(ledger.submit(&destroy("9.1")), Verdict::Run);
    assert_eq!(ledger.submit(&find("2.2")), Verdict::Run);
}

#[test]
fn an_answer_after_the_expiry_is_discarded_and_its_moment_kept() {
    let mut ledger = running("1.1");
    assert_eq!(expire(&mut ledger, "1.1"), Expiry::Cancel);
    assert_eq!(expire(&mut ledger, "1.1"), Expiry::Ending);
    let result = reported(ledger.complete(op("1.1"), ABSENT, at(103)));
    assert!(is_ambiguous(&result.outcome), "{result:?}");
    assert_eq!(result.end, CallEnd::At(at(103)));
    assert_eq!(ledger.submit(&find("1.1")), Verdict::Replay(result.clone()));
    assert_eq!(expire(&mut ledger, "1.1"), Expiry::Settled(result));
}

#[test]
fn an_expiry_that_meets_an_answer_reports_the_answer() {
    let mut ledger = finished("1.1");
    let Expiry::Settled(result) = expire(&mut ledger, "1.1") else {
        panic!()
    };
    assert_eq!(result.outcome, ABSENT);
    assert_eq!(result.end, CallEnd::At(at(1)));
}

#[test]
fn the_expiry_of_an_operation_that_nobody_knows_is_ambiguous() {
    for mut ledger in [Ledger::new(), finished("1.2"), running("1.2")] {
        let before = ledger.clone();
        let Expiry::Settled(result) = expire(&mut ledger, "1.1") else {
            panic!()
        };
        assert!(is_ambiguous(&result.outcome));
        assert_eq!(result.end, CallEnd::At(at(100)));
        assert_eq!(ledger, before);
    }
}

#[test]
fn a_call_that_cannot_be_ended_holds_its_attempt_until_its_end_is_told() {
    let mut ledger = unended("1.1");
    let Verdict::Replay(result) = ledger.submit(&find("1.1")) else {
        panic!()
    };
    assert_eq!(result.end, CallEnd::Unknown);
    assert_eq!(ledger.abandoned(op("1.1")), None, "it is reported once");
    let ended = Completion::EndedLate {
        node: "w-0".parse().unwrap(),
        operation: op("1.1"),
        at: at(900),
    };
    assert_eq!(ledger.complete(op("1.1"), ABSENT, at(900)), ended);
    assert_eq!(ledger.complete(op("1.1"), ABSENT, at(901)), Completion::Stale);
    let Verdict::Replay(result) = ledger.submit(&find("1.1")) else {
        panic!()
    };
    assert!(is_ambiguous(&result.outcome));
    assert_eq!(result.end, CallEnd::At(at(900)));
}

#[test]
fn only_a_call_that_was_to_be_ended_can_be_abandoned() {
    for mut ledger in [running("1.1"), finished("1.1")] {
        assert_eq!(ledger.abandoned(op("1.1")), None);
        assert_eq!(ledger.abandoned(op("1.2")), None);
    }
}

#[test]
fn a_call_whose_task_vanished_is_ambiguous() {
    let mut ledger = running("1.1");
    let result = reported(ledger.ended(op("1.1"), at(5)));
    assert!(is_ambiguous(&result.outcome));
    assert_eq!(ledger.ended(op("1.1"), at(6)), Completion::Stale);
    assert_eq!(ledger.ended(op("8.1"), at(6)), Completion::Stale);
}

#[test]
fn a_retired_attempt_is_forgotten_once_nothing_of_it_is_at_work() {
    let mut ledger = finished("1.1");
    ledger.retire(NodeAttemptId::FIRST);
    assert_eq!(ledger, Ledger::new());

    let mut ledger = running("1.1");
    ledger.retire(NodeAttemptId::FIRST);
    assert_eq!(
        ledger.submit(&destroy("1.2")),
        Verdict::Refused(Refusal::Busy(op("1.1")))
    );
    assert_eq!(
        reported(ledger.complete(op("1.1"), ABSENT, at(1))).outcome,
        ABSENT
    );
    assert_eq!(ledger, Ledger::new());

    let mut ledger = unended("1.1");
    ledger.retire(NodeAttemptId::FIRST);
    assert_eq!(ledger.len(), 1);
    assert!(matches!(
        ledger.ended(op("1.1"), at(1)),
        Completion::EndedLate { .. }
    ));
    assert_eq!(ledger, Ledger::new());
}

#[test]
fn a_new_executor_ends_what_runs_repeats_what_is_known_and_refuses_the_rest() {
    let mut ledger = running("1.1");
    let gone = Outcome::LeaseDestroyed(Destroyed::Gone);
    assert_eq!(ledger.submit(&destroy("2.1")), Verdict::Run);
    let answered = reported(ledger.complete(op("2.1"), gone, at(2)));
    let restart = ledger.executor_restarted([op("1.1"), op("2.1"), op("2.2"), op("3.1")]);
    assert_eq!(
        restart,
        Restart {
            end: vec![op("1.1")],
            report: vec![answered],
            refused: vec![op("2.2"), op("3.1")],
        }
    );
    let result = reported(ledger.complete(op("1.1"), ABSENT, at(3)));
    assert!(is_ambiguous(&result.outcome));
    assert_eq!(ledger.submit(&destroy("2.2")), Verdict::Run);
}

#[test]
fn a_ledger_reads_back_from_its_json() {
    let mut ledger = unended("1.1");
    assert_eq!(ledger.submit(&destroy("2.1")), Verdict::Run);
    let text = serde_json::to_string(&ledger).unwrap();
    assert_eq!(serde_json::from_str::<Ledger>(&text).unwrap(), ledger);
}

/// What may befall a ledger, over two slots with four attempts each.
#[derive(Debug, Clone)]
enum Step {
    Submit {
        attempt: u64,
        sequence: u32,
        cleanup: bool,
    },
    Complete(usize),
    Vanish(usize),
    Expire {
        attempt: u64,
        sequence: u32,
    },
    Abandon {
        attempt: u64,
        sequence: u32,
    },
    Retire(u64),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let submit = (1..9_u64, 1..5_u32, any::<bool>());
    prop_oneof![
        6 => submit.prop_map(|(attempt, sequence, cleanup)| Step::Submit { attempt, sequence, cleanup }),
        3 => any::<usize>().prop_map(Step::Complete),
        1 => any::<usize>().prop_map(Step::Vanish),
        2 => (1..9_u64, 1..5_u32).prop_map(|(attempt, sequence)| Step::Expire { attempt, sequence }),
        2 => (1..9_u64, 1..5_u32).prop_map(|(attempt, sequence)| Step::Abandon { attempt, sequence }),
        1 => (1..9_u64).prop_map(Step::Retire),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    /// The model knows only what the world knows: which calls were made and have not ended.
    #[test]
    fn at_most_one_call_of_an_attempt_is_at_work_and_the_size_follows_what_lives(
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut ledger = Ledger::new();
        let mut at_work: Vec<OperationId> = Vec::new();
        let mut live: BTreeSet<NodeAttemptId> = BTreeSet::new();
        let mut calls: BTreeSet<OperationId> = BTreeSet::new();
        let id = |attempt, sequence| OperationId { attempt: NodeAttemptId::new(attempt), sequence };
        let node = |attempt: u64| -> LogicalNodeId { format!("w-{}", attempt % 2).parse().unwrap() };
        for (second, step) in steps.into_iter().enumerate() {
            let now = at(second as i64);
            match step {
                Step::Submit { attempt, sequence, cleanup } => {
                    let mut effect = if cleanup { destroy("1.1") } else { find("1.1") };
                    effect.node = node(attempt);
                    effect.operation = id(attempt, sequence);
                    if ledger.submit(&effect) == Verdict::Run {
                        let busy = at_work.iter().any(|other| other.attempt == effect.operation.attempt);
                        prop_assert!(!busy, "{} beside another", effect.operation);
                        // A retired attempt is forgotten, so only of a live one each call is made once.
                        let made_before = !calls.insert(effect.operation);
                        prop_assert!(!made_before, "{} was called twice", effect.operation);
                        at_work.push(effect.operation);
                        live.insert(effect.operation.attempt);
                    }
                }
                Step::Complete(which) | Step::Vanish(which) if !at_work.is_empty() => {
                    let operation = at_work.remove(which % at_work.len());
                    let completion = if matches!(step, Step::Complete(_)) {
                        ledger.complete(operation, ABSENT, now)
                    } else {
                        ledger.ended(operation, now)
                    };
                    prop_assert_ne!(completion, Completion::Stale, "an end of {} is news", operation);
                }
                Step::Complete(_) | Step::Vanish(_) => {}
                Step::Expire { attempt, sequence } => {
                    let operation = id(attempt, sequence);
                    let expiry = ledger.expire(&node(attempt), operation, now);
                    if expiry == Expiry::Cancel {
                        prop_assert!(at_work.contains(&operation));
                    }
                }
                Step::Abandon { attempt, sequence } => {
                    if ledger.abandoned(id(attempt, sequence)).is_some() {
                        prop_assert!(at_work.contains(&id(attempt, sequence)));
                    }
                }
                Step::Retire(attempt) => {
                    let attempt = NodeAttemptId::new(attempt);
                    ledger.retire(attempt);
                    live.remove(&attempt);
                    calls.retain(|call| call.attempt != attempt);
                }
                Step::Restart => {
                    let restart = ledger.executor_restarted([]);
                    prop_assert!(restart.end.iter().all(|operation| at_work.contains(operation)));
                }
            }
            let mut expected = at_work.clone();
            expected.sort();
            prop_assert_eq!(ledger.running().collect::<Vec<_>>(), expected);
            let mut known: BTreeSet<_> = at_work.iter().map(|operation| operation.attempt).collect();
            known.extend(&live);
            prop_assert_eq!(ledger.attempts.keys().copied().collect::<BTreeSet<_>>(), known);
            let indexed: usize = ledger.slots.values().map(BTreeSet::len).sum();
            prop_assert!(indexed <= ledger.len() && ledger.slots.values().all(|slot| !slot.is_empty()));
        }
    }
}

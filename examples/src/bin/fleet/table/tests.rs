//! The table as a person sees it.

use std::sync::Arc;

use nodewright::decide::WaitReason;
use nodewright::effect::CommandKind;
use nodewright::shape::Generation;
use nodewright::status::{Awaited, NodeStatus, Trouble, Why};

use super::*;
use crate::board::tests::{at, creating, ready, unsettled, waiting};
use crate::condition::Standing;
use crate::condition::tests::provider;

const USUAL: Terminal = Terminal {
    rows: 24,
    columns: 80,
    colour: false,
};

/// A board of these slots, first seen at second 0 and looked at in second 4.
fn board(slots: Vec<NodeStatus>) -> Board {
    let mut board = Board::new(Generation(2), slots.len() as u64);
    board.look(slots, at(0));
    board
}

fn shown(board: &Board, terminal: Terminal) -> Vec<String> {
    let lines = lines(board, terminal, at(4));
    assert!(lines.len() <= terminal.height(), "{lines:#?}");
    for line in &lines {
        assert!(measure_text_width(line) <= terminal.columns, "{line}");
    }
    lines
}

/// Compares with what stands between the quotes, line by line.
fn assert_shows(lines: &[String], expected: &str) {
    let lines: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
    let text = lines.join("\n");
    assert_eq!(text, expected.trim_matches('\n'), "shown is:\n{text}\n");
}

fn awaited(group: &str, slots: u64, trouble: Option<(&str, &str)>) -> Awaited {
    Awaited {
        group: group.parse().unwrap(),
        slots,
        trouble: trouble.map(|(node, error)| Trouble {
            node: node.parse().unwrap(),
            halted: true,
            error: error.into(),
        }),
    }
}

fn behind(groups: Vec<Awaited>, reason: WaitReason) -> Why {
    Why::WaitingFor {
        reason,
        until: None,
        groups,
    }
}

#[test]
fn a_small_cluster_shows_each_slot_that_is_not_settled_and_why() {
    let board = board(vec![
        ready("store-0", 1),
        unsettled(
            "store-1",
            2,
            Stage::BootstrapRunning,
            waiting(WaitReason::Bootstrap, Some(34)),
        ),
        unsettled("store-2", 12, Stage::LeaseRequested, creating(12, 3, 34)),
        unsettled(
            "workers-0",
            3,
            Stage::New,
            behind(vec![awaited("store", 2, None)], WaitReason::Dependencies),
        ),
        ready("gateway-0", 4),
    ]);
    assert_shows(
        &shown(&board, USUAL),
        "
██████████░░░░░░░░░░░░░░░░ 2/5 ready, generation 2
1 new, 1 lease-requested, 1 bootstrap-running, 2 dormant
slot      attempt stage             in stage  waits for
store-1         2 bootstrap-running      4 s  its bootstrap, until +30 s
store-2        12 lease-requested        4 s  create-lease 12.3, 4 s of 34 s
workers-0       3 new                    4 s  store
gateway  1/1 ready
store    1/3 ready, 1 creating, 1 booting
workers  0/1 ready, 1 waiting for store
",
    );
}

#[test]
fn a_provider_that_is_slowed_down_is_a_line_of_its_own_that_counts_down() {
    let mut board = board(vec![ready("store-0", 1)]);
    board.providers = vec![Standing::of(&provider(16, Some(9)), at(4))];
    assert_shows(
        &shown(&board, USUAL),
        "
██████████████████████████ 1/1 ready, generation 2
1 dormant
process: slowed down to 16 of 64 calls; asked nothing until +5 s
store  1/1 ready
",
    );
    assert!(board.tick(at(4)).is_some());
    // It is the first to give way, after all that is not settled.
    assert_eq!(shown(&board, Terminal { rows: 3, ..USUAL }).len(), 2);
}

#[test]
fn when_all_is_ready_each_group_is_one_line() {
    let mut slots: Vec<_> = (0..3).map(|n| ready(&format!("store-{n}"), n)).collect();
    slots.extend((0..200).map(|n| ready(&format!("workers-{n}"), 10 + n)));
    assert_shows(
        &shown(&board(slots), USUAL),
        "
██████████████████████████ 203/203 ready, generation 2
203 dormant
store    3/3 ready
workers  200/200 ready
",
    );
}

#[test]
fn of_a_thousand_nodes_those_in_trouble_come_first_and_the_rest_is_counted() {
    let node = |n: u64| {
        let name = format!("workers-{n}");
        match n {
            0..10 => unsettled(
                &name,
                n,
                Stage::New,
                behind(vec![awaited("store", 1, None)], WaitReason::Dependencies),
            ),
            10..59 => unsettled(&name, n, Stage::LeaseRequested, creating(n, 1, 34)),
            59 => NodeStatus {
                failed_attempts: 2,
                last_error: Some("no machine of this kind is left".into()),
                ..unsettled(&name, n, Stage::Destroyed, waiting(WaitReason::Restart, Some(7)))
            },
            _ => ready(&name, n),
        }
    };
    let lines = shown(&board((0..1000).map(node).collect()), USUAL);
    assert_shows(
        &lines[..6],
        "
████████████████████████░░ 940/1000 ready, generation 2
10 new, 49 lease-requested, 940 dormant, 1 destroyed
slot       attempt stage           in stage  waits for
workers-59      59 destroyed            4 s  backs off until +3 s: no machine o…
workers-10      10 lease-requested      4 s  create-lease 10.1, 4 s of 34 s
workers-11      11 lease-requested      4 s  create-lease 11.1, 4 s of 34 s
",
    );
    assert_shows(
        &lines[lines.len() - 3..],
        "
workers-22      22 lease-requested      4 s  create-lease 22.1, 4 s of 34 s
… and 46 more that are not settled
workers  940/1000 ready, 1 backing off, 49 creating, 10 waiting for store
",
    );
    assert_eq!(lines.len(), USUAL.height());
}

#[test]
fn what_is_halted_or_faulty_stands_above_all_and_who_waits_for_it_says_so() {
    let halted = Why::Halted {
        reason: "image does not exist".into(),
    };
    let faulty = Why::Faulty {
        fault: "the clock stands at the end of time".to_owned(),
    };
    let trouble = Some(("store-1", "image does not exist"));
    let behind = behind(
        vec![awaited("broker", 1, None), awaited("store", 1, trouble)],
        WaitReason::Dependencies,
    );
    let board = board(vec![
        unsettled("broker-0", 1, Stage::LeaseRequested, creating(1, 1, 34)),
        unsettled("store-0", 2, Stage::LeaseCreated, faulty),
        unsettled("store-1", 3, Stage::Destroyed, halted),
        unsettled("workers-0", 4, Stage::New, behind),
    ]);
    assert_shows(
        &shown(
            &board,
            Terminal {
                columns: 110,
                ..USUAL
            },
        ),
        "
░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░ 0/4 ready, generation 2
1 new, 1 lease-requested, 1 lease-created, 1 destroyed
slot      attempt stage           in stage  waits for
store-0         2 lease-created        4 s  faulty: the clock stands at the end of time
store-1         3 destroyed            4 s  halted: image does not exist
broker-0        1 lease-requested      4 s  create-lease 1.1, 4 s of 34 s
workers-0       4 new                  4 s  broker, store (store-1 is halted: image does not exist)
broker   0/1 ready, 1 creating
store    0/2 ready, 1 halted, 1 faulty
workers  0/1 ready, 1 waiting for broker, store
",
    );
}

#[test]
fn going_down_says_who_goes_first() {
    let up = behind(vec![awaited("workers", 2, None)], WaitReason::Dependents);
    let going = NodeStatus {
        deleting: true,
        ..unsettled("workers-1", 2, Stage::Dormant, Why::Acting)
    };
    let store = NodeStatus {
        ready: true,
        ..unsettled("store-0", 1, Stage::Dormant, up)
    };
    assert_shows(
        &shown(&board(vec![store, going]), USUAL),
        "
█████████████░░░░░░░░░░░░░ 1/2 ready, generation 2
2 dormant
slot      attempt stage   in stage  waits for
workers-1       2 dormant      4 s  its next step
store-0         1 dormant      4 s  workers to go
store    1/1 ready, 1 waiting for workers to go
workers  0/1 ready, 1 going
",
    );
}

#[test]
fn an_empty_cluster_and_one_that_nobody_looked_at_yet_are_shown_too() {
    assert_shows(
        &shown(&Board::new(Generation(2), 0), USUAL),
        "
░░░░░░░░░░░░░░░░░░░░░░░░░░ 0/0 ready, generation 2
nothing is there
",
    );
    let unlooked = NodeStatus {
        attempt: None,
        stage: None,
        ..unsettled("w-0", 1, Stage::New, waiting(WaitReason::FirstLook, None))
    };
    assert_shows(
        &shown(&board(vec![unlooked]), USUAL),
        "
░░░░░░░░░░░░░░░░░░░░░░░░░░ 0/1 ready, generation 2
1 empty
slot attempt stage in stage  waits for
w-0        - empty      4 s  the first look
w  0/1 ready, 1 waiting for the first look
",
    );
}

#[test]
fn of_many_groups_the_unsettled_ones_are_shown_and_the_rest_is_summed_up() {
    let mut slots: Vec<_> = (0..40).map(|n| ready(&format!("g{n:02}-0"), n)).collect();
    slots.push(unsettled("g99-0", 99, Stage::LeaseRequested, creating(99, 1, 34)));
    let lines = shown(&board(slots), USUAL);
    assert_shows(
        &lines[2..6],
        "
slot  attempt stage           in stage  waits for
g99-0      99 lease-requested      4 s  create-lease 99.1, 4 s of 34 s
g99  0/1 ready, 1 creating
g00  1/1 ready
",
    );
    assert_eq!(lines.last().unwrap(), "… and 27 more groups: 27/27 ready");
    assert_eq!(lines.len(), USUAL.height());
}

#[test]
fn whatever_is_said_and_however_small_the_terminal_no_line_is_too_wide_and_none_too_many() {
    let said: Arc<str> = "機械が見つかりません 🚀\u{1b}[2J\r\n\ttwo lines".into();
    let name = format!("{}-4294967295", "long-".repeat(12) + "er");
    let wait = waiting(WaitReason::Backoff(CommandKind::CreateLease), Some(100));
    let mut slots = vec![NodeStatus {
        last_error: Some(said.clone()),
        ..unsettled(&name, u64::MAX, Stage::BootstrapRunning, wait)
    }];
    slots.extend((0..30).map(|n| {
        let why = Why::Halted { reason: said.clone() };
        unsettled(&format!("g{n}-0"), n, Stage::Destroyed, why)
    }));
    let board = board(slots);
    for rows in 1..40 {
        for columns in 1..120 {
            for colour in [false, true] {
                let terminal = Terminal {
                    rows,
                    columns,
                    colour,
                };
                for line in shown(&board, terminal) {
                    let plain = console::strip_ansi_codes(&line).into_owned();
                    assert!(!plain.contains(char::is_control), "{line:?}");
                    assert!(colour || plain == line, "{line:?}");
                }
            }
        }
    }
}

#[test]
fn long_times_are_told_in_the_unit_that_tells_most() {
    use crate::wording::span;
    let told: Vec<String> = [-1, 0, 59, 60, 3599, 3600, 90_000].map(span).into();
    assert_eq!(told, ["0 s", "0 s", "59 s", "1 min", "59 min", "1 h", "25 h"]);
}

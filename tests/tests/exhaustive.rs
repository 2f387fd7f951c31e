//! Small clusters, exhaustively: every interleaving up to the bounds that stand here.
//!
//! `NODEWRIGHT_STATES=more` raises the bounds; see the module `exhaustive` for what both visit.

use std::num::NonZeroU32;
use std::time::Duration;

use nodewright_conformance::exhaustive::{Budget, Setup, explore};
use nodewright_conformance::{group, template};
use nodewright_core::shape::NodeGroupSpec;

/// Whether the bounds are the wide ones.
fn more() -> bool {
    std::env::var("NODEWRIGHT_STATES").is_ok_and(|which| which == "more")
}

/// Anything may go wrong or be asked for, so often in all.
fn anything(total: u8) -> Budget {
    Budget::of(total)
        .calls(total)
        .throttles(total)
        .fatals(total)
        .streams(total)
        .reports(total)
        .losses(total)
        .executors(total)
        .processes(total)
        .journals(total)
        .looks(total)
        .shapes(total)
        .hands(total)
}

/// These counts of a group, made from these images.
fn workers(variants: &[(u32, &str)]) -> Vec<Vec<NodeGroupSpec>> {
    let shape = |(count, image): &(u32, &str)| vec![group("w", *count, template("alpha", image))];
    variants.iter().map(shape).chain([Vec::new()]).collect()
}

/// One slot, whose count and template change, and whose group leaves.
fn one_slot(name: &'static str, budget: Budget) -> Setup {
    let mut setup = Setup::new(name, budget);
    setup.shapes = workers(&[(1, "one"), (1, "two"), (0, "one")]);
    setup
}

/// Explores a cluster, and prints what was visited.
#[expect(clippy::print_stdout, reason = "how much was visited is what one runs it for")]
fn visit(setup: Setup, least: usize) {
    let name = setup.name;
    let visited = explore(setup).unwrap_or_else(|broken| panic!("{broken}"));
    println!("{name}: {visited}");
    assert!(
        visited.states >= least,
        "{name}: {visited}, and {least} states were to be visited at least"
    );
}

#[test]
fn one_slot_holds_whatever_goes_wrong_twice() {
    visit(one_slot("anything twice", anything(2)), 85_000);
}

/// What is visited does not depend on which of two states that are one is met first.
#[test]
fn the_order_of_the_search_leaves_no_trace() {
    let asked = Budget::of(2)
        .losses(1)
        .strays(1)
        .moves(1)
        .looks(1)
        .shapes(1)
        .sweeps(2);
    let mut at_rest = swept(one_slot("swept both ways", asked));
    at_rest.settled = true;
    for setup in [one_slot("both ways", anything(2)), at_rest] {
        let visited = [false, true].map(|backwards| {
            let mut setup = setup.clone();
            setup.backwards = backwards;
            explore(setup).unwrap_or_else(|broken| panic!("{broken}"))
        });
        let [one, other] = visited.map(|visited| (visited.states, visited.calm, visited.steps, visited.most));
        assert_eq!(one, other, "{}", setup.name);
    }
}

#[test]
fn one_slot_holds_when_one_pass_sees_several_reports() {
    let mut setup = one_slot("passes apart", anything(2));
    setup.passes_apart = true;
    visit(setup, 210_000);
}

#[test]
fn one_slot_holds_when_endpoints_are_looked_up_and_calls_cannot_be_ended() {
    let mut setup = one_slot("blocking calls", anything(2));
    setup.abortable = false;
    setup.endpoint_at_once = false;
    visit(setup, 130_000);
}

#[test]
fn one_slot_holds_when_sessions_report_more_than_their_joins() {
    let mut setup = one_slot(
        "chatty sessions",
        Budget::of(2).calls(1).streams(2).reports(2).losses(1),
    );
    setup.stages = true;
    setup.passes_apart = true;
    visit(setup, 60_000);
}

#[test]
fn one_slot_holds_through_three_attempts() {
    let budget = Budget::of(3)
        .calls(2)
        .fatals(1)
        .throttles(1)
        .streams(2)
        .losses(2)
        .shapes(2)
        .hands(1)
        .processes(1);
    let budget = if more() { anything(3) } else { budget };
    visit(one_slot("three attempts", budget), 1_100_000);
}

#[test]
fn one_slot_holds_when_a_state_that_lags_behind_is_taken_back() {
    let budget = Budget::of(if more() { 4 } else { 3 })
        .calls(1)
        .losses(1)
        .shapes(1)
        .hands(1)
        .looks(1);
    visit(
        one_slot("a lagging state", budget.journals(1).processes(2)),
        1_400_000,
    );
}

#[test]
fn two_slots_hold_whatever_goes_wrong_once() {
    let mut setup = Setup::new("two slots", anything(if more() { 2 } else { 1 }));
    setup.shapes = workers(&[(2, "one"), (2, "two"), (1, "one")]);
    visit(setup, 140_000);
}

#[test]
fn two_slots_hold_when_their_provider_is_asked_one_thing_at_a_time() {
    let mut setup = Setup::new("one place", anything(if more() { 2 } else { 1 }));
    setup.shapes = workers(&[(2, "one"), (2, "two"), (1, "one")]);
    setup.pace.max_in_flight = NonZeroU32::MIN;
    visit(setup, 40_000);
}

/// Group `b` depends on group `a`. Their templates change, `b` leaves, and both leave.
#[test]
fn two_groups_hold_and_keep_their_order() {
    let one = |name: &str, image| group(name, 1, template("alpha", image));
    let on_top = |image| NodeGroupSpec {
        depends_on: ["a".parse().expect("a name")].into(),
        ..one("b", image)
    };
    let budget = Budget::of(2)
        .calls(1)
        .fatals(1)
        .streams(1)
        .losses(1)
        .shapes(2)
        .processes(1);
    let budget = if more() { anything(2) } else { budget };
    let mut setup = Setup::new("two groups", budget);
    setup.shapes = vec![
        vec![one("a", "one"), on_top("one")],
        vec![one("a", "two"), on_top("one")],
        vec![one("a", "one"), on_top("two")],
        vec![one("a", "one")],
        vec![],
    ];
    visit(setup, 600_000);
}

/// A cluster whose provider is swept. Any two moments part two questions.
fn swept(mut setup: Setup) -> Setup {
    setup.sweeps = true;
    setup.visibility = Duration::from_secs(1);
    setup.policy.probe_interval = Duration::from_secs(1);
    setup.policy.sweep_interval = Duration::from_secs(2);
    setup
}

/// Nobody tells of machines that die, vanish or move, nor of those that turn up: sweeps find out.
#[test]
fn one_slot_holds_when_only_sweeps_tell() {
    let budget = Budget::of(2)
        .calls(1)
        .losses(1)
        .moves(1)
        .strays(1)
        .looks(1)
        .shapes(1)
        .processes(1);
    let budget = if more() {
        anything(2).moves(1).strays(2)
    } else {
        budget
    };
    visit(swept(one_slot("swept", budget.sweeps(2))), 200_000);
}

/// The same of a slot that is at rest, where more may go wrong.
#[test]
fn one_slot_at_rest_holds_when_only_sweeps_tell() {
    let budget = Budget::of(3).losses(2).moves(1).strays(1).looks(2).shapes(1);
    let budget = if more() {
        budget.calls(1).processes(1)
    } else {
        budget
    };
    let mut setup = swept(one_slot("swept at rest", budget.sweeps(2)));
    setup.settled = true;
    visit(setup, 280_000);
}

/// Endpoints are looked up, calls go on for ever, and moments lie too close to one another to part questions.
#[test]
fn one_slot_holds_when_questions_lie_close_together() {
    let budget = Budget::of(if more() { 3 } else { 2 })
        .calls(1)
        .losses(1)
        .moves(1)
        .strays(1)
        .looks(1)
        .sweeps(2);
    let mut setup = one_slot("close questions", budget);
    setup.sweeps = true;
    setup.policy.sweep_interval = Duration::from_secs(6);
    setup.abortable = false;
    setup.endpoint_at_once = false;
    visit(setup, 100_000);
}

/// The provider has outages in which it answers that nothing is there.
#[test]
fn two_slots_hold_through_an_outage_that_answers_with_nothing() {
    let budget = Budget::of(if more() { 4 } else { 3 })
        .losses(1)
        .looks(2)
        .sweeps(3);
    let mut setup = swept(Setup::new("an outage", budget));
    setup.shapes = workers(&[(2, "one")]);
    setup.policy.max_lost_least = 2;
    setup.policy.mass_loss_hold = Duration::from_secs(5);
    setup.settled = true;
    visit(setup, 13_000);
}

//! The ends of numbers and of time, what is found and what is left behind, and how much is kept.

use super::*;
use crate::effect::{Inventory, InventoryEntry};
use crate::id::AttemptIdentity;
use crate::inventory::Findings;
use crate::shape::ShapeLimits;

#[test]
fn g19_without_an_attempt_left_existing_nodes_go_on_and_nothing_spins() {
    let mut rig = Rig::converged(&[("w", 2, "plain")]);
    rig.driver.state.next_attempt_id = Some(NodeAttemptId::new(u64::MAX));
    rig.update(2, &[("w", 4, "plain")]);
    // The last one is used, too.
    let create = rig.sends_one("w-2", CreateLease);
    assert_eq!(create.operation.attempt.number(), u64::MAX);
    assert_eq!(rig.driver.state().next_attempt_id, None);
    rig.succeed(&create);
    rig.settle();
    assert_eq!(rig.attempts(), [1, 2, u64::MAX]);
    assert_eq!(rig.driver.requeue_at(), None);
    // What lives can be lost and is taken down; it only gets no successor.
    assert_eq!(rig.lose("w-0"), Folded::Applied);
    let destroy = rig.sends_one("w-0", DestroyLease);
    rig.succeed(&destroy);
    rig.settle();
    rig.pass_time(3600);
    for _ in 0..3 {
        rig.driver.trigger();
        let report = rig.driver.drive(rig.now, &mut rig.tape);
        assert_eq!((report.effects, report.passes), (0, 0));
    }
    assert_eq!(rig.node("w-0").stage, Stage::Destroyed);
    assert!(rig.node("w-1").ready);
    rig.update(3, &[("w", 1, "plain")]);
    rig.settle();
    assert_eq!(rig.attempts(), [1]);
}

#[test]
fn g19_at_the_ends_of_time_nothing_panics_and_nothing_spins() {
    for now in [
        Timestamp::MIN,
        Timestamp::MAX,
        at(Timestamp::MAX.as_second() - 60),
    ] {
        let mut rig = Rig::new(&[("w", 2, "plain")]);
        rig.now = now;
        for _ in 0..20 {
            for effect in rig.drive() {
                assert_eq!(now, Timestamp::MIN, "no deadline can be stored: {effect:?}");
                rig.succeed(&effect);
            }
        }
        if now == Timestamp::MIN {
            assert!(rig.driver.is_converged());
        } else {
            assert_eq!(rig.errors, [NodeFault::MomentOutOfRange; 2], "said once of each");
            assert_eq!(rig.driver.requeue_at(), None);
        }
        let mut due = Vec::new();
        rig.driver.due_operations(Timestamp::MAX, &mut due);
        // A clock that is set right lets everything go on.
        rig.now = at(5000);
        rig.driver.trigger();
        rig.settle();
        assert!(rig.driver.is_converged());
    }
}

#[test]
fn g19_an_attempt_with_its_sequences_used_up_is_still_found_to_be_overdue() {
    let mut rig = Rig::new(&[("w", 1, "plain")]);
    let create = rig.sends_one("w-0", CreateLease);
    rig.succeed(&create);
    let slot = rig.driver.state.nodes.slot(&id("w-0")).unwrap();
    rig.driver
        .change(slot, |node, _, _| node.next_sequence = u32::MAX);
    rig.sends(&[]);
    assert_eq!(rig.errors, [NodeFault::SequencesExhausted]);
    assert_eq!(rig.requeue(), 900);
    rig.sends(&[]);
    assert_eq!(rig.node("w-0").stage, Stage::Failed);
}

#[test]
fn g19_a_count_at_the_limit_is_accepted_and_one_more_is_not() {
    let limit = u32::try_from(ShapeLimits::default().max_nodes).unwrap();
    let driver = |count| ClusterDriver::new(shape(1, &[("w", count, "plain")]), policy(), setups(64));
    assert!(matches!(driver(limit + 1), Err(DriverError::Shape { .. })));
    assert!(matches!(driver(u32::MAX), Err(DriverError::Shape { .. })));
    let driver = driver(limit).unwrap();
    assert_eq!(driver.summary().desired, u64::from(limit));
}

#[test]
fn g30_after_thousands_of_replacements_nothing_has_grown() {
    let mut rig = Rig::converged(&[("w", 2, "plain")]);
    let size = |rig: &Rig| {
        let index = &rig.driver.index;
        [
            index.wakes.len(),
            index.operations.len(),
            index.orphan_wakes.len(),
            index.orphan_operations.len(),
        ]
    };
    let text = serde_json::to_string(rig.driver.state()).unwrap().len();
    for round in 0..2000_u64 {
        match round % 3 {
            0 => assert!(rig.driver.replace(&id("w-0"))),
            1 => assert_eq!(rig.lose("w-1"), Folded::Applied),
            _ => rig.update(
                2 + round,
                &[("w", 2, if round % 2 == 0 { "other" } else { "plain" })],
            ),
        }
        rig.settle();
        for _ in 0..20 {
            if rig.driver.is_converged() {
                break;
            }
            rig.requeue();
            rig.settle();
        }
        assert!(rig.driver.is_converged());
        assert!(
            size(&rig).into_iter().all(|len| len <= 2 * 2 + 64 + 2),
            "{:?}",
            size(&rig)
        );
    }
    let index = &rig.driver.index;
    assert!(index.dirty.len() + index.touched.len() + index.errors.len() + rig.driver.events.len() == 0);
    assert!(
        index
            .lanes
            .values()
            .all(|lane| lane.queue.is_empty() && lane.holding == [0; 3])
    );
    assert!(rig.driver.retired.is_empty());
    // Longer numbers are all that is left of it.
    assert!(serde_json::to_string(rig.driver.state()).unwrap().len() < text + 100);
    let live: BTreeSet<u64> = rig.attempts().into_iter().collect();
    let retired: BTreeSet<u64> = rig.tape.retired.iter().map(|attempt| attempt.number()).collect();
    assert_eq!(retired.len(), rig.tape.retired.len(), "each is retired once");
    let next = rig.driver.state().next_attempt_id.unwrap().number();
    assert_eq!(
        retired.union(&live).count() as u64,
        next - 1,
        "and all but the live ones are"
    );
}

#[test]
fn g30_slots_that_are_gone_take_no_room() {
    let mut rig = Rig::converged(&[("w", 500, "plain")]);
    rig.update(2, &[("w", 1, "plain")]);
    rig.settle();
    assert!(rig.driver.is_converged());
    let slots = |rig: &Rig| rig.driver.index.slots.room(0);
    assert_eq!(slots(&rig), 1);
    // What was found far beyond any count, likewise.
    for index in [7_000, 4_000_000_000_u32] {
        rig = found(&mut rig, &[(&format!("w-{index}"), 900, "far")]).0;
        rig.settle();
        assert!(rig.driver.is_converged());
        assert_eq!(slots(&rig), 1);
    }
}

/// The machines as a provider lists them.
fn listing(machines: &[(&str, u64, &str)]) -> Inventory {
    let entry = |(node, attempt, name): &(&str, u64, &str)| InventoryEntry {
        identity: AttemptIdentity {
            run: RunId::new("r").unwrap(),
            node: id(node),
            attempt: NodeAttemptId::new(*attempt),
        },
        lease: lease(name),
        endpoint: None,
        alive: true,
    };
    Inventory {
        entries: machines.iter().map(entry).collect(),
    }
}

/// Restores the driver where its provider lists these machines as well.
fn found(rig: &mut Rig, machines: &[(&str, u64, &str)]) -> (Rig, Findings) {
    let mut setup = setup(64);
    setup.fresh = false;
    let setups = [("fake".parse().unwrap(), setup)].into();
    let state = rig.driver.state().clone();
    let shape = rig.driver.desired().shape().clone();
    let driver = ClusterDriver::restore(state, shape, policy(), setups, rig.now).unwrap();
    let mut rig = Rig {
        now: rig.now,
        ..Rig::around(driver)
    };
    let kind = "fake".parse().unwrap();
    let mut findings = Findings::default();
    for _ in 0..2 {
        let look = rig.driver.due_looks(rig.now).remove(0);
        let answer = rig
            .driver
            .inventory(&kind, look.asked, rig.now, Ok(listing(machines)), rig.now);
        if findings == Findings::default() {
            findings = answer;
        }
        rig.pass_time(VISIBILITY);
    }
    assert!(rig.driver.due_looks(rig.now).is_empty(), "the look is done");
    (rig, findings)
}

#[test]
fn a_first_look_holds_everything_back_and_raises_the_allocator() {
    let mut setup = setup(64);
    setup.fresh = false;
    let setups = [("fake".parse().unwrap(), setup)].into();
    let mut rig = Rig::around(ClusterDriver::new(shape(1, &[("w", 2, "plain")]), policy(), setups).unwrap());
    rig.sends(&[]);
    assert!(rig.driver.state().nodes.is_empty());
    let kind: ProviderKind = "fake".parse().unwrap();
    let look = rig.driver.due_looks(rig.now).remove(0);
    assert!(
        rig.driver.due_looks(rig.now).is_empty(),
        "each once until it is answered"
    );
    let asked_at = rig.now;
    // A failure concludes nothing and is asked again with backoff.
    let error = Err(EffectError::ambiguous("no answer"));
    let _ = rig.driver.inventory(&kind, look.asked, asked_at, error, rig.now);
    rig.sends(&[]);
    assert_eq!(rig.requeue(), 1);
    let look = rig.driver.due_looks(rig.now).remove(0);
    let seen = Ok(listing(&[("w-1", 40, "m")]));
    let _ = rig.driver.inventory(&kind, look.asked, rig.now, seen, rig.now);
    // It is repeated once a create of the process before can no longer come through; meanwhile what was found
    // goes, and nothing is filled.
    let destroy = rig.sends_one("w-1", DestroyLease);
    assert_eq!(destroy.operation.attempt.number(), 40);
    rig.succeed(&destroy);
    rig.sends(&[]);
    assert_eq!(rig.requeue(), VISIBILITY as i64);
    let look = rig.driver.due_looks(rig.now).remove(0);
    let _ = rig
        .driver
        .inventory(&kind, look.asked, rig.now, Ok(listing(&[])), rig.now);
    rig.sends(&[("w-0", CreateLease), ("w-1", CreateLease)]);
    assert_eq!(rig.attempts(), [41, 42]);
}

#[test]
fn of_several_machines_of_one_slot_that_a_first_look_shows_the_highest_attempt_becomes_the_node() {
    let mut rig = Rig::converged(&[("w", 1, "plain")]);
    let machines = [("w-5", 30, "low"), ("w-5", 31, "high"), ("w-5", 31, "surplus")];
    let (mut rig, findings) = found(&mut rig, &machines);
    assert_eq!(
        (findings.found, findings.orphans),
        (1, 2),
        "one sighting is enough"
    );
    assert_eq!(rig.node("w-5").attempt.number(), 31);
    assert_eq!(rig.driver.summary().orphans, 2);
    rig.settle();
    assert!(rig.driver.is_converged());
    assert!(rig.driver.state().orphans.is_empty());
    assert_eq!(rig.attempts(), [1]);
}

#[test]
fn a_machine_of_an_attempt_that_records_none_is_looked_for_before_anything_is_made() {
    let mut rig = Rig::new(&[("w", 1, "plain")]);
    // The process before crashed with a create that its journal does not know of.
    rig.tape.refuses = true;
    rig.sends_one("w-0", CreateLease);
    let (mut rig, findings) = found(&mut rig, &[("w-0", 1, "m-1")]);
    assert_eq!((findings.found, findings.orphans), (0, 0));
    let find = rig.sends_one("w-0", FindLease);
    rig.succeed(&find);
    rig.settle();
    assert!(rig.driver.is_converged() && rig.driver.state().orphans.is_empty());
    assert_eq!(rig.attempts(), [1]);
}

#[test]
fn what_a_process_left_is_kept_and_its_calls_are_remembered() {
    // One node per state of affairs: ready, joined, awaiting the join, creating, starting.
    let mut rig = Rig::new(&[("w", 5, "plain")]);
    let sent = rig.drive();
    for effect in &sent[..3] {
        rig.succeed(effect);
    }
    rig.succeed(&sent[4]);
    for effect in rig.drive() {
        rig.succeed(&effect);
    }
    let starts = rig.drive();
    rig.succeed(&starts[0]);
    rig.succeed(&starts[1]);
    assert_eq!(rig.answer(&starts[2], success(&starts[2])), Folded::Applied);
    rig.see(&starts[2], 1, StreamEvent::Closed);
    let observes = rig.drive();
    rig.succeed(&observes[0]);
    rig.sends(&[]);

    let state = rig.driver.state().clone();
    let wanted = shape(1, &[("w", 5, "plain")]);
    let now = rig.now.checked_add(seconds(3600)).unwrap();
    let driver = ClusterDriver::restore(state, wanted, policy(), setups(64), now).unwrap();
    let mut rig = Rig {
        now,
        ..Rig::around(driver)
    };
    assert!(rig.node("w-0").ready);
    assert_eq!(
        (rig.node("w-1").stage, rig.node("w-1").ready),
        (Stage::Dormant, true)
    );
    let soon = |wait| now.checked_add(seconds(wait)).ok();
    assert_eq!(rig.node("w-2").retry.join_by, soon(5), "its moments begin anew");
    assert_eq!(rig.node("w-2").retry.ready_by, soon(900));
    let create = rig.node("w-3").retry.create.clone().unwrap();
    assert_eq!(create.ended, Some(now));
    let start = rig.node("w-4").retry.start.clone().unwrap();
    assert_eq!(
        (start.ended, rig.node("w-4").stage),
        (Some(now), Stage::EndpointKnown)
    );
    assert!(
        rig.driver
            .state()
            .nodes
            .iter()
            .all(|(_, node)| node.pending.is_none())
    );
    let found = rig.sends(&[("w-3", FindLease), ("w-4", StartBootstrap)]);
    rig.succeed(&found[0]);
    rig.succeed(&found[1]);
}

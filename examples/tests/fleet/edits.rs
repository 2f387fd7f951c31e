//! Following the file.

use rustix::process::Signal;

use crate::workers;
use crate::world::{World, assert_never_two_machines_of_a_slot};

#[test]
fn scaling_down_by_an_edit_ends_the_highest_indices_and_keeps_the_other_processes() {
    let world = World::new(workers(6));
    let mut fleet = world.fleet([]);
    fleet.until_converged(1);
    let before = world.holders();
    assert_eq!(before.len(), 6);
    world.save(workers(3));
    fleet.until_converged(2);
    let mut kept = before;
    kept.retain(|node, _| ["workers-0", "workers-1", "workers-2"].contains(&node.as_str()));
    assert_eq!(world.holders(), kept);
    fleet.signal(Signal::TERM);
    let ended = fleet.end();
    ended.assert_clean();
    assert_eq!(ended.summary()["nodes"], 3);
    assert_eq!(ended.summary()["replaced"], 0);
}

#[test]
fn a_changed_template_replaces_all_each_after_its_old_machine_is_gone() {
    let world = World::new(workers(4));
    let mut fleet = world.fleet([]);
    fleet.until_converged(1);
    let before = world.holders();
    world.save(workers(4) + "boot.env = { COLOUR = \"red\" }\n");
    fleet.until_converged(2);
    let after = world.holders();
    assert_eq!(after.len(), 4);
    for (node, holder) in &after {
        assert_ne!(before[node], *holder, "{node}");
    }
    fleet.signal(Signal::INT);
    let ended = fleet.end();
    ended.assert_clean();
    assert_eq!(ended.summary()["replaced"], 4);
    assert_never_two_machines_of_a_slot(&ended.heard);
}

#[test]
fn an_edit_with_mistakes_is_told_in_full_and_changes_nothing() {
    let world = World::new(workers(2));
    let mut fleet = world.fleet([]);
    fleet.until_converged(1);
    let before = world.holders();
    world.save(workers(1) + "color = 1\nshape.disk_gb = \"big\"\n");
    let refused = fleet.until_event("edit-refused");
    assert_eq!(refused["refused"].as_array().unwrap().len(), 2, "{refused}");
    // A good one after it is the very next generation.
    world.save(workers(3));
    fleet.until_converged(2);
    let mut after = world.holders();
    after.remove("workers-2").unwrap();
    assert_eq!(after, before);
    fleet.signal(Signal::TERM);
    fleet.end().assert_clean();
}

#[test]
fn a_file_that_counts_its_generations_has_to_raise_them() {
    let world = World::new("generation = 7\n".to_owned() + &workers(1));
    let mut fleet = world.fleet([]);
    fleet.until_converged(7);
    world.save("generation = 7\n".to_owned() + &workers(2));
    let refused = fleet.until_event("edit-refused");
    assert!(refused.to_string().contains("raise it"), "{refused}");
    world.save("generation = 9\n".to_owned() + &workers(2));
    fleet.until_converged(9);
    fleet.signal(Signal::TERM);
    fleet.end().assert_clean();
}

//! What is asked for on standard input while a fleet runs.

use jiff::{SignedDuration, Timestamp};
use rustix::process::Signal;
use serde_json::Value;

use crate::world::{World, assert_never_two_machines_of_a_slot};
use crate::{group, workers};

fn moment(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

#[test]
fn a_machine_is_replaced_when_asked_for_and_what_cannot_be_done_is_said() {
    let world = World::new(workers(3));
    let mut fleet = world.fleet(["--commands"]);
    fleet.until_converged(1);
    let before = world.holders();
    fleet.say("replace workers-1");
    let done = fleet.until_event("command-done");
    assert_eq!(
        (&done["command"], &done["node"], &done["done"]),
        (&"replace".into(), &"workers-1".into(), &true.into())
    );
    fleet.until("another workers-1", |line| {
        line["node"] == "workers-1" && line["ready"] == true
    });
    let after = world.holders();
    let changed = before.iter().filter(|(node, holder)| after[*node] != **holder);
    assert_eq!(
        changed.map(|(node, _)| node.as_str()).collect::<Vec<_>>(),
        ["workers-1"]
    );
    fleet.say("retry nobody-7");
    assert_eq!(fleet.until_event("command-done")["done"], false);
    fleet.say("explode workers-1");
    assert_eq!(fleet.until_event("command-refused")["line"], "explode workers-1");
    fleet.signal(Signal::TERM);
    let ended = fleet.end();
    ended.assert_clean();
    assert_eq!(ended.summary()["replaced"], 1);
    assert_never_two_machines_of_a_slot(&ended.heard);
}

#[test]
fn a_retry_does_not_wait_for_the_backoff() {
    let world = World::new(group("workers", 1, r#"exec "$FLEET" agent --exit 7"#));
    let mut fleet = world.fleet(["--commands"]);
    let failed = fleet.until("a long backoff", |line| {
        let (at, until) = (moment(&line["at"]), moment(&line["restart_at"]));
        let long = |at, until: Timestamp| until.duration_since(at) > SignedDuration::from_secs(2);
        at.zip(until).is_some_and(|(at, until)| long(at, until))
    });
    fleet.say("retry workers-0");
    let restarted = fleet.until_event("restarted");
    fleet.ever("an answer", |line| line["event"] == "command-done");
    assert!(
        moment(&restarted["at"]) < moment(&failed["restart_at"]),
        "{failed} {restarted}"
    );
    fleet.signal(Signal::TERM);
    assert_eq!(fleet.end().summary()["left"], 0);
}

#[test]
fn without_being_asked_to_nobody_is_obeyed() {
    let world = World::new(workers(1));
    let mut fleet = world.fleet([]);
    fleet.say("replace workers-0");
    fleet.until_converged(1);
    fleet.signal(Signal::TERM);
    let ended = fleet.end();
    ended.assert_clean();
    assert_eq!((ended.count("command-done"), ended.count("restarted")), (0, 0));
}

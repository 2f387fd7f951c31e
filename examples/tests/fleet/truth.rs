//! What is, not what was said: deaths that are told and that are not, deletions by hand, a fleet that is killed
//! at any moment, and what is somebody else's.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};

use jiff::Timestamp;
use nodewright::effect::EffectBackend as _;
use nodewright::facts::CreatedLease;
use nodewright::id::{AttemptIdentity, NodeAttemptId, RunId};
use nodewright::template::{BootSpec, LogicalNodeSpec, NodeShape, NodeTemplate, SwarmJoinSpec, Template};
use nodewright_backends::process::{ProcessBackend, ProcessConfig, census};
use rustix::process::Signal;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::healing::exclusive;
use crate::world::{Ended, Running, World, assert_never_two_machines_of_a_slot, call, end_all, kill, say};
use crate::{group, workers};

/// So long that only what is typed sweeps.
const NEVER: &str = "3600";

fn at(line: &Value) -> Timestamp {
    line["at"].as_str().unwrap().parse().unwrap()
}

/// The time by the clock that a fleet's lines go by, too.
#[expect(
    clippy::disallowed_methods,
    reason = "compared with what another process tells"
)]
fn wall() -> Timestamp {
    Timestamp::now()
}

fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64()
}

fn lost(line: &Value, node: &str) -> bool {
    line["event"] == "attempt-failed" && line["node"] == node && line["lost"] == true
}

fn ready(line: &Value, node: &str) -> bool {
    line["event"] == "stage-reached" && line["node"] == node && line["ready"] == true
}

fn reason(line: &Value) -> &str {
    line["reason"].as_str().unwrap()
}

/// Ends a fleet that is as asked; how it ended.
fn ended(fleet: Running) -> Ended {
    fleet.signal(Signal::TERM);
    let ended = fleet.end();
    ended.assert_clean();
    assert_never_two_machines_of_a_slot(&ended.heard);
    ended
}

/// What of a machine is killed.
#[derive(Debug, Clone, Copy)]
enum Killed {
    All,
    Holder,
    Agent,
}

impl Killed {
    const EACH: [Self; 3] = [Self::All, Self::Holder, Self::Agent];

    fn kill(self, world: &World, node: &str) {
        let (holder, processes) = (world.holders()[node].0, world.processes(node));
        let meant = |pid: &&u32| match self {
            Self::All => true,
            Self::Holder => u64::from(**pid) == holder,
            Self::Agent => is_agent(**pid),
        };
        let meant: Vec<u32> = processes.iter().filter(meant).copied().collect();
        assert!(!meant.is_empty(), "{self:?} of {node}: {processes:?}");
        meant.into_iter().for_each(kill);
    }
}

fn is_agent(pid: u32) -> bool {
    let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.contains("fleet\0agent\0")
}

#[test]
fn g27_a_machine_that_is_killed_is_told_by_the_watch_before_any_sweep_and_replaced_within_a_second() {
    let world = World::new(exclusive(3));
    let mut fleet = world.fleet(["--sweep", NEVER]);
    fleet.until_converged(1);
    let mut took = Vec::new();
    for killed in Killed::EACH.repeat(3) {
        let node = "workers-1";
        let begun = wall();
        killed.kill(&world, node);
        let told = fleet.until("the loss", |line| lost(line, node));
        assert!(reason(&told).contains("has ended"), "{told}");
        let again = fleet.until("another one", |line| ready(line, node));
        took.push((seconds(begun, at(&again)), seconds(begun, at(&told)), killed));
    }
    took.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (replaced, told, killed) in &took {
        say(&format!(
            "{killed:?}: told after {told:.3} s, replaced after {replaced:.3} s"
        ));
    }
    // The fastest: a crowded host may hold the others up.
    let (fastest, ..) = took[0];
    assert!(fastest < 1.0, "{took:?}");
    let ended = ended(fleet);
    assert_eq!(ended.count("swept"), 0);
    let summary = ended.summary();
    assert_eq!((&summary["lost"], &summary["replaced"]), (&9.into(), &9.into()));
    assert_eq!(summary["orphans"], 0);
}

#[test]
fn g27_without_the_watch_the_next_sweep_finds_what_is_dead() {
    let world = World::new(exclusive(3));
    let mut fleet = world.fleet(["--no-watch", "--sweep", "1"]);
    fleet.until_converged(1);
    for killed in Killed::EACH {
        let node = "workers-2";
        let begun = wall();
        killed.kill(&world, node);
        let before = fleet.heard.len();
        let told = fleet.until("the loss", |line| lost(line, node));
        assert!(reason(&told).contains("lists its machine as dead"), "{told}");
        fleet.until("another one", |line| ready(line, node));
        let swept = fleet.heard[before..].iter();
        let finds = |line: &&Value| line["event"] == "swept" && line["findings"]["lost"] == 1;
        assert_eq!(swept.filter(finds).count(), 1);
        say(&format!(
            "{killed:?}: told after {:.3} s",
            seconds(begun, at(&told))
        ));
    }
    assert_eq!(ended(fleet).summary()["lost"], 3);
}

#[test]
fn g27_without_the_watch_nobody_notices_before_a_sweep_is_asked_for() {
    let world = World::new(exclusive(2));
    let mut fleet = world.fleet(["--no-watch", "--sweep", NEVER, "--commands"]);
    fleet.until_converged(1);
    Killed::All.kill(&world, "workers-0");
    // A whole replacement passes by beside it.
    fleet.say("replace workers-1");
    fleet.until("another workers-1", |line| ready(line, "workers-1"));
    assert!(fleet.heard.iter().all(|line| line["event"] != "attempt-failed"));
    fleet.say("sweep");
    let told = fleet.until("the loss", |line| lost(line, "workers-0"));
    assert!(reason(&told).contains("lists its machine as dead"), "{told}");
    let done = fleet.ever("an answer", |line| {
        line["event"] == "command-done" && line["command"] == "sweep"
    });
    assert_eq!(
        (&done["done"], &done["providers"]["process"]["findings"]["lost"]),
        (&true.into(), &1.into())
    );
    fleet.until("another workers-0", |line| ready(line, "workers-0"));
    assert_eq!(ended(fleet).summary()["lost"], 1);
}

#[test]
fn g27_a_machine_that_was_deleted_by_hand_is_missing_twice_and_replaced() {
    let world = World::new(exclusive(4));
    let mut fleet = world.fleet(["--no-watch", "--sweep", "1"]);
    fleet.until_converged(1);
    // The next question is an interval away, and what is done meanwhile is done at once.
    fleet.until_event("swept");
    fleet.signal(Signal::STOP);
    let directory = world.machine("workers-3");
    let processes = world.processes("workers-3");
    processes.into_iter().for_each(kill);
    world.until_gone("workers-3");
    fs::remove_dir_all(directory).unwrap();
    fleet.signal(Signal::CONT);
    let missing = fleet.until("one that is missing", |line| line["findings"]["missing"] == 1);
    assert_eq!(missing["findings"]["lost"], 0);
    let told = fleet.until("the loss", |line| lost(line, "workers-3"));
    assert!(reason(&told).contains("lists its machine no more"), "{told}");
    fleet.until("another one", |line| ready(line, "workers-3"));
    let ended = ended(fleet);
    assert_eq!(
        (&ended.summary()["lost"], &ended.summary()["orphans"]),
        (&1.into(), &0.into())
    );
}

#[test]
fn g27_a_machine_that_lives_on_without_its_directory_is_ended_and_replaced() {
    let world = World::new(exclusive(2));
    // Nothing of it dies: the watch has nothing to tell.
    let mut fleet = world.fleet(["--sweep", "1"]);
    fleet.until_converged(1);
    let before = world.processes("workers-1");
    fs::remove_dir_all(world.machine("workers-1")).unwrap();
    assert!(before.iter().any(|pid| is_agent(*pid)));
    let told = fleet.until("the loss", |line| lost(line, "workers-1"));
    assert!(reason(&told).contains("lists its machine as dead"), "{told}");
    // Its agent cannot lock what the other one still has: had that not ended first, this one would fail.
    fleet.until("another one", |line| ready(line, "workers-1"));
    let after = world.processes("workers-1");
    assert!(
        after.iter().all(|pid| !before.contains(pid)),
        "{before:?} {after:?}"
    );
    let ended = ended(fleet);
    assert_eq!(ended.count("attempt-failed"), 1);
}

#[test]
fn g16_a_slot_that_always_fails_is_halted_at_its_limit_until_somebody_asks() {
    let world = World::new(workers(1) + &group("broken", 1, "exit 7"));
    let mut fleet = world.fleet(["--attempts", "3", "--commands"]);
    let made = |heard: &[Value]| {
        let made = |line: &&Value| line["node"] == "broken-0" && line["stage"] == "endpoint-known";
        heard.iter().filter(made).count()
    };
    assert_eq!(fleet.until_event("halted")["node"], "broken-0");
    assert_eq!(made(&fleet.heard), 3);
    // Of the group beside it nothing is said.
    let degraded = fleet.ever("a degraded group", |line| line["event"] == "degraded");
    assert_eq!(
        degraded["groups"],
        serde_json::json!([{ "group": "broken", "halted": 1 }])
    );
    // A retry is one more row of attempts.
    fleet.say("retry broken-0");
    fleet.until_event("halted");
    assert_eq!(made(&fleet.heard), 6);
    // A replacement is one more attempt in the same row.
    fleet.say("replace broken-0");
    fleet.until_event("halted");
    assert_eq!(made(&fleet.heard), 7);
    fleet.signal(Signal::TERM);
    let ended = fleet.end();
    assert_eq!((ended.code, &ended.summary()["left"]), (Some(1), &0.into()));
    assert_eq!((made(&ended.heard), &ended.summary()["lost"]), (7, &0.into()));
    assert_never_two_machines_of_a_slot(&ended.heard);
}

#[test]
fn g28_what_is_of_another_run_or_of_nobody_is_never_touched() {
    let world = World::new(exclusive(2));
    let (foreign, mut nobodys) = (Stranger::beside(&world, "other", 1), Nobodys::beside(&world));
    let mut fleet = world.fleet(["--sweep", "0.3", "--commands"]);
    fleet.until_converged(1);
    Killed::All.kill(&world, "workers-0");
    fleet.until("another workers-0", |line| ready(line, "workers-0"));
    for _ in 0..4 {
        fleet.until_event("swept");
    }
    let ended = ended(fleet);
    assert_eq!(ended.count("orphan-found"), 0);
    let listed = |line: &&Value| line["event"] == "swept" && line["findings"]["listed"].as_u64() > Some(2);
    assert_eq!(ended.heard.iter().filter(listed).count(), 0);
    assert_eq!(foreign.listed(), [true]);
    assert_eq!(census(&foreign.state, &foreign.run).unwrap().len(), 1);
    nobodys.assert_is_there();
}

#[test]
fn g28_a_machine_that_nobody_owns_is_told_after_two_sweeps_and_ended() {
    let world = World::new(exclusive(2));
    let mut fleet = world.fleet(["--sweep", "0.5"]);
    fleet.until_converged(1);
    // As a create that came through long after everybody had given it up.
    let stray = Stranger::beside(&world, "demo", 77);
    fleet.until("a suspect", |line| line["findings"]["suspects"] == 1);
    let found = fleet.until_event("orphan-found");
    assert_eq!(
        (&found["node"], &found["attempt"], &found["surplus"]),
        (&"workers-0".into(), &"77".into(), &false.into())
    );
    assert_eq!(found["lease"], stray.created.lease.id.as_str());
    fleet.until_event("orphan-gone");
    assert_eq!(stray.listed(), [false; 0]);
    let ended = ended(fleet);
    let summary = ended.summary();
    assert_eq!((&summary["orphans"], &summary["lost"]), (&1.into(), &0.into()));
    assert_eq!(
        (&summary["created"], &summary["destroyed"]),
        (&2.into(), &3.into())
    );
}

#[test]
fn g28_while_sweeps_fail_nothing_is_concluded_and_that_is_told_until_one_is_answered() {
    let world = World::new(exclusive(2));
    let mut fleet = world.fleet(["--no-watch", "--sweep", "0.5", "--commands"]);
    fleet.until_converged(1);
    // What should be a file is none: the machines cannot be listed.
    let broken = Broken::among(&world);
    fleet.until("a failure", |line| {
        line["event"] == "swept" && line["error"].is_string()
    });
    Killed::All.kill(&world, "workers-0");
    let told = fleet.ever("a provider with an error", |line| {
        line["event"] == "provider" && line["look_error"].is_string()
    });
    assert!(
        told["look_error"]
            .as_str()
            .unwrap()
            .contains("listing the machines"),
        "{told}"
    );
    fleet.say("sweep");
    let done = fleet.until_event("command-done");
    assert_eq!(done["done"], false);
    assert!(done["providers"]["process"]["error"].is_string(), "{done}");
    assert!(fleet.heard.iter().all(|line| line["event"] != "attempt-failed"));
    drop(broken);
    fleet.until("the loss", |line| lost(line, "workers-0"));
    // Only once that was told is it told that it is over.
    fleet.ever("a provider as usual", |line| {
        line["event"] == "provider" && line["look_error"] == Value::Null
    });
    fleet.until("another one", |line| ready(line, "workers-0"));
    ended(fleet);
}

/// A machine whose record is a directory. Taken away when it is dropped.
struct Broken(PathBuf);

impl Broken {
    fn among(world: &World) -> Self {
        let directory = world.state().join("machines").join("broken");
        fs::create_dir_all(directory.join("identity.json")).unwrap();
        Self(directory)
    }
}

impl Drop for Broken {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

/// A machine that was not made by the fleet that runs here.
struct Stranger {
    state: PathBuf,
    run: RunId,
    created: CreatedLease,
}

impl Stranger {
    /// One of this run, in the same state directory, for a slot that the fleet's run has, too.
    fn beside(world: &World, run: &str, attempt: u64) -> Self {
        let run: RunId = run.parse().unwrap();
        let identity = AttemptIdentity {
            run: run.clone(),
            node: "workers-0".parse().unwrap(),
            attempt: NodeAttemptId::new(attempt),
        };
        let spec = LogicalNodeSpec {
            id: identity.node.clone(),
            template: Template::new(NodeTemplate {
                role: "worker".parse().unwrap(),
                provider: "process".parse().unwrap(),
                shape: NodeShape::new("local"),
                boot: BootSpec::new("true"),
                join: SwarmJoinSpec::default(),
            }),
        };
        let state = world.state();
        let created = Runtime::new().unwrap().block_on(async {
            let backend = ProcessBackend::open(ProcessConfig::new(&state)).unwrap();
            backend.create_lease(&call(identity), &spec).await.unwrap()
        });
        Self { state, run, created }
    }

    /// Whether it is listed of its run, and alive.
    fn listed(&self) -> Vec<bool> {
        let listed = Runtime::new().unwrap().block_on(async {
            let backend = ProcessBackend::open(ProcessConfig::new(&self.state)).unwrap();
            backend.list_leases(&self.run).await.unwrap()
        });
        let mut entries = listed.entries;
        entries.retain(|entry| entry.lease.id == self.created.lease.id);
        entries.iter().map(|entry| entry.alive).collect()
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        end_all(&self.state, &self.run);
    }
}

/// A process in a directory among the machines, neither of which says whose it is.
struct Nobodys {
    directory: PathBuf,
    process: Child,
}

impl Nobodys {
    fn beside(world: &World) -> Self {
        let directory = world.state().join("machines").join("stranger");
        fs::create_dir_all(&directory).unwrap();
        let mut command = Command::new("sleep");
        let process = command.arg("1000").current_dir(&directory).spawn().unwrap();
        Self { directory, process }
    }

    fn assert_is_there(&mut self) {
        assert!(self.directory.exists());
        assert_eq!(self.process.try_wait().unwrap(), None);
    }
}

impl Drop for Nobodys {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

use std::fs;
use std::process::{Command, Stdio};
use std::sync::Mutex;

use futures_util::FutureExt as _;
use nodewright_core::effect::{Destroyed, FailureKind};
use nodewright_core::facts::LeaseId;
use nodewright_core::id::TemplateDigest;
use nodewright_core::workflow::{Done, Report, TaskOutcome, Verdict};

use super::super::handle::ProcessKey;
use super::super::holder;
use super::super::stamp::Stamp;
use super::super::stat::ProcessStat;
use super::super::steps::{Elapsed, steps};
use super::*;

/// The record of a machine of which nothing is made yet.
fn unmade(node: &str) -> Record {
    Record {
        identity: call(node).identity,
        lease: LeaseId::new("half-made"),
        template: TemplateDigest::of(b""),
        boot: super::super::place::boot_id().unwrap(),
        holder: None,
    }
}

/// Writes the record of a machine that was not made any further.
fn half_make(world: &World, node: &str, holder: Option<ProcessKey>) -> Record {
    let place = world.place(node);
    let record = Record {
        holder,
        ..unmade(node)
    };
    fs::create_dir_all(place.directory.join("jobs")).unwrap();
    record.write(&place.directory).unwrap();
    record
}

/// Spawns the holder of a half-made machine, and writes it nowhere.
fn spawn_unrecorded(world: &World, record: &Record) -> ProcessKey {
    let place = world.place(&record.identity.node.to_string());
    holder::make_fifo(&place).unwrap();
    let stamp = Stamp {
        identity: record.identity.clone(),
        machine: place.directory.clone(),
        lease: record.lease.clone(),
        template: record.template,
    };
    let pid = holder::spawn(&place, &BTreeMap::new(), &stamp).unwrap();
    ProcessKey::of(pid).unwrap().unwrap()
}

/// Waits until the holder of a machine has taken the signal that stops it.
async fn stopped(world: &World, node: &str) {
    let holder = world.record(node).holder.unwrap();
    while holder.is_running().unwrap() {
        tokio::task::yield_now().await;
    }
}

fn lives(key: ProcessKey) -> bool {
    ProcessKey::of(key.pid).unwrap() == Some(key)
}

#[tokio::test]
async fn a_machine_is_made_once_found_listed_and_gone_when_it_is_destroyed() {
    let world = World::new();
    assert_eq!(world.backend.find_lease(&call("w-1")).await, Ok(None));
    let created = world.create("w-1").await;
    let holder = world.record("w-1").holder.unwrap();
    assert_eq!(world.create("w-1").await, created);
    assert_eq!(
        world.backend.find_lease(&call("w-1")).await,
        Ok(Some(created.clone()))
    );
    let endpoint = world
        .backend
        .lookup_endpoint(&call("w-1"), &created.lease)
        .await
        .unwrap();
    assert_eq!(endpoint, created.endpoint);
    assert_eq!(
        created.lease.template,
        Some(spec("w-1", "true").template.digest())
    );
    let listed = world
        .backend
        .list_leases(&call("w-1").identity.run)
        .await
        .unwrap();
    assert_eq!(listed.entries.len(), 1);
    assert!(listed.entries[0].alive && listed.entries[0].lease == created.lease);
    assert_eq!(world.census(), [holder.pid]);

    world.destroy("w-1", &created).await;
    assert!(
        !lives(holder)
            && ProcessStat::read(holder.pid)
                .unwrap()
                .is_none_or(|now| now.start != holder.start)
    );
    assert!(!world.place("w-1").directory.exists());
    assert_eq!(world.census(), [0; 0]);
    assert_eq!(world.backend.find_lease(&call("w-1")).await, Ok(None));
    world.destroy("w-1", &created).await;
}

#[tokio::test]
async fn a_destroy_takes_exactly_its_lease() {
    let world = World::new();
    let created = world.create("w-1").await;
    let mut other = created.clone();
    other.lease.id = LeaseId::new("another");
    world.destroy("w-1", &other).await;
    assert_eq!(world.backend.find_lease(&call("w-1")).await, Ok(Some(created)));
}

#[tokio::test]
async fn what_a_half_made_create_left_is_found_and_the_next_create_makes_it_anew() {
    let world = World::new();
    let record = half_make(&world, "w-1", None);
    let found = world.backend.find_lease(&call("w-1")).await.unwrap().unwrap();
    assert_eq!(found.lease.id, record.lease);
    let listed = world.backend.list_leases(&record.identity.run).await.unwrap();
    assert!(!listed.entries[0].alive);

    let stray = spawn_unrecorded(&world, &record);
    let created = world.create("w-1").await;
    assert_ne!(created.lease.id, record.lease);
    let holder = world.record("w-1").holder.unwrap();
    assert!(!lives(stray) && lives(holder));
    assert_eq!(world.census(), [holder.pid]);
}

#[tokio::test]
async fn a_holder_that_was_never_written_down_is_ended_with_its_lease() {
    let world = World::new();
    let record = half_make(&world, "w-1", None);
    let stray = spawn_unrecorded(&world, &record);
    let found = world.backend.find_lease(&call("w-1")).await.unwrap().unwrap();
    world.destroy("w-1", &found).await;
    assert!(!lives(stray));
}

#[tokio::test]
async fn processes_whose_directory_is_gone_are_found_by_their_environment() {
    let world = World::new();
    let created = world.create("w-1").await;
    let holder = world.record("w-1").holder.unwrap();
    fs::remove_dir_all(world.place("w-1").directory).unwrap();
    let found = world.backend.find_lease(&call("w-1")).await.unwrap().unwrap();
    assert_eq!(found.lease, created.lease);
    let listed = world
        .backend
        .list_leases(&call("w-1").identity.run)
        .await
        .unwrap();
    assert_eq!(listed.entries.len(), 1);
    assert!(!listed.entries[0].alive && listed.entries[0].lease == created.lease);
    world.destroy("w-1", &created).await;
    assert!(!lives(holder));
}

#[tokio::test]
async fn g23_a_machine_whose_record_cannot_be_read_is_listed_found_and_ended() {
    let world = World::new();
    let created = world.create("w-1").await;
    let holder = world.record("w-1").holder.unwrap();
    fs::write(world.place("w-1").directory.join("identity.json"), "{").unwrap();
    let listed = world
        .backend
        .list_leases(&call("w-1").identity.run)
        .await
        .unwrap();
    let listed: Vec<_> = listed
        .entries
        .iter()
        .map(|entry| (&entry.identity, &entry.lease.id, entry.alive))
        .collect();
    assert_eq!(listed, [(&call("w-1").identity, &created.lease.id, false)]);
    let found = world.backend.find_lease(&call("w-1")).await.unwrap().unwrap();
    assert_eq!(found.lease.id, created.lease.id);
    world.destroy("w-1", &created).await;
    assert!(!lives(holder) && world.census().is_empty());
}

#[tokio::test]
async fn a_destroy_ends_an_agent_that_left_the_session_and_one_that_ignores_term() {
    let world = World::new();
    let created = world.create("w-1").await;
    let stubborn = "trap '' TERM; echo $$; while :; do sleep 1000; done";
    let line = format!("setsid sh -c '{}' & {stubborn}", stubborn.replace('\'', r"'\''"));
    let mut transport = world.start("w-1", &line).await;
    let mut pids = Vec::new();
    while pids.len() < 2 {
        if let TransportEvent::Lines(lines) = transport.next().await.unwrap() {
            pids.extend(lines.iter().map(|line| line.text.parse::<u32>().unwrap()));
        }
    }
    let keys: Vec<ProcessKey> = pids
        .iter()
        .map(|pid| ProcessKey::of(*pid).unwrap().unwrap())
        .collect();
    let session = |key: &ProcessKey| ProcessStat::read(key.pid).unwrap().unwrap().session;
    assert_ne!(session(&keys[0]), session(&keys[1]));
    world.destroy("w-1", &created).await;
    assert!(!keys.iter().any(|key| lives(*key)));
    assert_eq!(world.census(), [0; 0]);
}

#[tokio::test]
async fn an_agent_that_hides_its_environment_is_ended_by_its_session() {
    let world = World::new();
    let created = world.create("w-1").await;
    let mut transport = world
        .start("w-1", "exec env -i /bin/sh -c 'echo $$; exec /bin/sleep 1000'")
        .await;
    let TransportEvent::Lines(lines) = transport.next().await.unwrap() else {
        panic!("it ended");
    };
    let key = ProcessKey::of(lines[0].text.parse().unwrap()).unwrap().unwrap();
    world.destroy("w-1", &created).await;
    assert!(!lives(key));
}

#[tokio::test]
async fn a_recycled_number_is_never_signalled() {
    let world = World::new();
    let mut bystander = Command::new("sleep")
        .arg("1000")
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let own = ProcessKey::of(bystander.id()).unwrap().unwrap();
    let earlier = ProcessKey {
        start: own.start - 1,
        ..own
    };
    let record = half_make(&world, "w-1", Some(earlier));
    let listed = world.backend.list_leases(&record.identity.run).await.unwrap();
    assert!(!listed.entries[0].alive);
    let found = world.backend.find_lease(&call("w-1")).await.unwrap().unwrap();
    world.destroy("w-1", &found).await;
    assert!(!world.place("w-1").directory.exists());
    assert!(lives(own) && bystander.try_wait().unwrap().is_none());
    bystander.kill().unwrap();
    bystander.wait().unwrap();
}

#[tokio::test]
async fn a_record_of_another_boot_names_no_process() {
    let world = World::new();
    let mut bystander = Command::new("sleep")
        .arg("1000")
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let own = ProcessKey::of(bystander.id()).unwrap().unwrap();
    let mut record = half_make(&world, "w-1", Some(own));
    record.boot = "another".to_owned();
    record.write(&world.place("w-1").directory).unwrap();
    let found = world.backend.find_lease(&call("w-1")).await.unwrap().unwrap();
    world.destroy("w-1", &found).await;
    assert!(bystander.try_wait().unwrap().is_none());
    bystander.kill().unwrap();
    bystander.wait().unwrap();
}

#[tokio::test]
async fn two_state_directories_with_the_same_run_do_not_touch_each_other() {
    let (one, two) = (World::new(), World::new());
    let created = one.create("w-1").await;
    two.create("w-1").await;
    let kept = two.record("w-1").holder.unwrap();
    fs::remove_dir_all(one.place("w-1").directory).unwrap();
    one.destroy("w-1", &created).await;
    assert_eq!(one.census(), [0; 0]);
    assert_eq!(two.census(), [kept.pid]);
    assert!(lives(kept));
}

#[tokio::test]
async fn a_stopped_machine_is_half_ended_and_made_anew() {
    let world = World::new();
    let created = world.create("w-1").await;
    let machine = world
        .backend
        .host
        .machines
        .meet(&world.place("w-1"), &world.record("w-1"));
    machine
        .unwrap()
        .unwrap()
        .holder
        .signal(rustix::process::Signal::STOP)
        .unwrap();
    stopped(&world, "w-1").await;
    let again = world.create("w-1").await;
    assert_ne!(again.lease, created.lease);
    assert_eq!(world.census(), [world.record("w-1").holder.unwrap().pid]);
}

#[tokio::test]
async fn a_create_that_cannot_finish_leaves_nothing_and_says_so() {
    let mut world = World::new();
    let mut impossible = config(world.directory.path());
    impossible
        .env
        .insert("A".to_owned(), "no process can be given a \0".to_owned());
    world.backend = ProcessBackend::open(impossible).unwrap();
    let error = world
        .backend
        .create_lease(&call("w-1"), &spec("w-1", "true"))
        .await
        .unwrap_err();
    // Steps were taken, so that nobody is told that nothing can have happened; but all was taken back.
    assert_eq!(error.kind, FailureKind::Ambiguous);
    assert!(error.reason.starts_with("task holder: "), "{error}");
    assert_eq!(world.census(), [0; 0]);
    assert!(!world.place("w-1").directory.exists());
    assert_eq!(world.backend.find_lease(&call("w-1")).await, Ok(None));
}

#[tokio::test]
async fn a_create_that_is_cancelled_before_its_first_step_made_nothing_and_says_so() {
    let world = World::new();
    let (call, host) = (call("w-1"), &world.backend.host);
    call.cancel.cancel();
    let template = spec("w-1", "true").template.digest();
    let error = host.make(&world.place("w-1"), &call, template).await.unwrap_err();
    assert_eq!(error.kind, FailureKind::Definite);
    assert!(!world.place("w-1").directory.exists());
}

#[tokio::test]
async fn a_create_that_ends_after_any_of_its_steps_is_taken_back_as_a_whole() {
    for count in 0..=5 {
        let world = World::new();
        let (place, host) = (world.place("w-1"), &world.backend.host);
        let cancel = Cancel::new();
        let (told, after) = (cancel.clone(), Mutex::new(count));
        let making = steps(host, &place, Some(unmade("w-1")));
        let mut making = making.on_change(move |_, report| {
            let done = |(_, outcome): &(&str, &TaskOutcome)| matches!(outcome, TaskOutcome::Done { .. });
            if report.tasks().filter(done).count() == *after.lock().unwrap() {
                told.cancel();
            }
        });
        // All that is not cancelled happens in one poll.
        let run = making.run(&Elapsed::new(), &cancel).now_or_never();
        let report = run.expect("no step of a create waits");
        assert_eq!(report.verdict(), Verdict::Cancelled);
        assert_eq!(place.directory.exists(), count > 0);
        assert_eq!(world.census().len(), usize::from(count > 2));

        let report = making.reversed().run(&Elapsed::new(), &Cancel::new()).await;
        assert_eq!(report.verdict(), Verdict::Done, "{report}");
        assert!(!place.directory.exists() && !place.prepared.exists());
        assert_eq!(world.census(), [0; 0]);
    }
}

#[tokio::test]
async fn the_steps_of_a_machine_find_what_is_there_and_mend_what_is_not() {
    let world = World::new();
    let (place, host) = (world.place("w-1"), &world.backend.host);
    let mut making = steps(host, &place, Some(unmade("w-1")));
    let changed = |report: &Report| {
        assert_eq!(report.verdict(), Verdict::Done, "{report}");
        let changed = |(_, outcome): &(&str, &TaskOutcome)| {
            matches!(
                outcome,
                TaskOutcome::Done {
                    done: Done::Changed,
                    ..
                }
            )
        };
        let names = report.tasks().filter(changed).map(|(name, _)| name.to_owned());
        names.collect::<Vec<String>>()
    };
    let timing = Elapsed::new();
    let report = making.run(&timing, &Cancel::new()).await;
    assert_eq!(
        changed(&report),
        ["directory", "fifo", "holder", "record", "watch"]
    );
    let report = making.run(&timing, &Cancel::new()).await;
    assert_eq!(changed(&report), [""; 0]);
    fs::remove_file(place.fifo()).unwrap();
    let report = making.run(&timing, &Cancel::new()).await;
    assert_eq!(changed(&report), ["fifo"]);
    // Undone twice, it is undone.
    for _ in 0..2 {
        let report = making.reversed().run(&timing, &Cancel::new()).await;
        assert_eq!(report.verdict(), Verdict::Done, "{report}");
        assert!(!place.directory.exists() && world.census().is_empty());
    }
}

#[tokio::test]
async fn many_machines_come_and_go_at_once() {
    let world = World::new();
    let nodes: Vec<String> = (0..20).map(|index| format!("w-{index}")).collect();
    let created = futures_util::future::join_all(nodes.iter().map(|node| world.create(node))).await;
    assert_eq!(world.census().len(), nodes.len());
    let all = nodes.iter().zip(&created);
    futures_util::future::join_all(all.map(|(node, created)| world.destroy(node, created))).await;
    assert_eq!(world.census(), [0; 0]);
    assert_eq!(
        fs::read_dir(&world.backend.host.places.machines).unwrap().count(),
        0
    );
}

#[tokio::test]
async fn a_destroy_that_is_dropped_is_finished_by_the_next() {
    let world = World::new();
    let created = world.create("w-1").await;
    let line = "trap '' TERM; echo up; while :; do sleep 1000; done";
    lines_until(&mut world.start("w-1", line).await, "up").await;
    let (backend, lease) = (world.backend.clone(), created.lease.clone());
    let dropped = tokio::spawn(async move { backend.destroy_lease(&call("w-1"), &lease).await });
    stopped(&world, "w-1").await;
    dropped.abort();
    assert!(dropped.await.unwrap_err().is_cancelled());
    world.destroy("w-1", &created).await;
    assert_eq!(world.census(), [0; 0]);
    let again = world.backend.destroy_lease(&call("w-1"), &created.lease).await;
    assert_eq!(again, Ok(Destroyed::Gone));
}

#[tokio::test]
async fn a_cancelled_call_ends_at_once_and_says_that_it_knows_nothing() {
    let world = World::new();
    let created = world.create("w-1").await;
    let line = "trap '' TERM; echo up; while :; do sleep 1000; done";
    lines_until(&mut world.start("w-1", line).await, "up").await;
    let call = call("w-1");
    let destroyed = world.backend.destroy_lease(&call, &created.lease);
    let cancelled = async {
        stopped(&world, "w-1").await;
        call.cancel.cancel();
    };
    let (destroyed, ()) = tokio::join!(destroyed, cancelled);
    assert_eq!(destroyed.unwrap_err().kind, FailureKind::Ambiguous);
    world.destroy("w-1", &created).await;
}

use super::super::handle::Process;
use super::super::job::Job;
use super::super::stat::ProcessStat;
use super::*;

#[tokio::test]
async fn a_killed_holder_is_reported_listed_as_dead_and_its_agent_is_ended() {
    let world = World::new();
    let created = world.create("w-1").await;
    world.create("w-2").await;
    let mut losses = losses(&world.backend);
    lines_until(&mut world.start("w-1", "echo up; exec sleep 1000").await, "up").await;
    assert!(world.backend.kill_holder(&call("w-1").identity).unwrap());
    let loss = next_loss(&mut losses).await;
    assert_eq!(loss.node, call("w-1").identity.node);
    assert!(loss.reason.contains("holder"), "{}", loss.reason);
    assert!(!world.backend.kill_holder(&call("w-1").identity).unwrap());

    let listed = world
        .backend
        .list_leases(&call("w-1").identity.run)
        .await
        .unwrap();
    let alive: Vec<bool> = listed.entries.iter().map(|entry| entry.alive).collect();
    assert_eq!(alive, [false, true]);
    // The agent and its runner go on, beside the other holder.
    assert_eq!(world.census().len(), 3);
    world.destroy("w-1", &created).await;
    assert_eq!(world.census(), [world.record("w-2").holder.unwrap().pid]);
    assert!(losses.try_recv().is_err());
}

#[tokio::test]
async fn an_agents_death_is_reported_and_what_we_end_ourselves_is_not() {
    let world = World::new();
    let created = world.create("w-1").await;
    world.create("w-2").await;
    let mut losses = losses(&world.backend);
    lines_until(&mut world.start("w-1", "echo up; exec sleep 1000").await, "up").await;
    world.destroy("w-1", &created).await;
    world.start("w-2", "exit 3").await;
    let loss = next_loss(&mut losses).await;
    assert_eq!(loss.node, call("w-2").identity.node);
    assert!(loss.reason.contains("status 3"), "{}", loss.reason);
}

#[tokio::test]
async fn an_agent_that_was_seen_to_end_has_its_machine_listed_as_dead() {
    let world = World::new();
    world.create("w-1").await;
    world.create("w-2").await;
    let mut losses = losses(&world.backend);
    lines_until(&mut world.start("w-2", "echo up; exec sleep 1000").await, "up").await;
    world.start("w-1", "exit 3").await;
    assert_eq!(next_loss(&mut losses).await.node, call("w-1").identity.node);
    assert_eq!(listed(&world).await, [false, true]);
}

#[tokio::test]
async fn without_its_watch_a_backend_says_so_and_only_lists_what_died() {
    let directory = tempfile::tempdir().unwrap();
    let mut silent = config(directory.path());
    silent.watch = false;
    let world = World {
        backend: ProcessBackend::open(silent).unwrap(),
        directory,
    };
    assert!(!world.backend.capabilities().watch && world.backend.capabilities().inventory);
    assert!(World::new().backend.capabilities().watch);
    world.create("w-1").await;
    let (asked, mut losses) = (listed(&world).await, losses(&world.backend));
    tokio::task::yield_now().await;
    let holder = Process::open(world.record("w-1").holder.unwrap())
        .unwrap()
        .unwrap();
    assert!(world.backend.kill_holder(&call("w-1").identity).unwrap());
    holder.ended().await;
    assert_eq!((asked, listed(&world).await), (vec![true], vec![false]));
    assert!(losses.try_recv().is_err());
}

#[tokio::test]
async fn a_machine_without_its_directory_is_listed_as_dead_while_it_lives_and_then_not_at_all() {
    let world = World::new();
    let created = world.create("w-1").await;
    lines_until(&mut world.start("w-1", "echo up; exec sleep 1000").await, "up").await;
    let (place, record) = (world.place("w-1"), world.record("w-1"));
    std::fs::remove_dir_all(&place.directory).unwrap();
    assert_eq!(listed(&world).await, [false]);
    world.destroy("w-1", &created).await;
    assert_eq!((listed(&world).await, world.census()), (vec![], vec![]));
    assert!(!world.backend.host.machines.knows(&place, &record));
}

/// Nothing lists it any more, and whoever had it destroys what is gone.
#[tokio::test]
async fn a_machine_that_died_without_its_directory_is_not_listed_and_is_forgotten_once_it_is_destroyed() {
    let world = World::new();
    let created = world.create("w-1").await;
    let (place, record) = (world.place("w-1"), world.record("w-1"));
    let holder = Process::open(record.holder.unwrap()).unwrap().unwrap();
    assert!(world.backend.kill_holder(&call("w-1").identity).unwrap());
    holder.ended().await;
    std::fs::remove_dir_all(&place.directory).unwrap();
    assert_eq!(listed(&world).await, [false; 0]);
    assert!(world.backend.host.machines.knows(&place, &record));
    world.destroy("w-1", &created).await;
    assert!(!world.backend.host.machines.knows(&place, &record));
}

/// Whether each machine of the run is listed as alive.
async fn listed(world: &World) -> Vec<bool> {
    let listed = world.backend.list_leases(&call("w-1").identity.run).await;
    listed.unwrap().entries.iter().map(|entry| entry.alive).collect()
}

#[tokio::test]
async fn an_agent_in_the_background_counts_until_it_ends() {
    let world = World::new();
    world.create("w-1").await;
    world.create("w-2").await;
    let mut losses = losses(&world.backend);
    let mut transport = world.start("w-1", "mkfifo gate; setsid cat gate & echo up").await;
    lines_until(&mut transport, "up").await;
    assert!(matches!(
        transport.next().await.unwrap(),
        TransportEvent::Exited(_)
    ));
    // Were its end reported, it would be before this one.
    world.start("w-2", "exit 1").await;
    assert_eq!(next_loss(&mut losses).await.node, call("w-2").identity.node);
    let gate = world.place("w-1").directory.join("gate");
    tokio::task::spawn_blocking(move || std::fs::OpenOptions::new().write(true).open(gate).map(drop))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(next_loss(&mut losses).await.node, call("w-1").identity.node);
}

#[tokio::test]
async fn a_later_process_finds_the_same_machines_and_sees_them_die() {
    let mut world = World::new();
    let created = world.create("w-1").await;
    world.create("w-2").await;
    let mut transport = world.start("w-1", "echo first; exec sleep 1000").await;
    lines_until(&mut transport, "first").await;
    let before = world.census();
    drop(transport);
    world.restart();

    assert_eq!(
        world.backend.find_lease(&call("w-1")).await,
        Ok(Some(created.clone()))
    );
    assert_eq!(world.create("w-1").await, created);
    let mut losses = losses(&world.backend);
    // Its agent is adopted, from the first line on.
    lines_until(&mut world.start("w-1", "echo never run").await, "first").await;
    assert_eq!(world.census(), before);
    let holder = world.record("w-2").holder.unwrap();
    assert!(world.backend.kill_holder(&call("w-2").identity).unwrap());
    assert_eq!(next_loss(&mut losses).await.node, call("w-2").identity.node);
    // A child of ours leaves no zombie.
    assert!(ProcessStat::read(holder.pid).unwrap().is_none());
    let agent = Job::of(&world.place("w-1"), START_JOB)
        .unwrap()
        .keys()
        .unwrap()
        .unwrap()
        .main;
    let agent = Process::open(agent).unwrap().unwrap();
    agent.signal(rustix::process::Signal::KILL).unwrap();
    let loss = next_loss(&mut losses).await;
    assert!(loss.reason.contains("agent"), "{}", loss.reason);
}

#[tokio::test]
async fn a_machine_that_died_while_nobody_watched_is_reported_at_once() {
    let mut world = World::new();
    world.create("w-1").await;
    assert!(world.backend.kill_holder(&call("w-1").identity).unwrap());
    world.restart();
    assert_eq!(
        next_loss(&mut losses(&world.backend)).await.node,
        call("w-1").identity.node
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_backend_leaves_no_task_and_a_machine_takes_no_more_files_than_stated() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Handle::current();
    let world = World {
        backend: ProcessBackend::open(config(directory.path())).unwrap(),
        directory,
    };
    world.create("w-1").await;
    let transport = world.start("w-1", "exec sleep 1000").await;
    assert!(runtime.metrics().num_alive_tasks() > 0);
    drop(transport);
    drop(world);
    let gone = async {
        while runtime.metrics().num_alive_tasks() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, gone).await.unwrap();
}

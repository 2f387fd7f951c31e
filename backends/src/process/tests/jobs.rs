use std::fs;
use std::path::{Path, PathBuf};
use std::pin::pin;

use futures_util::FutureExt as _;
use nodewright_core::bootstrap::{ExitStatus, JOIN_MARKER, LineSource, StreamEvent};
use nodewright_core::effect::{BootstrapSpec, ObservationSink};
use nodewright_core::facts::{AgentId, BootstrapStage};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::super::RunLock;
use super::super::stat::ProcessStat;
use super::*;

#[tokio::test]
async fn a_job_runs_to_its_end_and_says_how_with_its_last_lines() {
    let world = World::new();
    world.create("w-1").await;
    let mut transport = world.open("w-1").await;
    for (line, status) in [
        ("exit 0", ExitStatus::Code(0)),
        ("exit 3", ExitStatus::Code(3)),
        ("no-such-command-at-all", ExitStatus::Code(127)),
        ("kill -KILL $$", ExitStatus::Unknown),
    ] {
        // The same name: one that ended is run again.
        let (ended, _) = transport.run(&job("check", line), LIMIT).await.unwrap();
        assert_eq!(ended, status, "{line}");
    }
    let line = "i=0; while [ $i -lt 50 ]; do echo $i; i=$((i+1)); done; echo bad >&2; printf end";
    let (_, lines) = transport.run(&job("print", line), LIMIT).await.unwrap();
    assert_eq!(lines.len(), 20);
    let text = |source| {
        let lines = lines.iter().filter(move |line| line.source == source);
        lines.map(|line| line.text.as_str()).collect::<Vec<_>>()
    };
    assert!(text(LineSource::Stdout).ends_with(&["48", "49", "end"]) || lines.last().unwrap().text == "end");
    assert_eq!(text(LineSource::Stderr), ["bad"]);
}

#[tokio::test]
async fn a_job_that_takes_too_long_is_an_error_and_one_that_still_runs_is_waited_for() {
    let world = World::new();
    world.create("w-1").await;
    let mut transport = world.open("w-1").await;
    let gate = world.place("w-1").directory.join("gate");
    mknodat(CWD, &gate, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let waits = job("wait", "cat gate; exit 7");
    let short = Duration::from_millis(50);
    let error = transport.run(&waits, short).await.unwrap_err();
    assert!(error.to_string().contains("took longer"), "{error}");
    let mut run = pin!(transport.run(&waits, LIMIT));
    // It has found the job at work: one that were over would be run anew.
    assert!(run.as_mut().now_or_never().is_none());
    // A reader of the gate is there once this is open; whoever lets go of it gives the end of the file.
    let opened = tokio::task::spawn_blocking(move || fs::OpenOptions::new().write(true).open(gate).map(drop));
    let (status, _) = run.await.unwrap();
    opened.await.unwrap().unwrap();
    assert_eq!(status, ExitStatus::Code(7));
}

#[tokio::test]
async fn odd_characters_reach_a_job_as_they_are() {
    let world = World::new();
    world.create("w-1").await;
    let mut transport = world.open("w-1").await;
    let odd = "it's \"q\" $HOME `id` \\n \n\ttab ünï ; & | > < * ? ! # ~ % {a,b} \u{7} '' end\n";
    let mut command = job(
        "odd",
        "printf %s \"$ODD\" >odd; printf %s 'a'\\''b $x' >literal; test $NODEWRIGHT_MACHINE = $PWD",
    );
    command.env.insert("ODD".to_owned(), odd.to_owned());
    command
        .env
        .insert("NODEWRIGHT_MACHINE".to_owned(), "/elsewhere".to_owned());
    assert_eq!(
        transport.run(&command, LIMIT).await.unwrap().0,
        ExitStatus::Code(0)
    );
    let directory = world.place("w-1").directory;
    assert_eq!(fs::read_to_string(directory.join("odd")).unwrap(), odd);
    assert_eq!(fs::read_to_string(directory.join("literal")).unwrap(), "a'b $x");

    for (name, value) in [("A B", "x"), ("", "x"), ("1A", "x"), ("A", "a\0b")] {
        let mut command = job("refused", "true");
        command.env.insert(name.to_owned(), value.to_owned());
        assert!(
            transport.run(&command, LIMIT).await.is_err(),
            "{name:?}={value:?}"
        );
    }
    for name in ["", "..", "a/b", ".new", "a b", "a\nb"] {
        assert!(
            transport.run(&job(name, "true"), LIMIT).await.is_err(),
            "{name:?}"
        );
    }
}

/// Whether something that a process has open was opened by this one: what it inherited itself does not count.
fn is_ours(world: &World, open: &Path) -> bool {
    let text = open.to_string_lossy();
    let elsewhere =
        open.starts_with(world.directory.path()) && !open.starts_with(world.place("w-1").directory);
    text.starts_with("anon_inode:") || text.starts_with("socket:") || elsewhere
}

#[tokio::test]
async fn everything_in_a_machine_carries_its_identity_and_nothing_of_ours() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path());
    config.env.insert("EXTRA".to_owned(), "for all".to_owned());
    let backend = ProcessBackend::open(config).unwrap();
    let world = World { directory, backend };
    let _lock = RunLock::acquire(world.directory.path()).unwrap();
    world.create("w-1").await;
    let mut transport = world.open("w-1").await;
    let line = "echo $NODEWRIGHT_RUN $NODEWRIGHT_NODE $NODEWRIGHT_ATTEMPT $EXTRA; readlink /proc/$$/fd/*";
    let (_, lines) = transport.run(&job("show", line), LIMIT).await.unwrap();
    assert_eq!(lines[0].text, "test w-1 1 for all");
    let holder = world.record("w-1").holder.unwrap().pid;
    let of_holder = fs::read_dir(format!("/proc/{holder}/fd")).unwrap();
    let of_holder = of_holder.map(|fd| fs::read_link(fd.unwrap().path()).unwrap());
    let of_job = lines[1..].iter().map(|line| PathBuf::from(&line.text));
    let ours: Vec<PathBuf> = of_holder
        .chain(of_job)
        .filter(|open| is_ours(&world, open))
        .collect();
    assert!(ours.is_empty(), "{ours:?}");
    assert_eq!(ProcessStat::read(holder).unwrap().unwrap().session, holder);
}

#[tokio::test]
async fn a_job_is_run_once_however_often_it_is_submitted() {
    let world = World::new();
    world.create("w-1").await;
    let mut transport = world.open("w-1").await;
    transport.run(&job("once", "echo x >>ran"), LIMIT).await.unwrap();
    let place = world.place("w-1");
    let once = super::super::job::Job::of(&place, "once").unwrap();
    once.submit(&place).unwrap();
    once.submit(&place).unwrap();
    // The holder takes jobs in order, so both were looked at before this one.
    transport.run(&job("later", "true"), LIMIT).await.unwrap();
    assert_eq!(fs::read_to_string(place.directory.join("ran")).unwrap(), "x\n");
}

#[tokio::test]
async fn ended_jobs_leave_no_zombies() {
    let world = World::new();
    world.create("w-1").await;
    let mut transport = world.open("w-1").await;
    for index in 0..10 {
        transport
            .run(&job(&format!("job-{index}"), "true"), LIMIT)
            .await
            .unwrap();
    }
    let holder = world.record("w-1").holder.unwrap().pid;
    let children = || fs::read_to_string(format!("/proc/{holder}/task/{holder}/children")).unwrap();
    let none = async {
        while !children().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    assert!(
        tokio::time::timeout(LIMIT, none).await.is_ok(),
        "{} are left",
        children()
    );
}

#[tokio::test]
async fn a_session_sees_the_join_and_ends_while_its_agent_lives_on() {
    let world = World::new();
    let start = format!("echo \"{JOIN_MARKER}agent-$NODEWRIGHT_NODE\"; exec sleep 1000");
    let mut node = spec("w-1", &start);
    let mut template = (*node.template).clone();
    template.boot.verify = vec!["true".to_owned(), "test -n \"$NODEWRIGHT_RUN\"".to_owned()];
    node.template = Template::new(template);
    let created = world.backend.create_lease(&call("w-1"), &node).await.unwrap();
    let boot = BootstrapSpec {
        lease: created.lease.clone().into(),
        endpoint: created.endpoint.clone().unwrap(),
        template: node.template.clone(),
    };
    let (sender, mut events) = mpsc::unbounded_channel();
    let sink = ObservationSink::new(move |report| sender.send(report.observation.event).unwrap());
    let session = world
        .backend
        .start_bootstrap(&call("w-1"), &boot, sink)
        .await
        .unwrap();
    let run = tokio::spawn(session.run);
    let mut told = Vec::new();
    while !matches!(told.last(), Some(StreamEvent::Joined(_))) {
        told.push(tokio::time::timeout(LIMIT, events.recv()).await.unwrap().unwrap());
    }
    assert_eq!(told[0], StreamEvent::Stage(BootstrapStage::Connecting));
    assert_eq!(told.last(), Some(&StreamEvent::Joined(AgentId::new("agent-w-1"))));
    world
        .backend
        .observe_convergence(&call("w-1"), session.id)
        .await
        .unwrap();
    tokio::time::timeout(LIMIT, run).await.unwrap().unwrap();
    while let Some(event) = events.recv().await {
        told.push(event);
    }
    assert_eq!(told.last(), Some(&StreamEvent::Converged));
    // Holder, runner and agent.
    assert_eq!(world.census().len(), 3);
    world.destroy("w-1", &created).await;
    assert_eq!(world.census(), [0; 0]);
}

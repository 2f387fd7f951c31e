use super::*;
use crate::bootstrap::script::{spec, stdout};
use crate::template::SwarmJoinSpec;

/// A session that was told these inputs, and all that it reported.
fn told(
    boot: BootSpec,
    inputs: impl IntoIterator<Item = BootstrapInput>,
) -> (Bootstrap, Vec<StreamObservation>) {
    let spec = spec(boot, SwarmJoinSpec::default());
    let mut bootstrap = Bootstrap::new("17.3".parse().unwrap(), &spec, SessionLimits::default());
    let mut seen = bootstrap.begin();
    for input in inputs {
        seen.extend(bootstrap.handle(input));
    }
    (bootstrap, seen)
}

fn events(seen: Vec<StreamObservation>) -> Vec<StreamEvent> {
    seen.into_iter().map(|observation| observation.event).collect()
}

fn lines(lines: &[&str]) -> BootstrapInput {
    BootstrapInput::Happened(Ok(TransportEvent::Lines(stdout(lines))))
}

fn exited(status: ExitStatus) -> BootstrapInput {
    BootstrapInput::Happened(Ok(TransportEvent::Exited(status)))
}

fn broken() -> TransportError {
    TransportError::new("the wire was cut")
}

fn open() -> BootstrapInput {
    BootstrapInput::Opened(Ok(()))
}

fn started() -> BootstrapInput {
    BootstrapInput::Started(Ok(()))
}

fn last_failure(seen: &[StreamObservation]) -> (BootstrapStage, String) {
    match &seen.last().unwrap().event {
        StreamEvent::Failed { stage, reason } => (*stage, reason.to_string()),
        other => panic!("not a failure: {other:?}"),
    }
}

#[test]
fn a_session_walks_its_stages_and_numbers_what_it_sees() {
    let mut boot = BootSpec::new("agent");
    boot.verify = vec!["true".into(), "test -d /data".into()];
    let ended = || BootstrapInput::JobEnded(Ok((ExitStatus::Code(0), Vec::new())));
    let joined = lines(&["hello", "NODEWRIGHT JOINED a-7", "bye"]);
    let (bootstrap, seen) = told(
        boot,
        [
            open(),
            ended(),
            ended(),
            started(),
            joined,
            BootstrapInput::MayEnd,
            BootstrapInput::LetGo,
        ],
    );
    let numbers: Vec<u64> = seen.iter().map(|observation| observation.sequence).collect();
    assert_eq!(numbers, (1..=8).collect::<Vec<_>>());
    assert_eq!(
        events(seen),
        [
            StreamEvent::Stage(BootstrapStage::Connecting),
            StreamEvent::Stage(BootstrapStage::Connected),
            StreamEvent::Stage(BootstrapStage::BootChecking),
            StreamEvent::Stage(BootstrapStage::AgentStarting),
            StreamEvent::Stage(BootstrapStage::WaitingForJoin),
            StreamEvent::Joined(AgentId::new("a-7")),
            StreamEvent::Lines { stdout: 3, stderr: 0 },
            StreamEvent::Converged,
        ]
    );
    assert_eq!(bootstrap.wants(), None);
}

#[test]
fn without_verify_commands_nothing_is_checked() {
    let (bootstrap, seen) = told(BootSpec::new("agent"), [open()]);
    assert_eq!(
        seen.last().unwrap().event,
        StreamEvent::Stage(BootstrapStage::AgentStarting)
    );
    assert!(matches!(bootstrap.wants(), Some(TransportCommand::Start(..))));
}

#[test]
fn the_start_job_quotes_its_arguments_and_carries_the_join() {
    let mut boot = BootSpec::new("exec agent --join");
    boot.args = vec!["a b".into(), "it's".into(), String::new()];
    boot.env.insert("MODE".into(), "fast".into());
    boot.extra_stdout = vec!["/var/log/agent".into()];
    let join = SwarmJoinSpec {
        orchestrator: "10.0.0.9:7".into(),
        token_ref: String::new(),
    };
    let mut bootstrap = Bootstrap::new(
        "1.1".parse().unwrap(),
        &spec(boot, join),
        SessionLimits::default(),
    );
    bootstrap.handle(open());
    let Some(TransportCommand::Start(job, limit)) = bootstrap.wants() else {
        panic!("{bootstrap:?}")
    };
    assert_eq!(job.name, "start");
    assert_eq!(job.line, r"exec agent --join 'a b' 'it'\''s' ''");
    let env: Vec<_> = job
        .env
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    assert_eq!(env, ["MODE=fast", "NODEWRIGHT_ORCHESTRATOR=10.0.0.9:7"]);
    assert_eq!(job.extra_stdout, ["/var/log/agent"]);
    assert_eq!(limit, SessionLimits::default().start);
}

#[test]
fn a_failed_check_names_the_command_its_status_and_its_last_lines() {
    let mut boot = BootSpec::new("agent");
    boot.verify = vec!["nvidia-smi".into(), "never reached".into()];
    let failed = BootstrapInput::JobEnded(Ok((ExitStatus::Code(9), stdout(&["no devices"]))));
    let (bootstrap, seen) = told(boot, [open(), failed]);
    let (stage, reason) = last_failure(&seen);
    assert_eq!(stage, BootstrapStage::BootCheckFailed);
    assert_eq!(
        reason,
        "verify command `nvidia-smi` ended with status 9\nno devices"
    );
    assert!(matches!(bootstrap.wants(), Some(TransportCommand::Close(_))));
}

#[test]
fn each_broken_call_fails_with_its_own_stage() {
    let mut checked = BootSpec::new("agent");
    checked.verify = vec!["true".into()];
    let plain = || BootSpec::new("agent");
    for (boot, inputs, stage) in [
        (
            plain(),
            vec![BootstrapInput::Opened(Err(broken()))],
            BootstrapStage::ConnectFailed,
        ),
        (
            checked,
            vec![open(), BootstrapInput::JobEnded(Err(broken()))],
            BootstrapStage::StreamFailed,
        ),
        (
            plain(),
            vec![open(), BootstrapInput::Started(Err(broken()))],
            BootstrapStage::StartFailed,
        ),
        (
            plain(),
            vec![open(), started(), BootstrapInput::Happened(Err(broken()))],
            BootstrapStage::StreamFailed,
        ),
    ] {
        let (_, seen) = told(boot, inputs);
        let (got, reason) = last_failure(&seen);
        assert_eq!(got, stage);
        assert!(reason.contains("the wire was cut"), "{reason}");
    }
}

#[test]
fn what_the_end_of_the_start_command_means_depends_on_the_join_and_the_status() {
    let failed = |status: ExitStatus| StreamEvent::Failed {
        stage: BootstrapStage::StartFailed,
        reason: format!("start command ended with {status}\nup").into(),
    };
    let marker = "NODEWRIGHT JOINED a";
    for (line, status, expected) in [
        ("up", ExitStatus::Code(0), StreamEvent::Closed),
        ("up", ExitStatus::Code(3), failed(ExitStatus::Code(3))),
        ("up", ExitStatus::Unknown, failed(ExitStatus::Unknown)),
        (marker, ExitStatus::Code(3), StreamEvent::Closed),
        (marker, ExitStatus::Unknown, StreamEvent::Closed),
    ] {
        let inputs = [open(), started(), lines(&[line]), exited(status)];
        let (_, seen) = told(BootSpec::new("agent"), inputs);
        assert_eq!(seen.last().unwrap().event, expected, "{line} {status:?}");
    }
}

#[test]
fn the_first_word_about_the_join_counts() {
    let refused = "NODEWRIGHT JOIN FAILED token expired";
    let (_, seen) = told(
        BootSpec::new("agent"),
        [open(), started(), lines(&["up", refused, "NODEWRIGHT JOINED a"])],
    );
    let (stage, reason) = last_failure(&seen);
    assert_eq!(stage, BootstrapStage::JoinFailed);
    assert!(reason.starts_with("token expired\nup\n"), "{reason}");
    assert_eq!(
        seen[seen.len() - 2].event,
        StreamEvent::Lines { stdout: 3, stderr: 0 }
    );

    let (_, seen) = told(
        BootSpec::new("agent"),
        [
            open(),
            started(),
            lines(&["NODEWRIGHT JOINED a", refused]),
            lines(&["NODEWRIGHT JOINED b"]),
        ],
    );
    let joins = events(seen)
        .into_iter()
        .filter(|event| matches!(event, StreamEvent::Joined(_) | StreamEvent::Failed { .. }));
    assert_eq!(
        joins.collect::<Vec<_>>(),
        [StreamEvent::Joined(AgentId::new("a"))]
    );
}

#[test]
fn only_a_whole_marker_at_the_beginning_of_standard_output_is_one() {
    let line = |source, text: &str| Line {
        source,
        text: text.to_owned(),
    };
    let chunk = vec![
        line(LineSource::Stderr, "NODEWRIGHT JOINED a"),
        line(LineSource::Stdout, "echo NODEWRIGHT JOINED a"),
        line(LineSource::Stdout, "NODEWRIGHT JOINED "),
        line(LineSource::Stdout, "NODEWRIGHT JOINED"),
    ];
    let chunk = BootstrapInput::Happened(Ok(TransportEvent::Lines(chunk)));
    let (_, seen) = told(BootSpec::new("agent"), [open(), started(), chunk]);
    let last = &seen.last().unwrap().event;
    assert_eq!(*last, StreamEvent::Lines { stdout: 3, stderr: 1 });
    assert!(
        !events(seen)
            .iter()
            .any(|event| matches!(event, StreamEvent::Joined(_)))
    );
}

#[test]
fn a_failure_shows_the_last_twenty_lines_and_cuts_them() {
    let mut inputs = vec![open(), started()];
    inputs.extend((0..30).map(|number| lines(&[&format!("{number}{}", "ä".repeat(400))])));
    inputs.push(exited(ExitStatus::Code(1)));
    let (_, seen) = told(BootSpec::new("agent"), inputs);
    let (_, reason) = last_failure(&seen);
    let shown: Vec<&str> = reason.lines().skip(1).collect();
    assert_eq!(shown.len(), 20);
    assert!(shown[0].starts_with("10ä") && shown[19].starts_with("29ä"));
    assert!(shown.iter().all(|line| line.chars().count() == 300));
}

#[test]
fn a_word_that_it_may_end_is_remembered_until_the_start_command_runs() {
    let (bootstrap, seen) = told(BootSpec::new("agent"), [BootstrapInput::MayEnd, open()]);
    assert!(!bootstrap.is_over(), "{seen:?}");
    let (_, seen) = told(
        BootSpec::new("agent"),
        [BootstrapInput::MayEnd, open(), started()],
    );
    assert_eq!(
        events(seen)[3..],
        [
            StreamEvent::Stage(BootstrapStage::WaitingForJoin),
            StreamEvent::Converged
        ]
    );
}

#[test]
fn a_session_whose_join_was_seen_elsewhere_may_end_without_the_marker() {
    let inputs = [open(), started(), lines(&["up"]), BootstrapInput::MayEnd];
    let (_, seen) = told(BootSpec::new("agent"), inputs);
    assert_eq!(seen.last().unwrap().event, StreamEvent::Converged);
}

#[test]
fn a_cancel_ends_it_at_any_time_and_nothing_follows_the_terminal_observation() {
    let steps = [open(), started(), lines(&["NODEWRIGHT JOINED a"])];
    for count in 0..=steps.len() {
        let inputs = steps.iter().take(count).cloned();
        let (mut bootstrap, seen) = told(BootSpec::new("agent"), inputs.chain([BootstrapInput::Cancelled]));
        assert_eq!(seen.last().unwrap().event, StreamEvent::Cancelled);
        let terminal = seen
            .iter()
            .filter(|observation| observation.event.is_terminal())
            .count();
        assert_eq!(terminal, 1);
        for late in steps.iter().cloned().chain([
            BootstrapInput::Cancelled,
            BootstrapInput::MayEnd,
            exited(ExitStatus::Code(1)),
            BootstrapInput::LetGo,
            BootstrapInput::LetGo,
        ]) {
            assert_eq!(bootstrap.handle(late), []);
        }
        assert_eq!(bootstrap.wants(), None);
    }
}

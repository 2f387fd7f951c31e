//! A transport that plays a script, for the tests of this module.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{ExitStatus, JobCommand, Line, LineSource, Transport, TransportError, TransportEvent};
use crate::effect::BootstrapSpec;
use crate::facts::{Endpoint, LeaseFacts, LeaseId};
use crate::template::{BootSpec, NodeShape, NodeTemplate, SwarmJoinSpec, Template};

/// How the transport answers one call.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    /// The call succeeds; a job exits with this status.
    Done(i32),
    /// The started command prints these lines of standard output.
    Lines(&'static [&'static str]),
    /// The transport breaks.
    Breaks,
    /// The call never answers.
    Hangs,
}

/// Answers each call with the next line of its script, and hangs where the script is at its end.
#[derive(Debug, Clone, Default)]
pub(super) struct Script {
    answers: VecDeque<Answer>,
    calls: Arc<Mutex<Vec<String>>>,
}

impl Script {
    pub(super) fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self {
            answers: answers.into_iter().collect(),
            calls: Arc::default(),
        }
    }

    /// What was called so far, also on clones.
    pub(super) fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }

    fn log(&self, call: impl Into<String>) {
        self.calls.lock().unwrap().push(call.into());
    }

    async fn answer(&mut self) -> Result<Answer, TransportError> {
        match self.answers.pop_front() {
            Some(Answer::Breaks) => Err(TransportError::new("the wire was cut")),
            Some(Answer::Hangs) | None => pending().await,
            Some(answer) => Ok(answer),
        }
    }
}

impl Transport for Script {
    async fn open(&mut self, _: Duration) -> Result<(), TransportError> {
        self.log("open");
        self.answer().await.map(drop)
    }

    async fn run(
        &mut self,
        job: &JobCommand,
        _: Duration,
    ) -> Result<(ExitStatus, Vec<Line>), TransportError> {
        self.log(format!("run {}", job.name));
        match self.answer().await? {
            Answer::Done(code) => Ok((ExitStatus::Code(code), stdout(&["checked"]))),
            _ => Ok((ExitStatus::Unknown, Vec::new())),
        }
    }

    async fn start(&mut self, job: &JobCommand, _: Duration) -> Result<(), TransportError> {
        self.log(format!("start {}", job.name));
        self.answer().await.map(drop)
    }

    async fn next(&mut self) -> Result<TransportEvent, TransportError> {
        self.log("next");
        match self.answer().await? {
            Answer::Lines(lines) => Ok(TransportEvent::Lines(stdout(lines))),
            Answer::Done(code) => Ok(TransportEvent::Exited(ExitStatus::Code(code))),
            _ => Ok(TransportEvent::Exited(ExitStatus::Unknown)),
        }
    }

    async fn close(&mut self, _: Duration) {
        self.log("close");
    }
}

/// Lines of standard output.
pub(super) fn stdout(lines: &[&str]) -> Vec<Line> {
    let line = |text: &&str| Line {
        source: LineSource::Stdout,
        text: (*text).to_owned(),
    };
    lines.iter().map(line).collect()
}

/// What a session works with where only the boot matters.
pub(super) fn spec(boot: BootSpec, join: SwarmJoinSpec) -> BootstrapSpec {
    BootstrapSpec {
        lease: Arc::new(LeaseFacts::new(LeaseId::new("m-1"))),
        endpoint: Endpoint {
            host: "10.0.0.1".into(),
            port: None,
        },
        template: Template::new(NodeTemplate {
            role: "worker".parse().unwrap(),
            provider: "memory".parse().unwrap(),
            shape: NodeShape::new("debian"),
            boot,
            join,
        }),
    }
}

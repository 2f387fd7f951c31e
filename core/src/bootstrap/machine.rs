//! What happens in a session: a state machine without I/O.
//!
//! It owns the order of the stages, the numbers of the observations, the counts of the lines and the last
//! lines for people to read when something fails. It deliberately does not know how commands are carried
//! into a machine ([`Transport`](super::Transport)), what time it is, or who listens.
//!
//! Invariants: observations are numbered from 1 without a gap; the last one is terminal and the only
//! terminal one; after it the machine wants nothing but to let go of the transport.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::{
    ExitStatus, JobCommand, Line, LineSource, StreamEvent, StreamObservation, TransportError, TransportEvent,
};
use crate::effect::BootstrapSpec;
use crate::facts::{AgentId, BootstrapStage};
use crate::id::BootstrapSessionId;
use crate::template::BootSpec;

/// How a line of standard output begins by which the started command says that its agent joined; the
/// agent's id follows.
pub const JOIN_MARKER: &str = "NODEWRIGHT JOINED ";

/// How a line of standard output begins by which the started command says that its agent cannot join; the
/// reason follows.
pub const JOIN_FAILED_MARKER: &str = "NODEWRIGHT JOIN FAILED ";

/// The name of the job that the start command runs as; verify commands are `verify-0`, `verify-1` and so on.
pub const START_JOB: &str = "start";

/// The variable in which jobs find the orchestrator's address, where the template gives one.
pub const ORCHESTRATOR_VARIABLE: &str = "NODEWRIGHT_ORCHESTRATOR";

/// The variable in which jobs find the reference to their join token, where the template gives one.
pub const JOIN_TOKEN_REF_VARIABLE: &str = "NODEWRIGHT_JOIN_TOKEN_REF";

/// How many of the last lines a failure shows: a page for a person, and a bound for memory.
const LAST_LINES: usize = 20;

/// How many characters of each of them.
const LAST_LINE_CHARS: usize = 300;

/// How long each call of a session's transport may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionLimits {
    /// To open the way: a handshake over a slow network. Default 30 s.
    pub open: Duration,
    /// For one verify command to end: it may have to load a driver or reach the network. Default 60 s.
    pub verify: Duration,
    /// To start the start command, not to run it. Default 30 s.
    pub start: Duration,
    /// To let go of the machine; nobody waits for the other side for long. Default 5 s.
    pub close: Duration,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self {
            open: Duration::from_secs(30),
            verify: Duration::from_secs(60),
            start: Duration::from_secs(30),
            close: Duration::from_secs(5),
        }
    }
}

/// What the machine wants of its transport next.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TransportCommand {
    /// Open it; answered by [`BootstrapInput::Opened`].
    Open(Duration),
    /// Run this verify command to its end; answered by [`BootstrapInput::JobEnded`].
    Run(JobCommand, Duration),
    /// Start the start command; answered by [`BootstrapInput::Started`].
    Start(JobCommand, Duration),
    /// Wait for what the start command does next; answered by [`BootstrapInput::Happened`].
    Next,
    /// Let go, whether it was opened or not; answered by [`BootstrapInput::LetGo`].
    Close(Duration),
}

/// What the machine is told. What does not answer its latest wish is ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BootstrapInput {
    /// The transport is open, or could not be opened.
    Opened(Result<(), TransportError>),
    /// A verify command ended, with the last lines that it printed, or the transport broke under it.
    JobEnded(Result<(ExitStatus, Vec<Line>), TransportError>),
    /// The start command runs, or could not be started.
    Started(Result<(), TransportError>),
    /// The start command did something, or the transport broke under it.
    Happened(Result<TransportEvent, TransportError>),
    /// The session is to end now.
    Cancelled,
    /// The node has joined, whoever saw it: the session may end as soon as its start command runs.
    MayEnd,
    /// The transport was let go.
    LetGo,
}

/// Where the session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Phase {
    Opening,
    Verifying(usize),
    Starting,
    Following,
    Closing,
    Over,
}

/// The state of one session. Pure: drive it with [`run_session`](super::run_session), or by hand.
///
/// ```
/// # use std::sync::Arc;
/// # use nodewright_core::bootstrap::{Bootstrap, BootstrapInput, SessionLimits, TransportCommand};
/// # use nodewright_core::effect::BootstrapSpec;
/// # use nodewright_core::facts::{Endpoint, LeaseFacts, LeaseId};
/// # use nodewright_core::template::{BootSpec, NodeShape, NodeTemplate, SwarmJoinSpec, Template};
/// # let spec = BootstrapSpec {
/// #     lease: Arc::new(LeaseFacts::new(LeaseId::new("m-1"))),
/// #     endpoint: Endpoint { host: "10.0.0.1".into(), port: None },
/// #     template: Template::new(NodeTemplate {
/// #         role: "worker".parse()?, provider: "memory".parse()?, shape: NodeShape::new("debian"),
/// #         boot: BootSpec::new("agent"), join: SwarmJoinSpec::default(),
/// #     }),
/// # };
/// let mut session = Bootstrap::new("17.3".parse()?, &spec, SessionLimits::default());
/// assert_eq!(session.begin().len(), 1, "it says that it connects");
/// session.handle(BootstrapInput::Opened(Ok(())));
/// assert!(matches!(session.wants(), Some(TransportCommand::Start(job, _)) if job.name == "start"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Bootstrap {
    session: BootstrapSessionId,
    limits: SessionLimits,
    verify: Vec<JobCommand>,
    start: JobCommand,
    phase: Phase,
    sequence: u64,
    stdout: u64,
    stderr: u64,
    joined: bool,
    may_end: bool,
    tail: VecDeque<String>,
}

impl Bootstrap {
    /// A session of this name that boots what the spec says.
    pub fn new(session: BootstrapSessionId, spec: &BootstrapSpec, limits: SessionLimits) -> Self {
        let boot = spec.boot();
        let mut env = boot.env.clone();
        let join = spec.join();
        for (variable, value) in [
            (ORCHESTRATOR_VARIABLE, &join.orchestrator),
            (JOIN_TOKEN_REF_VARIABLE, &join.token_ref),
        ] {
            if !value.is_empty() {
                env.insert(variable.to_owned(), value.clone());
            }
        }
        let verify = boot.verify.iter().enumerate();
        Self {
            session,
            limits,
            verify: verify
                .map(|(index, line)| verify_job(index, line, env.clone()))
                .collect(),
            start: start_job(boot, env),
            phase: Phase::Opening,
            sequence: 0,
            stdout: 0,
            stderr: 0,
            joined: false,
            may_end: false,
            tail: VecDeque::new(),
        }
    }

    /// Its name.
    pub const fn session(&self) -> BootstrapSessionId {
        self.session
    }

    /// Whether its terminal observation was made.
    pub const fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Closing | Phase::Over)
    }

    /// What it wants of its transport now; `None` once it is done with it.
    pub fn wants(&self) -> Option<TransportCommand> {
        match self.phase {
            Phase::Opening => Some(TransportCommand::Open(self.limits.open)),
            Phase::Verifying(index) => self
                .verify
                .get(index)
                .map(|job| TransportCommand::Run(job.clone(), self.limits.verify)),
            Phase::Starting => Some(TransportCommand::Start(self.start.clone(), self.limits.start)),
            Phase::Following => Some(TransportCommand::Next),
            Phase::Closing => Some(TransportCommand::Close(self.limits.close)),
            Phase::Over => None,
        }
    }

    /// The first observation: that it connects. Later calls return nothing.
    pub fn begin(&mut self) -> Vec<StreamObservation> {
        if self.sequence > 0 {
            return Vec::new();
        }
        vec![self.observe(StreamEvent::Stage(BootstrapStage::Connecting))]
    }

    /// Takes an input and returns what is to be reported, in order. Total: what does not fit is ignored.
    pub fn handle(&mut self, input: BootstrapInput) -> Vec<StreamObservation> {
        let mut seen = Vec::new();
        match (self.phase, input) {
            (Phase::Closing, BootstrapInput::LetGo) => self.phase = Phase::Over,
            (Phase::Closing | Phase::Over, _) => {}
            (_, BootstrapInput::Cancelled) => self.end(StreamEvent::Cancelled, &mut seen),
            (_, BootstrapInput::MayEnd) => {
                self.may_end = true;
                self.end_if_it_may(&mut seen);
            }
            (Phase::Opening, BootstrapInput::Opened(result)) => self.opened(result, &mut seen),
            (Phase::Verifying(index), BootstrapInput::JobEnded(result)) => {
                self.verified(index, result, &mut seen);
            }
            (Phase::Starting, BootstrapInput::Started(result)) => self.started(result, &mut seen),
            (Phase::Following, BootstrapInput::Happened(result)) => self.happened(result, &mut seen),
            _ => {}
        }
        seen
    }

    fn opened(&mut self, result: Result<(), TransportError>, seen: &mut Vec<StreamObservation>) {
        if let Err(error) = result {
            return self.fail(BootstrapStage::ConnectFailed, error.to_string(), seen);
        }
        seen.push(self.observe(StreamEvent::Stage(BootstrapStage::Connected)));
        if self.verify.is_empty() {
            self.begin_start(seen);
        } else {
            self.phase = Phase::Verifying(0);
            seen.push(self.observe(StreamEvent::Stage(BootstrapStage::BootChecking)));
        }
    }

    fn verified(
        &mut self,
        index: usize,
        result: Result<(ExitStatus, Vec<Line>), TransportError>,
        seen: &mut Vec<StreamObservation>,
    ) {
        let command = self.verify.get(index).map_or("", |job| job.line.as_str());
        match result {
            Ok((ExitStatus::Code(0), _)) if index + 1 < self.verify.len() => {
                self.phase = Phase::Verifying(index + 1);
            }
            Ok((ExitStatus::Code(0), _)) => self.begin_start(seen),
            Ok((status, lines)) => {
                let reason = format!("verify command `{command}` ended with {status}");
                self.keep_last(&lines);
                self.fail(BootstrapStage::BootCheckFailed, reason, seen);
            }
            Err(error) => {
                let reason = format!("verify command `{command}`: {error}");
                self.fail(BootstrapStage::StreamFailed, reason, seen);
            }
        }
    }

    fn begin_start(&mut self, seen: &mut Vec<StreamObservation>) {
        self.phase = Phase::Starting;
        seen.push(self.observe(StreamEvent::Stage(BootstrapStage::AgentStarting)));
    }

    fn started(&mut self, result: Result<(), TransportError>, seen: &mut Vec<StreamObservation>) {
        match result {
            Ok(()) => {
                self.phase = Phase::Following;
                seen.push(self.observe(StreamEvent::Stage(BootstrapStage::WaitingForJoin)));
                self.end_if_it_may(seen);
            }
            Err(error) => self.fail(BootstrapStage::StartFailed, error.to_string(), seen),
        }
    }

    fn happened(
        &mut self,
        result: Result<TransportEvent, TransportError>,
        seen: &mut Vec<StreamObservation>,
    ) {
        match result {
            Ok(TransportEvent::Lines(lines)) => self.read(&lines, seen),
            // After the join the fold decides what the end of the command means; an agent that goes into the
            // background by itself exits with 0 before it.
            Ok(TransportEvent::Exited(status)) if self.joined || status == ExitStatus::Code(0) => {
                self.end(StreamEvent::Closed, seen);
            }
            Ok(TransportEvent::Exited(status)) => {
                let reason = format!("start command ended with {status}");
                self.fail(BootstrapStage::StartFailed, reason, seen);
            }
            Err(error) => self.fail(BootstrapStage::StreamFailed, error.to_string(), seen),
        }
    }

    /// Reads a chunk of output: however many lines it has, it makes one observation of lines.
    fn read(&mut self, lines: &[Line], seen: &mut Vec<StreamObservation>) {
        if lines.is_empty() {
            return;
        }
        let mut refusal = None;
        for line in lines {
            if line.source == LineSource::Stderr {
                self.stderr += 1;
                continue;
            }
            self.stdout += 1;
            // The first word counts: an agent that joined and then says that it cannot is the fold's affair.
            if self.joined || refusal.is_some() {
                continue;
            }
            if let Some(agent) = marked(&line.text, JOIN_MARKER) {
                self.joined = true;
                seen.push(self.observe(StreamEvent::Joined(AgentId::new(agent))));
            } else if let Some(reason) = marked(&line.text, JOIN_FAILED_MARKER) {
                refusal = Some(reason.to_owned());
            }
        }
        self.keep_last(lines);
        seen.push(self.observe(StreamEvent::Lines {
            stdout: self.stdout,
            stderr: self.stderr,
        }));
        if let Some(reason) = refusal {
            self.fail(BootstrapStage::JoinFailed, cut(&reason).to_owned(), seen);
        }
    }

    /// Whoever says that the session may end knows that the node joined, perhaps by another way than the
    /// marker. Before the start command runs there would be nothing that lives on, so the word is remembered.
    fn end_if_it_may(&mut self, seen: &mut Vec<StreamObservation>) {
        if self.may_end && self.phase == Phase::Following {
            self.end(StreamEvent::Converged, seen);
        }
    }

    fn fail(&mut self, stage: BootstrapStage, mut reason: String, seen: &mut Vec<StreamObservation>) {
        for line in self.tail.drain(..) {
            reason.push('\n');
            reason.push_str(&line);
        }
        let reason = reason.into();
        self.end(StreamEvent::Failed { stage, reason }, seen);
    }

    fn end(&mut self, terminal: StreamEvent, seen: &mut Vec<StreamObservation>) {
        debug_assert!(
            terminal.is_terminal(),
            "a session ends with a terminal observation"
        );
        self.phase = Phase::Closing;
        seen.push(self.observe(terminal));
    }

    fn observe(&mut self, event: StreamEvent) -> StreamObservation {
        self.sequence += 1;
        StreamObservation {
            session: self.session,
            sequence: self.sequence,
            event,
        }
    }

    fn keep_last(&mut self, lines: &[Line]) {
        let skipped = lines.len().saturating_sub(LAST_LINES);
        self.tail
            .extend(lines.iter().skip(skipped).map(|line| cut(&line.text).to_owned()));
        let surplus = self.tail.len().saturating_sub(LAST_LINES);
        self.tail.drain(..surplus);
    }
}

fn verify_job(index: usize, line: &str, env: BTreeMap<String, String>) -> JobCommand {
    JobCommand {
        name: format!("verify-{index}"),
        line: line.to_owned(),
        env,
        extra_stdout: Vec::new(),
        extra_stderr: Vec::new(),
    }
}

fn start_job(boot: &BootSpec, env: BTreeMap<String, String>) -> JobCommand {
    let mut line = boot.start.clone();
    for word in &boot.args {
        line.push_str(" '");
        line.push_str(&word.replace('\'', r"'\''"));
        line.push('\'');
    }
    JobCommand {
        name: START_JOB.to_owned(),
        line,
        env,
        extra_stdout: boot.extra_stdout.clone(),
        extra_stderr: boot.extra_stderr.clone(),
    }
}

/// What follows the marker that a line begins with. A marker that nothing follows is none.
fn marked<'a>(line: &'a str, marker: &str) -> Option<&'a str> {
    let rest = line.strip_prefix(marker)?.trim();
    (!rest.is_empty()).then_some(rest)
}

/// At most the first [`LAST_LINE_CHARS`] characters.
fn cut(text: &str) -> &str {
    match text.char_indices().nth(LAST_LINE_CHARS) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

#[cfg(test)]
mod tests;

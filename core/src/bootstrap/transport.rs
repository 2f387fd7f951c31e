//! How a session reaches into a machine.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// A command that runs in the machine as a job of its own.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct JobCommand {
    /// The job's name, unique in the machine: a job that is there already is adopted, never run twice.
    pub name: String,
    /// A line for the machine's `/bin/sh`.
    pub line: String,
    /// Its environment, beside the identity that everything in the machine carries.
    pub env: BTreeMap<String, String>,
    /// Further files on the machine to follow as standard output.
    pub extra_stdout: Vec<String>,
    /// Further files on the machine to follow as standard error.
    pub extra_stderr: Vec<String>,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExitStatus {
    /// It exited with this status.
    Code(i32),
    /// It ended, and nobody knows how: a signal, or a channel that closed without a word.
    Unknown,
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "status {code}"),
            Self::Unknown => f.write_str("unknown status"),
        }
    }
}

/// Which stream a line came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LineSource {
    /// Standard output, or a file followed as such.
    Stdout,
    /// Standard error, or a file followed as such.
    Stderr,
}

/// One line of output, without its end; an overlong line is cut.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Line {
    /// Where it came from.
    pub source: LineSource,
    /// Its text; what is not UTF-8 is replaced.
    pub text: String,
}

/// What a started command does.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TransportEvent {
    /// It printed lines; all that were there at once.
    Lines(Vec<Line>),
    /// It ended, after its last lines.
    Exited(ExitStatus),
}

/// A transport call that failed. Says what failed, as a lowercase fragment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct TransportError {
    /// What failed.
    pub reason: Arc<str>,
}

impl TransportError {
    /// A failure, in words.
    pub fn new(reason: impl Into<Arc<str>>) -> Self {
        Self {
            reason: reason.into(),
        }
    }
}

/// A way into one machine. Each call has a deadline of its own, `limit`, that the transport keeps with the
/// clock of its runtime; passing it is an error.
pub trait Transport: Send + 'static {
    /// Opens the way.
    fn open(&mut self, limit: Duration) -> impl Future<Output = Result<(), TransportError>> + Send;

    /// Runs a job to its end and says how that was, with the last lines that it printed.
    ///
    /// A job of that name that ended already is run again; one that still runs is waited for.
    fn run(
        &mut self,
        job: &JobCommand,
        limit: Duration,
    ) -> impl Future<Output = Result<(ExitStatus, Vec<Line>), TransportError>> + Send;

    /// Starts a job, or adopts the one of that name that is in the machine, from its first line on.
    fn start(
        &mut self,
        job: &JobCommand,
        limit: Duration,
    ) -> impl Future<Output = Result<(), TransportError>> + Send;

    /// Waits for what the started job does next. Cancel safe: nothing is lost when it is dropped.
    fn next(&mut self) -> impl Future<Output = Result<TransportEvent, TransportError>> + Send;

    /// Lets go of the machine, also one that was never opened or whose last call was dropped. What was
    /// started goes on.
    fn close(&mut self, limit: Duration) -> impl Future<Output = ()> + Send;
}

//! What fleet itself has to tell, beside the events of its cluster.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use nodewright::Swept;
use nodewright::id::{LogicalNodeId, NodeAttemptId, ProviderKind};
use nodewright::inventory::Findings;
use nodewright::shape::Generation;
use serde::Serialize;

use crate::commands::Verb;
use crate::refusal::{Mistake, chain};

/// One piece of news, in the form of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(crate) enum Note {
    /// The machines of an earlier fleet were taken over.
    Resumed { machines: usize },
    /// A generation was reached.
    Converged { generation: Generation },
    /// The file was saved with mistakes, or with what cannot follow on what is there; nothing changed.
    EditRefused {
        refused: Vec<Mistake>,
        #[serde(skip)]
        text: String,
    },
    /// The holder of a machine was killed, as asked.
    Killed {
        node: LogicalNodeId,
        attempt: NodeAttemptId,
    },
    /// All whose machines were killed are ready again.
    Healed { machines: usize },
    /// What was asked for on standard input was done; nothing was if the slot is empty.
    CommandDone {
        command: Verb,
        node: LogicalNodeId,
        done: bool,
    },
    /// The sweep that was asked for on standard input was answered by all providers, or was not.
    #[serde(rename = "command-done")]
    SweepDone {
        command: &'static str,
        done: bool,
        providers: BTreeMap<ProviderKind, Answer>,
    },
    /// A line of standard input that asks for nothing.
    CommandRefused { line: String, message: String },
    /// So many events came faster than they could be told; what is counted of them is too low.
    Missed { events: u64 },
    /// Everything is being taken down.
    Draining { because: String },
    /// The machines were left as they are.
    Detached {
        because: String,
        machines: usize,
        state: PathBuf,
    },
    /// Something that a person should know of.
    Trouble { trouble: String },
}

/// What a provider answered to a sweep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Answer {
    /// What that showed.
    Findings(Findings),
    /// It did not answer.
    Error(String),
}

impl Note {
    /// What a sweep that was asked for came to.
    pub(crate) fn of_sweep(swept: Swept) -> Self {
        let answer = |answer| match answer {
            Ok(findings) => Answer::Findings(findings),
            Err(error) => Answer::Error(chain(&error)),
        };
        Self::SweepDone {
            command: "sweep",
            done: swept.values().all(Result::is_ok),
            providers: swept.into_iter().map(|(kind, one)| (kind, answer(one))).collect(),
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resumed { machines } => {
                write!(f, "took over {machines} machines that an earlier fleet left")
            }
            Self::Converged { generation } => write!(f, "generation {generation} is reached"),
            Self::EditRefused { text, .. } => write!(f, "saved, but not used:\n{text}"),
            Self::Killed { node, attempt } => write!(f, "{node}: killed the holder of attempt {attempt}"),
            Self::Healed { machines } => write!(f, "all {machines} are replaced"),
            Self::CommandDone {
                command,
                node,
                done: true,
            } => write!(f, "{node}: {command}, as asked"),
            Self::CommandDone {
                command,
                node,
                done: false,
            } => write!(f, "{node}: nothing to {command}: the slot is empty"),
            Self::SweepDone { providers, .. } => {
                f.write_str("swept, as asked")?;
                for (provider, answer) in providers {
                    match answer {
                        Answer::Findings(findings) => write!(f, "; {provider}: {findings}")?,
                        Answer::Error(error) => write!(f, "; {provider} did not answer: {error}")?,
                    }
                }
                Ok(())
            }
            Self::CommandRefused { line, message } => write!(f, "{line:?} {message}"),
            Self::Missed { events } => write!(f, "{events} events came too fast and are not shown"),
            Self::Draining { because } => write!(f, "taking everything down: {because}"),
            Self::Detached {
                because,
                machines,
                state,
            } => write!(
                f,
                "leaving {machines} machines as they are: {because}; the next start takes them over from {}",
                state.display()
            ),
            Self::Trouble { trouble } => f.write_str(trouble),
        }
    }
}

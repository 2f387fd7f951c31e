//! What a person, or a program, asks for while a fleet runs: lines on its standard input.

use std::fmt;
use std::io::{self, BufRead as _};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use nodewright::id::LogicalNodeId;
use serde::Serialize;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// What can be asked for of one slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verb {
    /// Try it again now, halted or backing off.
    Retry,
    /// Replace its machine.
    Replace,
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Retry => "retry",
            Self::Replace => "replace",
        })
    }
}

/// One thing that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Of one slot.
    Slot { verb: Verb, node: LogicalNodeId },
    /// That all machines are compared with what is known of them.
    Sweep,
}

impl FromStr for Ask {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (verb, node) = match words[..] {
            ["retry", node] => (Verb::Retry, node),
            ["replace", node] => (Verb::Replace, node),
            ["sweep"] => return Ok(Self::Sweep),
            _ => {
                return Err(
                    "is none of `retry NODE`, `replace NODE` and `sweep`, such as `retry workers-3`"
                        .to_owned(),
                );
            }
        };
        let node = node.parse().map_err(|error| format!("{error}"))?;
        Ok(Self::Slot { verb, node })
    }
}

/// How many lines were typed that nobody has drawn over yet. A clone counts the same ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct Echoes(Arc<AtomicUsize>);

impl Echoes {
    /// Those since the last time.
    pub(crate) fn take(&self) -> usize {
        self.0.swap(0, Ordering::SeqCst)
    }
}

/// The lines of standard input.
#[derive(Debug)]
pub(crate) struct Commands(UnboundedReceiver<String>);

impl Commands {
    /// Begins to read, on a thread that nobody waits for: a read of a terminal cannot be ended. Every line is
    /// counted at once: a terminal wrote it already.
    pub(crate) fn read(echoes: Echoes) -> Self {
        let (sender, lines) = unbounded_channel();
        thread::spawn(move || {
            for line in io::stdin().lock().split(b'\n') {
                let Ok(line) = line else { break };
                echoes.0.fetch_add(1, Ordering::SeqCst);
                let line = String::from_utf8_lossy(&line).trim().to_owned();
                if !line.is_empty() && sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self(lines)
    }

    /// None will come.
    pub(crate) fn none() -> Self {
        Self(unbounded_channel().1)
    }

    /// The next line that is not empty. Waits for ever once the input has ended: the fleet goes on. Cancel
    /// safe.
    pub(crate) async fn next(&mut self) -> String {
        match self.0.recv().await {
            Some(line) => line,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_verb_and_a_node_or_asks_for_a_sweep() {
        let of_slot = |verb, node: &str| {
            let node = node.parse().unwrap();
            Ok(Ask::Slot { verb, node })
        };
        assert_eq!(
            " replace  workers-3 ".parse(),
            of_slot(Verb::Replace, "workers-3")
        );
        assert_eq!("retry store-0".parse(), of_slot(Verb::Retry, "store-0"));
        assert_eq!("sweep".parse(), Ok(Ask::Sweep));
        for bad in [
            "retry",
            "retry workers",
            "retry a-0 b-0",
            "Retry a-0",
            "sweep a-0",
            "destroy a-0",
        ] {
            assert!(bad.parse::<Ask>().is_err(), "{bad}");
        }
    }
}

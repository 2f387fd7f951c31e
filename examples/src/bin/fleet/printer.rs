//! What is written to standard output, in one of three forms.

use std::io::{self, IsTerminal as _, Write};

use jiff::Timestamp;
use nodewright::event::{Event, EventKind};
use nodewright::status::NodeStatus;
use serde::Serialize;

use crate::clock;
use crate::note::Note;
use crate::options::UpOptions;
use crate::progress::Progress;
use crate::refusal::{Mistake, Refusal};
use crate::summary::Summary;

/// A form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// One line per change.
    Plain,
    /// One JSON object per event.
    Json,
    /// A bar, and lines only for what a person should read.
    Bar,
}

impl Form {
    /// The form that was asked for, or suits whoever reads.
    pub(crate) fn choose(options: &UpOptions) -> Self {
        let terminal = || io::stdout().is_terminal() && io::stderr().is_terminal();
        match options {
            UpOptions { json: true, .. } => Self::Json,
            UpOptions { plain: true, .. } => Self::Plain,
            _ if terminal() => Self::Bar,
            _ => Self::Plain,
        }
    }
}

/// A line of fleet's own in JSON.
#[derive(Serialize)]
struct Timed<'a> {
    at: Timestamp,
    #[serde(flatten)]
    note: &'a Note,
}

/// Writes. Once a write fails nobody reads any more, and nothing more is written: the machines matter, and
/// they are still looked after.
#[derive(Debug)]
pub(crate) struct Printer<W> {
    form: Form,
    out: W,
    started: Timestamp,
    progress: Option<Progress>,
    unread: bool,
}

impl<W: Write> Printer<W> {
    /// A printer of this form, for a fleet that started at this moment.
    pub(crate) fn new(form: Form, out: W, started: Timestamp) -> Self {
        Self {
            form,
            out,
            started,
            progress: None,
            unread: false,
        }
    }

    /// Shows the bar, in the form that has one.
    pub(crate) fn begin(&mut self, nodes: u64) {
        self.progress = (self.form == Form::Bar).then(|| Progress::new(nodes));
    }

    pub(crate) fn event(&mut self, event: &Event) {
        match self.form {
            Form::Json => self.json(event),
            Form::Plain => self.timed(event.at, &event.kind.to_string()),
            Form::Bar => {
                if let Some(progress) = &mut self.progress {
                    progress.event(&event.kind);
                }
                if is_for_people(&event.kind) {
                    self.timed(event.at, &event.kind.to_string());
                }
            }
        }
    }

    pub(crate) fn note(&mut self, note: &Note) {
        let at = clock::now();
        match self.form {
            Form::Json => self.json(&Timed { at, note }),
            Form::Plain | Form::Bar => self.timed(at, &note.to_string()),
        }
    }

    /// Takes the place of events that were missed.
    pub(crate) fn reset(&mut self, nodes: impl FnOnce() -> Vec<NodeStatus>) {
        if let Some(progress) = &mut self.progress {
            progress.reset(nodes());
        }
    }

    /// Tells, for programs, what was refused. People read it on standard error.
    pub(crate) fn refused(&mut self, refusal: &Refusal) {
        #[derive(Serialize)]
        struct Refused<'a> {
            refused: &'a [Mistake],
        }
        if self.form == Form::Json {
            self.json(&Refused {
                refused: &refusal.mistakes,
            });
        }
    }

    /// Writes the last line.
    pub(crate) fn summary(&mut self, summary: &Summary) {
        #[derive(Serialize)]
        struct Last<'a> {
            summary: &'a Summary,
        }
        if let Some(progress) = self.progress.take() {
            progress.finish();
        }
        match self.form {
            Form::Json => self.json(&Last { summary }),
            Form::Plain | Form::Bar => self.line(&summary.to_string()),
        }
    }

    fn json(&mut self, value: &impl Serialize) {
        match serde_json::to_string(value) {
            Ok(line) => self.line(&line),
            Err(error) => tracing::error!(%error, "an event is no JSON"),
        }
    }

    fn timed(&mut self, at: Timestamp, text: &str) {
        let since = at.duration_since(self.started).as_secs_f64();
        let line = format!("{since:9.3}s {text}");
        match &self.progress {
            Some(progress) => progress.line(&line),
            None => self.line(&line),
        }
    }

    fn line(&mut self, line: &str) {
        if self.unread {
            return;
        }
        let written = writeln!(self.out, "{line}").and_then(|()| self.out.flush());
        self.unread = written.is_err();
    }
}

/// Whether a person who looks at counts should be told of it all the same.
fn is_for_people(event: &EventKind) -> bool {
    matches!(
        event,
        EventKind::ShapeAccepted { .. }
            | EventKind::AttemptFailed { .. }
            | EventKind::Halted { .. }
            | EventKind::NodeFaulty { .. }
            | EventKind::MachineFound { .. }
            | EventKind::OrphanFound { .. }
            | EventKind::MachineMoved { .. }
            | EventKind::Looked { error: Some(_), .. }
            | EventKind::Swept { error: Some(_), .. }
            | EventKind::AttemptsExhausted
    )
}

#[cfg(test)]
mod tests {
    use nodewright::shape::Generation;

    use super::*;

    fn printed(form: Form) -> String {
        let mut out = Vec::new();
        let mut printer = Printer::new(form, &mut out, Timestamp::UNIX_EPOCH);
        printer.event(&Event {
            at: Timestamp::from_millisecond(1500).unwrap(),
            kind: EventKind::ShapeAccepted {
                generation: Generation(2),
                nodes: 3,
            },
        });
        printer.refused(&Refusal::whole("f", "is wrong"));
        printer.summary(&Summary::of_nothing());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_line_of_json_is_an_object_and_the_last_is_the_summary() {
        let text = printed(Form::Json);
        let lines: Vec<serde_json::Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines[0]["event"], "shape-accepted");
        assert_eq!(lines[0]["nodes"], 3);
        assert_eq!(lines[1]["refused"][0]["message"], "is wrong");
        let keys: Vec<&str> = lines[2]["summary"]
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        for key in [
            "converged",
            "nodes",
            "replaced",
            "created",
            "destroyed",
            "left",
            "seconds",
        ] {
            assert!(keys.contains(&key), "{keys:?}");
        }
        assert_eq!((lines.len(), keys.len()), (3, 7));
    }

    #[test]
    fn a_plain_line_says_how_long_after_the_start() {
        let text = printed(Form::Plain);
        assert!(
            text.starts_with("    1.500s generation 2 accepted: 3 nodes\n"),
            "{text}"
        );
        assert_eq!(text.lines().count(), 2);
    }

    #[test]
    fn nothing_fails_when_nobody_reads_any_more() {
        struct Closed(u32);
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                self.0 += 1;
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut closed = Closed(0);
        let mut printer = Printer::new(Form::Plain, &mut closed, Timestamp::UNIX_EPOCH);
        printer.summary(&Summary::of_nothing());
        printer.summary(&Summary::of_nothing());
        assert_eq!(closed.0, 1);
    }
}

//! What is written to standard output, in one of three forms.

use std::io::{self, IsTerminal as _, Write};
use std::time::Duration;

use console::Term;
use jiff::Timestamp;
use nodewright::event::{Event, EventKind};
use nodewright::shape::Generation;
use nodewright::status::{NodeStatus, Summary as Numbers};
use serde::Serialize;

use crate::board::Board;
use crate::clock;
use crate::commands::Echoes;
use crate::condition::{Conditions, Standing};
use crate::note::Note;
use crate::options::UpOptions;
use crate::refusal::{Mistake, Refusal};
use crate::screen::Screen;
use crate::summary::Summary;
use crate::table::{self, Terminal};
use crate::waits::Waits;
use crate::wording::clean;

/// A form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// One line per change.
    Plain,
    /// One JSON object per event.
    Json,
    /// A table that lives, and lines only for what a person should read.
    Table,
}

impl Form {
    /// The form that was asked for, or suits whoever reads.
    pub(crate) fn choose(options: &UpOptions) -> Self {
        // One that cannot move its cursor is as good as none.
        let dumb = || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let terminal = || io::stdout().is_terminal() && io::stderr().is_terminal() && !dumb();
        match options {
            UpOptions { json: true, .. } => Self::Json,
            UpOptions { plain: true, .. } => Self::Plain,
            _ if terminal() => Self::Table,
            _ => Self::Plain,
        }
    }
}

/// A line of fleet's own in JSON.
#[derive(Serialize)]
struct Timed<'a, T> {
    at: Timestamp,
    #[serde(flatten)]
    note: &'a T,
}

/// Writes. Once a write fails nobody reads any more, and nothing more is written: the machines matter, and
/// they are still looked after.
#[derive(Debug)]
pub(crate) struct Printer<W> {
    form: Form,
    out: W,
    started: Timestamp,
    /// From the beginning of a table to its end.
    screen: Option<Screen>,
    board: Board,
    waits: Waits,
    conditions: Conditions,
    echoes: Echoes,
    unread: bool,
}

impl<W: Write> Printer<W> {
    /// A printer of this form, for a fleet that started at this moment.
    pub(crate) fn new(form: Form, out: W, started: Timestamp) -> Self {
        Self {
            form,
            out,
            started,
            screen: None,
            board: Board::default(),
            waits: Waits::default(),
            conditions: Conditions::default(),
            echoes: Echoes::default(),
            unread: false,
        }
    }

    /// Shows the table, in the form that has one.
    pub(crate) fn begin(&mut self, generation: Generation, nodes: u64) {
        self.board = Board::new(generation, nodes);
        self.screen = (self.form == Form::Table).then(Screen::default);
    }

    /// Where typed lines are counted.
    pub(crate) fn echoes(&self) -> Echoes {
        self.echoes.clone()
    }

    pub(crate) const fn form(&self) -> Form {
        self.form
    }

    pub(crate) fn event(&mut self, event: &Event) {
        match self.form {
            Form::Json => self.json(event),
            Form::Plain if is_nothing_new(&event.kind) => {}
            Form::Plain => self.timed(event.at, &event.kind.to_string()),
            Form::Table => {
                self.board.hear(&event.kind);
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
            Form::Plain | Form::Table => self.timed(at, &note.to_string()),
        }
    }

    /// Takes a look at the run in numbers: tells of the conditions in it, or notes them for the table.
    pub(crate) fn survey(&mut self, seen: &Numbers) {
        let at = clock::now();
        if self.form == Form::Table {
            let standings = seen.providers.iter().map(|one| Standing::of(one, at));
            self.board.providers = standings.filter(|one| !one.is_usual()).collect();
            return;
        }
        for note in &self.conditions.look(seen, at) {
            match self.form {
                Form::Json => self.json(&Timed { at, note }),
                _ => self.timed(at, &note.to_string()),
            }
        }
    }

    /// Takes a look at all slots: shows it as a table, or tells of the waits in it.
    pub(crate) fn look(&mut self, seen: Vec<NodeStatus>) {
        let at = clock::now();
        match self.form {
            Form::Plain => {}
            Form::Json => {
                for note in &self.waits.look(&seen) {
                    self.json(&Timed { at, note });
                }
            }
            Form::Table => {
                self.board.look(seen, at);
                let terminal = terminal();
                let lines = table::lines(&self.board, terminal, at);
                self.draw(|screen, out| screen.draw(out, lines, terminal.columns));
            }
        }
    }

    /// In how long another look would show something else though nothing happens; `None` if never.
    pub(crate) fn tick(&self) -> Option<Duration> {
        self.screen.as_ref()?;
        self.board.tick(clock::now())
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
        self.draw(|screen, out| screen.erase(out, terminal().columns));
        self.screen = None;
        match self.form {
            Form::Json => self.json(&Last { summary }),
            Form::Plain | Form::Table => self.line(&summary.to_string()),
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
        if self.screen.is_none() {
            return self.line(&line);
        }
        let line: Vec<String> = line.lines().map(clean).collect();
        self.draw(|screen, out| screen.above(out, &line.join("\n"), terminal().columns));
    }

    /// Draws, while there is a table and somebody sees it.
    fn draw(&mut self, draw: impl FnOnce(&mut Screen, &mut W) -> io::Result<()>) {
        if let (Some(screen), false) = (&mut self.screen, self.unread) {
            let typed = self.echoes.take();
            if io::stdin().is_terminal() {
                screen.echoed(typed);
            }
            self.unread = draw(screen, &mut self.out).is_err();
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

/// What standard output is now: it may be made larger or smaller at any time.
fn terminal() -> Terminal {
    let (rows, columns) = Term::stdout().size_checked().unwrap_or((24, 80));
    Terminal {
        rows: rows.into(),
        columns: columns.into(),
        colour: console::colors_enabled(),
    }
}

/// Whether a line per change has nothing to say of it: a sweep that showed what is known.
fn is_nothing_new(event: &EventKind) -> bool {
    matches!(event, EventKind::Swept { findings, error: None, .. } if findings.is_as_known())
}

/// Whether a person who looks at a table should be told of it all the same.
fn is_for_people(event: &EventKind) -> bool {
    matches!(
        event,
        EventKind::ShapeAccepted { .. }
            | EventKind::AttemptFailed { .. }
            | EventKind::Halted { .. }
            | EventKind::NodeFaulty { .. }
            | EventKind::MachineFound { .. }
            | EventKind::OrphanFound { .. }
            | EventKind::OrphanGone { .. }
            | EventKind::MachineMoved { .. }
            | EventKind::Looked { error: Some(_), .. }
            | EventKind::Swept { .. }
            | EventKind::AttemptsExhausted
    ) && !is_nothing_new(event)
}

#[cfg(test)]
mod tests {
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
            "lost",
            "orphans",
            "left",
            "seconds",
        ] {
            assert!(keys.contains(&key), "{keys:?}");
        }
        assert_eq!((lines.len(), keys.len()), (3, 9));
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
    fn a_sweep_that_showed_what_is_known_is_a_line_for_programs_only() {
        let lines = |form: Form, findings: &str| {
            let mut out = Vec::new();
            let mut printer = Printer::new(form, &mut out, Timestamp::UNIX_EPOCH);
            let text = format!(
                r#"{{"at":"1970-01-01T00:00:00Z","event":"swept","provider":"process","findings":{findings}}}"#
            );
            printer.event(&serde_json::from_str(&text).unwrap());
            String::from_utf8(out).unwrap().lines().count()
        };
        for (form, quiet) in [(Form::Json, 1), (Form::Plain, 0), (Form::Table, 0)] {
            assert_eq!(lines(form, r#"{"listed":3}"#), quiet, "{form:?}");
            assert_eq!(lines(form, r#"{"listed":3,"missing":1}"#), 1, "{form:?}");
        }
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

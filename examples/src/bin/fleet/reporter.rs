//! Tells what happens, on a thread of its own: a reader that stops reading holds nothing up but the telling.

use std::io::Write;
use std::thread::{self, JoinHandle};

use nodewright::{Events, Heard, View};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::note::Note;
use crate::printer::Printer;
use crate::tally::Tally;

/// Where notes are handed in. Few ever come: none without something that a person did.
#[derive(Debug, Clone)]
pub(crate) struct Notes(UnboundedSender<Note>);

impl Notes {
    /// Hands a note in; never waits.
    pub(crate) fn tell(&self, note: Note) {
        // The reporter is gone only after everybody who tells.
        let _ = self.0.send(note);
    }
}

/// The thread that tells.
#[derive(Debug)]
pub(crate) struct Reporter<W> {
    thread: JoinHandle<(Printer<W>, Tally)>,
}

impl<W: Write + Send + 'static> Reporter<W> {
    /// Begins to tell, in the runtime of this moment.
    pub(crate) fn begin(printer: Printer<W>, tally: Tally, events: Events, view: View) -> (Self, Notes) {
        let (sender, notes) = unbounded_channel();
        let runtime = Handle::current();
        let thread = thread::spawn(move || runtime.block_on(report(printer, tally, events, notes, view)));
        (Self { thread }, Notes(sender))
    }

    /// Waits until all is told; give the last [`Notes`] up before.
    pub(crate) fn end(self) -> (Printer<W>, Tally) {
        match self.thread.join() {
            Ok(told) => told,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

/// Tells until nobody has notes any more, and then what was heard before that.
async fn report<W: Write>(
    mut printer: Printer<W>,
    mut tally: Tally,
    mut events: Events,
    mut notes: UnboundedReceiver<Note>,
    view: View,
) -> (Printer<W>, Tally) {
    let mut stopped = false;
    loop {
        tokio::select! {
            biased;
            heard = events.recv(), if !stopped => match heard {
                Some(Heard::Event(event)) => {
                    tally.count(&event.kind);
                    printer.event(&event);
                }
                Some(Heard::Missed(missed)) => {
                    tally.missed += missed;
                    printer.note(&Note::Missed { events: missed });
                    printer.reset(|| view.all());
                }
                None => stopped = true,
            },
            note = notes.recv() => match note {
                Some(note) => printer.note(&note),
                None => return (printer, tally),
            },
        }
    }
}

//! Tells what happens, on a thread of its own: a reader that stops reading holds nothing up but the telling.

use std::io::Write;
use std::thread::{self, JoinHandle};

use nodewright::status::NodeStatus;
use nodewright::{Cluster, Events, Heard, View};
use tokio::runtime::Handle;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

use crate::note::Note;
use crate::printer::{Form, Printer};
use crate::sight::{Pulse, look};
use crate::tally::Tally;

/// A note, and how all slots were when it was handed in, where that is to be seen.
type Told = (Note, Option<Vec<NodeStatus>>);

/// Where notes are handed in. Few ever come: none without something that a person did.
#[derive(Debug, Clone)]
pub(crate) struct Notes {
    sender: UnboundedSender<Told>,
    /// For a form that shows it.
    view: Option<View>,
}

impl Notes {
    /// Hands a note in; never waits.
    pub(crate) fn tell(&self, note: Note) {
        let view = self.view.as_ref();
        // What was reached may be going already when it comes to be told.
        let view = view.filter(|_| matches!(note, Note::Converged { .. }));
        let seen = view.map(View::all);
        // The reporter is gone only after everybody who tells.
        let _ = self.sender.send((note, seen));
    }
}

/// The thread that tells.
#[derive(Debug)]
pub(crate) struct Reporter<W> {
    thread: JoinHandle<(Printer<W>, Tally)>,
}

impl<W: Write + Send + 'static> Reporter<W> {
    /// Begins to tell, in the runtime of this moment.
    pub(crate) fn begin(
        printer: Printer<W>,
        tally: Tally,
        events: Events,
        cluster: Cluster,
    ) -> (Self, Notes) {
        let (sender, notes) = unbounded_channel();
        let runtime = Handle::current();
        let view = (printer.form() == Form::Table).then(|| cluster.view());
        let report = report(printer, tally, events, notes, cluster);
        let thread = thread::spawn(move || runtime.block_on(report));
        (Self { thread }, Notes { sender, view })
    }

    /// Waits until all is told; give the last [`Notes`] up before.
    pub(crate) fn end(self) -> (Printer<W>, Tally) {
        match self.thread.join() {
            Ok(told) => told,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

/// Tells until nobody has notes any more, and then what was heard before that. Looks at the run from time to
/// time, while something happens, and at its slots in a form that shows them.
async fn report<W: Write>(
    mut printer: Printer<W>,
    mut tally: Tally,
    mut events: Events,
    mut notes: UnboundedReceiver<Told>,
    cluster: Cluster,
) -> (Printer<W>, Tally) {
    let shows_slots = printer.form() != Form::Plain;
    let mut resized = Resized::listen(printer.form());
    let mut pulse = Pulse::new(Instant::now());
    let mut stopped = false;
    loop {
        tokio::select! {
            biased;
            () = pulse.due() => {
                // A cluster that has stopped has no numbers any more.
                if let Ok(numbers) = cluster.status().await {
                    printer.survey(&numbers);
                }
                if shows_slots {
                    printer.look(look(&cluster).await);
                }
                pulse.looked(Instant::now(), printer.tick());
                continue;
            }
            heard = events.recv(), if !stopped => match heard {
                Some(Heard::Event(event)) => {
                    tally.count(&event.kind);
                    printer.event(&event);
                }
                Some(Heard::Missed(missed)) => {
                    tally.missed += missed;
                    printer.note(&Note::Missed { events: missed });
                }
                None => stopped = true,
            },
            note = notes.recv() => match note {
                Some((note, seen)) => {
                    if let Some(seen) = seen {
                        printer.look(seen);
                    }
                    printer.note(&note);
                }
                None => return (printer, tally),
            },
            () = resized.next() => {}
        }
        pulse.stir();
    }
}

/// News of the terminal's size, where a table fills it.
struct Resized(Option<Signal>);

impl Resized {
    /// Without such news the table is drawn anew when something happens.
    fn listen(form: Form) -> Self {
        let listen = || signal(SignalKind::window_change()).ok();
        Self((form == Form::Table).then(listen).flatten())
    }

    /// Resolves when the size has changed. Cancel safe.
    async fn next(&mut self) {
        match &mut self.0 {
            Some(signal) => drop(signal.recv().await),
            None => std::future::pending().await,
        }
    }
}

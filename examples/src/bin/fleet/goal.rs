//! What a fleet is there for: reach the shape, stay there or heal, and follow the file.

use std::cell::Cell;
use std::convert::Infallible;

use nodewright::driver::Accepted;
use nodewright::id::RunId;
use nodewright::shape::{ClusterShape, Generation};
use nodewright::status::Summary;
use nodewright::{Cluster, Stopped, UpdateError};
use nodewright_backends::process::ProcessBackend;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::commands::{Ask, Commands, Verb};
use crate::edits::Edits;
use crate::ground::Capacity;
use crate::kill;
use crate::note::Note;
use crate::options::UpOptions;
use crate::refusal::{Refusal, chain};
use crate::reporter::Notes;
use crate::source::Source;

/// What a fleet reaches for, and how far it got.
#[derive(Debug)]
pub(crate) struct Goal {
    pub(crate) cluster: Cluster,
    pub(crate) backend: ProcessBackend,
    pub(crate) run: RunId,
    pub(crate) notes: Notes,
    /// The generation that was accepted last.
    latest: watch::Sender<Generation>,
    /// The generation that was reached last.
    reached: Cell<Option<Generation>>,
    /// Whether the killing, where one was asked for, is done and healed.
    healed: Cell<bool>,
    /// Whether fewer machines were there to be killed than were to be.
    fell_short: Cell<bool>,
}

impl Goal {
    pub(crate) fn new(
        cluster: Cluster,
        backend: ProcessBackend,
        shape: &ClusterShape,
        options: &UpOptions,
        notes: Notes,
    ) -> Self {
        Self {
            cluster,
            backend,
            run: shape.run_id.clone(),
            notes,
            latest: watch::Sender::new(shape.generation),
            reached: Cell::new(None),
            healed: Cell::new(options.kill == 0),
            fell_short: Cell::new(false),
        }
    }

    /// The generation that was accepted last.
    pub(crate) fn latest(&self) -> Generation {
        *self.latest.borrow()
    }

    /// Whether fewer machines were killed than was asked for.
    pub(crate) const fn fell_short(&self) -> bool {
        self.fell_short.get()
    }

    /// Whether all is done: the latest generation was reached, by now at the latest, and all that was killed
    /// is replaced.
    pub(crate) fn is_reached(&self, now: &Summary) -> bool {
        let is_so = now.converged && now.generation == self.latest();
        (is_so || self.reached.get() >= Some(self.latest())) && self.healed.get()
    }

    /// Reaches for the latest generation, and kills and heals if asked to. Ends then if it is to be reached
    /// once; otherwise goes on reaching for what the file comes to say.
    ///
    /// # Errors
    ///
    /// The cluster stopped.
    pub(crate) async fn reach(&self, options: &UpOptions) -> Result<(), Stopped> {
        let mut latest = self.latest.subscribe();
        loop {
            let generation = *latest.borrow_and_update();
            self.cluster.converged(generation).await?;
            if latest.has_changed().unwrap_or(false) {
                continue;
            }
            self.reached.set(Some(generation));
            self.notes.tell(Note::Converged { generation });
            if !self.healed.get() {
                self.kill_and_heal(options.kill).await?;
                continue;
            }
            if options.once || options.detach {
                return Ok(());
            }
            // The sender lives as long as we do.
            let _ = latest.changed().await;
        }
    }

    async fn kill_and_heal(&self, count: u32) -> Result<(), Stopped> {
        let events = self.cluster.subscribe();
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let victims = kill::kill(&self.cluster, &self.backend, &self.run, count, &self.notes);
        let machines = victims.len();
        self.fell_short.set(machines < count);
        kill::healed(victims, events, &self.cluster.view()).await?;
        self.notes.tell(Note::Healed { machines });
        self.healed.set(true);
        Ok(())
    }

    /// Applies every saved change of the file, for ever.
    ///
    /// # Errors
    ///
    /// The cluster stopped.
    pub(crate) async fn follow(
        &self,
        edits: &Edits,
        mut source: Source,
        shape: ClusterShape,
        capacity: Capacity,
    ) -> Result<(), Stopped> {
        let mut accepted = shape;
        loop {
            edits.saved().await;
            if !source.reread() {
                continue;
            }
            match self.apply(&source, &accepted, capacity).await? {
                Ok(Some(shape)) => accepted = shape,
                Ok(None) => {}
                Err(refusal) => self.notes.tell(Note::EditRefused {
                    text: refusal.to_string(),
                    refused: refusal.mistakes,
                }),
            }
        }
    }

    /// Does what is asked for on standard input, for ever.
    ///
    /// # Errors
    ///
    /// The cluster stopped.
    pub(crate) async fn obey(&self, commands: &mut Commands) -> Result<Infallible, Stopped> {
        // A provider may take its time to answer: what is typed meanwhile does not wait for it.
        let mut sweeps = JoinSet::new();
        loop {
            let line = tokio::select! {
                line = commands.next() => line,
                Some(Ok(swept)) = sweeps.join_next() => {
                    self.notes.tell(Note::of_sweep(swept?));
                    continue;
                }
            };
            let (verb, node) = match line.parse() {
                Ok(Ask::Slot { verb, node }) => (verb, node),
                Ok(Ask::Sweep) => {
                    let cluster = self.cluster.clone();
                    sweeps.spawn(async move { cluster.sweep().await });
                    continue;
                }
                Err(message) => {
                    self.notes.tell(Note::CommandRefused { line, message });
                    continue;
                }
            };
            let done = match verb {
                Verb::Retry => self.cluster.retry(&node).await?,
                Verb::Replace => self.cluster.replace(&node).await?,
            };
            let command = verb;
            self.notes.tell(Note::CommandDone { command, node, done });
        }
    }

    /// Offers what the file says now; the shape, if it is another one than was accepted.
    async fn apply(
        &self,
        source: &Source,
        accepted: &ClusterShape,
        capacity: Capacity,
    ) -> Result<Result<Option<ClusterShape>, Refusal>, Stopped> {
        let next = Generation(accepted.generation.0.saturating_add(1));
        let offered = source.shape(next).and_then(|shape| {
            capacity.check(&shape)?;
            Ok(shape)
        });
        let shape = match offered {
            Ok(shape) => shape,
            Err(refusal) => return Ok(Err(refusal)),
        };
        match self.cluster.update(shape.clone()).await {
            Ok(Accepted::Changed(generation)) => {
                self.latest.send_replace(generation);
                Ok(Ok(Some(shape)))
            }
            Ok(Accepted::Unchanged(_)) => Ok(Ok(None)),
            Err(UpdateError::Stopped(stopped)) => Err(stopped),
            Err(error) => Ok(Err(Refusal::whole(source.path().display(), chain(&error)))),
        }
    }
}

//! The steps of a machine, with an order among them: forwards they make it, backwards they take it down.
//!
//! Each looks at its own piece first. So a create that fails in the middle takes back what it made by the same
//! functions that take a whole machine down, and a destroy goes on where an earlier one stopped.

use std::fs;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use nodewright_core::effect::Destroyed;
use nodewright_core::timing::Timing;
use nodewright_core::workflow::{Done, TaskContext, TaskError, Workflow};
use tokio::time::Instant;

use super::ending::end_all;
use super::handle::{ProcessKey, kill_child};
use super::holder;
use super::host::Host;
use super::place::{Place, Record};
use super::stamp::Stamp;

/// What the steps of one machine share.
#[derive(Debug)]
pub(super) struct Work {
    host: Arc<Host>,
    place: Place,
    found: Mutex<Found>,
    going: AtomicBool,
}

/// What is known of the machine.
#[derive(Debug)]
struct Found {
    /// Its record: the one on disk, or that which is to be written there.
    record: Option<Record>,
    /// Its holder, where it was spawned in here: a child of ours that nobody waited for yet.
    child: Option<u32>,
}

type Step = Result<Done, TaskError>;

/// The steps of a machine, of which this record is known. Forwards there has to be one.
///
/// Forwards none of them waits: a run of them is one poll, so that nobody ends it in the middle.
pub(super) fn steps(host: &Arc<Host>, place: &Place, record: Option<Record>) -> Workflow<Work> {
    let mut steps = Workflow::builder(Work {
        host: host.clone(),
        place: place.clone(),
        found: Mutex::new(Found { record, child: None }),
        going: AtomicBool::new(false),
    });
    steps
        .task(
            "directory",
            |context| async move { context.shared().make_directory() },
        )
        .undo(remove_directory);
    // It goes with the directory.
    steps
        .task("fifo", |context| async move { context.shared().make_fifo() })
        .after(["directory"]);
    steps
        .task("holder", |context| async move { context.shared().spawn_holder() })
        .after(["fifo"])
        .undo(end_processes);
    steps
        .task("record", |context| async move { context.shared().write_record() })
        .after(["holder"]);
    steps
        .task("watch", |context| async move { context.shared().watch() })
        .after(["record"])
        .undo(|context| async move {
            let work = context.shared();
            // What dies of it from now on is no news.
            work.host.machines.begin_end(&work.place);
            Ok(Done::Unchanged)
        });
    steps
        .build()
        .expect("the steps have names of their own and no cycle")
}

fn failed(what: &'static str) -> impl FnOnce(io::Error) -> TaskError {
    move |error| TaskError::retryable(what).caused_by(error)
}

impl Work {
    /// Whether something of the machine outlived all patience.
    pub(super) fn is_going(&self) -> bool {
        self.going.load(Ordering::SeqCst)
    }

    /// The record as it is now.
    pub(super) fn record(&self) -> Result<Record, TaskError> {
        let record = self.found().record.clone();
        record.ok_or_else(|| TaskError::fatal("nothing says whose machine it is"))
    }

    fn found(&self) -> MutexGuard<'_, Found> {
        // Each change is one assignment.
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Directory and record appear together: neither is ever seen without the other.
    fn make_directory(&self) -> Step {
        let record = self.record()?;
        let make = || {
            let own = |found: Record| found.lease == record.lease;
            if Record::read(&self.place.directory)?.is_some_and(own) {
                return Ok(Done::Unchanged);
            }
            self.place.remove_prepared()?;
            fs::create_dir_all(self.place.prepared.join("jobs"))?;
            record.write(&self.place.prepared)?;
            fs::rename(&self.place.prepared, &self.place.directory)?;
            Ok(Done::Changed)
        };
        make().map_err(failed("making the directory"))
    }

    fn make_fifo(&self) -> Step {
        if self.place.fifo().exists() {
            return Ok(Done::Unchanged);
        }
        holder::make_fifo(&self.place).map_err(failed("making the fifo"))?;
        Ok(Done::Changed)
    }

    fn spawn_holder(&self) -> Step {
        let record = self.record()?;
        let mut found = self.found();
        if found.child.is_some() || record.holder.is_some() {
            return Ok(Done::Unchanged);
        }
        let stamp = Stamp {
            identity: record.identity,
            machine: self.place.directory.clone(),
            lease: record.lease,
            template: record.template,
        };
        let spawned = holder::spawn(&self.place, &self.host.config.env, &stamp);
        found.child = Some(spawned.map_err(failed("spawning the holder"))?);
        Ok(Done::Changed)
    }

    fn write_record(&self) -> Step {
        let mut record = self.record()?;
        let Some(child) = self.found().child else {
            return Ok(Done::Unchanged);
        };
        let write = || {
            let dead = || io::Error::other("the holder ended at once");
            let holder = Some(ProcessKey::of(child)?.ok_or_else(dead)?);
            if record.holder == holder {
                return Ok(Done::Unchanged);
            }
            record.holder = holder;
            record.write(&self.place.directory)?;
            self.found().record = Some(record);
            Ok(Done::Changed)
        };
        write().map_err(failed("writing the holder down"))
    }

    fn watch(&self) -> Step {
        let record = self.record()?;
        let machines = &self.host.machines;
        if machines.knows(&self.place, &record) {
            return Ok(Done::Unchanged);
        }
        let met = machines.meet(&self.place, &record);
        match met.map_err(failed("taking hold of the holder"))? {
            Some(_) => Ok(Done::Changed),
            None => Err(TaskError::retryable("the holder ended at once")),
        }
    }
}

/// Ends all that runs of the machine.
async fn end_processes(context: TaskContext<Work>) -> Step {
    let work = context.shared();
    let child = work.found().child;
    let ended = match child {
        // Nobody has given it anything to run yet.
        Some(child) => kill_child(child).map(|()| Destroyed::Gone),
        None => {
            let record = work.found().record.clone();
            let holder = record.and_then(|record| record.holder_under(&work.host.boot));
            let (host, directory) = (&work.host, &work.place.directory);
            end_all(&host.scans, directory, holder, host.config.term_grace).await
        }
    };
    match ended.map_err(failed("ending its processes"))? {
        Destroyed::Gone => {
            work.found().child = None;
            work.host.machines.forget(&work.place);
            Ok(Done::Changed)
        }
        Destroyed::Going => {
            work.going.store(true, Ordering::SeqCst);
            Err(TaskError::retryable("its processes have not ended yet"))
        }
    }
}

/// Removes what is on disk of the machine.
async fn remove_directory(context: TaskContext<Work>) -> Step {
    let work = context.shared();
    let prepared = work.place.remove_prepared();
    prepared.map_err(failed("removing what was prepared"))?;
    // A name that no other removal has.
    let name = work.host.name_lease();
    let removed = work.host.places.remove(&work.place, &name);
    removed.await.map_err(failed("removing the directory"))?;
    Ok(Done::Changed)
}

/// The time since this was made: durations are all that a report of the steps shows.
#[derive(Debug)]
pub(super) struct Elapsed(Instant);

impl Elapsed {
    pub(super) fn new() -> Self {
        Self(Instant::now())
    }
}

impl Timing for Elapsed {
    fn now(&self) -> Timestamp {
        let elapsed = Timestamp::UNIX_EPOCH.checked_add(self.0.elapsed());
        elapsed.unwrap_or(Timestamp::MAX)
    }

    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

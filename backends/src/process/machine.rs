//! A machine whose holder lives, and the task that minds it.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use futures_util::future::join_all;
use nodewright_core::bootstrap::{ExitStatus, START_JOB};
use nodewright_core::effect::{LossSink, NodeLoss};
use nodewright_core::id::{AttemptIdentity, RunId};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use super::events::FileEvents;
use super::handle::{Process, ProcessKey};
use super::job::Job;
use super::output::Spool;
use super::place::{Place, Record};
use super::table::Scans;

/// A machine that was found alive, or made.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) place: Place,
    pub(super) record: Record,
    pub(super) holder: Process,
    /// Whether its agent's job is there.
    agent: watch::Sender<bool>,
    /// How many follow its agent's output.
    followers: watch::Sender<usize>,
    /// It is being taken down: its deaths are no news.
    ending: AtomicBool,
    /// What was reported of it first, for those who listen later.
    pub(super) lost: OnceLock<String>,
}

impl Machine {
    /// Says that its agent's job is there.
    pub(super) fn has_agent(&self) {
        self.agent.send_replace(true);
    }

    /// Whether it can be worked with: its holder lives, and no death in it was seen.
    pub(super) fn is_alive(&self) -> bool {
        !self.holder.has_ended() && self.lost.get().is_none()
    }

    /// Says that somebody follows its agent's output, until the guard is dropped. Nothing that was not read
    /// is given back meanwhile.
    pub(super) fn follow(self: &Arc<Self>) -> Follower {
        self.followers.send_modify(|followers| *followers += 1);
        Follower(self.clone())
    }
}

/// Dropping it leaves the output to the minder.
#[derive(Debug)]
pub(super) struct Follower(Arc<Machine>);

impl Drop for Follower {
    fn drop(&mut self) {
        self.0.followers.send_modify(|followers| *followers -= 1);
    }
}

/// The machines that this process knows to have been alive, each with its minder.
#[derive(Debug)]
pub(super) struct Machines {
    known: Mutex<BTreeMap<PathBuf, Known>>,
    pub(super) losses: Arc<Losses>,
    pub(super) events: Arc<FileEvents>,
    pub(super) scans: Arc<Scans>,
    boot: String,
    output_limit: u64,
}

#[derive(Debug)]
struct Known {
    machine: Arc<Machine>,
    minder: AbortHandle,
}

impl Machines {
    pub(super) fn new(scans: Arc<Scans>, boot: String, output_limit: u64) -> io::Result<Self> {
        Ok(Self {
            scans,
            known: Mutex::default(),
            losses: Arc::default(),
            events: Arc::new(FileEvents::new()?),
            boot,
            output_limit,
        })
    }

    /// The machine of this record, minded from now on; none where its holder is not alive. A machine that
    /// is known stays known after its holder's death.
    pub(super) fn meet(&self, place: &Place, record: &Record) -> io::Result<Option<Arc<Machine>>> {
        let mut known = self.lock();
        if let Some(met) = known
            .get(&place.directory)
            .filter(|met| met.machine.record == *record)
        {
            return Ok(Some(met.machine.clone()));
        }
        let Some(holder) = record
            .holder_under(&self.boot)
            .map(Process::open)
            .transpose()?
            .flatten()
        else {
            return Ok(None);
        };
        let agent = Job::of(place, START_JOB).is_ok_and(|job| job.exists());
        let machine = Arc::new(Machine {
            place: place.clone(),
            record: record.clone(),
            holder,
            agent: watch::Sender::new(agent),
            followers: watch::Sender::new(0),
            ending: AtomicBool::new(false),
            lost: OnceLock::new(),
        });
        let minder = Minder {
            machine: machine.clone(),
            losses: self.losses.clone(),
            events: self.events.clone(),
            scans: self.scans.clone(),
            output_limit: self.output_limit,
        };
        let minder = tokio::spawn(async move { minder.mind().await }).abort_handle();
        let met = Known {
            machine: machine.clone(),
            minder,
        };
        if let Some(earlier) = known.insert(place.directory.clone(), met) {
            earlier.minder.abort();
        }
        Ok(Some(machine))
    }

    /// Whether a machine of this record is known.
    pub(super) fn knows(&self, place: &Place, record: &Record) -> bool {
        let known = self.lock();
        known
            .get(&place.directory)
            .is_some_and(|met| met.machine.record == *record)
    }

    /// Says that this machine is being taken down: what dies of it from now on is not reported.
    pub(super) fn begin_end(&self, place: &Place) {
        if let Some(known) = self.lock().get(&place.directory) {
            known.machine.ending.store(true, Ordering::SeqCst);
        }
    }

    /// Forgets a machine of which nothing runs any more.
    pub(super) fn forget(&self, place: &Place) {
        if let Some(known) = self.lock().remove(&place.directory) {
            known.machine.holder.reap();
            known.minder.abort();
        }
    }

    pub(super) const fn output_limit(&self) -> u64 {
        self.output_limit
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Known>> {
        // Each change is one insertion or removal.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        for known in self.lock().values() {
            known.minder.abort();
        }
    }
}

/// Sees one machine's deaths, and keeps its agent's output small while nobody reads it.
struct Minder {
    machine: Arc<Machine>,
    losses: Arc<Losses>,
    events: Arc<FileEvents>,
    scans: Arc<Scans>,
    output_limit: u64,
}

impl Minder {
    async fn mind(&self) {
        tokio::join!(self.mind_holder(), self.mind_agent());
    }

    async fn mind_holder(&self) {
        let holder = &self.machine.holder;
        holder.ended().await;
        holder.reap();
        self.report(&format!(
            "the machine's holder, process {}, has ended",
            holder.key.pid
        ));
    }

    async fn mind_agent(&self) {
        let mut agent = self.machine.agent.subscribe();
        if agent.wait_for(|agent| *agent).await.is_err() {
            return;
        }
        let Ok(job) = Job::of(&self.machine.place, START_JOB) else {
            return;
        };
        let minded = async {
            let keys = begun(&job, &self.events, &self.machine.holder).await?;
            let gone = async {
                let status = job.ended(keys).await?;
                if status == ExitStatus::Code(0) {
                    // It may have gone into the background.
                    self.nothing_runs().await?;
                }
                io::Result::Ok(status)
            };
            tokio::pin!(gone);
            let status = tokio::select! {
                status = &mut gone => status,
                Err(error) = self.drain(&job) => {
                    let machine = &self.machine.record.identity;
                    tracing::warn!(%machine, %error, "the output of its agent is not kept small");
                    gone.await
                }
            }?;
            let pid = keys.main.pid;
            self.report(&format!(
                "the machine's agent, process {pid}, has ended with {status}"
            ));
            io::Result::Ok(())
        };
        if let Err(error) = minded.await {
            let machine = &self.machine.record.identity;
            tracing::warn!(%machine, %error, "its agent's death would not be seen");
        }
    }

    /// Waits until nothing but its holder runs in the machine.
    async fn nothing_runs(&self) -> io::Result<()> {
        let holder = self.machine.holder.key;
        loop {
            let table = self.scans.fresh().await?;
            let mut members = Vec::new();
            for entry in table.members(&self.machine.place.directory, Some(holder)) {
                if entry.key != holder {
                    members.extend(Process::open(entry.key)?);
                }
            }
            if members.is_empty() {
                return Ok(());
            }
            join_all(members.iter().map(Process::ended)).await;
        }
    }

    /// Gives the agent's output back to the disk whenever nobody follows it. Never ends but by an error.
    async fn drain(&self, job: &Job) -> io::Result<()> {
        let mut followers = self.machine.followers.subscribe();
        let never_dropped = |_| io::Error::other("the machine is gone");
        loop {
            followers
                .wait_for(|followers| *followers == 0)
                .await
                .map_err(never_dropped)?;
            let wake = Arc::new(Notify::new());
            let _watch = self.events.watch(&job.directory, wake.clone())?;
            let mut spools = Vec::new();
            for (_, path) in job.outputs() {
                spools.push(Spool::open(&path, self.output_limit)?);
            }
            loop {
                for spool in &mut spools {
                    spool.drain()?;
                }
                tokio::select! {
                    () = wake.notified() => {}
                    followed = followers.wait_for(|followers| *followers > 0) => {
                        followed.map_err(never_dropped)?;
                        break;
                    }
                }
            }
        }
    }

    fn report(&self, reason: &str) {
        if !self.machine.ending.load(Ordering::SeqCst) {
            // Only the first counts.
            let _ = self.machine.lost.set(reason.to_owned());
            self.losses.report(&self.machine.record.identity, reason);
        }
    }
}

/// Waits until a job has begun. Cancel safe.
pub(super) async fn begun(
    job: &Job,
    events: &Arc<FileEvents>,
    holder: &Process,
) -> io::Result<super::job::JobKeys> {
    let wake = Arc::new(Notify::new());
    let _watch = events.watch(&job.directory, wake.clone())?;
    loop {
        if let Some(keys) = job.keys()? {
            return Ok(keys);
        }
        tokio::select! {
            () = wake.notified() => {}
            () = holder.ended() => {
                // Its runner may have written in the meantime.
                return job.keys()?.ok_or_else(|| io::Error::other("the machine's holder has ended"));
            }
        }
    }
}

/// Who wants to hear of machines that die.
#[derive(Debug, Default)]
pub(super) struct Losses {
    sinks: Mutex<BTreeMap<u64, (RunId, LossSink)>>,
    next: AtomicU64,
}

impl Losses {
    /// Reports deaths of this run to the sink, until the guard is dropped.
    pub(super) fn listen(self: &Arc<Self>, run: &RunId, sink: LossSink) -> Listener {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(number, (run.clone(), sink));
        Listener {
            losses: self.clone(),
            number,
        }
    }

    pub(super) fn report(&self, identity: &AttemptIdentity, reason: &str) {
        let sinks: Vec<LossSink> = self
            .lock()
            .values()
            .filter(|(run, _)| *run == identity.run)
            .map(|(_, sink)| sink.clone())
            .collect();
        for sink in sinks {
            sink.report(NodeLoss {
                node: identity.node.clone(),
                attempt: identity.attempt,
                reason: reason.into(),
            });
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, (RunId, LossSink)>> {
        // Each change is one insertion or removal.
        self.sinks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Dropping it ends the listening.
#[derive(Debug)]
pub(super) struct Listener {
    losses: Arc<Losses>,
    number: u64,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.losses.lock().remove(&self.number);
    }
}

/// The holder of this record, where it lives and is not stopped.
pub(super) fn running_holder(record: &Record, boot: &str) -> io::Result<Option<ProcessKey>> {
    match record.holder_under(boot) {
        Some(holder) if holder.is_running()? => Ok(Some(holder)),
        _ => Ok(None),
    }
}

//! The way into a machine: files in its directory.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use nodewright_core::bootstrap::{
    ExitStatus, JobCommand, Line, START_JOB, Transport, TransportError, TransportEvent,
};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::events::{FileEvents, Watch};
use super::handle::Process;
use super::job::{Job, JobKeys};
use super::machine::{Follower, Machine, Machines, begun};
use super::output::{Source, Spool};
use super::place::{Place, Record};

/// How many of the last lines [`run`](Transport::run) answers with.
const LAST_LINES: usize = 20;

/// Reaches into one machine of this host, through the files in its directory.
///
/// It lets go of the machine when it is dropped; what was started goes on, and another one adopts it.
#[derive(Debug)]
pub struct ProcessTransport {
    machines: Arc<Machines>,
    place: Place,
    /// Taken when it is opened.
    machine: Option<Arc<Machine>>,
    following: Option<Following>,
}

impl ProcessTransport {
    pub(super) fn new(machines: Arc<Machines>, place: Place) -> Self {
        Self {
            machines,
            place,
            machine: None,
            following: None,
        }
    }

    fn machine(&self) -> Result<&Arc<Machine>, TransportError> {
        let machine = self.machine.as_ref();
        machine.ok_or_else(|| TransportError::new("the way into the machine is not open"))
    }

    fn find(&self) -> Result<Arc<Machine>, TransportError> {
        let failed = |error: io::Error| TransportError::new(format!("looking for the machine: {error}"));
        let gone = || TransportError::new("the machine's holder is not there");
        let record = Record::read(&self.place.directory)
            .map_err(failed)?
            .ok_or_else(gone)?;
        let machine = self.machines.meet(&self.place, &record).map_err(failed)?;
        let machine = machine
            .filter(|machine| !machine.holder.has_ended())
            .ok_or_else(gone)?;
        if self.place.fifo().exists() {
            Ok(machine)
        } else {
            Err(TransportError::new("the machine's fifo is not there"))
        }
    }

    /// Has a job run, or finds that it does already, and follows it.
    async fn begin(&mut self, job: &Job, command: &JobCommand) -> Result<Following, TransportError> {
        let machine = self.machine()?;
        if !job.exists() {
            job.prepare(command)?;
        }
        let follower = (command.name == START_JOB).then(|| {
            let follower = machine.follow();
            machine.has_agent();
            follower
        });
        let failed = |error: io::Error| job.failed("starting it", &error);
        let keys = match job.keys().map_err(failed)? {
            Some(keys) => keys,
            None => {
                // What it writes from here on is news, also between this and the waiting.
                job.submit(&machine.place)?;
                begun(job, &self.machines.events, &machine.holder)
                    .await
                    .map_err(failed)?
            }
        };
        Following::new(job, keys, machine, &self.machines, follower).map_err(failed)
    }

    async fn run_to_end(&mut self, command: &JobCommand) -> Result<(ExitStatus, Vec<Line>), TransportError> {
        let job = Job::of(&self.machine()?.place, &command.name)?;
        if job.exists() && over(&job).map_err(|error| job.failed("looking at its last run", &error))? {
            job.remove()?;
        }
        let mut following = self.begin(&job, command).await?;
        let mut last = VecDeque::new();
        loop {
            match following.next().await? {
                TransportEvent::Lines(lines) => {
                    last.extend(lines);
                    last.drain(..last.len().saturating_sub(LAST_LINES));
                }
                TransportEvent::Exited(status) => return Ok((status, last.into())),
            }
        }
    }
}

/// Whether a job began and has ended.
fn over(job: &Job) -> io::Result<bool> {
    match job.keys()? {
        Some(keys) => Ok(job.status()?.is_some() || Process::open(keys.main)?.is_none()),
        None => Ok(false),
    }
}

impl Transport for ProcessTransport {
    async fn open(&mut self, limit: Duration) -> Result<(), TransportError> {
        within(limit, "opening the way into the machine", async {
            self.machine = Some(self.find()?);
            Ok(())
        })
        .await
    }

    async fn run(
        &mut self,
        job: &JobCommand,
        limit: Duration,
    ) -> Result<(ExitStatus, Vec<Line>), TransportError> {
        within(limit, &format!("job {:?}", job.name), self.run_to_end(job)).await
    }

    async fn start(&mut self, job: &JobCommand, limit: Duration) -> Result<(), TransportError> {
        let following = within(limit, &format!("starting job {:?}", job.name), async {
            let there = Job::of(&self.machine()?.place, &job.name)?;
            self.begin(&there, job).await
        })
        .await?;
        self.following = Some(following);
        Ok(())
    }

    async fn next(&mut self) -> Result<TransportEvent, TransportError> {
        match &mut self.following {
            Some(following) => following.next().await,
            None => Err(TransportError::new("no job was started")),
        }
    }

    async fn close(&mut self, _limit: Duration) {
        self.following = None;
        self.machine = None;
    }
}

async fn within<T>(
    limit: Duration,
    what: &str,
    call: impl Future<Output = Result<T, TransportError>>,
) -> Result<T, TransportError> {
    let late = |_| TransportError::new(format!("{what} took longer than {limit:?}"));
    timeout(limit, call).await.map_err(late)?
}

/// The output of a job, as it comes.
struct Following {
    job: Job,
    sources: Vec<Source>,
    wake: Arc<Notify>,
    /// Of the job's own directory.
    _watch: Watch,
    extras: Vec<Extra>,
    events: Arc<FileEvents>,
    end: BoxFuture<'static, io::Result<ExitStatus>>,
    ended: Option<ExitStatus>,
    /// Whether the last reading found something: others get their turn before the next.
    busy: bool,
    _follower: Option<Follower>,
}

/// A further file, and the watch of the directory where news of it comes from.
struct Extra {
    path: PathBuf,
    watched: Option<(PathBuf, Watch)>,
}

impl Following {
    fn new(
        job: &Job,
        keys: JobKeys,
        machine: &Machine,
        machines: &Machines,
        follower: Option<Follower>,
    ) -> io::Result<Self> {
        let wake = Arc::new(Notify::new());
        let watch = machines.events.watch(&job.directory, wake.clone())?;
        let mut sources = Vec::new();
        for (source, path) in job.outputs() {
            sources.push(Source::own(source, Spool::open(&path, machines.output_limit())?));
        }
        let mut extras = Vec::new();
        for (source, path) in job.extras(&machine.place.directory) {
            sources.push(Source::foreign(source, path.clone()));
            extras.push(Extra { path, watched: None });
        }
        let end = {
            let job = job.clone();
            Box::pin(async move { job.ended(keys).await })
        };
        let mut following = Self {
            job: job.clone(),
            sources,
            wake,
            _watch: watch,
            extras,
            events: machines.events.clone(),
            end,
            ended: None,
            busy: false,
            _follower: follower,
        };
        following.watch_extras()?;
        Ok(following)
    }

    /// Watches, of each further file, its directory, or while that is missing the nearest one above it.
    fn watch_extras(&mut self) -> io::Result<()> {
        for extra in &mut self.extras {
            loop {
                let nearest = extra
                    .path
                    .ancestors()
                    .skip(1)
                    .find(|directory| directory.is_dir());
                let nearest = nearest.unwrap_or(Path::new("/"));
                if extra
                    .watched
                    .as_ref()
                    .is_some_and(|(directory, _)| directory == nearest)
                {
                    break;
                }
                // Once more afterwards: the next one may have been made just before it was watched.
                let nearest = nearest.to_owned();
                let watch = self.events.watch(&nearest, self.wake.clone())?;
                extra.watched = Some((nearest, watch));
            }
        }
        Ok(())
    }

    async fn next(&mut self) -> Result<TransportEvent, TransportError> {
        loop {
            if self.busy {
                tokio::task::yield_now().await;
                self.busy = false;
            }
            let mut lines = Vec::new();
            for source in &mut self.sources {
                let read = source.read(&mut lines);
                self.busy |= read.map_err(|error| self.job.failed("reading its output", &error))?;
            }
            if lines.is_empty() && !self.busy && self.ended.is_some() {
                for source in &mut self.sources {
                    source.finish(&mut lines);
                }
            }
            match self.ended {
                _ if !lines.is_empty() => return Ok(TransportEvent::Lines(lines)),
                _ if self.busy => {}
                Some(status) => return Ok(TransportEvent::Exited(status)),
                None => {
                    tokio::select! {
                        () = self.wake.notified() => {}
                        status = &mut self.end => {
                            let failed = |error| self.job.failed("waiting for its end", &error);
                            self.ended = Some(status.map_err(failed)?);
                        }
                    }
                    let watched = self.watch_extras();
                    watched.map_err(|error| self.job.failed("watching its files", &error))?;
                }
            }
        }
    }
}

impl std::fmt::Debug for Following {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Following")
            .field("job", &self.job)
            .finish_non_exhaustive()
    }
}

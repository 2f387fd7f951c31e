//! A fleet from its beginning to its end.

use std::collections::BTreeMap;
use std::io::{self, Stdout, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use nodewright::id::{NodeAttemptId, RunId};
use nodewright::policy::Policy;
use nodewright::state::ClusterState;
use nodewright::{Cluster, Config, Events, Shutdown, Stopped};
use nodewright_backends::process::{ProcessBackend, ProcessConfig, RunLock, census};
use tokio::runtime::Runtime;
use tokio::time::{Instant, sleep_until, timeout};

use crate::clock;
use crate::commands::Commands;
use crate::detached::Detached;
use crate::edits::Edits;
use crate::goal::Goal;
use crate::ground::{Ground, node_count};
use crate::note::Note;
use crate::options::UpOptions;
use crate::printer::{Form, Printer};
use crate::refusal::{Refusal, chain};
use crate::reporter::Reporter;
use crate::signals::Signals;
use crate::source::provider;
use crate::summary::Summary;
use crate::tally::Tally;

/// How long taking everything down may last beyond the timeout. Agents that do not end when asked to take
/// two seconds each, some dozens at once.
const DRAIN_GRACE: Duration = Duration::from_secs(30);

/// How long stopping may last that waits for nothing at a provider.
const STOP_GRACE: Duration = Duration::from_secs(10);

/// Input that cannot be used, or another fleet on the same run.
const REFUSED: u8 = 2;

/// Runs a fleet, and says how it went.
pub(crate) fn run(options: &UpOptions) -> ExitCode {
    let mut printer = Printer::new(Form::choose(options), io::stdout(), clock::now());
    let started = Instant::now();
    let begun = Ground::prepare(options).and_then(|(ground, lock)| {
        let runtime = Runtime::new().map_err(|error| Refusal::whole("runtime", error))?;
        let site = Site::of(&ground, lock);
        let fleet = runtime.block_on(Fleet::begin(ground, options))?;
        Ok((runtime, site, fleet))
    });
    let (runtime, site, fleet) = match begun {
        Ok(begun) => begun,
        Err(refusal) => {
            let _ = writeln!(io::stderr(), "{refusal}");
            printer.refused(&refusal);
            printer.summary(&Summary::of_nothing());
            return ExitCode::from(REFUSED);
        }
    };
    let (mut printer, tally, ending) = runtime.block_on(fleet.live(printer, options, started));
    // Nothing of ours acts on machines any more once they are counted.
    runtime.shutdown_timeout(STOP_GRACE);
    let left = site.count();
    let summary = Summary {
        converged: ending.converged,
        nodes: ending.nodes,
        left,
        seconds: started.elapsed().as_secs_f64(),
        ..Summary::default()
    };
    printer.summary(&summary.counted(&tally));
    let as_asked = ending.as_asked && ending.converged && (ending.meant_to_stay || left == Some(0));
    if as_asked {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Where the machines of the run are looked for.
#[derive(Debug)]
struct Site {
    directory: PathBuf,
    run: RunId,
    /// The next fleet begins only when they are counted: its machines are none that we left.
    _lock: RunLock,
}

impl Site {
    fn of(ground: &Ground, lock: RunLock) -> Self {
        Self {
            directory: ground.directory.clone(),
            run: ground.shape.run_id.clone(),
            _lock: lock,
        }
    }

    /// How many processes of the run there are; none if the system would not say.
    fn count(&self) -> Option<u64> {
        match census(&self.directory, &self.run) {
            Ok(survivors) => Some(survivors.len() as u64),
            Err(error) => {
                let _ = writeln!(io::stderr(), "processes cannot be counted: {error}");
                None
            }
        }
    }
}

/// Patience with processes of this host: everything there takes milliseconds, and nobody is billed.
fn policy(options: &UpOptions) -> Policy {
    let mut policy = Policy::default();
    policy.initial_delay = Duration::from_millis(200);
    policy.max_delay = Duration::from_secs(10);
    policy.probe_interval = Duration::from_millis(200);
    policy.operation_timeout = Duration::from_secs(30);
    policy.startup_timeout = options.startup_timeout;
    policy.stall_timeout = options.stall_timeout;
    policy.join_grace = Duration::from_secs(1);
    policy.sweep_interval = options.sweep;
    policy.attempt_limit = options.attempts;
    policy
}

/// A fleet that has begun.
#[derive(Debug)]
struct Fleet {
    ground: Ground,
    backend: ProcessBackend,
    cluster: Cluster,
    events: Events,
    signals: Signals,
    edits: Edits,
}

/// How a fleet ended.
#[derive(Debug, Clone, Copy, Default)]
struct Ending {
    converged: bool,
    nodes: u64,
    /// Whether it ended in the way that was asked for.
    as_asked: bool,
    /// Whether machines were to stay.
    meant_to_stay: bool,
}

/// Why a fleet ends.
#[derive(Debug)]
enum Reason {
    /// It did all that it was to do.
    Done,
    /// Somebody asked, by this signal.
    Asked(&'static str),
    /// It took too long.
    Late,
    /// The cluster stopped by itself.
    Stopped,
}

impl Reason {
    fn text(&self) -> String {
        match self {
            Self::Done => "all is done".to_owned(),
            Self::Asked(signal) => (*signal).to_owned(),
            Self::Late => "the timeout has come".to_owned(),
            Self::Stopped => "the cluster stopped by itself".to_owned(),
        }
    }
}

impl Fleet {
    /// Starts the cluster. # Errors: what stands against it; nothing was started then.
    async fn begin(ground: Ground, options: &UpOptions) -> Result<Self, Refusal> {
        let subject = ground.source.path().display().to_string();
        let refused = |what: &str, error: &dyn std::error::Error| {
            Refusal::whole(&subject, format!("{what}: {}", chain(error)))
        };
        // From here on a signal is answered, not obeyed blindly.
        let signals = Signals::listen().map_err(|error| refused("listening for signals", &error))?;
        let edits =
            Edits::of(ground.source.path()).map_err(|error| refused("watching the folder", &error))?;
        let own = std::env::current_exe().map_err(|error| refused("finding this program", &error))?;
        let mut config = ProcessConfig::new(&ground.directory);
        config.env = BTreeMap::from([("FLEET".to_owned(), own.to_string_lossy().into_owned())]);
        config.watch = !options.no_watch;
        let backend =
            ProcessBackend::open(config).map_err(|error| refused("opening the state directory", &error))?;
        let mut config = Config::new(ground.shape.clone())
            .policy(policy(options))
            .clock(clock::shared())
            .provider(provider(), backend.clone());
        if let Some(state) = ground.left.clone() {
            config = config.resume(state);
        }
        // Before it starts: what it does first is to be told, too.
        let events = config.subscribe();
        let cluster = Cluster::spawn(config)
            .await
            .map_err(|error| refused("starting", &error))?;
        if ground.left.is_some()
            && let Err(error) = ground.detached.remove()
        {
            tracing::warn!(file = %ground.detached.path().display(), %error, "taken-over state stays behind");
        }
        Ok(Self {
            ground,
            backend,
            cluster,
            events,
            signals,
            edits,
        })
    }

    /// Lives until the end, and takes down or leaves what there is.
    async fn live(
        mut self,
        mut printer: Printer<Stdout>,
        options: &UpOptions,
        started: Instant,
    ) -> (Printer<Stdout>, Tally, Ending) {
        let Ground {
            source,
            shape,
            capacity,
            detached,
            left,
            ..
        } = self.ground;
        printer.begin(shape.generation, node_count(&shape));
        let held: Vec<_> = left.iter().flat_map(holding).collect();
        let resumed = left.is_some().then_some(held.len());
        let cluster = self.cluster.clone();
        let echoes = printer.echoes();
        let (reporter, notes) = Reporter::begin(printer, Tally::new(held), self.events, cluster);
        if let Some(machines) = resumed {
            notes.tell(Note::Resumed { machines });
        }
        let goal = Goal::new(self.cluster, self.backend, &shape, options, notes);
        let mut commands = if options.commands {
            Commands::read(echoes)
        } else {
            Commands::none()
        };
        let deadline = options.timeout.map(|timeout| started + timeout);
        let reason = tokio::select! {
            biased;
            signal = self.signals.next() => Reason::Asked(signal),
            () = until(deadline) => Reason::Late,
            Err(Stopped) = goal.follow(&self.edits, source, shape, capacity) => Reason::Stopped,
            Err(Stopped) = goal.obey(&mut commands) => Reason::Stopped,
            reached = goal.reach(options) => match reached {
                Ok(()) => Reason::Done,
                Err(Stopped) => Reason::Stopped,
            },
        };
        let status = goal.cluster.status().await.unwrap_or_default();
        let mut ending = Ending {
            converged: goal.is_reached(&status),
            nodes: status.ready,
            as_asked: matches!(reason, Reason::Done | Reason::Asked(_)) && !goal.fell_short(),
            meant_to_stay: false,
        };
        match reason {
            Reason::Stopped => goal.notes.tell(Note::Trouble {
                trouble: reason.text(),
            }),
            Reason::Done if options.detach => {
                ending.meant_to_stay = true;
                ending.as_asked = detach(&goal, "as asked", &detached).await;
            }
            reason => {
                goal.notes.tell(Note::Draining {
                    because: reason.text(),
                });
                let late = deadline.map(|deadline| deadline + DRAIN_GRACE);
                ending.as_asked &= drain(&goal, &mut self.signals, &mut commands, late, &detached).await;
            }
        }
        // The cluster and the notes go with the goal; then the reporter comes to its end.
        drop(goal);
        let (printer, tally) = reporter.end();
        (printer, tally, ending)
    }
}

/// Takes everything down; whether that was done. A further signal, or `late`, leaves the rest.
async fn drain(
    goal: &Goal,
    signals: &mut Signals,
    commands: &mut Commands,
    late: Option<Instant>,
    detached: &Detached,
) -> bool {
    let because = tokio::select! {
        biased;
        drained = goal.cluster.shutdown(Shutdown::Drain) => return drained.is_ok(),
        signal = signals.next() => format!("{signal} while taking everything down"),
        () = until(late) => "taking everything down takes too long".to_owned(),
        // What cannot be destroyed may be tried again by hand. That the cluster has stopped tells the drain.
        Ok(never) = goal.obey(commands) => match never {},
    };
    detach(goal, &because, detached).await;
    false
}

/// Leaves everything as it is, and keeps the state for the next fleet; whether that was done.
async fn detach(goal: &Goal, because: &str, detached: &Detached) -> bool {
    let trouble = |trouble| {
        goal.notes.tell(Note::Trouble { trouble });
        false
    };
    let mut state = match timeout(STOP_GRACE, goal.cluster.shutdown(Shutdown::Detach)).await {
        Ok(Ok(state)) => state,
        Ok(Err(Stopped)) => {
            return trouble("the cluster has stopped; the next start replaces what is left".to_owned());
        }
        Err(_) => {
            return trouble("the cluster does not stop; the next start replaces what is left".to_owned());
        }
    };
    // A drain reaches for an emptiness of a generation of its own, which no file knows of.
    state.observed_generation = state.observed_generation.min(goal.latest());
    if let Err(error) = detached.write(&state) {
        let path = detached.path().display();
        return trouble(format!("{path}: {error}; the next start replaces what is left"));
    }
    goal.notes.tell(Note::Detached {
        because: because.to_owned(),
        machines: holding(&state).count() + state.orphans.len(),
        state: detached.path().to_owned(),
    });
    true
}

/// The attempts of a state that hold a machine, each with whether it is ready.
fn holding(state: &ClusterState) -> impl Iterator<Item = (NodeAttemptId, bool)> {
    let nodes = state.nodes.iter().filter(|(_, node)| node.lease.is_some());
    nodes.map(|(_, node)| (node.attempt, node.ready))
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

//! A process that is played: a driver, its ledgers, calls and sessions, and time.

mod deliver;
mod executor;
mod happen;
mod settle;
mod slip;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use nodewright_core::bootstrap::Session;
use nodewright_core::driver::{Accepted, ClusterDriver, DriverError, DueLook, ProviderSetup};
use nodewright_core::effect::{
    Call, EffectBackend, EffectResult, NodeLoss, Outcome, PlannedEffect, StreamReport,
};
use nodewright_core::id::{
    AttemptIdentity, BootstrapSessionId, LogicalNodeId, NodeAttemptId, OperationId, ProviderKind,
};
use nodewright_core::ledger::Ledger;
use nodewright_core::observation::{Folded, Observation};
use nodewright_core::pace::{PaceConfig, Rate};
use nodewright_core::policy::Policy;
use nodewright_core::shape::{ClusterShape, NodeGroupSpec};
use nodewright_core::state::ClusterState;

use self::executor::Executor;
use self::slip::Slipped;
use crate::faulty::{Control, Faulty, Stated};
use crate::oracle::{Broken, History, Told, check_preview};
use crate::subject::{Aborts, Living, Pump, SharedTime, Subject, VirtualTime};
use crate::trace::Setup;
use crate::wrong::Slip;

/// What a simulation is made from.
#[derive(Debug, Clone)]
pub struct SimConfig {
    /// The driver's policy.
    pub policy: Policy,
    /// What every provider states.
    pub stated: Stated,
    /// The pace at every provider.
    pub pace: PaceConfig,
    /// Whether the run is declared fresh at every provider, so that no first look is taken.
    pub fresh: bool,
    /// Whether to keep notes of what happened, for people.
    pub notes: bool,
    /// What its executors do wrong.
    pub slip: Option<Slip>,
}

impl Default for SimConfig {
    fn default() -> Self {
        Self {
            policy: crate::policy(),
            stated: Stated {
                visibility: Duration::from_secs(3),
                lags: false,
                abortable: true,
            },
            pace: PaceConfig::default(),
            fresh: true,
            notes: false,
            slip: None,
        }
    }
}

impl From<&Setup> for SimConfig {
    fn from(setup: &Setup) -> Self {
        let two = NonZeroU32::new(2).expect("two");
        let mut policy = crate::policy();
        policy.attempt_limit = NonZeroU32::new(setup.attempt_limit.into());
        Self {
            policy,
            stated: Stated {
                visibility: Duration::from_secs(setup.visibility.into()),
                lags: setup.lags,
                abortable: setup.abortable,
            },
            pace: PaceConfig {
                max_in_flight: NonZeroU32::new(setup.places.into()).unwrap_or(NonZeroU32::MIN),
                rate: setup.rated.then_some(Rate {
                    calls: two,
                    per: Duration::from_secs(1),
                    burst: two,
                }),
            },
            fresh: setup.fresh,
            notes: false,
            slip: None,
        }
    }
}

/// A provider, with the executor that speaks to it.
pub(crate) struct Provider<S: Subject> {
    pub(crate) subject: S,
    pub(crate) backend: Faulty<S::Backend>,
    pub(crate) ledger: Ledger,
    /// What was handed over and not begun.
    pub(crate) submitted: VecDeque<PlannedEffect>,
    /// Whether its executor died and takes nothing just now.
    pub(crate) restarting: bool,
}

/// Something that the driver is still to be told.
#[derive(Debug, Clone)]
pub(crate) struct News {
    pub(crate) node: LogicalNodeId,
    pub(crate) attempt: NodeAttemptId,
    pub(crate) observation: Observation,
}

impl From<EffectResult> for News {
    fn from(result: EffectResult) -> Self {
        Self {
            node: result.node,
            attempt: result.operation.attempt,
            observation: Observation::Finished {
                operation: result.operation,
                outcome: result.outcome,
                end: result.end,
            },
        }
    }
}

/// A call that is at work.
pub(crate) struct Running {
    pub(crate) effect: PlannedEffect,
    pub(crate) call: Call,
    pub(crate) work: BoxFuture<'static, (Outcome, Option<Session>)>,
    /// Whether it has reached the backend.
    pub(crate) begun: bool,
    /// When its task is ended at the latest, once it was told to end.
    pub(crate) end_by: Option<Timestamp>,
    /// Its outcome was reported without its end.
    pub(crate) abandoned: bool,
}

/// A session that is live.
pub(crate) struct Live {
    pub(crate) identity: AttemptIdentity,
    pub(crate) session: BootstrapSessionId,
    pub(crate) run: BoxFuture<'static, ()>,
}

/// What sessions and watches report, until it is taken.
#[derive(Debug, Default)]
pub(crate) struct Reported {
    pub(crate) streams: Vec<StreamReport>,
    pub(crate) losses: Vec<NodeLoss>,
}

/// One run, played. See the [crate] for what it does.
pub struct Sim<S: Subject> {
    pub(crate) config: SimConfig,
    pub(crate) time: Arc<VirtualTime>,
    pub(crate) pump: Pump,
    pub(crate) now: Timestamp,
    pub(crate) driver: ClusterDriver,
    pub(crate) shape: ClusterShape,
    pub(crate) providers: BTreeMap<ProviderKind, Provider<S>>,
    pub(crate) running: Vec<Running>,
    pub(crate) news: Vec<News>,
    pub(crate) delivered: VecDeque<News>,
    pub(crate) reported: Arc<Mutex<Reported>>,
    pub(crate) sessions: Vec<Live>,
    pub(crate) looks: Vec<(DueLook, Timestamp)>,
    /// The providers that have not answered a sweep yet which found nothing to be settled.
    pub(crate) unswept: BTreeSet<ProviderKind>,
    /// Where machines that die are heard of as it happens.
    watches: Vec<Aborts<()>>,
    /// What a wrong executor keeps to itself.
    pub(crate) slipped: Slipped,
    /// How many inputs are still to be taken before the next pass.
    pub(crate) gathering: u8,
    /// Whether what lives at the providers may have changed since it was counted last.
    pub(crate) stirred: bool,
    pub(crate) history: History,
    /// Stands for all states and events so far.
    pub(crate) passed_through: u64,
    pub(crate) notes: Vec<String>,
}

impl<S: Subject> fmt::Debug for Sim<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sim")
            .field("now", &self.now)
            .field("running", &self.running())
            .field("news", &self.news)
            .finish_non_exhaustive()
    }
}

/// The moment at which every simulation begins.
const START: i64 = 1_900_000_000;

impl<S: Subject> Sim<S> {
    /// A run that begins now at these providers, with a driver that knows nothing.
    ///
    /// # Errors
    ///
    /// As the driver's.
    pub fn new<'a>(
        config: SimConfig,
        providers: impl IntoIterator<Item = &'a str>,
        shape: ClusterShape,
    ) -> Result<Self, DriverError> {
        let now = Timestamp::from_second(START).expect("it is a moment");
        let time = VirtualTime::from(now);
        let provider = |kind: &str| {
            let subject = S::new();
            let control = Control::new(config.stated, Arc::new(SharedTime(time.clone())));
            let backend = Faulty::new(subject.open(), control);
            let provider = Provider {
                subject,
                backend,
                ledger: Ledger::new(),
                submitted: VecDeque::new(),
                restarting: false,
            };
            (kind.parse().expect("a name"), provider)
        };
        let providers: BTreeMap<ProviderKind, Provider<S>> = providers.into_iter().map(provider).collect();
        let pump = providers
            .values()
            .next()
            .map_or(Pump::Inline, |one| one.subject.pump());
        let driver = ClusterDriver::new(shape.clone(), config.policy.clone(), setups(&config, &providers))?;
        let mut sim = Self {
            config,
            time,
            pump,
            now,
            driver,
            shape,
            providers,
            running: Vec::new(),
            news: Vec::new(),
            delivered: VecDeque::new(),
            reported: Arc::default(),
            sessions: Vec::new(),
            looks: Vec::new(),
            unswept: BTreeSet::new(),
            watches: Vec::new(),
            slipped: Slipped::default(),
            gathering: 0,
            stirred: true,
            history: History::default(),
            passed_through: 0,
            notes: Vec::new(),
        };
        sim.watch();
        Ok(sim)
    }

    /// The driver.
    pub const fn driver(&self) -> &ClusterDriver {
        &self.driver
    }

    /// The driver, for inputs that a trace has no word for.
    pub const fn driver_mut(&mut self) -> &mut ClusterDriver {
        &mut self.driver
    }

    /// The moment.
    pub const fn now(&self) -> Timestamp {
        self.now
    }

    /// Every call that a backend saw, in the order in which they began at each.
    pub fn calls(&self) -> Vec<String> {
        let calls = self.providers.values().map(|one| one.backend.control().calls());
        calls.flatten().collect()
    }

    /// How many calls the backends saw.
    pub(crate) fn call_count(&self) -> usize {
        let counts = self
            .providers
            .values()
            .map(|one| one.backend.control().call_count());
        counts.sum()
    }

    /// What happened, if notes are kept.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The provider of this name.
    pub fn subject(&self, provider: &str) -> &S {
        let kind = provider.parse().expect("a name");
        &self.providers.get(&kind).expect("it is registered").subject
    }

    /// What scripts the calls of a provider.
    pub fn control(&self, provider: &str) -> &Control {
        let kind = provider.parse().expect("a name");
        self.providers
            .get(&kind)
            .expect("it is registered")
            .backend
            .control()
    }

    /// The operations whose calls are at work, or handed over and not begun.
    pub fn running(&self) -> Vec<OperationId> {
        let submitted = self.providers.values().flat_map(|one| &one.submitted);
        let running = self.running.iter().map(|call| &call.effect);
        running.chain(submitted).map(|effect| effect.operation).collect()
    }

    /// What lives at the providers.
    pub fn living(&self) -> BTreeMap<ProviderKind, Vec<Living>> {
        let living = self.providers.iter();
        living
            .map(|(kind, one)| (kind.clone(), one.subject.living()))
            .collect()
    }

    pub(crate) fn note(&mut self, what: impl FnOnce() -> String) {
        if self.config.notes {
            let line = format!("{} {}", self.now, what());
            self.notes.push(line);
        }
    }

    /// Takes the next revision of the shape: these groups.
    ///
    /// # Errors
    ///
    /// As the driver's.
    pub fn update(&mut self, groups: Vec<NodeGroupSpec>) -> Result<Accepted, DriverError> {
        let mut next = self.shape.clone();
        next.generation.0 += 1;
        next.groups = groups;
        let accepted = self.driver.update_desired(next.clone(), self.now)?;
        self.shape = next;
        Ok(accepted)
    }

    /// The groups that are wanted now.
    pub fn groups(&self) -> &[NodeGroupSpec] {
        &self.shape.groups
    }

    /// The process ends, and one that knows nothing takes over.
    ///
    /// # Errors
    ///
    /// As the driver's.
    pub fn restart_anew(&mut self) -> Result<(), DriverError> {
        self.die();
        let setups = setups(&self.config, &self.providers);
        self.driver = ClusterDriver::new(self.shape.clone(), self.config.policy.clone(), setups)?;
        self.history.forgotten(&self.living());
        self.watch();
        Ok(())
    }

    /// The process ends, and one that has its state takes over.
    ///
    /// # Errors
    ///
    /// As the driver's.
    pub fn restart_restored(&mut self) -> Result<(), DriverError> {
        self.take_over(self.driver.state().clone())
    }

    /// The process ends, and one that has a state of it takes over; the state may be older than the end.
    ///
    /// # Errors
    ///
    /// As the driver's.
    pub fn restart_from(&mut self, state: ClusterState) -> Result<(), DriverError> {
        self.take_over(state)?;
        self.history.forgotten(&self.living());
        Ok(())
    }

    fn take_over(&mut self, state: ClusterState) -> Result<(), DriverError> {
        self.die();
        let setups = setups(&self.config, &self.providers);
        let (shape, policy) = (self.shape.clone(), self.config.policy.clone());
        self.driver = ClusterDriver::restore(state, shape, policy, setups, self.now)?;
        self.history.handed_over(self.driver.state());
        self.watch();
        Ok(())
    }

    /// What only the process held is lost. Of the creates that were about to reach their provider every
    /// second one does, and comes through within its visibility.
    fn die(&mut self) {
        let kept = self.calls_that_live_on();
        for (place, call) in std::mem::take(&mut self.running).into_iter().enumerate() {
            let nodewright_core::effect::Command::CreateLease(spec) = &call.effect.command else {
                continue;
            };
            if !call.begun && place % 2 == 0 {
                let quarters = (place / 2 % 5) as u8;
                self.providers[&call.effect.provider]
                    .backend
                    .strand(&call.call, spec, quarters);
            }
        }
        self.running = kept;
        self.history.process_ends();
        self.late_creates();
        self.news.clear();
        self.delivered.clear();
        self.looks.clear();
        self.sessions.clear();
        self.watches.clear();
        self.config.fresh = false;
        // What the old process began reports nowhere.
        self.reported = Arc::default();
        for provider in self.providers.values_mut() {
            provider.ledger = Ledger::new();
            provider.submitted.clear();
            provider.restarting = false;
            let control = provider.backend.control().clone();
            // A first look believes what it sees, so that what was scripted for a sweep is not fair to it.
            control.forget_listings();
            provider.backend = Faulty::new(provider.subject.open(), control);
        }
    }

    /// Listens for machines that die, where that is real.
    fn watch(&mut self) {
        let Pump::Tokio(runtime) = &self.pump else {
            return;
        };
        for provider in self.providers.values() {
            let reported = self.reported.clone();
            let sink = nodewright_core::effect::LossSink::new(move |loss| {
                reported.lock().expect("nobody panics under it").losses.push(loss);
            });
            let (backend, run) = (provider.backend.clone(), self.shape.run_id.clone());
            let watch = runtime.spawn(async move { backend.watch(&run, sink).await });
            self.watches.push(Aborts::new(watch));
        }
    }

    /// Runs passes until nothing is left to do now, and checks what must hold before and after.
    ///
    /// # Errors
    ///
    /// What did not hold.
    pub fn drive(&mut self) -> Result<(), Broken> {
        check_preview(&self.driver, self.now)?;
        let before = self.driver.state().clone();
        let stale = self.driver.summary().stale;
        let mut executor = Executor::new(&mut self.providers);
        let report = self.driver.drive(self.now, &mut executor);
        let accepted = executor.accepted;
        let passes = report.passes;
        let mut hasher = DefaultHasher::new();
        (self.passed_through, self.driver.state(), &report.events).hash(&mut hasher);
        self.passed_through = hasher.finish();
        for event in report.events {
            self.note(|| format!("  {}", event.kind));
        }
        for look in self.driver.due_looks(self.now) {
            self.looks.push((look, self.now));
        }
        self.check_drive(&before, stale, passes, &accepted)
    }

    /// Has the creates come through whose moment has come although nobody waits for them.
    pub(crate) fn late_creates(&mut self) {
        let late = self.providers.values();
        let late = late.flat_map(|one| one.backend.control().take_late());
        let late: Vec<BoxFuture<'static, ()>> = late.collect();
        for work in late {
            self.stirred = true;
            let _ = self.pump.finish(work);
        }
    }

    /// Lets time pass up to this moment, and does what is due then.
    ///
    /// # Errors
    ///
    /// What did not hold.
    pub fn advance_to(&mut self, moment: Timestamp) -> Result<(), Broken> {
        self.now = self.now.max(moment);
        self.time.set(self.now);
        self.note(|| "time passes".to_owned());
        for provider in self.providers.values_mut() {
            provider.restarting = false;
        }
        self.late_creates();
        let mut due = Vec::new();
        self.driver.due_operations(self.now, &mut due);
        for operation in due {
            self.expire(&operation)?;
        }
        self.end_overdue();
        self.drive()
    }

    /// Lets time pass by this much.
    ///
    /// # Errors
    ///
    /// What did not hold.
    pub fn advance(&mut self, by: Duration) -> Result<(), Broken> {
        self.advance_to(self.now.checked_add(by).expect("traces are short"))
    }

    /// The next moment at which something happens by itself.
    pub fn next_moment(&self) -> Option<Timestamp> {
        self.next_step().into_iter().chain(self.driver.sweep_at()).min()
    }

    /// The same but for sweeps, which never end.
    pub(crate) fn next_step(&self) -> Option<Timestamp> {
        let ends = self.running.iter().filter(|call| !call.abandoned);
        let ends = ends.filter_map(|call| call.end_by);
        let late = self.providers.values();
        let late = late.filter_map(|one| one.backend.control().next_late());
        ends.chain(late).chain(self.driver.requeue_at()).min()
    }

    /// Folds an observation of a slot's attempt, as an application would.
    ///
    /// # Errors
    ///
    /// What did not hold.
    pub fn observe(
        &mut self,
        node: &LogicalNodeId,
        attempt: NodeAttemptId,
        observation: &Observation,
    ) -> Result<Folded, Broken> {
        if let Observation::Finished {
            operation, outcome, ..
        } = observation
        {
            self.history.is_told(*operation, outcome)?;
        }
        let before = self.driver.state().nodes.get(node).cloned();
        let stale = self.driver.summary().stale;
        let folded = self.driver.fold(node, attempt, observation, self.now);
        self.note(|| format!("{node} {attempt}: {observation}: {folded:?}"));
        Told {
            node,
            attempt,
            observation,
            folded,
            before: before.as_ref(),
            after: self.driver.state().nodes.get(node),
            counted: self.driver.summary().stale - stale,
            policy: &self.config.policy,
            run: &self.shape.run_id,
            now: self.now,
        }
        .check()?;
        Ok(folded)
    }

    /// How long this run has lasted, in seconds.
    pub fn seconds(&self) -> i64 {
        self.now.as_second() - START
    }
}

fn setups<S: Subject>(
    config: &SimConfig,
    providers: &BTreeMap<ProviderKind, Provider<S>>,
) -> BTreeMap<ProviderKind, ProviderSetup> {
    let setup = |provider: &Provider<S>| ProviderSetup {
        capabilities: provider.backend.capabilities(),
        pace: config.pace,
        fresh: config.fresh,
    };
    let setups = providers.iter();
    setups
        .map(|(kind, provider)| (kind.clone(), setup(provider)))
        .collect()
}

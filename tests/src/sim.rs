//! The simulated process: a driver, its ledgers, calls and sessions, and time.

mod deliver;
mod executor;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use nodewright_core::bootstrap::Session;
use nodewright_core::driver::{Accepted, ClusterDriver, DriverError, DueLook, ProviderSetup};
use nodewright_core::effect::{CommandKind, EffectBackend, EffectResult, Outcome, StreamReport};
use nodewright_core::id::{AttemptIdentity, LogicalNodeId, NodeAttemptId, OperationId, ProviderKind};
use nodewright_core::ledger::Ledger;
use nodewright_core::observation::{Folded, Observation};
use nodewright_core::pace::PaceConfig;
use nodewright_core::policy::Policy;
use nodewright_core::shape::{ClusterShape, NodeGroupSpec};
use nodewright_core::state::ClusterState;

use self::executor::Executor;
use crate::call::{Live, Running};
use crate::oracle::check_preview;
use crate::{Chooser, FaultRates};

/// A guarantee that did not hold, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken(pub String);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a simulation is made from.
#[derive(Debug, Clone)]
pub struct SimConfig {
    /// Chooses what happens next.
    pub seed: u64,
    /// The driver's policy.
    pub policy: Policy,
    /// What every provider states as its visibility; effects that come late come within it.
    pub visibility: Duration,
    /// Whether calls end when they are told to.
    pub abortable: bool,
    /// The pace at every provider.
    pub pace: PaceConfig,
    /// Whether the run is declared fresh at every provider, so that no first look is taken.
    pub fresh: bool,
    /// What goes wrong.
    pub faults: FaultRates,
    /// Whether to keep a trace of what happened, for people.
    pub trace: bool,
}

impl Default for SimConfig {
    fn default() -> Self {
        Self {
            seed: 0,
            policy: crate::policy(),
            visibility: Duration::from_secs(3),
            abortable: true,
            pace: PaceConfig::default(),
            fresh: true,
            faults: FaultRates::default(),
            trace: false,
        }
    }
}

/// A provider, and how its machines die.
pub struct Provider<B> {
    /// The backend.
    pub backend: Arc<B>,
    /// Kills the machine of an attempt; false where there is none.
    pub kill: fn(&B, &AttemptIdentity) -> bool,
}

impl<B> Clone for Provider<B> {
    fn clone(&self) -> Self {
        Self {
            backend: self.backend.clone(),
            kill: self.kill,
        }
    }
}

impl<B> fmt::Debug for Provider<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider").finish_non_exhaustive()
    }
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

/// A create whose caller gave up, and that comes through all the same.
pub(crate) struct LateEffect {
    pub(crate) at: Timestamp,
    pub(crate) work: BoxFuture<'static, (Outcome, Option<Session>)>,
}

/// One run, simulated. See the [crate] for what it does.
pub struct Sim<B> {
    pub(crate) config: SimConfig,
    pub(crate) chooser: Chooser,
    pub(crate) now: Timestamp,
    pub(crate) driver: ClusterDriver,
    pub(crate) shape: ClusterShape,
    pub(crate) providers: BTreeMap<ProviderKind, Provider<B>>,
    pub(crate) ledgers: BTreeMap<ProviderKind, Ledger>,
    pub(crate) running: Vec<Running>,
    pub(crate) late: Vec<LateEffect>,
    pub(crate) news: Vec<News>,
    pub(crate) delivered: Vec<News>,
    pub(crate) reported: Arc<Mutex<Vec<StreamReport>>>,
    pub(crate) sessions: Vec<Live>,
    pub(crate) looks: Vec<(DueLook, Timestamp)>,
    /// What each attempt sent last and when, as far as this process knows.
    pub(crate) dispatched: BTreeMap<NodeAttemptId, (CommandKind, Timestamp)>,
    /// Every call that a backend saw, in order.
    pub(crate) calls: Vec<String>,
    pub(crate) trace: Vec<String>,
}

impl<B> fmt::Debug for Sim<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sim")
            .field("now", &self.now)
            .field("running", &self.running)
            .field("news", &self.news)
            .finish_non_exhaustive()
    }
}

impl<B: EffectBackend> Sim<B> {
    /// A run that begins now, with a driver that knows nothing.
    ///
    /// # Errors
    ///
    /// As the driver's.
    pub fn new(
        config: SimConfig,
        providers: BTreeMap<ProviderKind, Provider<B>>,
        shape: ClusterShape,
    ) -> Result<Self, DriverError> {
        let setups = setups(&config, &providers);
        let driver = ClusterDriver::new(shape.clone(), config.policy.clone(), setups)?;
        Ok(Self {
            chooser: Chooser::new(config.seed),
            now: Timestamp::from_second(1_900_000_000).expect("it is a moment"),
            driver,
            shape,
            ledgers: ledgers(&providers),
            providers,
            running: Vec::new(),
            late: Vec::new(),
            news: Vec::new(),
            delivered: Vec::new(),
            reported: Arc::default(),
            sessions: Vec::new(),
            looks: Vec::new(),
            dispatched: BTreeMap::new(),
            calls: Vec::new(),
            trace: Vec::new(),
            config,
        })
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

    /// Every call that a backend saw, in order.
    pub fn calls(&self) -> &[String] {
        &self.calls
    }

    /// What happened, if a trace is kept.
    pub fn trace(&self) -> &[String] {
        &self.trace
    }

    /// The operations whose calls are at work, in the order of their submission.
    pub fn running(&self) -> Vec<OperationId> {
        self.running.iter().map(|call| call.effect.operation).collect()
    }

    /// What goes wrong from now on.
    pub const fn set_faults(&mut self, faults: FaultRates) {
        self.config.faults = faults;
    }

    pub(crate) fn note(&mut self, what: impl FnOnce() -> String) {
        if self.config.trace {
            let line = format!("{} {}", self.now, what());
            self.trace.push(line);
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
        self.config.fresh = false;
        let setups = setups(&self.config, &self.providers);
        self.driver = ClusterDriver::new(self.shape.clone(), self.config.policy.clone(), setups)?;
        Ok(())
    }

    /// The process ends, and one that has its state takes over.
    ///
    /// # Errors
    ///
    /// As the driver's.
    pub fn restart_restored(&mut self) -> Result<(), DriverError> {
        self.restart_from(self.driver.state().clone())
    }

    /// The process ends, and one that has a state of it takes over; the state may be older than the end.
    ///
    /// # Errors
    ///
    /// As the driver's.
    pub fn restart_from(&mut self, state: ClusterState) -> Result<(), DriverError> {
        self.die();
        self.config.fresh = false;
        let setups = setups(&self.config, &self.providers);
        let (shape, policy) = (self.shape.clone(), self.config.policy.clone());
        self.driver = ClusterDriver::restore(state, shape, policy, setups, self.now)?;
        Ok(())
    }

    /// What only the process held is lost; creates that were at work may still come through.
    fn die(&mut self) {
        let visibility = self.config.visibility;
        for call in std::mem::take(&mut self.running) {
            if self.chooser.happens(500) {
                self.come_later(call, visibility);
            }
        }
        self.news.clear();
        self.delivered.clear();
        self.looks.clear();
        self.dispatched.clear();
        self.sessions.clear();
        // Sessions of the old process report nowhere.
        self.reported = Arc::default();
        self.ledgers = ledgers(&self.providers);
    }

    /// Runs passes until nothing is left to do now, and checks what must hold before and after.
    ///
    /// # Errors
    ///
    /// What did not hold.
    pub fn drive(&mut self) -> Result<(), Broken> {
        check_preview(&self.driver, self.now)?;
        let stale = self.driver.summary().stale;
        let mut executor = Executor {
            config: &self.config,
            chooser: &mut self.chooser,
            providers: &self.providers,
            ledgers: &mut self.ledgers,
            running: &mut self.running,
            reported: &self.reported,
            calls: &mut self.calls,
            run: &self.shape.run_id,
            accepted: Vec::new(),
            broken: None,
        };
        let report = self.driver.drive(self.now, &mut executor);
        let (accepted, broken) = (executor.accepted, executor.broken);
        if let Some(broken) = broken {
            return Err(broken);
        }
        for event in report.events {
            self.note(|| format!("  {}", event.kind));
        }
        if self.driver.summary().stale != stale {
            return Err(Broken(
                "G8: a refused submission was not recorded as pending".to_owned(),
            ));
        }
        self.check_recorded(&accepted)?;
        for look in self.driver.due_looks(self.now) {
            self.looks.push((look, self.now));
        }
        self.check_after_drive()
    }

    /// Lets time pass up to this moment, and does what is due then.
    ///
    /// # Errors
    ///
    /// What did not hold.
    pub fn advance_to(&mut self, moment: Timestamp) -> Result<(), Broken> {
        self.now = self.now.max(moment);
        let now = self.now;
        self.note(|| "time passes".to_owned());
        for effect in self.late.extract_if(.., |effect| effect.at <= now) {
            let _ = effect.work.now_or_never();
        }
        let mut due = Vec::new();
        self.driver.due_operations(now, &mut due);
        for operation in due {
            self.expire(&operation);
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
        let ends = self.running.iter().filter(|call| !call.abandoned);
        let ends = ends.filter_map(|call| call.end_by);
        let late = self.late.iter().map(|effect| effect.at);
        ends.chain(late).chain(self.driver.requeue_at()).min()
    }

    /// Stops the faults, delivers what is under way and lets time pass until nothing is left to do; demands
    /// that this ends, within so much time, converged and without a leak (G22, G23), and then stays so (G3).
    ///
    /// # Errors
    ///
    /// What did not hold.
    pub fn settle(&mut self, within: Duration) -> Result<(), Broken> {
        self.config.faults = FaultRates::default();
        let end = self.now.checked_add(within).expect("traces are short");
        let mut releases = 3;
        self.drive()?;
        loop {
            self.quiesce()?;
            match self.next_moment() {
                // What is halted is somebody's to release; what was under way may halt a slot once more.
                None if releases > 0 && self.release_halted() => {
                    releases -= 1;
                    self.drive()?;
                }
                None => break,
                Some(next) if next > end => {
                    let late = self.driver.is_converged() && self.driver.requeue_at() == Some(next);
                    let what = if late {
                        "G3: converged and waiting"
                    } else {
                        "G22: not settled"
                    };
                    return Err(Broken(format!("{what} after {within:?}: {}", self.describe())));
                }
                Some(next) => self.advance_to(next)?,
            }
        }
        self.check_settled()
    }

    /// Asks for a retry of every halted slot; says whether there was one.
    fn release_halted(&mut self) -> bool {
        let nodes = self.driver.state().nodes.iter();
        let halted = nodes.filter(|(_, node)| node.retry.halted.is_some());
        let halted: Vec<LogicalNodeId> = halted.map(|(id, _)| id).collect();
        for id in &halted {
            self.driver.retry(id);
        }
        !halted.is_empty()
    }

    /// Does all deferred work, without letting time pass.
    fn quiesce(&mut self) -> Result<(), Broken> {
        for _ in 0..100_000 {
            if !self.work()? {
                return Ok(());
            }
        }
        Err(Broken("G19: work goes on without end at one moment".to_owned()))
    }

    /// Folds an observation of a slot's attempt, as an application would.
    pub fn observe(
        &mut self,
        node: &LogicalNodeId,
        attempt: NodeAttemptId,
        observation: Observation,
    ) -> Folded {
        let now = self.now;
        let folded = self.driver.fold(node, attempt, &observation, now);
        self.note(|| format!("{node} {attempt}: {observation}: {folded:?}"));
        folded
    }
}

pub(crate) fn setups<B: EffectBackend>(
    config: &SimConfig,
    providers: &BTreeMap<ProviderKind, Provider<B>>,
) -> BTreeMap<ProviderKind, ProviderSetup> {
    let setup = |provider: &Provider<B>| {
        let mut capabilities = provider.backend.capabilities();
        capabilities.visibility = config.visibility;
        capabilities.abortable = config.abortable;
        ProviderSetup {
            capabilities,
            pace: config.pace,
            fresh: config.fresh,
        }
    };
    providers
        .iter()
        .map(|(kind, provider)| (kind.clone(), setup(provider)))
        .collect()
}

fn ledgers<B>(providers: &BTreeMap<ProviderKind, Provider<B>>) -> BTreeMap<ProviderKind, Ledger> {
    providers
        .keys()
        .map(|kind| (kind.clone(), Ledger::new()))
        .collect()
}

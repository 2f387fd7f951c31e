//! A driver whose effects are answered one by one, for traces where every step is written down.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use nodewright_core::driver::{ClusterDriver, DriveReport, DueLook, EffectSink, ProviderSetup, Refused};
use nodewright_core::effect::{
    CallEnd, Capabilities, Command, Destroyed, EffectError, Inventory, InventoryEntry, Outcome, PlannedEffect,
};
use nodewright_core::facts::{AgentId, CreatedLease, Endpoint, LeaseFacts, LeaseId};
use nodewright_core::id::{
    AttemptIdentity, BootstrapSessionId, LogicalNodeId, NodeAttemptId, OperationId, ProviderKind,
};
use nodewright_core::inventory::Findings;
use nodewright_core::node::ManagedNode;
use nodewright_core::observation::{Folded, Observation};
use nodewright_core::pace::PaceConfig;
use nodewright_core::policy::Policy;
use nodewright_core::shape::ClusterShape;
use nodewright_core::state::ClusterState;

use crate::oracle::{check_preview, check_rest};

/// A driver at one provider, `alpha`, and what it sent. Every drive is held to the full plan.
#[derive(Debug)]
pub struct ByHand {
    /// The driver.
    pub driver: ClusterDriver,
    /// The moment.
    pub now: Timestamp,
    /// All that was sent.
    pub sent: Vec<PlannedEffect>,
    /// The attempts that the sink was told to forget.
    pub retired: Vec<NodeAttemptId>,
    /// What the last drive reported.
    pub report: DriveReport,
}

struct Sink<'a> {
    sent: Vec<PlannedEffect>,
    retired: &'a mut Vec<NodeAttemptId>,
}

impl EffectSink for Sink<'_> {
    fn submit(&mut self, effects: Vec<PlannedEffect>) -> Vec<Refused> {
        self.sent.extend(effects);
        Vec::new()
    }

    fn retire(&mut self, attempt: NodeAttemptId) {
        self.retired.push(attempt);
    }
}

impl ByHand {
    /// The provider's setup: an inventory, and a visibility of 10 s.
    pub fn setup(pace: PaceConfig, fresh: bool) -> ProviderSetup {
        ProviderSetup {
            capabilities: Capabilities {
                visibility: Duration::from_secs(10),
                inventory: true,
                watch: false,
                abortable: true,
            },
            pace,
            fresh,
        }
    }

    /// A driver that knows nothing of a run that is fresh.
    pub fn fresh(shape: ClusterShape, policy: Policy, pace: PaceConfig) -> Self {
        Self::with(shape, policy, [("alpha", Self::setup(pace, true))])
    }

    /// A driver that knows nothing of a run that may have machines at these providers.
    pub fn with<'a>(
        shape: ClusterShape,
        policy: Policy,
        setups: impl IntoIterator<Item = (&'a str, ProviderSetup)>,
    ) -> Self {
        let setups = named(setups);
        Self::around(ClusterDriver::new(shape, policy, setups).expect("the shape is valid"))
    }

    /// A driver that goes on with this state.
    pub fn restored<'a>(
        state: ClusterState,
        shape: ClusterShape,
        policy: Policy,
        setups: impl IntoIterator<Item = (&'a str, ProviderSetup)>,
        now: Timestamp,
    ) -> Self {
        let driver = ClusterDriver::restore(state, shape, policy, named(setups), now);
        Self {
            now,
            ..Self::around(driver.expect("the state is whole"))
        }
    }

    fn around(driver: ClusterDriver) -> Self {
        Self {
            driver,
            now: Timestamp::from_second(1_900_000_000).expect("it is a moment"),
            sent: Vec::new(),
            retired: Vec::new(),
            report: DriveReport::default(),
        }
    }

    /// Drives, and says what was sent.
    pub fn drive(&mut self) -> Vec<PlannedEffect> {
        check_preview(&self.driver, self.now).expect("the incremental pass is the full one");
        let mut sink = Sink {
            sent: Vec::new(),
            retired: &mut self.retired,
        };
        self.report = self.driver.drive(self.now, &mut sink);
        let sent = sink.sent;
        self.sent.extend_from_slice(&sent);
        self.driver
            .state()
            .check()
            .expect("the state holds its invariants");
        check_rest(&self.driver, self.now).expect("nothing is left to do now");
        sent
    }

    /// Lets time pass and drives.
    pub fn pass(&mut self, seconds: u64) -> Vec<PlannedEffect> {
        self.now = self
            .now
            .checked_add(Duration::from_secs(seconds))
            .expect("traces are short");
        self.drive()
    }

    /// Folds what came of an operation.
    pub fn answer(&mut self, effect: &PlannedEffect, outcome: Outcome) -> Folded {
        let observation = Observation::Finished {
            operation: effect.operation,
            outcome,
            end: CallEnd::At(self.now),
        };
        self.observe(&effect.node, effect.operation.attempt, &observation)
    }

    /// Folds its failure.
    pub fn fail(&mut self, effect: &PlannedEffect, error: EffectError) -> Folded {
        self.answer(effect, Outcome::Failed(error))
    }

    /// Folds its success, as an honest provider would answer.
    pub fn succeed(&mut self, effect: &PlannedEffect) -> Folded {
        let outcome = match &effect.command {
            Command::CreateLease(spec) => {
                let mut created = machine(&format!("m-{}", effect.operation.attempt));
                created.lease.template = Some(spec.template.digest());
                Outcome::LeaseCreated(created)
            }
            Command::FindLease => Outcome::LeaseFound(None),
            Command::LookupEndpoint(_) => Outcome::EndpointFound(machine("m").endpoint),
            Command::StartBootstrap(_) => Outcome::BootstrapStarted(BootstrapSessionId(effect.operation)),
            Command::ObserveConvergence(_) => Outcome::ConvergenceAccepted,
            Command::CancelBootstrap => Outcome::BootstrapCancelled,
            Command::DestroyLease(_) => Outcome::LeaseDestroyed(Destroyed::Gone),
        };
        let started = matches!(outcome, Outcome::BootstrapStarted(_));
        let folded = self.answer(effect, outcome);
        if started {
            let joined = Observation::Joined(AgentId::new(effect.node.to_string()));
            let _ = self.observe(&effect.node, effect.operation.attempt, &joined);
        }
        folded
    }

    /// Folds an observation.
    pub fn observe(
        &mut self,
        node: &LogicalNodeId,
        attempt: NodeAttemptId,
        observation: &Observation,
    ) -> Folded {
        self.driver.fold(node, attempt, observation, self.now)
    }

    /// Drives and lets everything succeed until nothing is sent any more.
    pub fn succeed_all(&mut self) {
        let mut sent = self.drive();
        while !sent.is_empty() {
            for effect in &sent {
                let _ = self.succeed(effect);
            }
            sent = self.drive();
        }
    }

    /// The node of a slot.
    pub fn node(&self, id: &str) -> &ManagedNode {
        let id = id.parse().expect("a node id");
        self.driver.state().nodes.get(&id).expect("the slot holds a node")
    }

    /// Takes the one look that is due.
    pub fn look(&mut self) -> DueLook {
        let due = self.driver.due_looks(self.now);
        assert_eq!(due.len(), 1, "{due:?}");
        due.into_iter().next().expect("it was counted")
    }

    /// Answers a look that was asked now with these machines: slot, attempt, lease.
    pub fn list(&mut self, look: &DueLook, machines: &[(&str, u64, &str)]) -> Findings {
        let entries = machines.iter().map(|machine| self.entry(*machine)).collect();
        self.answer_look(look, self.now, Ok(entries))
    }

    /// What an inventory lists of a machine that lives: slot, attempt, lease.
    pub fn entry(&self, (node, attempt, lease): (&str, u64, &str)) -> InventoryEntry {
        InventoryEntry {
            identity: AttemptIdentity {
                run: self.driver.state().run_id.clone(),
                node: node.parse().expect("a node id"),
                attempt: NodeAttemptId::new(attempt),
            },
            lease: LeaseFacts::new(LeaseId::new(lease)),
            endpoint: None,
            alive: true,
        }
    }

    /// Answers a look that was asked at this moment.
    pub fn answer_look(
        &mut self,
        look: &DueLook,
        asked_at: Timestamp,
        answer: Result<Vec<InventoryEntry>, EffectError>,
    ) -> Findings {
        let answer = answer.map(|entries| Inventory { entries });
        self.driver
            .inventory(&look.provider, look.asked, asked_at, answer, self.now)
    }

    /// Lets time pass up to the next sweep, and takes it.
    pub fn due_sweep(&mut self) -> DueLook {
        let mut due = self.driver.due_looks(self.now);
        if due.is_empty() {
            self.now = self.driver.sweep_at().expect("a sweep is to come");
            self.drive();
            due = self.driver.due_looks(self.now);
        }
        assert_eq!(due.len(), 1, "{due:?}");
        due.swap_remove(0)
    }

    /// Takes the next sweep and answers it at once with these machines: slot, attempt, lease. Drives after it.
    pub fn sweep(&mut self, machines: &[(&str, u64, &str)]) -> (Findings, Vec<PlannedEffect>) {
        let look = self.due_sweep();
        let findings = self.list(&look, machines);
        (findings, self.drive())
    }

    /// Names effects as text: slot, operation, command.
    pub fn text(effects: &[PlannedEffect]) -> Vec<String> {
        let text = |effect: &PlannedEffect| {
            let OperationId { attempt, sequence } = effect.operation;
            format!("{} {attempt}.{sequence} {}", effect.node, effect.command.kind())
        };
        effects.iter().map(text).collect()
    }
}

fn named<'a>(
    setups: impl IntoIterator<Item = (&'a str, ProviderSetup)>,
) -> BTreeMap<ProviderKind, ProviderSetup> {
    let named = |(kind, setup): (&str, _)| (kind.parse().expect("a name"), setup);
    setups.into_iter().map(named).collect()
}

/// A machine of this name, with an endpoint.
fn machine(name: &str) -> CreatedLease {
    CreatedLease {
        lease: LeaseFacts::new(LeaseId::new(name)),
        endpoint: Some(Endpoint {
            host: name.into(),
            port: None,
        }),
    }
}

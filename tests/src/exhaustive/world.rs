//! The state that is explored: the real driver and the real ledger, a provider, and all that is under way.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use jiff::Timestamp;
use nodewright_core::driver::{ClusterDriver, DueLook, EffectSink, Refused};
use nodewright_core::effect::{CommandKind, EffectResult, Inventory, Outcome, PlannedEffect};
use nodewright_core::event::{Event, EventKind};
use nodewright_core::facts::{Endpoint, LeaseId};
use nodewright_core::id::{LogicalNodeId, NodeAttemptId, OperationId};
use nodewright_core::ledger::{Ledger, Verdict};
use nodewright_core::node::{PendingOperation, Stage};
use nodewright_core::observation::Observation;
use nodewright_core::state::ClusterState;

use super::action::{Fate, Tag};
use super::cloud::{Cloud, Report};
use super::print;
use super::setup::{Budget, Kind, Setup};
use crate::oracle::{check_preview, check_rest, g25_order};

/// A guarantee that did not hold, by number, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The guarantee.
    pub rule: &'static str,
    /// What was seen.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, what } = self;
        let what = what.strip_prefix(&format!("{rule}: ")).unwrap_or(what);
        write!(f, "{rule}: {what}")
    }
}

/// Breaks a guarantee unless something holds.
macro_rules! hold {
    ($rule:literal, $holds:expr, $($what:tt)*) => {
        if !$holds {
            return Err($crate::exhaustive::world::Violation { rule: $rule, what: format!($($what)*) });
        }
    };
}
pub(super) use hold;

/// A call that is at work.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Running {
    pub(super) effect: PlannedEffect,
    /// Whether it is not answered now, and what becomes of its effect then.
    pub(super) fate: Option<Fate>,
    /// What it answers, once it had its effect.
    pub(super) answer: Option<Outcome>,
    /// Whether it was told to end.
    pub(super) cancelled: bool,
    /// When it is ended at the latest.
    pub(super) end_by: Option<Timestamp>,
    /// Whether its outcome was reported without its end.
    pub(super) abandoned: bool,
}

/// Something that the driver is still to be told.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct News {
    pub(super) node: LogicalNodeId,
    pub(super) attempt: NodeAttemptId,
    pub(super) observation: Observation,
    /// Whether time may pass before it is told.
    pub(super) late: bool,
}

impl News {
    pub(super) fn new(node: &LogicalNodeId, attempt: NodeAttemptId, observation: Observation) -> Self {
        Self {
            node: node.clone(),
            attempt,
            observation,
            late: false,
        }
    }

    pub(super) fn tag(&self) -> Tag {
        match &self.observation {
            Observation::Finished { operation, .. } => Tag::Result(*operation),
            Observation::Refused { operation, .. } => Tag::Refused(*operation),
            Observation::CallEnded { operation, .. } => Tag::Ended(*operation),
            Observation::Stream(seen) => Tag::Report(seen.session, seen.sequence),
            _ => Tag::Lost(self.attempt),
        }
    }
}

impl From<EffectResult> for News {
    fn from(result: EffectResult) -> Self {
        let observation = Observation::Finished {
            operation: result.operation,
            outcome: result.outcome,
            end: result.end,
        };
        Self::new(&result.node, result.operation.attempt, observation)
    }
}

impl From<Report> for News {
    fn from(report: Report) -> Self {
        let attempt = report.seen.session.attempt();
        Self::new(&report.node, attempt, Observation::Stream(report.seen))
    }
}

/// A look that is under way.
#[derive(Debug, Clone)]
pub(super) struct Looking {
    pub(super) look: DueLook,
    pub(super) asked_at: Timestamp,
    /// What it has seen, if it is answered later.
    pub(super) held: Option<Inventory>,
    /// What nodes held when it was asked, and where that was.
    pub(super) leases: BTreeMap<LeaseId, Option<Endpoint>>,
    /// The attempts that were not over when it was asked.
    pub(super) lived: BTreeSet<NodeAttemptId>,
    /// The attempts of which something ended since.
    pub(super) ended: BTreeSet<NodeAttemptId>,
}

/// The rows of answers of this process, each by the first of its questions. The driver keeps its own.
#[derive(Debug, Clone, Default)]
pub(super) struct Rows {
    /// Leases that nodes held and that were not listed.
    pub(super) missed: BTreeMap<LeaseId, Timestamp>,
    /// What was listed and belonged to nobody.
    pub(super) shown: BTreeMap<LeaseId, Timestamp>,
}

/// What a step did, for its checks and for people.
#[derive(Debug, Clone, Default)]
pub(super) struct Done {
    pub(super) told: Option<News>,
    pub(super) sent: Vec<PlannedEffect>,
    pub(super) events: Vec<Event>,
    /// Whether a look was answered.
    pub(super) looked: bool,
    /// The attempts that this answer may have failed, joined or not.
    pub(super) lost: BTreeSet<NodeAttemptId>,
    /// The slot whose node was to be replaced.
    pub(super) replaced: Option<LogicalNodeId>,
    /// The slot that was to be tried again.
    pub(super) retried: Option<LogicalNodeId>,
    /// Whether another process took over.
    pub(super) restarted: bool,
}

/// One state of a cluster and all around it.
#[derive(Debug, Clone)]
pub struct World {
    pub(super) now: Timestamp,
    pub(super) driver: ClusterDriver,
    pub(super) shape: usize,
    pub(super) ledger: Ledger,
    pub(super) executor_up: bool,
    /// Submissions that no executor has taken up.
    pub(super) submitted: Vec<PlannedEffect>,
    pub(super) calls: Vec<Running>,
    pub(super) cloud: Cloud,
    pub(super) news: Vec<News>,
    /// Results that were lost on the way, while somebody waits for them.
    pub(super) lost: Vec<EffectResult>,
    /// Attempts whose machines are gone, of which nobody has told.
    pub(super) untold: BTreeSet<(LogicalNodeId, NodeAttemptId)>,
    pub(super) looking: Option<Looking>,
    pub(super) rows: Rows,
    /// The attempts that there ever were, as far as strays of them may turn up.
    pub(super) made: BTreeMap<NodeAttemptId, LogicalNodeId>,
    pub(super) journal: Option<Arc<ClusterState>>,
    /// Whether the driver has passed since it learned something.
    pub(super) passed: bool,
    pub(super) budget: Budget,
    /// The highest attempt that this process made.
    pub(super) allocated: NodeAttemptId,
    /// What each attempt sent last, and when.
    pub(super) last_sent: BTreeMap<NodeAttemptId, (CommandKind, Timestamp)>,
    pub(super) done: Done,
    pub(super) violation: Option<Violation>,
    /// Names this state among those of which the budget is not known.
    pub(super) print: u64,
}

impl PartialEq for World {
    fn eq(&self, other: &Self) -> bool {
        self.print == other.print && self.budget == other.budget
    }
}

impl Eq for World {}

impl Hash for World {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.print, self.budget, self.violation.is_some()).hash(state);
    }
}

impl World {
    /// A run that begins now, with a driver that knows nothing and has passed once.
    pub(super) fn new(setup: &Setup) -> Self {
        let driver = ClusterDriver::new(setup.shape(0, 1), setup.policy.clone(), setup.providers(true));
        let mut world = Self {
            now: Timestamp::from_second(1_900_000_000).expect("it is a moment"),
            driver: driver.expect("the shape is valid"),
            shape: 0,
            ledger: Ledger::new(),
            executor_up: true,
            submitted: Vec::new(),
            calls: Vec::new(),
            cloud: Cloud::default(),
            news: Vec::new(),
            lost: Vec::new(),
            untold: BTreeSet::new(),
            looking: None,
            rows: Rows::default(),
            made: BTreeMap::new(),
            journal: None,
            passed: false,
            budget: setup.budget,
            allocated: NodeAttemptId::new(0),
            last_sent: BTreeMap::new(),
            done: Done::default(),
            violation: None,
            print: 0,
        };
        let drove = world.drive(setup);
        world.violation = drove.err();
        world.print = print::of(&world, setup);
        if setup.settled {
            world.settle(setup);
        }
        world
    }

    /// Lets happen what happens by itself, one after another, until nothing is left to happen.
    fn settle(&mut self, setup: &Setup) {
        loop {
            let mut actions = Vec::new();
            self.by_itself(setup, &mut actions);
            let next = actions.into_iter().next();
            let Some(action) = next.filter(|_| self.violation.is_none()) else {
                break;
            };
            *self = self.step(setup, &action);
        }
        self.done = Done::default();
    }

    /// Runs passes until nothing is left to do now, and holds them to the full plan.
    pub(super) fn drive(&mut self, setup: &Setup) -> Result<(), Violation> {
        let broken = |rule| move |crate::Broken(what): crate::Broken| Violation { rule, what };
        check_preview(&self.driver, self.now).map_err(broken("G29"))?;
        let generation = self.driver.state().observed_generation;
        let groups = &self.driver.desired().shape().groups;
        let ordered = groups.iter().any(|group| !group.depends_on.is_empty());
        let ordered = ordered || !self.driver.state().departed.is_empty();
        let before = ordered.then(|| self.driver.state().clone());
        let stale = self.driver.summary().stale;
        let mut desk = Desk {
            ledger: &mut self.ledger,
            calls: &mut self.calls,
            submitted: &mut self.submitted,
            up: self.executor_up,
            sent: Vec::new(),
            violation: None,
        };
        let report = self.driver.drive(self.now, &mut desk);
        let (sent, violation) = (desk.sent, desk.violation);
        self.passed = true;
        self.note_attempts(setup, &report.events);
        let allocated = self.check_attempts(&report.events);
        self.done.events.extend(report.events);
        allocated?;
        if let Some(violation) = violation {
            return Err(violation);
        }
        hold!(
            "G20",
            self.driver.state().observed_generation >= generation,
            "the observed generation went back from {generation}"
        );
        hold!(
            "G8",
            self.driver.summary().stale == stale,
            "a submission was not recorded"
        );
        hold!("G19", report.errors.is_empty(), "{:?}", report.errors);
        self.check_sent(setup, &sent)?;
        if let Some(before) = before {
            let (state, desired) = (self.driver.state(), self.driver.desired());
            g25_order(&before, state, desired, &sent).map_err(broken("G25"))?;
        }
        self.done.sent.extend(sent);
        check_rest(&self.driver, self.now).map_err(|crate::Broken(what)| {
            let rule = if what.starts_with("G3") { "G3" } else { "G29" };
            Violation { rule, what }
        })?;
        if !self.driver.state().looks_done() {
            let asking = self.looking.is_some();
            let asked = self.take_question();
            hold!("G32", !(asking && asked), "a second look was asked for");
        }
        let pending = self.driver.pending_at(&Setup::provider());
        self.lost.retain(|result| {
            pending
                .iter()
                .any(|(_, operation)| *operation == result.operation)
        });
        Ok(())
    }

    /// Takes the question that is due; says whether there is one.
    pub(super) fn take_question(&mut self) -> bool {
        let Some(look) = self.driver.due_looks(self.now).pop() else {
            return false;
        };
        let state = self.driver.state();
        let held = state.nodes.iter().filter_map(|(_, node)| {
            let lease = node.lease.as_ref()?;
            Some((lease.id.clone(), node.endpoint.clone()))
        });
        let nodes = state.nodes.iter().map(|(_, node)| node);
        let lived = nodes.filter(|node| node.stage != Stage::Destroyed);
        self.looking = Some(Looking {
            look,
            asked_at: self.now,
            held: None,
            leases: held.collect(),
            lived: lived.map(|node| node.attempt).collect(),
            ended: BTreeSet::new(),
        });
        true
    }

    /// Keeps what began and what ended.
    fn note_attempts(&mut self, setup: &Setup, events: &[Event]) {
        for event in events {
            let ended = match &event.kind {
                EventKind::Restarted { from, .. } => Some(*from),
                EventKind::Reaped { attempt, .. } | EventKind::OrphanGone { attempt, .. } => Some(*attempt),
                _ => None,
            };
            if let Some(looking) = &mut self.looking {
                looking.ended.extend(ended);
            }
            if let EventKind::Inserted { node, attempt } | EventKind::Restarted { node, attempt, .. } =
                &event.kind
                && setup.budget.allows(Kind::Strays)
            {
                self.made.insert(*attempt, node.clone());
            }
        }
    }

    pub(super) fn call(&self, operation: OperationId) -> Option<usize> {
        self.calls
            .iter()
            .position(|call| call.effect.operation == operation)
    }

    /// What the state says of an operation that is pending.
    pub(super) fn pending(&self, operation: OperationId) -> Option<&PendingOperation> {
        let state = self.driver.state();
        let nodes = state.nodes.iter().filter_map(|(_, node)| node.pending.as_ref());
        let orphans = state
            .orphans
            .values()
            .filter_map(|orphan| orphan.pending.as_ref());
        nodes.chain(orphans).find(|pending| pending.id == operation)
    }

    /// The next moment at which something happens by itself.
    pub(super) fn next_moment(&self) -> Option<Timestamp> {
        let ends = self.calls.iter().filter_map(|call| call.end_by);
        let late = self.cloud.late.iter().map(|late| late.by);
        ends.chain(late).chain(self.driver.requeue_at()).min()
    }

    pub(super) fn after(&self, delay: std::time::Duration) -> Timestamp {
        self.now.checked_add(delay).expect("traces are short")
    }
}

/// Takes a drive's effects. What the ledger would not take, the driver must not have sent.
struct Desk<'a> {
    ledger: &'a mut Ledger,
    calls: &'a mut Vec<Running>,
    submitted: &'a mut Vec<PlannedEffect>,
    up: bool,
    sent: Vec<PlannedEffect>,
    violation: Option<Violation>,
}

impl EffectSink for Desk<'_> {
    fn submit(&mut self, effects: Vec<PlannedEffect>) -> Vec<Refused> {
        for effect in effects {
            self.take(effect);
        }
        Vec::new()
    }

    fn retire(&mut self, attempt: NodeAttemptId) {
        self.ledger.retire(attempt);
    }
}

impl Desk<'_> {
    fn take(&mut self, effect: PlannedEffect) {
        let operation = effect.operation;
        let at_work = |call: &Running| call.effect.operation.attempt == operation.attempt;
        let what = if self.calls.iter().any(at_work) {
            Some("while a call of its attempt is at work".to_owned())
        } else if self.up {
            let verdict = self.ledger.submit(&effect);
            (verdict != Verdict::Run).then(|| format!("and the ledger says: it {verdict}"))
        } else {
            None
        };
        if let Some(what) = what {
            let what = format!("{operation} was sent, {what}");
            self.violation.get_or_insert(Violation { rule: "G9", what });
        } else if self.up {
            self.calls.push(Running {
                effect: effect.clone(),
                fate: None,
                answer: None,
                cancelled: false,
                end_by: None,
                abandoned: false,
            });
        } else {
            self.submitted.push(effect.clone());
        }
        self.sent.push(effect);
    }
}

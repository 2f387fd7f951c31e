//! The provider, as far as it matters: who has which machine, which sessions live, what is still to come.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use nodewright_core::bootstrap::{StreamEvent, StreamObservation};
use nodewright_core::effect::{
    Command, Destroyed, EffectError, Inventory, InventoryEntry, Outcome, PlannedEffect,
};
use nodewright_core::facts::{AgentId, BootstrapStage, CreatedLease, Endpoint, LeaseFacts, LeaseId};
use nodewright_core::id::{
    AttemptIdentity, BootstrapSessionId, LogicalNodeId, NodeAttemptId, RunId, TemplateDigest,
};

use super::setup::Setup;

/// A machine of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Machine {
    pub(super) node: LogicalNodeId,
    pub(super) attempt: NodeAttemptId,
    pub(super) lease: LeaseFacts,
    pub(super) alive: bool,
    /// Whether it is listed.
    pub(super) listed: bool,
    /// Where it is.
    pub(super) endpoint: Endpoint,
    /// Until when look-ups may miss it.
    pub(super) seen_by: Timestamp,
}

/// A session that lives in the process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Session {
    pub(super) id: BootstrapSessionId,
    pub(super) node: LogicalNodeId,
    pub(super) sequence: u64,
    pub(super) joined: bool,
    /// Whether it takes longer than anything waits for.
    pub(super) silent: bool,
}

/// A create that comes through although its caller is gone, by this moment at the latest.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Late {
    pub(super) node: LogicalNodeId,
    pub(super) attempt: NodeAttemptId,
    pub(super) template: TemplateDigest,
    pub(super) by: Timestamp,
}

/// What a session reported.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Report {
    pub(super) node: LogicalNodeId,
    pub(super) seen: StreamObservation,
}

/// All that there is outside of the process.
#[derive(Debug, Clone, Default)]
pub(super) struct Cloud {
    pub(super) machines: Vec<Machine>,
    pub(super) sessions: Vec<Session>,
    pub(super) late: Vec<Late>,
    /// How many machines each attempt ever had: no two have one name.
    pub(super) made: BTreeMap<NodeAttemptId, u8>,
    /// The attempts of which machines turned up against the provider's word.
    pub(super) strays: BTreeSet<NodeAttemptId>,
}

impl Cloud {
    /// Lets a call have its effect. What sessions report on the way is appended.
    pub(super) fn perform(
        &mut self,
        effect: &PlannedEffect,
        setup: &Setup,
        now: Timestamp,
        reports: &mut Vec<Report>,
    ) -> Outcome {
        let endpoint_at_once = setup.endpoint_at_once;
        let attempt = effect.operation.attempt;
        match &effect.command {
            Command::CreateLease(spec) => {
                let seen_by = now.checked_add(setup.visibility).expect("traces are short");
                self.make(&effect.node, attempt, spec.template.digest(), seen_by);
                let found = self.machine(attempt).expect("it was made or adopted");
                Outcome::LeaseCreated(answer(found, endpoint_at_once))
            }
            Command::FindLease => {
                let found = self.machine(attempt);
                Outcome::LeaseFound(found.map(|machine| answer(machine, endpoint_at_once)))
            }
            Command::LookupEndpoint(lease) => {
                let machine = self.machines.iter().find(|machine| machine.lease.id == lease.id);
                Outcome::EndpointFound(machine.map(|machine| machine.endpoint.clone()))
            }
            Command::StartBootstrap(spec) => {
                let alive = |machine: &&Machine| machine.lease.id == spec.lease.id && machine.alive;
                if self.machines.iter().find(alive).is_none() {
                    return Outcome::Failed(EffectError::definite("its machine is gone"));
                }
                let adopted = self
                    .sessions
                    .iter()
                    .find(|session| session.id.attempt() == attempt);
                if let Some(session) = adopted {
                    return Outcome::BootstrapStarted(session.id);
                }
                let id = BootstrapSessionId(effect.operation);
                self.sessions.push(Session {
                    id,
                    node: effect.node.clone(),
                    sequence: 0,
                    joined: false,
                    silent: false,
                });
                if setup.stages {
                    let waits = StreamEvent::Stage(BootstrapStage::WaitingForJoin);
                    reports.extend(self.report(id, waits));
                }
                Outcome::BootstrapStarted(id)
            }
            Command::ObserveConvergence(id) => {
                reports.extend(self.report(*id, StreamEvent::Converged));
                Outcome::ConvergenceAccepted
            }
            Command::CancelBootstrap => {
                reports.extend(self.end_session(attempt, StreamEvent::Cancelled));
                Outcome::BootstrapCancelled
            }
            Command::DestroyLease(lease) => {
                let before = self.machines.len();
                self.machines.retain(|machine| machine.lease.id != lease.id);
                if self.machines.len() < before {
                    reports.extend(self.end_session(attempt, broke()));
                }
                Outcome::LeaseDestroyed(Destroyed::Gone)
            }
        }
    }

    /// What a look-up answers that does not see yet what is there, if this call may be answered so.
    pub(super) fn not_yet(&self, effect: &PlannedEffect, now: Timestamp) -> Option<Outcome> {
        match &effect.command {
            Command::FindLease => {
                let hidden = self
                    .machine(effect.operation.attempt)
                    .filter(|machine| machine.seen_by > now);
                hidden.map(|_| Outcome::LeaseFound(None))
            }
            Command::LookupEndpoint(_) => Some(Outcome::EndpointFound(None)),
            Command::DestroyLease(_) => Some(Outcome::LeaseDestroyed(Destroyed::Going)),
            _ => None,
        }
    }

    /// The machine of an attempt, as far as its provider has one.
    pub(super) fn machine(&self, attempt: NodeAttemptId) -> Option<&Machine> {
        self.listed().find(|machine| machine.attempt == attempt)
    }

    /// What the provider has. What has died and is listed no more is nothing to it.
    pub(super) fn listed(&self) -> impl Iterator<Item = &Machine> + Clone {
        self.machines.iter().filter(|machine| machine.listed)
    }

    /// What of that is there as the provider promised.
    pub(super) fn promised(&self) -> impl Iterator<Item = &Machine> {
        self.listed()
            .filter(|machine| !self.strays.contains(&machine.attempt))
    }

    fn make(
        &mut self,
        node: &LogicalNodeId,
        attempt: NodeAttemptId,
        template: TemplateDigest,
        seen_by: Timestamp,
    ) {
        if self.machine(attempt).is_some() {
            return;
        }
        self.put(node, attempt, template, seen_by);
    }

    /// Puts a machine there, whatever is.
    fn put(
        &mut self,
        node: &LogicalNodeId,
        attempt: NodeAttemptId,
        template: TemplateDigest,
        seen_by: Timestamp,
    ) {
        let made = self.made.entry(attempt).or_default();
        *made += 1;
        let mut lease = LeaseFacts::new(LeaseId::new(format!("m{attempt}-{made}")));
        lease.template = Some(template);
        self.machines.push(Machine {
            node: node.clone(),
            attempt,
            endpoint: endpoint(&lease),
            lease,
            alive: true,
            listed: true,
            seen_by,
        });
    }

    /// Lets a create come through when it may not any more.
    pub(super) fn stray(
        &mut self,
        node: &LogicalNodeId,
        attempt: NodeAttemptId,
        template: TemplateDigest,
        now: Timestamp,
    ) {
        self.put(node, attempt, template, now);
        self.strays.insert(attempt);
    }

    /// Lets a create come through whose caller is gone.
    pub(super) fn land(&mut self, attempt: NodeAttemptId) {
        if let Some(place) = self.late.iter().position(|late| late.attempt == attempt) {
            let late = self.late.remove(place);
            self.make(&late.node, attempt, late.template, late.by);
        }
    }

    /// Lets everything come through that does so by now.
    pub(super) fn land_due(&mut self, now: Timestamp) {
        while let Some(late) = self.late.iter().find(|late| late.by <= now) {
            let attempt = late.attempt;
            self.land(attempt);
        }
    }

    /// Lets a session report; after a last word it is gone.
    pub(super) fn report(&mut self, id: BootstrapSessionId, event: StreamEvent) -> Option<Report> {
        let place = self.sessions.iter().position(|session| session.id == id)?;
        let session = &mut self.sessions[place];
        session.sequence += 1;
        session.joined |= matches!(event, StreamEvent::Joined(_));
        let report = Report {
            node: session.node.clone(),
            seen: StreamObservation {
                session: id,
                sequence: session.sequence,
                event,
            },
        };
        if report.seen.event.is_terminal() {
            self.sessions.remove(place);
        }
        Some(report)
    }

    /// Ends the session of an attempt.
    pub(super) fn end_session(&mut self, attempt: NodeAttemptId, event: StreamEvent) -> Option<Report> {
        let of = |session: &&Session| session.id.attempt() == attempt;
        let id = self.sessions.iter().find(of)?.id;
        self.report(id, event)
    }

    /// All that the provider holds of the run.
    pub(super) fn list(&self, run: &RunId) -> Inventory {
        self.list_seen(run, |_| true)
    }

    /// What of that is visible by now, whatever the luck.
    pub(super) fn list_lagging(&self, run: &RunId, now: Timestamp) -> Inventory {
        self.list_seen(run, |machine| machine.seen_by <= now)
    }

    fn list_seen(&self, run: &RunId, seen: impl Fn(&Machine) -> bool) -> Inventory {
        let entry = |machine: &Machine| InventoryEntry {
            identity: AttemptIdentity {
                run: run.clone(),
                node: machine.node.clone(),
                attempt: machine.attempt,
            },
            lease: machine.lease.clone(),
            endpoint: Some(machine.endpoint.clone()),
            alive: machine.alive,
        };
        let machines = self.listed().filter(|machine| seen(machine));
        Inventory {
            entries: machines.map(entry).collect(),
        }
    }
}

fn answer(machine: &Machine, endpoint_at_once: bool) -> CreatedLease {
    CreatedLease {
        lease: machine.lease.clone(),
        endpoint: endpoint_at_once.then(|| machine.endpoint.clone()),
    }
}

fn endpoint(lease: &LeaseFacts) -> Endpoint {
    Endpoint {
        host: lease.id.as_str().into(),
        port: None,
    }
}

/// The last word of a session whose machine is gone.
pub(super) fn broke() -> StreamEvent {
    StreamEvent::Failed {
        stage: BootstrapStage::StreamFailed,
        reason: Arc::from("the stream broke"),
    }
}

/// The join of a slot's agent; it has one name whatever the attempt.
pub(super) fn agent(node: &LogicalNodeId) -> AgentId {
    AgentId::new(node.to_string())
}

//! What an executor knows of its submissions.
//!
//! One ledger per provider, shared between the incarnations of its executor. It owns the answer to *may this
//! submission call the provider?*, and what is reported of a call that passed its deadline. It deliberately
//! does not know tasks, timers or backends: its owner runs what it lets run, and tells it how that ended.
//!
//! Invariants: at most one call per attempt is at work, ever; of an attempt only the latest operation is
//! kept; what is kept belongs to an attempt that was not retired, or to a call that is still at work.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::effect::{CallEnd, Command, EffectError, EffectResult, Outcome, PlannedEffect};
use crate::id::{LogicalNodeId, NodeAttemptId, OperationId};

/// The submissions of one provider. See the [module](self) for what it promises.
///
/// ```
/// # use nodewright_core::effect::{Command, Outcome, PlannedEffect};
/// # use nodewright_core::ledger::{Completion, Ledger, Verdict};
/// let effect = PlannedEffect {
///     node: "workers-0".parse()?,
///     provider: "memory".parse()?,
///     operation: "17.3".parse()?,
///     command: Command::CancelBootstrap,
/// };
/// let mut ledger = Ledger::new();
/// assert_eq!(ledger.submit(&effect), Verdict::Run);
/// assert_eq!(ledger.submit(&effect), Verdict::AlreadyRunning);
///
/// let now = "2030-01-01T00:00:00Z".parse()?;
/// let done = ledger.complete(effect.operation, Outcome::BootstrapCancelled, now);
/// assert!(matches!(done, Completion::Report(_)));
/// assert!(matches!(ledger.submit(&effect), Verdict::Replay(result) if result.outcome == Outcome::BootstrapCancelled));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ledger {
    attempts: BTreeMap<NodeAttemptId, Entry>,
    /// Of each slot, the attempts for which more than cleanup was let run. An orphan of a slot may be newer
    /// than its node, and must not lock that out.
    slots: BTreeMap<LogicalNodeId, BTreeSet<NodeAttemptId>>,
}

/// The latest operation of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Entry {
    effect: PlannedEffect,
    state: State,
    /// Its attempt is gone; the entry waits only for the end of the call.
    retired: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    /// The call is at work.
    Running,
    /// The call was told to end, for this reason; whatever it answers now, its outcome is ambiguous.
    Ending(Arc<str>),
    /// The call could not be ended; its outcome, ambiguous for this reason, was reported without it.
    Unended(Arc<str>),
    /// The call ended at this moment.
    Finished(Outcome, Timestamp),
}

/// What becomes of a submission.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// Call the provider, and tell the ledger how that ended.
    Run,
    /// That very operation is at work: accepted, nothing is started, its result will come.
    AlreadyRunning,
    /// It was answered before: report this again and leave the provider alone.
    Replay(EffectResult),
    /// It is not taken; the provider was not called for it.
    Refused(Refusal),
}

/// Why a submission is not taken. Says so as a lowercase fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    /// An operation of this id was submitted with another input.
    #[error("operation {0} was submitted before with another input")]
    DifferentInput(OperationId),
    /// A later operation of the attempt was submitted already.
    #[error("operation {0} came after it")]
    OlderSequence(OperationId),
    /// A call of the attempt is still at work, whether its outcome was reported or not.
    #[error("the call of operation {0} is still at work")]
    Busy(OperationId),
    /// The slot has a newer attempt.
    #[error("attempt {0} of the slot is newer")]
    OlderAttempt(NodeAttemptId),
}

/// What follows from the end of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Completion {
    /// Report this result.
    Report(EffectResult),
    /// The outcome was reported before, with its end unknown; report that the call has ended.
    EndedLate {
        /// The slot.
        node: LogicalNodeId,
        /// The call's operation.
        operation: OperationId,
        /// When it ended.
        at: Timestamp,
    },
    /// No such call is known to be at work: there is nothing to report.
    Stale,
}

/// What follows from the passing of an operation's deadline.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Expiry {
    /// The call is at work: signal it, and after the grace end its task. Then tell the ledger that it ended
    /// ([`Ledger::ended`]) or that it cannot be ended ([`Ledger::abandoned`]).
    Cancel,
    /// That is under way already, and its result will come.
    Ending,
    /// Nothing is to be ended: report this. It is the recorded outcome, or ambiguous where nothing is known.
    Settled(EffectResult),
}

/// What a new incarnation of an executor has to do before it takes work.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use]
pub struct Restart {
    /// Calls to end, as after [`Expiry::Cancel`]; their outcome will be ambiguous.
    pub end: Vec<OperationId>,
    /// Results that may have been lost with the old incarnation.
    pub report: Vec<EffectResult>,
    /// Operations that the old incarnation had not begun: they are refused.
    pub refused: Vec<OperationId>,
}

impl Ledger {
    /// A ledger without entries.
    pub fn new() -> Self {
        Self::default()
    }

    /// Answers a submission. After [`Verdict::Run`], and only then, the provider is to be called.
    pub fn submit(&mut self, effect: &PlannedEffect) -> Verdict {
        let operation = effect.operation;
        if let Some(entry) = self.attempts.get(&operation.attempt) {
            let latest = entry.effect.operation;
            if operation == latest {
                return entry.again(effect);
            }
            if effect.node != entry.effect.node {
                return Verdict::Refused(Refusal::DifferentInput(latest));
            }
            if operation.sequence < latest.sequence {
                return Verdict::Refused(Refusal::OlderSequence(latest));
            }
            if entry.is_at_work() {
                return Verdict::Refused(Refusal::Busy(latest));
            }
        }
        // An orphan of an older attempt may be given back at any time; nothing else may be done for one.
        if !matches!(effect.command, Command::DestroyLease(_)) {
            let attempts = self.slots.entry(effect.node.clone()).or_default();
            match attempts.last() {
                Some(newest) if *newest > operation.attempt => {
                    return Verdict::Refused(Refusal::OlderAttempt(*newest));
                }
                _ => attempts.insert(operation.attempt),
            };
        }
        let entry = Entry {
            effect: effect.clone(),
            state: State::Running,
            retired: false,
        };
        self.attempts.insert(operation.attempt, entry);
        Verdict::Run
    }

    /// A call was answered at this moment. After its expiry the answer is discarded, and what counts is that
    /// the call has ended.
    pub fn complete(&mut self, operation: OperationId, outcome: Outcome, at: Timestamp) -> Completion {
        self.finish(operation, Some(outcome), at)
    }

    /// The task of a call is gone without an answer, since this moment: it was aborted, or it panicked. The
    /// outcome is ambiguous.
    pub fn ended(&mut self, operation: OperationId, at: Timestamp) -> Completion {
        self.finish(operation, None, at)
    }

    /// The deadline of an operation has passed. A call of it that is at work becomes ambiguous from here on;
    /// `node` is the slot that the operation is for, and `at` counts as the end of a call that nobody knows.
    pub fn expire(&mut self, node: &LogicalNodeId, operation: OperationId, at: Timestamp) -> Expiry {
        let Some(entry) = self.latest_mut(operation) else {
            let outcome = ambiguous(&"nothing is known of the operation".into());
            let (node, end) = (node.clone(), CallEnd::At(at));
            return Expiry::Settled(EffectResult {
                node,
                operation,
                outcome,
                end,
            });
        };
        match entry.result() {
            Some(result) => Expiry::Settled(result),
            None if entry.state == State::Running => {
                let kind = entry.effect.command.kind();
                entry.state = State::Ending(format!("{kind} was not answered before its deadline").into());
                Expiry::Cancel
            }
            None => Expiry::Ending,
        }
    }

    /// A call that was to be ended is still at work when its grace is over: its outcome is to be reported
    /// without its end. The attempt takes nothing new until the end is told. `None` where no call of that
    /// operation was to be ended.
    #[must_use]
    pub fn abandoned(&mut self, operation: OperationId) -> Option<EffectResult> {
        let entry = self.latest_mut(operation)?;
        let State::Ending(reason) = &entry.state else {
            return None;
        };
        entry.state = State::Unended(reason.clone());
        entry.result()
    }

    /// The attempt is gone: its entry is dropped, at once or as soon as the call that is at work has ended.
    pub fn retire(&mut self, attempt: NodeAttemptId) {
        if let Some(entry) = self.attempts.get_mut(&attempt) {
            entry.retired = true;
            self.drop_if_done(attempt);
        }
    }

    /// The executor died and a new one takes over: everything at work is to be ended, and its outcome is
    /// ambiguous. `pending` is what the driver waits for from this provider; what of it the ledger never saw
    /// had not begun.
    pub fn executor_restarted(&mut self, pending: impl IntoIterator<Item = OperationId>) -> Restart {
        let mut restart = Restart::default();
        for entry in self.attempts.values_mut() {
            if entry.state == State::Running {
                entry.state = State::Ending("the executor was restarted".into());
            }
            if matches!(entry.state, State::Ending(_)) {
                restart.end.push(entry.effect.operation);
            }
        }
        for operation in pending {
            match self.latest_mut(operation).map(|entry| entry.result()) {
                None => restart.refused.push(operation),
                Some(Some(result)) => restart.report.push(result),
                Some(None) => {}
            }
        }
        restart
    }

    /// The calls that are at work, those included whose outcome was reported with its end unknown.
    pub fn running(&self) -> impl Iterator<Item = OperationId> + '_ {
        let at_work = self.attempts.values().filter(|entry| entry.is_at_work());
        at_work.map(|entry| entry.effect.operation)
    }

    /// The latest operation of an attempt that was let run.
    pub fn latest(&self, attempt: NodeAttemptId) -> Option<OperationId> {
        self.attempts.get(&attempt).map(|entry| entry.effect.operation)
    }

    /// How many attempts it knows.
    pub fn len(&self) -> usize {
        self.attempts.len()
    }

    /// Whether it knows none.
    pub fn is_empty(&self) -> bool {
        self.attempts.is_empty()
    }

    fn latest_mut(&mut self, operation: OperationId) -> Option<&mut Entry> {
        let entry = self.attempts.get_mut(&operation.attempt);
        entry.filter(|entry| entry.effect.operation == operation)
    }

    fn finish(&mut self, operation: OperationId, answer: Option<Outcome>, at: Timestamp) -> Completion {
        let Some(entry) = self.latest_mut(operation) else {
            return Completion::Stale;
        };
        let (outcome, reported) = match (&entry.state, answer) {
            (State::Finished(..), _) => return Completion::Stale,
            (State::Running, Some(outcome)) => (outcome, false),
            (State::Running, None) => (ambiguous(&"the call ended without an answer".into()), false),
            (State::Ending(reason), _) => (ambiguous(reason), false),
            (State::Unended(reason), _) => (ambiguous(reason), true),
        };
        entry.state = State::Finished(outcome.clone(), at);
        let node = entry.effect.node.clone();
        self.drop_if_done(operation.attempt);
        if reported {
            Completion::EndedLate { node, operation, at }
        } else {
            let end = CallEnd::At(at);
            Completion::Report(EffectResult {
                node,
                operation,
                outcome,
                end,
            })
        }
    }

    fn drop_if_done(&mut self, attempt: NodeAttemptId) {
        let done = |entry: &Entry| entry.retired && !entry.is_at_work();
        if !self.attempts.get(&attempt).is_some_and(done) {
            return;
        }
        let Some(entry) = self.attempts.remove(&attempt) else {
            return;
        };
        if let Some(attempts) = self.slots.get_mut(&entry.effect.node) {
            attempts.remove(&attempt);
            if attempts.is_empty() {
                self.slots.remove(&entry.effect.node);
            }
        }
    }
}

impl Entry {
    const fn is_at_work(&self) -> bool {
        !matches!(self.state, State::Finished(..))
    }

    /// Answers a submission of the operation that this entry is of.
    fn again(&self, effect: &PlannedEffect) -> Verdict {
        if *effect != self.effect {
            return Verdict::Refused(Refusal::DifferentInput(effect.operation));
        }
        match self.result() {
            Some(result) => Verdict::Replay(result),
            None => Verdict::AlreadyRunning,
        }
    }

    /// What is to be reported of it, once that is known.
    fn result(&self) -> Option<EffectResult> {
        let (outcome, end) = match &self.state {
            State::Running | State::Ending(_) => return None,
            State::Unended(reason) => (ambiguous(reason), CallEnd::Unknown),
            State::Finished(outcome, at) => (outcome.clone(), CallEnd::At(*at)),
        };
        Some(EffectResult {
            node: self.effect.node.clone(),
            operation: self.effect.operation,
            outcome,
            end,
        })
    }
}

fn ambiguous(reason: &Arc<str>) -> Outcome {
    Outcome::Failed(EffectError::ambiguous(reason.clone()))
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run => f.write_str("runs"),
            Self::AlreadyRunning => f.write_str("is at work already"),
            Self::Replay(_) => f.write_str("was answered before"),
            Self::Refused(refusal) => write!(f, "refused: {refusal}"),
        }
    }
}

#[cfg(test)]
mod tests;

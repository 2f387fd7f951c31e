//! Inventory: how far the first look at a provider is, and when it is swept after that. What an answer shows is
//! judged by the driver, against the state; this knows only questions and answers.

mod findings;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::effect::{EffectError, FailureKind};
use crate::failure::{after, backoff, throttle_wait};
use crate::id::{NodeAttemptId, RunId};
use crate::node::PassId;
use crate::orphan::OrphanKey;
use crate::policy::Policy;

pub use self::findings::Findings;

/// How far the first look at a provider is: what the run already has there, before anything is made.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FirstLook {
    /// It is to be taken, or taken again.
    Due(Look),
    /// What it showed is in the state.
    Done,
}

impl FirstLook {
    /// A look that has not been taken.
    pub const fn due() -> Self {
        Self::Due(Look {
            next_at: None,
            first_asked: None,
            failures: 0,
            asking: false,
            last_error: None,
        })
    }

    /// The look, while it is not done.
    pub(crate) fn look_mut(&mut self) -> Option<&mut Look> {
        match self {
            Self::Due(look) => Some(look),
            Self::Done => None,
        }
    }
}

/// A first look that is not done.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Look {
    /// Not before this moment; none is at once.
    pub next_at: Option<Timestamp>,
    /// When the first question was asked that was answered.
    pub first_asked: Option<Timestamp>,
    /// Answers in a row that failed.
    pub failures: u32,
    /// Whether a question is under way.
    pub asking: bool,
    /// What the last failed answer said.
    pub last_error: Option<Arc<str>>,
}

impl Look {
    /// Whether a question is to be asked now. It is under way then, and is asked once until it is answered.
    /// Nothing is asked before the provider's pace opens.
    pub(crate) fn ask(&mut self, opens_at: Option<Timestamp>, now: Timestamp) -> bool {
        // At the end of time there is no next moment: nobody is asked for ever.
        let last = now == Timestamp::MAX && self.next_at.is_some();
        let due = !self.asking && !last && self.moment(opens_at).is_none_or(|at| at <= now);
        self.asking |= due;
        due
    }

    /// Before which moment the next question is not asked, unless one is under way; none is at once.
    pub(crate) fn moment(&self, opens_at: Option<Timestamp>) -> Option<Timestamp> {
        self.next_at.max(opens_at).filter(|_| !self.asking)
    }

    /// The question that is under way will not be answered: it is asked again with backoff. `false` if none
    /// is under way.
    pub(crate) fn failed(
        &mut self,
        error: &EffectError,
        run: &RunId,
        policy: &Policy,
        now: Timestamp,
    ) -> bool {
        if !std::mem::take(&mut self.asking) {
            return false;
        }
        self.failures = self.failures.saturating_add(1);
        self.next_at = Some(ask_again_at(error, self.failures, run, policy, now));
        self.last_error = Some(error.reason.clone());
        true
    }

    /// The question of `asked_at` was answered; says whether that ends the look. It does once it was repeated
    /// when a create of the process before can no longer come through.
    pub(crate) fn answered(&mut self, asked_at: Timestamp, visibility: Duration) -> bool {
        let first = *self.first_asked.get_or_insert(asked_at);
        let settled = after(first, visibility).unwrap_or(Timestamp::MAX);
        self.asking = false;
        self.failures = 0;
        self.last_error = None;
        self.next_at = Some(settled);
        asked_at >= settled
    }
}

/// The questions that are asked of a provider again and again once its first look is done.
///
/// Their moments are kept apart from what a plan waits for: they never end, and a converged machine waits for
/// nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Sweep {
    /// When the next question is asked; none until it is known when the first is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    /// The pass before the question that is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asking: Option<PassId>,
    /// Whether another one was asked for while it is.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub wanted: bool,
    /// When the last question was asked that was answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answered: Option<Timestamp>,
    /// Answers in a row that failed.
    pub failures: u32,
    /// What the last failed answer said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<Arc<str>>,
    /// Resources that no node owns as far as the last answer goes, each with the first question of the row that
    /// showed it. Seen again after a while they are orphans; what an answer does not show is dropped.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub suspects: BTreeMap<OrphanKey, Timestamp>,
}

impl Sweep {
    /// Whether a question is to be asked now; it is under way then. Nothing is asked before the provider's pace
    /// opens. The first question comes an interval after the first time that this was asked.
    pub(crate) fn ask(
        &mut self,
        asked: PassId,
        opens_at: Option<Timestamp>,
        policy: &Policy,
        now: Timestamp,
    ) -> bool {
        let first = || after(now, policy.sweep_interval).unwrap_or(Timestamp::MAX);
        self.next_at.get_or_insert_with(first);
        // At the end of time there is no next moment: nobody is asked for ever.
        let due = now < Timestamp::MAX && self.moment(opens_at).is_some_and(|at| at <= now);
        if due {
            self.asking = Some(asked);
        }
        due
    }

    /// The moment of the next question, unless one is under way.
    pub(crate) fn moment(&self, opens_at: Option<Timestamp>) -> Option<Timestamp> {
        let next_at = self.next_at.filter(|_| self.asking.is_none())?;
        Some(opens_at.map_or(next_at, |opens_at| next_at.max(opens_at)))
    }

    /// Somebody asks for a question, whatever the interval says: now, or once the one that is under way was
    /// answered, for that was asked before.
    pub(crate) fn want(&mut self, now: Timestamp) {
        if self.asking.is_some() {
            self.wanted = true;
        } else {
            self.next_at = Some(now);
        }
    }

    /// The question of `asked_at` was answered.
    pub(crate) fn done(&mut self, asked_at: Timestamp, policy: &Policy, now: Timestamp) {
        let by_interval = after(asked_at, policy.sweep_interval).unwrap_or(Timestamp::MAX);
        // An answer that took longer than the interval is not followed at once.
        let soonest = after(now, policy.initial_delay).unwrap_or(Timestamp::MAX);
        self.next_at = Some(by_interval.max(soonest));
        self.answered = Some(asked_at);
        self.failures = 0;
        self.last_error = None;
        self.over(now);
    }

    /// The question will not be answered: it is asked again with backoff. `false` if none is under way.
    pub(crate) fn failed(
        &mut self,
        error: &EffectError,
        run: &RunId,
        policy: &Policy,
        now: Timestamp,
    ) -> bool {
        if self.asking.is_none() {
            return false;
        }
        self.failures = self.failures.saturating_add(1);
        self.next_at = Some(ask_again_at(error, self.failures, run, policy, now));
        self.last_error = Some(error.reason.clone());
        self.over(now);
        true
    }

    fn over(&mut self, now: Timestamp) {
        self.asking = None;
        if std::mem::take(&mut self.wanted) {
            self.next_at = Some(now);
        }
    }
}

/// When a question is asked again that failed: after its backoff, and after what the provider asked for.
fn ask_again_at(
    error: &EffectError,
    failures: u32,
    run: &RunId,
    policy: &Policy,
    now: Timestamp,
) -> Timestamp {
    let mut delay = backoff(policy, run, NodeAttemptId::FIRST, failures);
    if let FailureKind::Throttled { retry_after } = error.kind {
        delay = delay.max(throttle_wait(policy, retry_after));
    }
    after(now, delay).unwrap_or(Timestamp::MAX)
}

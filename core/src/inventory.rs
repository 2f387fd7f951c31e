//! Inventory: how far the first look at a provider is. What an answer shows is judged by the driver, against
//! the state; this knows only questions and answers.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::failure::{after, backoff};
use crate::id::{NodeAttemptId, RunId};
use crate::policy::Policy;

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
    pub(crate) fn ask(&mut self, now: Timestamp) -> bool {
        let due = !self.asking && self.next_at.is_none_or(|at| at <= now);
        self.asking |= due;
        due
    }

    /// The question that is under way will not be answered: it is asked again with backoff. `false` if none
    /// is under way.
    pub(crate) fn failed(&mut self, reason: Arc<str>, run: &RunId, policy: &Policy, now: Timestamp) -> bool {
        if !std::mem::take(&mut self.asking) {
            return false;
        }
        self.failures = self.failures.saturating_add(1);
        let delay = backoff(policy, run, NodeAttemptId::FIRST, self.failures);
        self.next_at = Some(after(now, delay).unwrap_or(Timestamp::MAX));
        self.last_error = Some(reason);
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

//! What a failed call says about the world.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What a failure says about whether something happened. This alone decides what follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// Nothing happened; the same call may succeed later.
    Definite,
    /// Something may have happened. A timeout is this, and so is a panic.
    Ambiguous,
    /// Nothing happened: the provider asks for fewer calls.
    Throttled {
        /// How long the provider asked to wait, if it said.
        retry_after: Option<Duration>,
    },
    /// Nothing happened, and repeating the call cannot help.
    Fatal,
}

/// A failed provider call. Says what failed, for people, and how, for the fold.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EffectError {
    /// What failed, as a lowercase fragment.
    pub reason: Arc<str>,
    /// What that says about the world.
    pub kind: FailureKind,
}

impl EffectError {
    /// Nothing happened; the same call may succeed later.
    pub fn definite(reason: impl Into<Arc<str>>) -> Self {
        Self {
            reason: reason.into(),
            kind: FailureKind::Definite,
        }
    }

    /// Something may have happened.
    pub fn ambiguous(reason: impl Into<Arc<str>>) -> Self {
        Self {
            reason: reason.into(),
            kind: FailureKind::Ambiguous,
        }
    }

    /// Nothing happened: slow down.
    pub fn throttled(reason: impl Into<Arc<str>>, retry_after: Option<Duration>) -> Self {
        Self {
            reason: reason.into(),
            kind: FailureKind::Throttled { retry_after },
        }
    }

    /// Nothing happened, and repeating the call cannot help.
    pub fn fatal(reason: impl Into<Arc<str>>) -> Self {
        Self {
            reason: reason.into(),
            kind: FailureKind::Fatal,
        }
    }
}

impl fmt::Display for EffectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for EffectError {}

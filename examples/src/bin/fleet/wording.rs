//! How the table says why a slot is not settled: at length in its row, in a word in the counts of its group.

use std::fmt;

use jiff::Timestamp;
use nodewright::decide::WaitReason;
use nodewright::node::Stage;
use nodewright::status::{Awaited, NodeStatus, Why};

use crate::board::Row;

/// A length of time, in the one unit that tells most of it.
pub(crate) fn span(seconds: i64) -> String {
    match seconds {
        ..60 => format!("{} s", seconds.max(0)),
        60..3600 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}

/// How long something has been so.
pub(crate) fn age(since: Timestamp, now: Timestamp) -> String {
    span(now.duration_since(since).as_secs())
}

/// When something comes, as seen from now. Never too early.
pub(crate) fn ahead(at: Timestamp, now: Timestamp) -> String {
    format!("+{}", span(whole(at, now)))
}

/// The seconds up to a moment; one that has begun counts.
fn whole(at: Timestamp, from: Timestamp) -> i64 {
    let left = at.duration_since(from);
    left.as_secs() + i64::from(left.subsec_nanos() > 0)
}

/// A text that others may have written, with nothing in it that a terminal would obey.
pub(crate) fn clean(text: &str) -> String {
    let plain = |character: char| if character.is_control() { ' ' } else { character };
    text.chars().map(plain).collect()
}

/// What a slot waits for, and until when; nothing for one that is settled. One line, whatever went wrong.
pub(crate) fn waits_for(row: &Row, now: Timestamp) -> String {
    clean(&words(row, now))
}

fn words(row: &Row, now: Timestamp) -> String {
    let status = &row.status;
    let (reason, until_at, groups) = match &status.why {
        Why::Settled => return String::new(),
        Why::Acting => return "its next step".to_owned(),
        Why::Halted { reason } => return format!("halted: {reason}"),
        Why::Faulty { fault } => return format!("faulty: {fault}"),
        Why::WaitingFor {
            reason,
            until,
            groups,
        } => (*reason, *until, groups),
    };
    let until = until_at.map(|until| format!("until {}", ahead(until, now)));
    let then = |text: String| join([Some(text), until.clone()], ", ");
    let error = status.last_error.as_deref().map(str::to_owned);
    match reason {
        WaitReason::Operation { operation, kind } => {
            let age = age(row.waits_since, now);
            // Both are whole seconds, and what was granted is one number all the time.
            let granted = until_at.map(|at| format!(" of {}", span(whole(at, row.waits_since))));
            format!("{kind} {operation}, {age}{}", granted.unwrap_or_default())
        }
        WaitReason::Restart => {
            let backs_off = join([Some("backs off".to_owned()), until], " ");
            join([Some(backs_off), error], ": ")
        }
        WaitReason::Backoff(kind) => {
            let backs_off = join([Some(format!("{kind} backs off")), until], " ");
            join([Some(backs_off), error], ": ")
        }
        WaitReason::FirstLook => then("the first look".to_owned()),
        WaitReason::CallEnd(operation) => then(format!("the end of call {operation}")),
        WaitReason::Pace(kind) => then(format!("a place for {kind}")),
        WaitReason::Dependencies => then(below(groups)),
        WaitReason::Dependents => then(above(groups)),
        WaitReason::Orphan => then("an older machine to go".to_owned()),
        WaitReason::Bootstrap => then("its bootstrap".to_owned()),
        WaitReason::Join => then("its agent to join".to_owned()),
        _ => then("something".to_owned()),
    }
}

fn join<const N: usize>(parts: [Option<String>; N], between: &str) -> String {
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    parts.join(between)
}

/// The groups that have to be there first, each with what went wrong there.
fn below(groups: &[Awaited]) -> String {
    if groups.is_empty() {
        return "other groups".to_owned();
    }
    let named = groups.iter().map(|awaited| match &awaited.trouble {
        Some(trouble) => {
            let halted = if trouble.halted { " is halted" } else { "" };
            format!("{} ({}{halted}: {})", awaited.group, trouble.node, trouble.error)
        }
        None => awaited.group.to_string(),
    });
    named.collect::<Vec<_>>().join(", ")
}

/// The groups that have to go first.
fn above(groups: &[Awaited]) -> String {
    if groups.is_empty() {
        return "other groups to go".to_owned();
    }
    format!("{} to go", below(groups))
}

/// What a slot that is not settled is counted as, in the order in which a person cares.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Halted,
    Faulty,
    BackingOff,
    Creating,
    Booting,
    Going,
    /// For what.
    Waiting(String),
}

impl Phase {
    /// The phase of a slot; `None` for one that is settled.
    pub(crate) fn of(status: &NodeStatus) -> Option<Self> {
        let waiting = |what: &str| Some(Self::Waiting(what.to_owned()));
        let names = |groups: &[Awaited]| {
            let names: Vec<&str> = groups.iter().map(|awaited| awaited.group.as_str()).collect();
            if names.is_empty() {
                "other groups".to_owned()
            } else {
                names.join(", ")
            }
        };
        match &status.why {
            Why::Settled => None,
            Why::Halted { .. } => Some(Self::Halted),
            Why::Faulty { .. } => Some(Self::Faulty),
            Why::WaitingFor { reason, groups, .. } => match reason {
                WaitReason::Restart | WaitReason::Backoff(_) => Some(Self::BackingOff),
                WaitReason::FirstLook => waiting("the first look"),
                WaitReason::Pace(_) => waiting("a place"),
                WaitReason::Orphan => waiting("an older machine to go"),
                WaitReason::Dependencies => waiting(&names(groups)),
                WaitReason::Dependents => waiting(&format!("{} to go", names(groups))),
                _ => Some(Self::by_stage(status)),
            },
            Why::Acting => Some(Self::by_stage(status)),
        }
    }

    const fn by_stage(status: &NodeStatus) -> Self {
        match status.stage {
            _ if status.deleting => Self::Going,
            Some(Stage::Failed | Stage::Destroyed) => Self::Going,
            None | Some(Stage::New | Stage::LeaseRequested) => Self::Creating,
            Some(_) => Self::Booting,
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Halted => f.write_str("halted"),
            Self::Faulty => f.write_str("faulty"),
            Self::BackingOff => f.write_str("backing off"),
            Self::Creating => f.write_str("creating"),
            Self::Booting => f.write_str("booting"),
            Self::Going => f.write_str("going"),
            Self::Waiting(what) => write!(f, "waiting for {what}"),
        }
    }
}

//! What slots wait for, told to programs: each wait once, with its groups, until it becomes another.

use std::collections::BTreeMap;

use jiff::Timestamp;
use nodewright::decide::WaitReason;
use nodewright::id::{LogicalNodeId, NodeAttemptId};
use nodewright::status::{Awaited, NodeStatus, Why};
use serde::Serialize;

/// That a slot waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Waiting {
    event: &'static str,
    pub(crate) node: LogicalNodeId,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<NodeAttemptId>,
    reason: WaitReason,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<Timestamp>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    groups: Vec<Awaited>,
}

impl Waiting {
    /// The wait of a slot that has one which no event tells of: that an operation began, and that a session
    /// got further, are events of their own.
    fn of(status: &NodeStatus) -> Option<Self> {
        let Why::WaitingFor {
            reason,
            until,
            groups,
        } = &status.why
        else {
            return None;
        };
        if matches!(reason, WaitReason::Operation { .. } | WaitReason::Bootstrap) {
            return None;
        }
        Some(Self {
            event: "waiting",
            node: status.node.clone(),
            attempt: status.attempt,
            reason: *reason,
            until: *until,
            groups: groups.clone(),
        })
    }

    /// Whether a program that knows of the other has to be told of this one. How many slots of a group are
    /// still awaited changes too often for that.
    fn is_news(&self, told: &Self) -> bool {
        let without_counts = |waiting: &Self| Self {
            groups: waiting.groups.iter().cloned().map(uncounted).collect(),
            ..waiting.clone()
        };
        without_counts(self) != without_counts(told)
    }
}

fn uncounted(awaited: Awaited) -> Awaited {
    Awaited { slots: 0, ..awaited }
}

/// What was told.
#[derive(Debug, Default)]
pub(crate) struct Waits(BTreeMap<LogicalNodeId, Waiting>);

impl Waits {
    /// What is to be told after this look at all slots.
    pub(crate) fn look(&mut self, seen: &[NodeStatus]) -> Vec<Waiting> {
        let waiting = seen.iter().filter_map(Waiting::of);
        let now: BTreeMap<_, _> = waiting.map(|one| (one.node.clone(), one)).collect();
        let told = std::mem::replace(&mut self.0, now);
        let is_news = |waiting: &&Waiting| told.get(&waiting.node).is_none_or(|told| waiting.is_news(told));
        self.0.values().filter(is_news).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use nodewright::node::Stage;

    use super::*;
    use crate::board::tests::{creating, ready, unsettled, waiting};

    fn behind(groups: &[(&str, u64)]) -> NodeStatus {
        let awaited = |(group, slots): &(&str, u64)| Awaited {
            group: group.parse().unwrap(),
            slots: *slots,
            trouble: None,
        };
        let why = Why::WaitingFor {
            reason: WaitReason::Dependencies,
            until: None,
            groups: groups.iter().map(awaited).collect(),
        };
        unsettled("w-0", 1, Stage::New, why)
    }

    #[test]
    fn a_wait_is_told_once_and_again_when_it_is_for_others() {
        let mut waits = Waits::default();
        let first = waits.look(&[behind(&[("broker", 2), ("store", 3)]), ready("s-0", 2)]);
        let told = serde_json::to_value(&first).unwrap();
        assert_eq!(told[0]["event"], "waiting");
        assert_eq!(
            (&told[0]["node"], &told[0]["reason"]),
            (&"w-0".into(), &"dependencies".into())
        );
        assert_eq!(
            told[0]["groups"][1],
            serde_json::json!({ "group": "store", "slots": 3 })
        );
        assert_eq!(first.len(), 1);
        assert_eq!(waits.look(&[behind(&[("broker", 2), ("store", 1)])]), []);
        assert_eq!(waits.look(&[behind(&[("broker", 1)])]).len(), 1);
        assert_eq!(waits.look(&[ready("w-0", 1)]), []);
        assert_eq!(waits.look(&[behind(&[("broker", 1)])]).len(), 1);
    }

    #[test]
    fn what_events_tell_of_is_not_told_again() {
        let mut waits = Waits::default();
        let create = unsettled("w-0", 1, Stage::LeaseRequested, creating(1, 1, 30));
        let session = unsettled(
            "w-1",
            2,
            Stage::BootstrapRunning,
            waiting(WaitReason::Bootstrap, Some(30)),
        );
        assert_eq!(waits.look(&[create, session]), []);
    }

    #[test]
    fn a_wait_that_lasts_until_another_moment_is_another() {
        let mut waits = Waits::default();
        let backs_off = |until| {
            unsettled(
                "w-0",
                1,
                Stage::Destroyed,
                waiting(WaitReason::Restart, Some(until)),
            )
        };
        assert_eq!(waits.look(&[backs_off(3)]).len(), 1);
        assert_eq!(waits.look(&[backs_off(3)]), []);
        assert_eq!(waits.look(&[backs_off(9)]).len(), 1);
    }
}

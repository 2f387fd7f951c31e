//! How every slot was when it was looked at last, and since when it has been so.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use nodewright::decide::WaitReason;
use nodewright::event::EventKind;
use nodewright::id::LogicalNodeId;
use nodewright::shape::Generation;
use nodewright::status::{NodeStatus, Why};

use crate::condition::Standing;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// One slot.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) status: NodeStatus,
    /// When it was first seen in this stage of this attempt.
    pub(crate) since: Timestamp,
    /// When it was first seen to wait for this.
    pub(crate) waits_since: Timestamp,
}

impl Row {
    /// Whether there is nothing to do for it and nothing to wait for.
    pub(crate) fn is_settled(&self) -> bool {
        self.status.why == Why::Settled
    }
}

/// All slots, and what the shape wants.
#[derive(Debug, Clone, Default)]
pub(crate) struct Board {
    pub(crate) generation: Generation,
    /// How many nodes are wanted. While everything is taken down: were wanted, so that a bar runs back.
    pub(crate) wanted: u64,
    rows: BTreeMap<LogicalNodeId, Row>,
    /// The providers that are not as usual.
    pub(crate) providers: Vec<Standing>,
}

impl Board {
    /// An empty one, for a generation of this many nodes.
    pub(crate) fn new(generation: Generation, wanted: u64) -> Self {
        Self {
            generation,
            wanted,
            ..Self::default()
        }
    }

    /// All rows, in the order of their slots.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.values()
    }

    /// Takes from an event what no look shows.
    pub(crate) fn hear(&mut self, event: &EventKind) {
        match event {
            // The emptiness that a drain reaches for is nobody's wish.
            EventKind::ShapeAccepted { nodes: 0, .. } => {}
            EventKind::ShapeAccepted { generation, nodes } => {
                (self.generation, self.wanted) = (*generation, *nodes);
            }
            _ => {}
        }
    }

    /// Replaces what is known by what was seen now.
    pub(crate) fn look(&mut self, seen: Vec<NodeStatus>, now: Timestamp) {
        let mut known = std::mem::take(&mut self.rows);
        for status in seen {
            let before = known.remove(&status.node);
            let before = before.filter(|row| row.status.attempt == status.attempt);
            let stays = |row: &&Row| row.status.stage == status.stage;
            let waits_on = |row: &&Row| reason(&row.status) == reason(&status);
            let row = Row {
                since: before.as_ref().filter(stays).map_or(now, |row| row.since),
                waits_since: before
                    .as_ref()
                    .filter(waits_on)
                    .map_or(now, |row| row.waits_since),
                status,
            };
            self.rows.insert(row.status.node.clone(), row);
        }
    }

    /// In how long a time that is shown will read differently; `None` while all is settled and no provider is held
    /// back: then nothing has to be looked at before something happens.
    pub(crate) fn tick(&self, now: Timestamp) -> Option<Duration> {
        let unsettled = self.rows().filter(|row| !row.is_settled());
        let held = self.providers.iter().filter_map(|one| one.not_before);
        let held = held.map(|at| if young_ahead(at, now) { SECOND } else { MINUTE });
        unsettled.map(|row| row.tick(now)).chain(held).min()
    }
}

impl Row {
    /// Seconds are shown up to a minute, and minutes from there.
    fn tick(&self, now: Timestamp) -> Duration {
        let young = |at: Timestamp| now.duration_since(at) < MINUTE.try_into().unwrap_or_default();
        let until = match &self.status.why {
            Why::WaitingFor { until, .. } => *until,
            _ => None,
        };
        let near = until.is_some_and(|at| at > now && young_ahead(at, now));
        if young(self.since) || young(self.waits_since) || near {
            SECOND
        } else {
            MINUTE
        }
    }
}

/// Whether a moment is to be shown in seconds before another minute has passed.
fn young_ahead(at: Timestamp, now: Timestamp) -> bool {
    at.duration_since(now) < (2 * MINUTE).try_into().unwrap_or_default()
}

fn reason(status: &NodeStatus) -> Option<WaitReason> {
    match status.why {
        Why::WaitingFor { reason, .. } => Some(reason),
        _ => None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use nodewright::effect::CommandKind;
    use nodewright::id::{NodeAttemptId, OperationId};
    use nodewright::node::Stage;

    use super::*;

    /// A moment of a test, in seconds.
    pub(crate) fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// A slot that is ready and has nothing to wait for.
    pub(crate) fn ready(node: &str, attempt: u64) -> NodeStatus {
        NodeStatus {
            ready: true,
            ..unsettled(node, attempt, Stage::Dormant, Why::Settled)
        }
    }

    /// A slot that is not there yet.
    pub(crate) fn unsettled(node: &str, attempt: u64, stage: Stage, why: Why) -> NodeStatus {
        NodeStatus {
            node: node.parse().unwrap(),
            attempt: Some(NodeAttemptId::new(attempt)),
            provider: None,
            stage: Some(stage),
            deleting: false,
            ready: false,
            lease: None,
            endpoint: None,
            bootstrap: None,
            agent: None,
            failed_attempts: 0,
            last_error: None,
            why,
        }
    }

    pub(crate) fn waiting(reason: WaitReason, until: Option<i64>) -> Why {
        Why::WaitingFor {
            reason,
            until: until.map(at),
            groups: Vec::new(),
        }
    }

    /// A create of an attempt that is at work.
    pub(crate) fn creating(attempt: u64, sequence: u32, until: i64) -> Why {
        let operation = OperationId {
            attempt: NodeAttemptId::new(attempt),
            sequence,
        };
        let kind = CommandKind::CreateLease;
        waiting(WaitReason::Operation { operation, kind }, Some(until))
    }

    #[test]
    fn a_time_runs_while_stage_and_reason_stay_and_begins_anew_with_the_next() {
        let mut board = Board::new(Generation(1), 1);
        let times = |board: &Board| {
            let row = board.rows().next().unwrap();
            (row.since, row.waits_since)
        };
        let create = |sequence| unsettled("w-0", 1, Stage::LeaseRequested, creating(1, sequence, 40));
        board.look(vec![create(1)], at(10));
        board.look(vec![create(1)], at(13));
        assert_eq!(times(&board), (at(10), at(10)));
        board.look(vec![create(2)], at(15));
        assert_eq!(times(&board), (at(10), at(15)));
        board.look(
            vec![unsettled("w-0", 2, Stage::LeaseRequested, creating(2, 1, 50))],
            at(20),
        );
        assert_eq!(times(&board), (at(20), at(20)));
        board.look(vec![], at(21));
        assert_eq!(board.rows().count(), 0);
    }

    #[test]
    fn nothing_ticks_once_all_is_settled_and_old_times_tick_by_the_minute() {
        let mut board = Board::new(Generation(1), 2);
        assert_eq!(board.tick(at(0)), None);
        let backs_off = |until| waiting(WaitReason::Restart, until);
        let slow = unsettled("w-1", 2, Stage::Destroyed, backs_off(None));
        board.look(vec![ready("w-0", 1), slow.clone()], at(0));
        assert_eq!(board.tick(at(59)), Some(SECOND));
        assert_eq!(board.tick(at(60)), Some(MINUTE));
        let due = unsettled("w-1", 2, Stage::Destroyed, backs_off(Some(300)));
        board.look(vec![ready("w-0", 1), due], at(60));
        assert_eq!(board.tick(at(120)), Some(MINUTE));
        assert_eq!(board.tick(at(200)), Some(SECOND));
        board.look(vec![ready("w-0", 1), ready("w-1", 2)], at(201));
        assert_eq!(board.tick(at(201)), None);
    }

    #[test]
    fn what_a_drain_reaches_for_changes_no_wish() {
        let mut board = Board::new(Generation(1), 5);
        let accepted = |generation, nodes| EventKind::ShapeAccepted {
            generation: Generation(generation),
            nodes,
        };
        board.hear(&accepted(3, 7));
        board.hear(&accepted(4, 0));
        assert_eq!((board.generation, board.wanted), (Generation(3), 7));
    }
}

//! The bar on a terminal: how many are ready, and how far the others are.

use std::collections::BTreeMap;

use indicatif::{ProgressBar, ProgressStyle};
use nodewright::event::EventKind;
use nodewright::id::LogicalNodeId;
use nodewright::node::Stage;
use nodewright::status::NodeStatus;

/// The bar, and what it knows of each slot.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    slots: BTreeMap<LogicalNodeId, (Stage, bool)>,
}

impl Progress {
    /// A bar for this many nodes.
    pub(crate) fn new(nodes: u64) -> Self {
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} ready  {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        Self {
            bar: ProgressBar::new(nodes).with_style(style),
            slots: BTreeMap::new(),
        }
    }

    /// Shows what an event changes.
    pub(crate) fn event(&mut self, event: &EventKind) {
        match event {
            // While everything is taken down the bar runs back from where it was.
            EventKind::ShapeAccepted { nodes: 0, .. } => return,
            EventKind::ShapeAccepted { nodes, .. } => self.bar.set_length(*nodes),
            EventKind::Inserted { node, .. } | EventKind::Restarted { node, .. } => {
                self.slots.insert(node.clone(), (Stage::New, false));
            }
            EventKind::StageReached {
                node, stage, ready, ..
            } => {
                self.slots.insert(node.clone(), (*stage, *ready));
            }
            EventKind::AttemptFailed { node, .. } => {
                self.slots.insert(node.clone(), (Stage::Failed, false));
            }
            EventKind::Reaped { node, .. } => {
                self.slots.remove(node);
            }
            _ => return,
        }
        self.show();
    }

    /// Begins anew with what is so.
    pub(crate) fn reset(&mut self, nodes: Vec<NodeStatus>) {
        let held = |status: NodeStatus| Some((status.node, (status.stage?, status.ready)));
        self.slots = nodes.into_iter().filter_map(held).collect();
        self.show();
    }

    /// Writes a line above the bar.
    pub(crate) fn line(&self, line: &str) {
        self.bar.println(line);
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn show(&self) {
        self.bar.set_position(self.ready());
        self.bar.set_message(self.counts());
    }

    fn ready(&self) -> u64 {
        self.slots.values().filter(|(_, ready)| *ready).count() as u64
    }

    /// How many are at each stage, in the order of a node's life.
    fn counts(&self) -> String {
        let mut counts: BTreeMap<Stage, u64> = BTreeMap::new();
        for (stage, _) in self.slots.values() {
            *counts.entry(*stage).or_default() += 1;
        }
        let counts: Vec<String> = counts
            .iter()
            .map(|(stage, count)| format!("{count} {stage}"))
            .collect();
        counts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use nodewright::id::NodeAttemptId;

    use super::*;

    #[test]
    fn counts_follow_the_events_of_each_slot() {
        let mut progress = Progress::new(2);
        let (attempt, node) = (NodeAttemptId::FIRST, |name: &str| {
            name.parse::<LogicalNodeId>().unwrap()
        });
        for name in ["w-0", "w-1"] {
            progress.event(&EventKind::Inserted {
                node: node(name),
                attempt,
            });
        }
        progress.event(&EventKind::StageReached {
            node: node("w-1"),
            attempt,
            stage: Stage::Dormant,
            ready: true,
        });
        assert_eq!(
            (progress.ready(), progress.counts().as_str()),
            (1, "1 new, 1 dormant")
        );
        progress.event(&EventKind::Reaped {
            node: node("w-0"),
            attempt,
        });
        assert_eq!(progress.counts(), "1 dormant");
    }
}

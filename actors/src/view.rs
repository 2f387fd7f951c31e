//! The view: how every node is, for readers that send no message.

use std::sync::Arc;

use dashmap::DashMap;
use foldhash::fast::FixedState;
use nodewright_core::id::LogicalNodeId;
use nodewright_core::status::NodeStatus;

/// A read-only, always current map of how every node is. One writer, many readers; a clone shares it.
///
/// Readers get owned values: nothing that they hold can stall the writer. That a slot waits for other groups is
/// in here, for which ones is not, since these change while the slot does not: ask
/// [`Cluster::node`](crate::Cluster::node).
#[derive(Debug, Clone, Default)]
pub struct View(Arc<DashMap<LogicalNodeId, NodeStatus, FixedState>>);

impl View {
    /// How a slot is; `None` for one that is neither wanted nor filled.
    pub fn get(&self, node: &LogicalNodeId) -> Option<NodeStatus> {
        self.0.get(node).map(|status| status.clone())
    }

    /// All slots, in order. Costs a copy of each.
    pub fn all(&self) -> Vec<NodeStatus> {
        let mut all: Vec<NodeStatus> = self.0.iter().map(|entry| entry.value().clone()).collect();
        all.sort_by(|one, other| one.node.cmp(&other.node));
        all
    }

    /// How many slots there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn set(&self, status: NodeStatus) {
        self.0.insert(status.node.clone(), status);
    }

    pub(crate) fn remove(&self, node: &LogicalNodeId) {
        self.0.remove(node);
    }
}

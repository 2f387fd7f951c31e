//! Gates: what the rest of the cluster allows a node.
//!
//! A gate says what is allowed, not how that was found out: the full pass walks the graph of the groups, the
//! driver keeps numbers.

/// What the rest of the cluster allows one node. Without dependencies, looks and orphans it is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Gate {
    /// Whether every provider's first look is done: before that nothing is inserted or restarted.
    pub looked: bool,
    /// Whether all groups that the node's group depends on, directly or not, are available: before that
    /// nothing is leased.
    pub may_start: bool,
    /// Whether no slot is going away in the groups that depend on the node's group, directly or not: before
    /// that it is not asked to go for being undesired.
    pub may_stop: bool,
    /// Whether a resource of another attempt of this slot still lives as an orphan.
    pub orphaned: bool,
}

impl Gate {
    /// Everything is allowed.
    pub const OPEN: Self = Self {
        looked: true,
        may_start: true,
        may_stop: true,
        orphaned: false,
    };
}

//! What goes into a driver and what comes out of it.

use std::sync::Arc;

use crate::effect::{Capabilities, PlannedEffect};
use crate::event::Event;
use crate::failure::NodeError;
use crate::id::{LogicalNodeId, NodeAttemptId, OperationId, ProviderKind, RunId};
use crate::pace::PaceConfig;
use crate::policy::PolicyError;
use crate::shape::{Generation, ShapeErrors};

/// What a driver is told of a provider.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ProviderSetup {
    /// What its backend states.
    pub capabilities: Capabilities,
    /// What the application grants at it.
    pub pace: PaceConfig,
    /// Whether the run is known to have nothing there: no first look is taken.
    pub fresh: bool,
}

/// Why a driver would not do what it was asked. Its state is untouched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DriverError {
    /// The policy cannot work.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The shape is wrong.
    #[error("shape of run {run} is refused:\n{problems}")]
    Shape {
        /// The run.
        run: RunId,
        /// All that is wrong.
        problems: ShapeErrors,
    },
    /// The shape is of another run.
    #[error("shape is of run {offered}, and this driver is of run {run}: start another cluster for it")]
    OtherRun {
        /// The driver's.
        run: RunId,
        /// The shape's.
        offered: RunId,
    },
    /// The shape is older than the accepted one.
    #[error("shape has generation {offered}, and {accepted} is accepted: raise it")]
    OldGeneration {
        /// The accepted one.
        accepted: Generation,
        /// The shape's.
        offered: Generation,
    },
    /// The shape changed without saying so.
    #[error("shape differs from the accepted one of the same generation {generation}: raise it")]
    SilentChange {
        /// The generation of both.
        generation: Generation,
    },
    /// A state to be resumed speaks of a provider that is not registered.
    #[error("state of run {run} has machines of providers that are not registered: {missing}")]
    UnknownProviders {
        /// The run.
        run: RunId,
        /// Their names.
        missing: String,
    },
    /// A state to be resumed breaks an invariant.
    #[error("state of run {run} cannot be resumed: {problems}")]
    BrokenState {
        /// The run.
        run: RunId,
        /// What is broken.
        problems: String,
    },
}

/// What became of an offered shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Accepted {
    /// It is the shape to reach now.
    Changed(Generation),
    /// It is the accepted one already.
    Unchanged(Generation),
}

/// A submission that an executor would not take.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Refused {
    /// The slot.
    pub node: LogicalNodeId,
    /// The operation.
    pub operation: OperationId,
    /// Why, for people.
    pub reason: Arc<str>,
}

/// Where a driver hands its effects; an executor, or whatever carries to one.
pub trait EffectSink {
    /// Takes the effects of one pass; all of them are recorded as pending already. Says which it would not
    /// take.
    fn submit(&mut self, effects: Vec<PlannedEffect>) -> Vec<Refused>;

    /// Is told that nothing will be asked for an attempt any more.
    fn retire(&mut self, attempt: NodeAttemptId);
}

/// An operation whose deadline has come: its executor is to classify it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DueOperation {
    /// The slot.
    pub node: LogicalNodeId,
    /// Who was asked.
    pub provider: ProviderKind,
    /// The operation.
    pub operation: OperationId,
}

/// What a drive did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use]
pub struct DriveReport {
    /// Passes that did something.
    pub passes: u32,
    /// Slots that were looked at, each as often as it was.
    pub considered: u64,
    /// Effects handed over.
    pub effects: u64,
    /// Nodes that cannot go on, reported when that begins.
    pub errors: Vec<NodeError>,
    /// What happened since the last drive, in order.
    pub events: Vec<Event>,
    /// Slots whose status may have changed since the last drive, in no order, each once.
    pub touched: Vec<LogicalNodeId>,
}

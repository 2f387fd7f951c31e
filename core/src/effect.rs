//! The provider seam: the commands, their outcomes and errors, and the trait that a provider implements.
//!
//! A backend decides nothing. Which call is made, when, how often and for which attempt is settled before it
//! is asked; it does what it is told and says honestly what happened.

mod backend;
mod cancel;
mod command;
mod error;
mod perform;

pub use backend::{
    Capabilities, EffectBackend, Inventory, InventoryEntry, LossSink, NodeLoss, ObservationSink, StreamReport,
};
pub use cancel::Cancel;
pub use command::{
    BootstrapSpec, Call, CallEnd, Command, CommandKind, Destroyed, EffectResult, Outcome, PlannedEffect,
};
pub use error::{EffectError, FailureKind};
pub use perform::perform;

//! The pure core of nodewright: it decides, folds and drives, and touches nothing.
//!
//! ```text
//!        shape                               observation (result, stream, death, deadline)
//!          │                                            │
//!          ▼                                            ▼
//!   update_desired ───────────► ClusterDriver ◄─────── fold
//!                                    │
//!                                    │  pass: the ladder, for every node that may have something to do
//!                                    ▼
//!                         effects, recorded as pending first
//!                                    │
//!                                    ▼
//!                     executor ──► EffectBackend ──► result (an observation)
//! ```
//!
//! There is no clock, no I/O, no randomness and no runtime in here: time is a value that is passed in. That is
//! what makes the whole of it testable.

pub mod bootstrap;
pub mod decide;
pub mod desired;
pub mod driver;
pub mod effect;
pub mod event;
pub mod facts;
mod failure;
mod fold;
pub mod gate;
pub mod graph;
pub mod id;
pub mod inventory;
pub mod ledger;
pub mod node;
pub mod observation;
pub mod orphan;
pub mod pace;
pub mod plan;
pub mod plugin;
pub mod policy;
#[cfg(test)]
mod sample;
pub mod shape;
pub mod state;
pub mod status;
pub mod template;

pub use failure::{NodeError, NodeFault, backoff};

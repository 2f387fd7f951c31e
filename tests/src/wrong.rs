//! Backends and executors that break their promises.
//!
//! The kit has to fail every one of them: what it does not notice here, it does not check. A wrong backend is
//! a [`Flaw`], which says of a call or two how they go wrong and leaves the others alone; [`Wrong`] puts it in
//! front of any provider. A wrong executor is a [`Slip`] of the executors that a [`Sim`](crate::Sim) plays.
//! None of them is a change to nodewright's sources.

mod backend;
mod erased;
mod flaw;
pub mod flaws;
mod slip;

pub use self::backend::{Flawed, Wrong};
pub use self::erased::{Erased, ErasedBackend};
pub use self::flaw::{Flaw, Inside, Notes};
pub use self::slip::Slip;

//! The pure core of nodewright.

pub mod bootstrap;
pub mod effect;
pub mod facts;
pub mod id;
pub mod ledger;
pub mod shape;
pub mod template;

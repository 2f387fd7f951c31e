//! The pure core of nodewright.

pub mod bootstrap;
pub mod desired;
pub mod effect;
pub mod facts;
pub mod graph;
pub mod id;
pub mod ledger;
pub mod shape;
pub mod template;

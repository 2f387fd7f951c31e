//! The conformance kit of nodewright.
//!
//! [`Sim`] runs a real driver, a real ledger per provider and a backend under virtual time, without a runtime:
//! whatever could happen later sits in a list, and a seeded [`Chooser`] picks what happens next. After every
//! step an oracle compares what there is with what is promised; [`Sim::settle`] stops the faults and demands
//! that everything comes to rest.

mod by_hand;
mod call;
mod chooser;
pub mod exhaustive;
mod oracle;
mod random;
mod shapes;
mod sim;

pub use by_hand::ByHand;
pub use call::{Fault, FaultRates};
pub use chooser::Chooser;
pub use random::{Scenario, random_trace, seeds};
pub use shapes::{group, policy, shape, template};
pub use sim::{Broken, Provider, Sim, SimConfig};

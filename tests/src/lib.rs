//! The conformance kit of nodewright.
//!
//! [`Sim`] runs a real driver, a real ledger per provider and a backend under virtual time, without a runtime:
//! whatever could happen later sits in a list, and a seeded [`Chooser`] picks what happens next. After every
//! step an oracle compares what there is with what is promised; [`Sim::settle`] stops the faults and demands
//! that everything comes to rest.

pub mod battery;
mod by_hand;
mod chooser;
mod conformance;
mod contract;
mod faulty;
mod level;
mod oracle;
mod regress;
mod shapes;
mod sim;
mod subject;
mod subjects;
pub mod trace;
pub mod wrong;

pub use by_hand::ByHand;
pub use chooser::Chooser;
pub use contract::check_contract;
pub use faulty::{Control, Faulty, Stated, Time};
pub use level::{Core, End, Level};
pub use oracle::{Broken, check_state};
pub use regress::{Traces, play_all, seeds, trace};
pub use shapes::{group, policy, shape, template};
pub use sim::{Sim, SimConfig};
pub use subject::{Living, Pump, Subject};
pub use subjects::{Memory, Plugin, Process};

#![doc = include_str!("../README.md")]

pub mod battery;
mod by_hand;
mod chooser;
mod conformance;
mod contract;
pub mod exhaustive;
mod faulty;
mod level;
pub mod mutants;
mod oracle;
mod regress;
mod shapes;
mod sim;
mod stack;
mod subject;
mod subjects;
pub mod trace;
pub mod wrong;

pub use by_hand::ByHand;
pub use nodewright_core::id::AttemptIdentity;

pub use chooser::Chooser;
pub use contract::check_contract;
pub use faulty::{Control, Faulty, Stated, Time};
pub use level::{Core, End, Level};
pub use oracle::{Broken, check_state};
pub use regress::{Traces, play_all, seeds, trace};
pub use shapes::{group, policy, shape, template};
pub use sim::{Sim, SimConfig};
pub use stack::Stack;
pub use subject::{Living, Pump, Subject};
pub use subjects::{Memory, Plugin, Process};

//! The providers that come with nodewright, as subjects.

mod memory;
mod process;

pub use self::memory::{Memory, Plugin};
pub use self::process::Process;

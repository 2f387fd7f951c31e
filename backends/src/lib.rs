//! Providers for nodewright: a module and a feature each. None of them knows an actor.

#[cfg(feature = "memory")]
mod memory;
#[cfg(all(feature = "process", target_os = "linux"))]
pub mod process;

#[cfg(feature = "memory")]
pub use memory::{JoinMode, MemoryBackend, MemoryPlugin, MemoryTransport, MemoryTransports};

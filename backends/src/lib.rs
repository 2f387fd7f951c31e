//! Providers for nodewright: a module and a feature each. None of them knows an actor.

#[cfg(all(feature = "process", target_os = "linux"))]
pub mod process;

//! The whole actor stack over a provider in memory, under paused time: nothing here waits for a real clock.

mod faults;
mod handle;
mod lost;
mod outages;
mod support;
mod sweeps;
mod workflows;

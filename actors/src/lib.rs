//! nodewright drives a declared cluster shape toward convergence: so many nodes of these kinds, on these
//! providers, booted like this. It compares the shape with what really is, takes the next safe step for every
//! node until both agree, and again whenever they stop agreeing.
//!
//! ```text
//!            shape                                     observation (results, streams, deaths, deadlines)
//!              │                                                   │
//!              ▼                                                   ▼
//!     ┌──────────────────── ClusterSupervisor (actor) ─────────────────────┐
//!     │   update ──► ClusterDriver ◄── fold               (core, pure)     │──► view, events, status
//!     │                    │  pass: the ladder, for every node that changed│
//!     └────────────────────┼───────────────────────────▲───────────────────┘
//!        moments │         │ effects (recorded first)  │ tagged results
//!                ▼         ▼                           │
//!           TimerActor   ExecutorActor<B> ── task per call ──► EffectBackend (provider)
//!                          │ sessions                          │
//!                          └────► BootstrapStreams ◄───────────┘ Transport
//! ```
//!
//! Begin with [`Config`] and [`Cluster`]; with [`WorkflowRun`] for a [`workflow`] of your own. All of the core is re-exported: [`shape`], [`policy`], [`effect`]
//! for those who write a provider, and the rest.
//!
//! With `panic = "abort"` there is no supervision: a panic of a backend ends the process.

mod clock;
mod cluster;
mod config;
mod events;
mod executor;
mod inbox;
mod streams;
mod supervisor;
mod timer;
mod view;
mod workflow_run;

pub use clock::Clock;
pub use cluster::{Cluster, SpawnError, Stopped};
pub use config::Config;
pub use events::{Events, Heard};
pub use nodewright_core::{
    NodeError, NodeFault, backoff, bootstrap, decide, desired, driver, effect, event, facts, gate, graph, id,
    inventory, ledger, node, observation, orphan, pace, plan, policy, shape, state, status, template, timing,
    workflow,
};
pub use supervisor::{Shutdown, Swept, UpdateError};
pub use view::View;
pub use workflow_run::{Lost, NotSpawned, WorkflowRun};

//! Bootstrap: the session that boots an agent on a leased machine and watches it join.
//!
//! What happens in a session is a state machine without I/O, [`Bootstrap`]; a backend supplies the
//! [`Transport`] and keeps its live ones in [`Sessions`].

mod machine;
mod run;
#[cfg(test)]
mod script;
mod sessions;
mod stream;
mod transport;

pub use machine::{
    Bootstrap, BootstrapInput, JOIN_FAILED_MARKER, JOIN_MARKER, JOIN_TOKEN_REF_VARIABLE,
    ORCHESTRATOR_VARIABLE, START_JOB, SessionLimits, TransportCommand,
};
pub use run::run_session;
pub use sessions::Sessions;
pub use stream::{Session, StreamEvent, StreamObservation};
pub use transport::{ExitStatus, JobCommand, Line, LineSource, Transport, TransportError, TransportEvent};

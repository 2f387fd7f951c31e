//! Bootstrap: the session that boots an agent on a leased machine and watches it join.
//!
//! What happens in a session is a state machine without I/O; a backend supplies the [`Transport`].

mod stream;
mod transport;

pub use stream::{Session, StreamEvent, StreamObservation};
pub use transport::{ExitStatus, JobCommand, Line, LineSource, Transport, TransportError, TransportEvent};

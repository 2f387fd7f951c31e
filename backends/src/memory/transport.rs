//! The way into a machine that is only in memory.

use std::fmt;
use std::future::pending;
use std::time::Duration;

use nodewright_core::bootstrap::{
    ExitStatus, JOIN_MARKER, JobCommand, Line, LineSource, Transport, TransportError, TransportEvent,
};
use nodewright_core::effect::{BootstrapSpec, Cancel};
use nodewright_core::id::{AttemptIdentity, LogicalNodeId};
use nodewright_core::plugin::Transports;

use super::JoinMode;
use super::world::World;

/// The ways into the machines of a [`MemoryPlugin`](super::MemoryPlugin). A clone leads to the same ones.
#[derive(Clone)]
pub struct MemoryTransports {
    world: World,
    joins: JoinMode,
}

impl MemoryTransports {
    pub(super) const fn new(world: World, joins: JoinMode) -> Self {
        Self { world, joins }
    }
}

impl Transports for MemoryTransports {
    type Transport = MemoryTransport;

    /// To a machine that is gone there is a way, too: it cannot be opened.
    fn reach(&self, identity: &AttemptIdentity, spec: &BootstrapSpec) -> MemoryTransport {
        let died = match self.world.of(identity, &spec.lease) {
            Ok(machine) => machine.died,
            Err(_) => {
                let gone = Cancel::new();
                gone.cancel();
                gone
            }
        };
        MemoryTransport::new(identity.node.clone(), self.joins, died)
    }
}

impl fmt::Debug for MemoryTransports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryTransports")
            .field("joins", &self.joins)
            .finish_non_exhaustive()
    }
}

/// Every command succeeds at once; the started one prints what its join mode says and then stays, as long
/// as its machine lives.
#[derive(Debug)]
pub struct MemoryTransport {
    node: LogicalNodeId,
    joins: JoinMode,
    died: Cancel,
    printed: bool,
}

impl MemoryTransport {
    pub(super) const fn new(node: LogicalNodeId, joins: JoinMode, died: Cancel) -> Self {
        Self {
            node,
            joins,
            died,
            printed: false,
        }
    }

    fn alive(&self) -> Result<(), TransportError> {
        if self.died.is_cancelled() {
            return Err(TransportError::new("the machine is gone"));
        }
        Ok(())
    }
}

impl Transport for MemoryTransport {
    async fn open(&mut self, _: Duration) -> Result<(), TransportError> {
        self.alive()
    }

    async fn run(&mut self, _: &JobCommand, _: Duration) -> Result<(ExitStatus, Vec<Line>), TransportError> {
        self.alive()?;
        Ok((ExitStatus::Code(0), Vec::new()))
    }

    async fn start(&mut self, _: &JobCommand, _: Duration) -> Result<(), TransportError> {
        self.printed = false;
        self.alive()
    }

    async fn next(&mut self) -> Result<TransportEvent, TransportError> {
        self.alive()?;
        if self.joins == JoinMode::AtOnce && !self.printed {
            self.printed = true;
            return Ok(TransportEvent::Lines(vec![Line {
                source: LineSource::Stdout,
                text: format!("{JOIN_MARKER}{}", self.node),
            }]));
        }
        self.died.cancelled().await;
        self.alive()?;
        pending().await
    }

    async fn close(&mut self, _: Duration) {}
}

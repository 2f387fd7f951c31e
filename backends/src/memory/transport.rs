//! The way into a machine that is only in memory.

use std::future::pending;
use std::time::Duration;

use nodewright_core::bootstrap::{
    ExitStatus, JOIN_MARKER, JobCommand, Line, LineSource, Transport, TransportError, TransportEvent,
};
use nodewright_core::effect::Cancel;
use nodewright_core::id::LogicalNodeId;

use super::JoinMode;

/// Every command succeeds at once; the started one prints what its join mode says and then stays, as long
/// as its machine lives.
pub(super) struct MemoryTransport {
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

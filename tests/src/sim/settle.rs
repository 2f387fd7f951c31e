//! The fair tail: faults stop, and all has to come to rest.

use std::time::Duration;

use jiff::Timestamp;
use nodewright_core::id::LogicalNodeId;
use nodewright_core::node::ManagedNode;

use super::Sim;
use crate::Chooser;
use crate::oracle::Broken;
use crate::subject::{Pump, Subject};

/// How many pieces of work are done at one moment at most.
const AT_ONE_MOMENT: usize = 100_000;

/// How many sweeps it takes at most until one finds nothing: a mass loss is held for some of them.
const SWEEPS: u32 = 40;

impl<S: Subject> Sim<S> {
    /// Stops the faults, delivers what is under way and lets time pass until nothing is left to do; demands
    /// that this ends, within so much time, converged and without a leak (G22, G23), and then stays so (G3).
    ///
    /// # Errors
    ///
    /// What did not hold.
    pub fn settle(&mut self, within: Duration) -> Result<(), Broken> {
        for provider in self.providers.values_mut() {
            provider.backend.control().heal();
            provider.restarting = false;
        }
        let mut end = self.now.checked_add(within).expect("traces are short");
        let mut chooser = Chooser::new(self.call_count() as u64);
        let (mut releases, mut sweeps) = (3, SWEEPS);
        self.history.faults_end();
        self.unswept = self.providers.keys().cloned().collect();
        self.drive()?;
        loop {
            self.quiesce(&mut chooser)?;
            match self.next_step() {
                // What is halted is somebody's to release; what was under way may halt a slot once more.
                None if releases > 0 && self.release_halted() => {
                    releases -= 1;
                    self.history.faults_end();
                    self.drive()?;
                }
                // What was killed or deleted unseen, and what nobody owns, is found by sweeps: until one finds nothing.
                // What they find may take as long to come to rest as all before.
                None if !self.unswept.is_empty() => {
                    let at = self.driver.sweep_at().filter(|_| sweeps > 0);
                    let Some(at) = at else {
                        let what =
                            format!("G28: {:?} still finds something, or is never swept", self.unswept);
                        return Err(Broken(format!("{what}: {}", self.describe())));
                    };
                    sweeps -= 1;
                    self.advance_to(at)?;
                    end = self.now.checked_add(within).expect("traces are short");
                }
                None => break,
                Some(next) if next > end => {
                    let late = self.driver.is_converged() && self.driver.requeue_at() == Some(next);
                    let what = if late {
                        "G3: converged and waiting"
                    } else {
                        "G22: not settled"
                    };
                    return Err(Broken(format!("{what} after {within:?}: {}", self.describe())));
                }
                Some(next) => self.advance_to(next)?,
            }
        }
        self.check_settled()
    }

    /// Does all deferred work and lets time pass until this moment, whatever goes wrong.
    ///
    /// # Errors
    ///
    /// What did not hold.
    pub fn run_until(&mut self, end: Timestamp, chooser: &mut Chooser) -> Result<(), Broken> {
        self.drive()?;
        loop {
            self.quiesce(chooser)?;
            match self.next_moment().filter(|next| *next <= end) {
                Some(next) => self.advance_to(next)?,
                None => return self.advance_to(end),
            }
        }
    }

    /// Asks for a retry of every halted slot; says whether there was one.
    fn release_halted(&mut self) -> bool {
        let nodes = self.driver.state().nodes.iter();
        let halted = nodes.filter(|(_, node)| node.retry.halted.is_some());
        let halted: Vec<LogicalNodeId> = halted.map(|(id, _)| id).collect();
        for id in &halted {
            self.driver.retry(id);
        }
        !halted.is_empty()
    }

    /// Does all deferred work that can be done at this moment.
    pub(super) fn quiesce(&mut self, chooser: &mut Chooser) -> Result<(), Broken> {
        for _ in 0..AT_ONE_MOMENT {
            if !self.work(chooser)? && !self.something_real_happens() {
                return Ok(());
            }
        }
        Err(Broken("G19: work goes on without end at one moment".to_owned()))
    }

    /// Where time is real, waits a while for what goes on by itself; says whether there is news.
    fn something_real_happens(&mut self) -> bool {
        let Pump::Tokio(runtime) = self.pump.clone() else {
            return false;
        };
        let joins =
            |node: &ManagedNode| node.is_active() && node.active_bootstrap.is_some() && node.join.is_none();
        let awaited = self.driver.state().nodes.iter().any(|(_, node)| joins(node));
        let looks = if awaited { 400 } else { 2 };
        for _ in 0..looks {
            runtime.block_on(async { tokio::time::sleep(Duration::from_millis(5)).await });
            self.take_reports();
            if !self.news.is_empty() {
                return true;
            }
        }
        false
    }
}

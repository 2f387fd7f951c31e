//! Levels: how much of nodewright plays a trace.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use nodewright_core::id::{LogicalNodeId, ProviderKind, TemplateDigest};

use crate::oracle::Broken;
use crate::sim::Sim;
use crate::subject::{Pump, Subject};
use crate::trace::Trace;

/// Something that plays traces, with the oracle after every step and a fair tail.
pub trait Level {
    /// Plays a trace to its end and settles it.
    ///
    /// # Errors
    ///
    /// What did not hold, with the trace as code.
    fn play(trace: &Trace) -> Result<End, Broken>;
}

/// How a trace ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// What every slot is, up to ids and moments: its provider, its template, and whether it is ready.
    pub slots: BTreeMap<LogicalNodeId, (ProviderKind, TemplateDigest, bool)>,
    /// How many resources live for each slot.
    pub living: BTreeMap<LogicalNodeId, usize>,
    /// How many resources were made and are not there any more.
    pub gone: usize,
    /// All of it, as exactly as the level can tell: states and calls. Equal traces have equal ones.
    pub exact: String,
}

/// Core alone: a driver, its ledgers and a provider under virtual time, without a runtime.
#[derive(Debug)]
pub struct Core<S>(PhantomData<S>);

impl<S: Subject> Level for Core<S> {
    fn play(trace: &Trace) -> Result<End, Broken> {
        Sim::<S>::play(trace).map(|sim| sim.end())
    }
}

impl<S: Subject> Sim<S> {
    /// How it ended.
    pub fn end(&self) -> End {
        let state = self.driver.state();
        let slots = state.nodes.iter();
        let slots = slots.filter_map(|(id, node)| {
            let template = node.spec.as_ref()?.digest();
            Some((id, (node.provider.clone(), template, node.ready)))
        });
        let mut living = BTreeMap::new();
        for one in self.living().into_values().flatten() {
            *living.entry(one.identity.node).or_default() += 1;
        }
        let alive: usize = living.values().sum();
        let slots: BTreeMap<_, _> = slots.collect();
        // What takes real time comes in an order of its own.
        let exact = match self.pump {
            Pump::Inline => format!("{:?}\n{state:?}\n{}", self.calls(), self.passed_through),
            Pump::Tokio(_) => format!("{slots:?}"),
        };
        End {
            slots,
            gone: self.history.resources() - alive,
            living,
            exact,
        }
    }
}

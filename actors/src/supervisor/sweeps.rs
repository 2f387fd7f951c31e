//! Those who asked for a sweep and wait for what it shows.

use std::collections::BTreeMap;

use nodewright_core::driver::DueLook;
use nodewright_core::effect::EffectError;
use nodewright_core::id::ProviderKind;
use nodewright_core::inventory::Findings;
use nodewright_core::node::PassId;

use super::{Port, reply};

/// What each provider's answer to a sweep showed, or what it failed with. A failure concludes nothing.
pub type Swept = BTreeMap<ProviderKind, Result<Findings, EffectError>>;

/// Who waits for sweeps.
#[derive(Debug, Default)]
pub(super) struct Sweeps(Vec<Waiting>);

#[derive(Debug)]
struct Waiting {
    /// The question of each provider that is not answered yet; none until it is asked.
    awaited: BTreeMap<ProviderKind, Option<PassId>>,
    swept: Swept,
    port: Port<Swept>,
}

impl Sweeps {
    /// Adds somebody who waits for these providers' next questions.
    pub(super) fn wait_for(&mut self, providers: Vec<ProviderKind>, port: Port<Swept>) {
        if providers.is_empty() {
            return reply(port, Swept::new());
        }
        self.0.retain(|waiting| !waiting.port.is_closed());
        self.0.push(Waiting {
            awaited: providers.into_iter().map(|kind| (kind, None)).collect(),
            swept: Swept::new(),
            port,
        });
    }

    /// A question is asked now.
    pub(super) fn asked(&mut self, look: &DueLook) {
        for waiting in &mut self.0 {
            if let Some(question) = waiting.awaited.get_mut(&look.provider) {
                *question = Some(look.asked);
            }
        }
    }

    /// A question was answered, or will not be.
    pub(super) fn answered(
        &mut self,
        provider: &ProviderKind,
        asked: Option<PassId>,
        answer: &Result<Findings, EffectError>,
    ) {
        for waiting in &mut self.0 {
            let question = waiting.awaited.get(provider).copied().flatten();
            if question.is_some() && asked.is_none_or(|asked| question == Some(asked)) {
                waiting.awaited.remove(provider);
                waiting.swept.insert(provider.clone(), answer.clone());
            }
        }
        for whole in self.0.extract_if(.., |waiting| waiting.awaited.is_empty()) {
            reply(whole.port, whole.swept);
        }
    }
}

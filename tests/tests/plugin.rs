//! Seeded traces over a plugin in memory, lifted to the provider seam.

use std::collections::BTreeMap;
use std::sync::Arc;

use nodewright_backends::{JoinMode, MemoryPlugin, MemoryTransports};
use nodewright_conformance::{Broken, Provider, Scenario, random_trace, seeds};
use nodewright_core::id::ProviderKind;
use nodewright_core::plugin::PluginBackend;

type Lifted = PluginBackend<MemoryPlugin, MemoryTransports>;

fn providers() -> BTreeMap<ProviderKind, Provider<Lifted>> {
    let provider = |kind: &str| {
        let plugin = MemoryPlugin::new();
        let transports = plugin.transports(JoinMode::AtOnce);
        let provider = Provider {
            backend: Arc::new(PluginBackend::new(plugin, transports)),
            kill: |backend: &Lifted, identity| backend.plugin().kill(identity),
        };
        (kind.parse().unwrap(), provider)
    };
    ["alpha", "beta"].map(provider).into()
}

fn all_hold(scenario: Scenario) {
    for seed in seeds(500) {
        if let Err(Broken(what)) = random_trace(seed, scenario, providers) {
            panic!("{what}");
        }
    }
}

/// All that holds over a backend holds over a lifted plugin, where nothing goes wrong.
#[test]
fn without_faults_every_trace_over_a_plugin_holds_and_comes_to_rest() {
    all_hold(Scenario::CALM);
}

/// The same where everything goes wrong.
#[test]
fn whatever_goes_wrong_every_trace_over_a_plugin_holds_and_comes_to_rest() {
    all_hold(Scenario::ROUGH);
}

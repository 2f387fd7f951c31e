//! Seeded traces over the provider in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use nodewright_backends::MemoryBackend;
use nodewright_conformance::{Broken, Provider, Scenario, random_trace, seeds};
use nodewright_core::id::ProviderKind;

fn providers() -> BTreeMap<ProviderKind, Provider<MemoryBackend>> {
    let provider = |kind: &str| {
        let provider = Provider {
            backend: Arc::new(MemoryBackend::new()),
            kill: MemoryBackend::kill,
        };
        (kind.parse().unwrap(), provider)
    };
    ["alpha", "beta"].map(provider).into()
}

fn all_hold(scenario: Scenario, least: u64) {
    let mut broken = Vec::new();
    for seed in seeds(least) {
        match random_trace(seed, scenario, providers) {
            Ok(_) => {}
            Err(Broken(what)) => broken.push((seed, what)),
        }
    }
    if let Some((_, what)) = broken.first() {
        let others: Vec<u64> = broken.iter().map(|(seed, _)| *seed).collect();
        panic!("{what}\nbroken: {others:?}");
    }
}

/// G3, G22, G23, G29 and all that holds in every state, where nothing goes wrong.
#[test]
fn without_faults_every_trace_holds_and_comes_to_rest() {
    all_hold(Scenario::CALM, 2000);
}

/// The same where everything goes wrong.
#[test]
fn whatever_goes_wrong_every_trace_holds_and_comes_to_rest() {
    all_hold(Scenario::ROUGH, 3000);
}

/// G1: what follows from a seed is always the same, states and backend calls.
#[test]
fn the_same_seed_gives_the_same_states_and_the_same_calls() {
    for seed in seeds(300) {
        let run =
            || random_trace(seed, Scenario::ROUGH, providers).unwrap_or_else(|broken| panic!("{broken}"));
        let (one, other) = (run(), run());
        assert_eq!(one.calls(), other.calls(), "seed {seed}");
        assert_eq!(one.driver().state(), other.driver().state(), "seed {seed}");
    }
}

//! Seeded traces: a run to which all sorts of things happen.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use nodewright_core::effect::EffectBackend;
use nodewright_core::facts::AgentId;
use nodewright_core::id::{AttemptIdentity, LogicalNodeId, NodeAttemptId, ProviderKind};
use nodewright_core::observation::Observation;
use nodewright_core::pace::{PaceConfig, Rate};
use nodewright_core::shape::NodeGroupSpec;

use crate::sim::{Broken, Provider, Sim, SimConfig};
use crate::{Chooser, FaultRates, group, policy, shape, template};

/// What may happen in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scenario {
    /// How many things happen before all has to come to rest.
    pub steps: usize,
    /// What goes wrong at the seam.
    pub faults: FaultRates,
    /// Whether the shape changes.
    pub reshapes: bool,
    /// Whether machines die and people interfere.
    pub meddling: bool,
    /// Whether the process is restarted.
    pub restarts: bool,
}

impl Scenario {
    /// Everything at once.
    pub const ROUGH: Self = Self {
        steps: 150,
        faults: FaultRates::ROUGH,
        reshapes: true,
        meddling: true,
        restarts: true,
    };

    /// The same without faults, meddling or restarts.
    pub const CALM: Self = Self {
        steps: 100,
        faults: FaultRates {
            definite: 0,
            throttled: 0,
            fatal: 0,
            ambiguous: 0,
            slow: 0,
            refused: 0,
            lost_reports: 0,
            looks: 0,
        },
        reshapes: true,
        meddling: false,
        restarts: false,
    };
}

/// The seeds of a test: `least` of them, or as many as `NODEWRIGHT_SEEDS` says if that is more; one alone if
/// `NODEWRIGHT_SEED` names it. `NODEWRIGHT_TRACE` is how many of the last lines a broken trace shows.
pub fn seeds(least: u64) -> std::ops::Range<u64> {
    match number("NODEWRIGHT_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..least.max(number("NODEWRIGHT_SEEDS").unwrap_or(0)),
    }
}

/// Runs one trace and settles it. The shape, the policy and what happens all follow from the seed.
///
/// # Errors
///
/// What did not hold, with the last things that happened before.
pub fn random_trace<B: EffectBackend>(
    seed: u64,
    scenario: Scenario,
    providers: impl Fn() -> BTreeMap<ProviderKind, Provider<B>>,
) -> Result<Sim<B>, Broken> {
    let run = |trace| {
        let mut sim = begin(seed, scenario, providers(), trace);
        let result = happen(&mut sim, scenario).and_then(|()| sim.settle(Duration::from_secs(4 * 3600)));
        (sim, result)
    };
    match run(false) {
        (sim, Ok(())) => Ok(sim),
        // The same seed gives the same trace, so it need only be kept once something broke.
        (_, Err(Broken(what))) => {
            let (sim, _) = run(true);
            let lines = number("NODEWRIGHT_TRACE").unwrap_or(120);
            let last = sim.trace().len().saturating_sub(lines as usize);
            let trace = sim.trace()[last..].join("\n");
            Err(Broken(format!("seed {seed}: {what}\n{trace}\nseed {seed}")))
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn begin<B: EffectBackend>(
    seed: u64,
    scenario: Scenario,
    providers: BTreeMap<ProviderKind, Provider<B>>,
    trace: bool,
) -> Sim<B> {
    let mut chooser = Chooser::new(!seed);
    let places = *chooser.one_of(&[1, 2, 3, 64]);
    let rate = chooser.happens(200).then_some(Rate {
        calls: NonZeroU32::new(2).expect("two"),
        per: Duration::from_secs(1),
        burst: NonZeroU32::new(2).expect("two"),
    });
    let mut policy = policy();
    policy.attempt_limit = chooser.happens(200).then(|| NonZeroU32::new(3).expect("three"));
    let config = SimConfig {
        seed,
        policy,
        visibility: Duration::from_secs(*chooser.one_of(&[0, 3, 10])),
        abortable: chooser.happens(700),
        pace: PaceConfig {
            max_in_flight: NonZeroU32::new(places).expect("not zero"),
            rate,
        },
        fresh: chooser.happens(500),
        faults: scenario.faults,
        trace,
    };
    let kinds: Vec<ProviderKind> = providers.keys().cloned().collect();
    let groups = groups(&mut chooser, &kinds);
    Sim::new(config, providers, shape(1, groups)).expect("the shape is valid")
}

fn groups(chooser: &mut Chooser, kinds: &[ProviderKind]) -> Vec<NodeGroupSpec> {
    let mut groups = Vec::new();
    for name in ["a", "b", "c"] {
        if chooser.happens(700) {
            let image = *chooser.one_of(&["one", "two"]);
            let template = template(chooser.one_of(kinds).as_str(), image);
            let count = chooser.below(4) as u32;
            groups.push(group(name, count, template));
        }
    }
    groups
}

fn happen<B: EffectBackend>(sim: &mut Sim<B>, scenario: Scenario) -> Result<(), Broken> {
    sim.drive()?;
    for _ in 0..scenario.steps {
        match sim.chooser.below(100) {
            0..60 => sim.any_piece()?,
            60..72 => {
                if let Some(next) = sim.next_moment() {
                    sim.advance_to(next)?;
                }
            }
            72..77 => {
                let by = Duration::from_millis(sim.chooser.below(20_000) as u64 + 1);
                sim.advance(by)?;
            }
            77..80 if scenario.reshapes => reshape(sim),
            80..83 if scenario.faults != FaultRates::default() => sim.deliver_again()?,
            83..97 if scenario.meddling => meddle(sim),
            97 if scenario.restarts && sim.chooser.happens(500) => {
                let anew = sim.chooser.happens(500);
                sim.note(|| {
                    format!(
                        "the process is restarted, {}",
                        if anew { "anew" } else { "restored" }
                    )
                });
                let restarted = if anew {
                    sim.restart_anew()
                } else {
                    sim.restart_restored()
                };
                restarted.map_err(|error| Broken(error.to_string()))?;
            }
            98 => sim.driver.trigger(),
            _ => {}
        }
        if sim.chooser.happens(750) {
            sim.drive()?;
        }
    }
    Ok(())
}

fn reshape<B: EffectBackend>(sim: &mut Sim<B>) {
    let kinds: Vec<ProviderKind> = sim.providers.keys().cloned().collect();
    let groups = if sim.chooser.happens(300) {
        groups(&mut sim.chooser, &kinds)
    } else {
        let mut groups = sim.groups().to_vec();
        if let Some(place) = (!groups.is_empty()).then(|| sim.chooser.below(groups.len())) {
            groups[place].count = sim.chooser.below(5) as u32;
        }
        groups
    };
    sim.note(|| {
        let text = |group: &NodeGroupSpec| {
            let template = &group.template;
            format!(
                "{}×{} {} {}",
                group.group_id, group.count, template.provider, template.shape.image
            )
        };
        format!(
            "reshaped: {}",
            groups.iter().map(text).collect::<Vec<_>>().join(", ")
        )
    });
    sim.update(groups).expect("the shape is valid");
}

/// Something befalls a slot that holds a node.
fn meddle<B: EffectBackend>(sim: &mut Sim<B>) {
    let nodes: Vec<(LogicalNodeId, NodeAttemptId)> = sim
        .driver
        .state()
        .nodes
        .iter()
        .map(|(id, node)| (id, node.attempt))
        .collect();
    if nodes.is_empty() {
        return;
    }
    let (node, attempt) = sim.chooser.one_of(&nodes).clone();
    match sim.chooser.below(8) {
        0 => {
            sim.note(|| format!("{node} {attempt} dies"));
            let run = sim.shape.run_id.clone();
            sim.kill(&AttemptIdentity { run, node, attempt }, true);
        }
        1 => {
            let reason = "somebody said so".into();
            let _ = sim.observe(&node, attempt, Observation::NodeLost { reason });
        }
        2 | 3 => {
            let agent = if sim.chooser.happens(900) {
                node.to_string()
            } else {
                "stranger".to_owned()
            };
            let _ = sim.observe(&node, attempt, Observation::Joined(AgentId::new(agent)));
        }
        4 => {
            let _ = sim.observe(&node, attempt, Observation::HandedOff);
        }
        5 => {
            sim.note(|| format!("{node} is retried"));
            sim.driver.retry(&node);
        }
        6 => {
            sim.note(|| format!("{node} is replaced"));
            sim.driver.replace(&node);
        }
        _ => {
            let stale = NodeAttemptId::new(attempt.number() + 1 + sim.chooser.below(3) as u64);
            let _ = sim.observe(&node, stale, Observation::Joined(AgentId::new("nobody")));
        }
    }
}

//! The rules that a shape must keep, wherever it comes from. Finds everything that is wrong, not the first.
//!
//! Costs what the groups cost: nothing is expanded, so a count of billions is refused for free.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use crate::graph::{Graph, GraphProblem};
use crate::id::{GroupId, ProviderKind, RunId};
use crate::shape::nearest::nearest;
use crate::shape::path::Path;
use crate::shape::{NodeGroupSpec, ShapeProblem};
use crate::template::{BootSpec, NodeShape, NodeTemplate};

/// What a shape may have at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ShapeLimits {
    /// Nodes in all groups together.
    pub max_nodes: u64,
}

impl Default for ShapeLimits {
    /// A million nodes: more than is run, and a state of that size still fits in memory.
    fn default() -> Self {
        Self { max_nodes: 1_000_000 }
    }
}

/// What a machine can sensibly be asked for. The upper ends lie far above anything that is offered, so that
/// they catch only a unit mistaken for another.
pub(super) mod ranges {
    use super::RangeInclusive;

    /// Up to a petabyte.
    pub(in crate::shape) const DISK_GB: RangeInclusive<u32> = 1..=1_000_000;
    /// Up to 16 TiB.
    pub(in crate::shape) const GPU_MEMORY_MB: RangeInclusive<u32> = 0..=16_777_216;
    /// Up to 10 Tbit/s.
    pub(in crate::shape) const MBPS: RangeInclusive<u32> = 0..=10_000_000;
    /// Never to always.
    pub(in crate::shape) const RELIABILITY_PER_MILLE: RangeInclusive<u16> = 0..=1000;
}

/// Which place a problem is about, seen from its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Spot {
    /// The value there.
    Value,
    /// Its key.
    Key,
    /// The mention of this group in the list there.
    Mention(GroupId),
    /// This byte of the file, whatever stands there.
    Byte(usize),
}

/// A problem before its place in a file is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) path: Path,
    pub(crate) spot: Spot,
    pub(crate) message: String,
    /// Whether it says that something is not there: no news where a part could not be read.
    pub(crate) absence: bool,
}

impl Found {
    pub(super) fn new(path: Path, spot: Spot, message: impl Into<String>) -> Self {
        Self {
            path,
            spot,
            message: message.into(),
            absence: false,
        }
    }

    pub(super) fn value(path: Path, message: impl Into<String>) -> Self {
        Self::new(path, Spot::Value, message)
    }
}

impl From<Found> for ShapeProblem {
    /// The problem of a shape that stands in no file.
    fn from(found: Found) -> Self {
        Self {
            path: found.path.to_string(),
            message: found.message,
            at: None,
        }
    }
}

/// Checks a shape of these groups and orders it.
///
/// # Errors
///
/// All problems, by group in the order given, then those of the shape as a whole.
pub(crate) fn shape(
    run: &RunId,
    groups: &[NodeGroupSpec],
    limits: &ShapeLimits,
    providers: &BTreeSet<ProviderKind>,
) -> Result<Graph, Vec<Found>> {
    let mut found = Vec::new();
    let all = Path::default().key("groups");
    let mut seen: BTreeMap<&GroupId, &NodeGroupSpec> = BTreeMap::new();
    let mut twice: BTreeSet<&GroupId> = BTreeSet::new();
    for group in groups {
        let path = all.key(group.group_id.as_str());
        if group.run_id != *run {
            let message = format!(
                "is {:?}, but the run of the shape is {:?}: a group belongs to the run of its shape",
                group.run_id.as_str(),
                run.as_str()
            );
            found.push(Found::value(path.key("run_id"), message));
        }
        if u64::from(group.count) > limits.max_nodes {
            let message = format!(
                "is {}, but a shape may have at most {} nodes in all",
                group.count, limits.max_nodes
            );
            found.push(Found::value(path.key("count"), message));
        }
        template(&path, &group.template, providers, &mut found);
        let repeated = seen.contains_key(&group.group_id);
        if !repeated {
            seen.insert(&group.group_id, group);
        } else if twice.insert(&group.group_id) {
            let message = format!(
                "group {:?} is declared twice: each group has one declaration",
                group.group_id.as_str()
            );
            found.push(Found::new(path, Spot::Key, message));
        }
    }

    let total: u64 = groups.iter().map(|group| u64::from(group.count)).sum();
    let alone = |group: &NodeGroupSpec| u64::from(group.count) > limits.max_nodes;
    if total > limits.max_nodes && !groups.iter().any(alone) {
        let message = format!(
            "declare {total} nodes in all, but a shape may have at most {}",
            limits.max_nodes
        );
        found.push(Found::new(all.clone(), Spot::Key, message));
    }

    let nodes = seen.values().map(|group| {
        (
            group.group_id.as_str(),
            group.depends_on.iter().map(GroupId::as_str),
        )
    });
    match Graph::new(nodes) {
        Ok(graph) if found.is_empty() => return Ok(graph),
        Ok(_) => {}
        Err(problems) => found.extend(
            problems
                .into_iter()
                .map(|problem| graph_problem(&all, problem, &seen)),
        ),
    }
    Err(found)
}

fn graph_problem(all: &Path, problem: GraphProblem, groups: &BTreeMap<&GroupId, &NodeGroupSpec>) -> Found {
    // Every name in a graph problem came from a group id.
    let mention = |name: &str| GroupId::new(name).map_or(Spot::Value, Spot::Mention);
    let at = |name: &str| all.key(name).key("depends_on");
    match problem {
        GraphProblem::Unknown { name, dependency } => {
            let known = groups.keys().map(|group| group.as_str());
            let hint = match nearest(&dependency, known.filter(|known| *known != name)) {
                Some(meant) => format!("did you mean {meant:?}?"),
                None => "a dependency is the name of another group".to_owned(),
            };
            Found {
                absence: true,
                ..Found::new(
                    at(&name),
                    mention(&dependency),
                    format!("names {dependency:?}, which is no group of the shape; {hint}"),
                )
            }
        }
        GraphProblem::Itself { name } => Found::new(
            at(&name),
            mention(&name),
            format!("names {name:?} itself: a group can depend only on other groups"),
        ),
        GraphProblem::Cycle { ref cycle, .. } => {
            let (first, next) = (&cycle[0], &cycle[1 % cycle.len()]);
            Found::new(
                at(first),
                mention(next),
                format!("{problem}; groups cannot wait for each other"),
            )
        }
        GraphProblem::Duplicate { ref name } => Found::new(all.key(name), Spot::Key, problem.to_string()),
    }
}

/// Checks what the nodes of the group at this path are made from.
pub(super) fn template(
    path: &Path,
    template: &NodeTemplate,
    providers: &BTreeSet<ProviderKind>,
    found: &mut Vec<Found>,
) {
    if !providers.contains(&template.provider) {
        let known: Vec<String> = providers
            .iter()
            .map(|kind| format!("{:?}", kind.as_str()))
            .collect();
        let known = match &known[..] {
            [] => "no provider is registered".to_owned(),
            known => format!("registered: {}", known.join(", ")),
        };
        let guess = nearest(
            template.provider.as_str(),
            providers.iter().map(ProviderKind::as_str),
        );
        let guess = guess.map_or_else(String::new, |meant| format!("; did you mean {meant:?}?"));
        let message = format!(
            "nothing is registered for {:?}; {known}{guess}",
            template.provider.as_str()
        );
        found.push(Found::value(path.key("provider"), message));
    }
    machine(&path.key("shape"), &template.shape, found);
    boot(&path.key("boot"), &template.boot, found);
    let join = path.key("join");
    for (key, value) in [
        ("orchestrator", &template.join.orchestrator),
        ("token_ref", &template.join.token_ref),
    ] {
        text(&join.key(key), value, Empty::Allowed, found);
    }
}

fn machine(path: &Path, shape: &NodeShape, found: &mut Vec<Found>) {
    text(&path.key("image"), &shape.image, Empty::Refused, found);
    if let Some(gpu) = &shape.gpu {
        text(&path.key("gpu"), gpu, Empty::Refused, found);
    }
    for (key, value, range) in [
        ("disk_gb", shape.disk_gb, ranges::DISK_GB),
        (
            "min_gpu_memory_mb",
            shape.min_gpu_memory_mb,
            ranges::GPU_MEMORY_MB,
        ),
        ("min_down_mbps", shape.min_down_mbps, ranges::MBPS),
        ("min_up_mbps", shape.min_up_mbps, ranges::MBPS),
    ] {
        if !range.contains(&value) {
            let message = out_of_range(value, range.start(), range.end());
            found.push(Found::value(path.key(key), message));
        }
    }
    let (value, range) = (shape.min_reliability_per_mille, ranges::RELIABILITY_PER_MILLE);
    if !range.contains(&value) {
        let message = out_of_range(value, range.start(), range.end());
        found.push(Found::value(path.key("min_reliability_per_mille"), message));
    }
    let labels = path.key("labels");
    for (key, value) in &shape.labels {
        let path = labels.key(key);
        if key.is_empty() || key.contains('\0') {
            let message = format!("{key:?} is not a label's name: it needs a character, and none may be NUL");
            found.push(Found::new(path.clone(), Spot::Key, message));
        }
        text(&path, value, Empty::Allowed, found);
    }
}

fn boot(path: &Path, boot: &BootSpec, found: &mut Vec<Found>) {
    let user = path.key("ssh_user");
    let plain =
        |user: &str| !user.starts_with('-') && !user.contains(|c: char| c.is_whitespace() || c.is_control());
    if plain(&boot.ssh_user) {
        text(&user, &boot.ssh_user, Empty::Refused, found);
    } else {
        // A user ends up as an argument of a command, where a dash in front would make an option of it.
        let message = format!(
            "is {:?}: a user has no spaces or control characters and begins with no '-'",
            boot.ssh_user
        );
        found.push(Found::value(user, message));
    }
    text(&path.key("start"), &boot.start, Empty::Refused, found);
    for (key, list, empty) in [
        ("verify", &boot.verify, Empty::Refused),
        ("args", &boot.args, Empty::Allowed),
        ("extra_stdout", &boot.extra_stdout, Empty::Refused),
        ("extra_stderr", &boot.extra_stderr, Empty::Refused),
    ] {
        let path = path.key(key);
        for (index, value) in list.iter().enumerate() {
            text(&path.item(index), value, empty, found);
        }
    }
    let env = path.key("env");
    for (key, value) in &boot.env {
        let path = env.key(key);
        let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if key.is_empty() || !key.bytes().all(word) || key.as_bytes()[0].is_ascii_digit() {
            let message = format!(
                "{key:?} is not a variable's name: it has letters, digits and '_' and begins with no digit"
            );
            found.push(Found::new(path.clone(), Spot::Key, message));
        }
        text(&path, value, Empty::Allowed, found);
    }
}

pub(super) fn out_of_range(
    value: impl std::fmt::Display,
    least: impl std::fmt::Display,
    most: impl std::fmt::Display,
) -> String {
    format!("is {value}; must be from {least} to {most}")
}

/// Whether a text may be empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Empty {
    Allowed,
    Refused,
}

fn text(path: &Path, value: &str, empty: Empty, found: &mut Vec<Found>) {
    // Blank is as good as empty for everything that must not be empty.
    if empty == Empty::Refused && value.trim().is_empty() {
        found.push(Found::value(
            path.clone(),
            format!("is {value:?}; must not be empty"),
        ));
    }
    if value.contains('\0') {
        let message = "has a NUL character, which no program can be given";
        found.push(Found::value(path.clone(), message));
    }
}

//! The one walk through the raw tree: makes a shape of it, as well as it can, and notes every mistake.
//!
//! Whatever cannot be used is noted and replaced by something harmless, so that the rest is still read.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use super::ShapeDefaults;
use super::fields::Notes;
use crate::id::{GroupId, ProviderKind, RoleId, RunId};
use crate::shape::check::{self, Spot, ranges};
use crate::shape::path::Path;
use crate::shape::raw::{Raw, RawEntry};
use crate::shape::{ClusterShape, Generation, NodeGroupSpec, ShapeLimits};
use crate::template::{BootSpec, NodeShape, NodeTemplate, SwarmJoinSpec, Template};

const SHAPE: [&str; 3] = ["run_id", "generation", "groups"];
const GROUP: [&str; 8] = [
    "run_id",
    "count",
    "depends_on",
    "role",
    "provider",
    "shape",
    "boot",
    "join",
];
const MACHINE: [&str; 9] = [
    "image",
    "disk_gb",
    "gpu",
    "min_gpu_memory_mb",
    "min_down_mbps",
    "min_up_mbps",
    "min_reliability",
    "verified_only",
    "labels",
];
const BOOT: [&str; 7] = [
    "ssh_user",
    "verify",
    "start",
    "args",
    "env",
    "extra_stdout",
    "extra_stderr",
];
const JOIN: [&str; 2] = ["orchestrator", "token_ref"];

/// What every group is read under.
struct Around<'a> {
    /// The shape's run; none if it could not be read, which leaves nothing to compare a group's run with.
    run: Option<RunId>,
    fallback: RunId,
    limits: &'a ShapeLimits,
    providers: &'a BTreeSet<ProviderKind>,
}

/// Reads a shape; it may be used only if nothing was found.
pub(super) fn walk(
    root: &[RawEntry],
    defaults: &ShapeDefaults,
    limits: &ShapeLimits,
    providers: &BTreeSet<ProviderKind>,
    example: &str,
) -> (ClusterShape, Notes) {
    let mut notes = Notes::default();
    let top = Path::default();
    let fields = notes.fields(&top, root, "a shape", &SHAPE);
    let run = if fields.has("run_id") {
        notes.optional(&fields, "run_id", Notes::name)
    } else {
        Some(defaults.run_id.clone())
    };
    let generation = notes.optional(&fields, "generation", |notes, path, raw| {
        notes.whole(path, raw, 0..=u64::MAX)
    });
    let around = Around {
        fallback: run.clone().unwrap_or_else(|| defaults.run_id.clone()),
        run,
        limits,
        providers,
    };
    if !fields.has("groups") {
        notes.absent(
            &top,
            format!("no groups are declared; the least shape is {example}"),
        );
    }
    let groups = notes.optional(&fields, "groups", |notes, path, raw| {
        let entries = notes.table(path, raw)?;
        let entries = notes.entries(path, entries);
        Some(
            entries
                .into_iter()
                .filter_map(|(path, entry)| group(notes, &path, entry, &around))
                .collect(),
        )
    });
    let shape = ClusterShape {
        run_id: around.fallback,
        generation: generation.map_or(defaults.generation, Generation),
        groups: groups.unwrap_or_default(),
    };
    (shape, notes)
}

/// Reads a group; there is none if it has no usable name.
fn group(notes: &mut Notes, path: &Path, entry: &RawEntry, around: &Around<'_>) -> Option<NodeGroupSpec> {
    let id = GroupId::new(&entry.key);
    if let Err(error) = &id {
        notes.note(path, Spot::Key, error.to_string());
    }
    let entries = notes.table(path, &entry.raw)?;
    let fields = notes.fields(path, entries, "a group", &GROUP);
    let run: Option<RunId> = notes.optional(&fields, "run_id", Notes::name);
    // Beyond the limit but still a count is left to the check, which knows better what to say.
    let most = u32::try_from(around.limits.max_nodes).unwrap_or(u32::MAX);
    let right = format!("a whole number from 0 to {most}");
    let count = notes.required(&fields, "count", &right, |notes, path, raw| {
        notes.whole_told(path, raw, 0..=u32::MAX, most)
    });
    let depends_on = notes.optional(&fields, "depends_on", Notes::groups);
    let role: Option<RoleId> = notes.required(&fields, "role", "a role's name", Notes::name);
    let provider: Option<ProviderKind> =
        notes.required(&fields, "provider", "a provider's name", Notes::name);
    let shape = notes.required(&fields, "shape", "a table with an image", machine);
    let boot = notes.required(&fields, "boot", "a table with a start command", boot);
    let join = notes.optional(&fields, "join", join);
    let template = NodeTemplate {
        role: role.unwrap_or_else(|| RoleId::new(STAND_IN).expect("is a name")),
        provider: provider.unwrap_or_else(|| ProviderKind::new(STAND_IN).expect("is a name")),
        shape: shape.unwrap_or_else(|| NodeShape::new(STAND_IN)),
        boot: boot.unwrap_or_else(|| BootSpec::new(STAND_IN)),
        join: join.unwrap_or_default(),
    };
    let Ok(group_id) = id else {
        // No group can come of it, but what it is made from can be wrong all the same.
        check::template(path, &template, around.providers, notes.found_mut());
        return None;
    };
    Some(NodeGroupSpec {
        run_id: run
            .filter(|_| around.run.is_some())
            .unwrap_or_else(|| around.fallback.clone()),
        group_id,
        count: count.unwrap_or_default(),
        depends_on: depends_on.into_iter().flatten().collect(),
        template: Template::new(template),
    })
}

/// Stands for what could not be read.
const STAND_IN: &str = "unusable";

fn machine(notes: &mut Notes, path: &Path, raw: &Raw) -> Option<NodeShape> {
    let entries = notes.table(path, raw)?;
    let fields = notes.fields(path, entries, "a machine's shape", &MACHINE);
    let number = |notes: &mut Notes, name: &str, range: RangeInclusive<u32>| {
        notes.optional(&fields, name, |notes, path, raw| notes.whole(path, raw, range))
    };
    let image = notes.required(&fields, "image", "the name of an image", Notes::text);
    let basis = NodeShape::new(image.unwrap_or_else(|| STAND_IN.to_owned()));
    Some(NodeShape {
        disk_gb: number(notes, "disk_gb", ranges::DISK_GB).unwrap_or(basis.disk_gb),
        gpu: notes.optional(&fields, "gpu", Notes::text),
        min_gpu_memory_mb: number(notes, "min_gpu_memory_mb", ranges::GPU_MEMORY_MB).unwrap_or_default(),
        min_down_mbps: number(notes, "min_down_mbps", ranges::MBPS).unwrap_or_default(),
        min_up_mbps: number(notes, "min_up_mbps", ranges::MBPS).unwrap_or_default(),
        min_reliability_per_mille: notes
            .optional(&fields, "min_reliability", Notes::per_mille)
            .unwrap_or_default(),
        verified_only: notes
            .optional(&fields, "verified_only", Notes::bool)
            .unwrap_or_default(),
        labels: notes
            .optional(&fields, "labels", Notes::texts_by_key)
            .unwrap_or_default(),
        ..basis
    })
}

fn boot(notes: &mut Notes, path: &Path, raw: &Raw) -> Option<BootSpec> {
    let entries = notes.table(path, raw)?;
    let fields = notes.fields(path, entries, "a boot", &BOOT);
    let texts =
        |notes: &mut Notes, name: &str| notes.optional(&fields, name, Notes::texts).unwrap_or_default();
    let start = notes.required(&fields, "start", "a command", Notes::text);
    let basis = BootSpec::new(start.unwrap_or_else(|| STAND_IN.to_owned()));
    Some(BootSpec {
        ssh_user: notes
            .optional(&fields, "ssh_user", Notes::text)
            .unwrap_or(basis.ssh_user),
        verify: texts(notes, "verify"),
        args: texts(notes, "args"),
        env: notes
            .optional(&fields, "env", Notes::texts_by_key)
            .unwrap_or_default(),
        extra_stdout: texts(notes, "extra_stdout"),
        extra_stderr: texts(notes, "extra_stderr"),
        start: basis.start,
    })
}

fn join(notes: &mut Notes, path: &Path, raw: &Raw) -> Option<SwarmJoinSpec> {
    let entries = notes.table(path, raw)?;
    let fields = notes.fields(path, entries, "a join", &JOIN);
    let text = |notes: &mut Notes, name: &str| notes.optional(&fields, name, Notes::text).unwrap_or_default();
    Some(SwarmJoinSpec {
        orchestrator: text(notes, "orchestrator"),
        token_ref: text(notes, "token_ref"),
    })
}

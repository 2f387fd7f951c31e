//! What the main job promises, shown with the real program and real processes.

mod commands;
mod crashes;
mod edits;
mod endings;
mod healing;
mod hostile;
mod input;
mod terminal;
mod tiers;
mod truth;
mod world;

use std::ffi::OsStr;
use std::path::Path;

use crate::world::{Running, World};

/// A group of this many good agents.
fn workers(count: u32) -> String {
    group("workers", count, r#"exec "$FLEET" agent"#)
}

/// A group of one start command.
fn group(name: &str, count: u32, start: &str) -> String {
    format!(
        "[groups.{name}]\ncount = {count}\nrole = \"worker\"\nprovider = \"process\"\n\
         shape.image = \"local\"\nboot.start = '{start}'\n"
    )
}

/// One of the shapes that the repository shows.
fn shown(name: &str, state: &World, options: &[&str]) -> world::Ended {
    let shape = Path::new(env!("CARGO_MANIFEST_DIR")).join("shapes").join(name);
    let state_dir = state.path().join(".nodewright");
    let first = [
        shape.as_os_str(),
        OsStr::new("--state-dir"),
        state_dir.as_os_str(),
    ];
    Running::start(first, options.iter().copied()).end()
}

#[test]
fn the_small_shape_converges_once_and_leaves_nothing() {
    let world = World::without_shape();
    let ended = shown("small.toml", &world, &["--once", "--json"]);
    ended.assert_clean();
    let summary = ended.summary();
    for (key, value) in [("nodes", 3), ("created", 3), ("destroyed", 3), ("replaced", 0)] {
        assert_eq!(summary[key], value, "{summary}");
    }
    assert!(summary["seconds"].as_f64().unwrap() > 0.0);
}

#[test]
fn three_groups_converge_and_are_told_one_line_per_change() {
    let world = World::without_shape();
    let ended = shown("three-groups.toml", &world, &["--once"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let lines: Vec<&str> = ended.heard.iter().map(|line| line.as_str().unwrap()).collect();
    let said = |text: &str| lines.iter().any(|line| line.contains(text));
    assert!(said("workers-4: attempt") && said("gateway-0: gone") && said("generation 1 is reached"));
    let last = lines.last().unwrap();
    assert!(
        last.starts_with("converged: 8 nodes") && last.contains(" 0 processes left"),
        "{last}"
    );
}

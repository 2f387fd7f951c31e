//! Bad input: all of it is told, and nothing is started.

use crate::world::World;
use crate::{group, workers};

#[test]
fn five_kinds_of_mistake_are_all_named_at_their_places_and_nothing_starts() {
    let world = World::new(
        r#"
[groups.workers]
count = "three"
role = "worker"
provider = "cloud"
colour = "red"
shape = { image = "local", disk_gb = 0 }
boot.start = "true"

[groups.Bad_Name]
count = 1
role = "worker"
provider = "process"
shape.image = "local"
boot.start = "true"
"#,
    );
    let ended = world.fleet(["--once"]).end();
    ended.assert_refused();
    let expected = [
        (3, 9, "groups.workers.count"),
        (5, 12, "groups.workers.provider"),
        (6, 1, "groups.workers.colour"),
        (7, 38, "groups.workers.shape.disk_gb"),
        (10, 9, "groups.Bad_Name"),
    ];
    let refused = ended.refused();
    assert_eq!(refused.len(), expected.len(), "{refused:#?}");
    for (mistake, (line, column, path)) in refused.iter().zip(expected) {
        assert_eq!(
            (&mistake["line"], &mistake["column"], mistake["path"].as_str()),
            (&line.into(), &column.into(), Some(path)),
            "{mistake}"
        );
        let place = format!("demo.toml: line {line}, column {column}: {path}: ");
        assert!(ended.stderr.contains(&place), "{}", ended.stderr);
    }
    assert!(!world.state().exists());
}

#[test]
fn input_that_is_no_shape_is_refused_and_makes_nothing() {
    let too_many = workers(u32::MAX);
    let cases: [(Option<&[u8]>, &str); 4] = [
        (Some(too_many.as_bytes()), "4294967295"),
        (Some(b""), "no groups are declared"),
        (Some(b"[groups.a]\nrole = \"\xff\""), "UTF-8"),
        (None, "No such file"),
    ];
    for (bytes, expected) in cases {
        let world = World::without_shape();
        if let Some(bytes) = bytes {
            world.save(bytes);
        }
        let ended = world.fleet([]).end();
        ended.assert_refused();
        assert!(ended.stderr.contains(expected), "{expected}: {}", ended.stderr);
        assert!(ended.stderr.contains("demo.toml"), "{}", ended.stderr);
        assert!(!world.path().join(".nodewright").exists());
    }
}

#[test]
fn a_shape_that_needs_more_open_files_than_there_can_be_is_refused_with_the_number() {
    let world = World::new(workers(900_000));
    let ended = world.fleet([]).end();
    ended.assert_refused();
    assert!(
        ended.stderr.contains("900000 machines need 9000064 open files"),
        "{}",
        ended.stderr
    );
    assert!(!world.path().join(".nodewright").exists());
}

#[test]
fn more_kills_than_machines_are_refused() {
    let world = World::new(workers(2));
    let ended = world.fleet(["--once", "--kill", "3"]).end();
    ended.assert_refused();
    assert!(ended.stderr.contains("--kill 3") && ended.stderr.contains("2 machines"));
}

#[test]
fn a_second_fleet_on_a_run_is_refused_naming_the_first() {
    let world = World::new(group("workers", 1, r#"exec "$FLEET" agent"#));
    let mut first = world.fleet([]);
    first.until_converged(1);
    let second = world.fleet(["--once"]).end();
    second.assert_refused();
    assert!(
        second.stderr.contains(&format!("process {}", first.pid())),
        "{}",
        second.stderr
    );
    first.signal(rustix::process::Signal::TERM);
    first.end().assert_clean();
}

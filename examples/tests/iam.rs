//! The story that `iam` tells, read from its log.

use std::process::Command;

/// What happened in one chapter of the log, in order.
#[derive(Debug, Default)]
struct Chapter {
    created: Vec<String>,
    removed: Vec<String>,
    verdicts: Vec<String>,
    not_reached: usize,
}

/// The chapters of the log: create, mend, take down. And its last line.
fn tell(seed: u64) -> ([Chapter; 3], String) {
    let ran = Command::new(env!("CARGO_BIN_EXE_iam"))
        .args(["--seed", &seed.to_string()])
        .output()
        .unwrap();
    let log = String::from_utf8(ran.stdout).unwrap();
    assert!(ran.status.success(), "seed {seed}:\n{log}");
    let mut chapters: [Chapter; 3] = Default::default();
    let mut current = 0;
    for line in log.lines() {
        if line.starts_with("== ") {
            current += 1;
            continue;
        }
        let chapter = &mut chapters[current - 1];
        if let Some(path) = line.strip_prefix("service: created ") {
            chapter.created.push(path.to_owned());
        } else if let Some(path) = line.strip_prefix("service: removed ") {
            chapter.removed.push(path.to_owned());
        } else if let Some(run) = line.strip_prefix("run ") {
            let verdict = run.split([':', ',']).nth(1).unwrap().trim();
            chapter.verdicts.push(verdict.to_owned());
        } else if line.contains("not reached because of ") {
            chapter.not_reached += 1;
        }
    }
    (chapters, log.lines().last().unwrap().to_owned())
}

const UP: [&str; 6] = [
    "groups/everyone",
    "groups/staff",
    "groups/everyone/members/staff",
    "roles/reader",
    "roles/reader/groups/everyone",
    "roles/reader/groups/staff",
];

fn assert_story(seed: u64) -> [Chapter; 3] {
    let (chapters, last) = tell(seed);
    let [create, mend, take_down] = &chapters;
    assert_eq!(create.created, UP, "seed {seed}: each once, in order");
    let lost = [
        "groups/staff",
        "groups/everyone/members/staff",
        "roles/reader/groups/staff",
    ];
    assert_eq!(mend.created, lost, "seed {seed}: what is gone, and nothing else");
    assert!(
        take_down.removed.iter().eq(UP.iter().rev()),
        "seed {seed}: backwards"
    );
    assert!(create.removed.is_empty() && mend.removed.is_empty() && take_down.created.is_empty());
    for Chapter { verdicts, .. } in &chapters {
        let (last, before) = verdicts.split_last().unwrap();
        assert!(last == "done" && before.iter().all(|verdict| verdict == "to be run again"));
    }
    assert_eq!(last, "left: nothing");
    chapters
}

#[test]
fn it_is_built_over_several_runs_mended_and_taken_down_backwards() {
    let [create, mend, take_down] = assert_story(7);
    assert!(create.verdicts.len() > 2, "{create:?}");
    assert!(mend.verdicts.len() > 1, "{mend:?}");
    assert!(take_down.verdicts.len() > 1, "{take_down:?}");
    assert!(create.not_reached > 0);
}

#[test]
fn the_story_ends_well_whatever_the_moods_of_the_service() {
    for seed in 100..120 {
        let _ = assert_story(seed);
    }
}

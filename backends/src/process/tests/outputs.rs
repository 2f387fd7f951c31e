use std::fs;
use std::os::unix::fs::MetadataExt as _;

use nodewright_core::bootstrap::LineSource;

use super::*;

/// What a file takes on the disk, in bytes.
fn on_disk(world: &World, node: &str) -> u64 {
    let file = world.place(node).directory.join("jobs/start/stdout");
    fs::metadata(file).unwrap().blocks() * 512
}

const FLOOD: &str =
    "yes 0123456789012345678901234567890123456789 | head -c 67108864; echo; echo over; exec sleep 1000";

#[tokio::test]
async fn a_flood_that_is_read_keeps_the_disk_flat() {
    let world = World::new();
    world.create("w-1").await;
    let mut transport = world.start("w-1", FLOOD).await;
    let mut most = 0;
    let mut last = String::new();
    while last != "over" {
        if let TransportEvent::Lines(lines) = transport.next().await.unwrap() {
            last.clone_from(&lines.last().unwrap().text);
        }
        most = most.max(on_disk(&world, "w-1"));
    }
    // Four limits of lag, one limit kept, and what comes while one chunk is read.
    assert!(most < 8 * 1024 * 1024, "{most} bytes on disk");
    assert!(on_disk(&world, "w-1") < 2 * 1024 * 1024);
}

#[tokio::test]
async fn a_flood_that_nobody_reads_is_given_back_to_the_disk() {
    let world = World::new();
    world.create("w-1").await;
    let transport = world.start("w-1", &format!("{FLOOD} 2>ended")).await;
    // The session is over; its agent lives on.
    drop(transport);
    let directory = world.place("w-1").directory;
    let small = async {
        while !directory.join("ended").exists() || on_disk(&world, "w-1") > 2 * 1024 * 1024 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LIMIT, small).await.unwrap();
}

#[tokio::test]
async fn further_files_are_followed_also_those_that_come_later() {
    let world = World::new();
    world.create("w-1").await;
    let mut transport = world.open("w-1").await;
    let mut command = job(
        START_JOB,
        "mkdir -p a/b; echo one >>a/b/log; echo two >>err; mv a/b/log a/b/old; echo three >a/b/log; exec sleep 1000",
    );
    command.extra_stdout = vec!["a/b/log".to_owned()];
    command.extra_stderr = vec!["err".to_owned()];
    transport.start(&command, LIMIT).await.unwrap();
    let mut seen = lines_until(&mut transport, "three").await;
    while !seen.iter().any(|line| line.text == "two") {
        seen.extend(lines_until(&mut transport, "two").await);
    }
    let two = seen.iter().find(|line| line.text == "two").unwrap();
    assert_eq!(two.source, LineSource::Stderr);
}

#[tokio::test]
async fn waiting_for_output_loses_nothing_when_it_is_dropped() {
    let world = World::new();
    world.create("w-1").await;
    let mut transport = world.open("w-1").await;
    let gate = "mkfifo gate; printf par; cat gate; echo tial; exec sleep 1000";
    transport.start(&job(START_JOB, gate), LIMIT).await.unwrap();
    // Half a line is no event.
    let waited = tokio::time::timeout(Duration::from_millis(50), transport.next()).await;
    assert!(waited.is_err());
    let gate = world.place("w-1").directory.join("gate");
    tokio::task::spawn_blocking(move || fs::OpenOptions::new().write(true).open(gate).map(drop))
        .await
        .unwrap()
        .unwrap();
    lines_until(&mut transport, "partial").await;
}

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;

use nodewright_core::bootstrap::LineSource;

use super::*;

/// What a file takes on the disk, in bytes.
fn on_disk(world: &World, node: &str) -> u64 {
    let file = world.place(node).directory.join("jobs/start/stdout");
    fs::metadata(file).unwrap().blocks() * 512
}

const MIB: u64 = 1024 * 1024;
/// A line of sixteen bytes, its end included.
const LINE: &str = "0123456789abcde";

/// An agent that prints so many MiB of lines, and `end`, whenever it is told to.
struct Flooder {
    gate: fs::File,
}

impl Flooder {
    async fn start(world: &World, mib: u64) -> (Self, ProcessTransport) {
        world.create("w-1").await;
        let bytes = mib * MIB;
        let burst = format!("yes {LINE} | head -c {bytes}; echo end");
        let line = format!("mkfifo gate; echo ready; while read x; do {burst}; done <gate");
        let mut transport = world.start("w-1", &line).await;
        lines_until(&mut transport, "ready").await;
        let path = world.place("w-1").directory.join("gate");
        // Opened for both, it waits for nobody.
        let gate = fs::File::options().read(true).write(true).open(path).unwrap();
        (Self { gate }, transport)
    }

    fn flood(&mut self) {
        self.gate.write_all(b"now\n").unwrap();
    }
}

/// Waits until the agent's output is this long.
async fn printed(world: &World, bytes: u64) {
    let file = world.place("w-1").directory.join("jobs/start/stdout");
    let printed = async {
        while fs::metadata(&file).unwrap().len() < bytes {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, printed).await.unwrap();
}

#[tokio::test]
async fn a_flood_that_is_read_keeps_the_disk_flat_and_loses_no_line() {
    let world = World::new();
    let (mut flooder, mut transport) = Flooder::start(&world, 2).await;
    for _ in 0..32 {
        flooder.flood();
        let lines = lines_until(&mut transport, "end").await;
        assert_eq!(lines.len() as u64, 2 * MIB / 16 + 1);
        assert!(lines[..lines.len() - 1].iter().all(|line| line.text == LINE));
        assert!(on_disk(&world, "w-1") < MIB + MIB / 2);
    }
}

#[tokio::test]
async fn a_reader_that_is_far_behind_skips_and_says_so() {
    let world = World::new();
    let (mut flooder, mut transport) = Flooder::start(&world, 64).await;
    flooder.flood();
    // Nobody reads meanwhile, and nothing is given back that might still be read.
    printed(&world, 64 * MIB).await;
    assert!(on_disk(&world, "w-1") >= 64 * MIB);
    let lines = lines_until(&mut transport, "end").await;
    assert!(
        lines[0].text.contains("faster than they could be read"),
        "{}",
        lines[0].text
    );
    assert!(lines[1..lines.len() - 1].iter().all(|line| line.text == LINE));
    assert!(on_disk(&world, "w-1") < 2 * MIB);
}

#[tokio::test]
async fn a_flood_that_nobody_follows_is_given_back_to_the_disk() {
    let world = World::new();
    let (mut flooder, mut transport) = Flooder::start(&world, 64).await;
    // The session is over; its agent lives on.
    transport.close(LIMIT).await;
    flooder.flood();
    printed(&world, 64 * MIB).await;
    let small = async {
        while on_disk(&world, "w-1") > 2 * MIB {
            tokio::task::yield_now().await;
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
    let mut seen: Vec<Line> = Vec::new();
    while !["two", "three"]
        .iter()
        .all(|text| seen.iter().any(|line| line.text == *text))
    {
        match tokio::time::timeout(LIMIT, transport.next())
            .await
            .unwrap()
            .unwrap()
        {
            TransportEvent::Lines(lines) => seen.extend(lines),
            TransportEvent::Exited(status) => panic!("ended with {status} after {seen:?}"),
        }
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

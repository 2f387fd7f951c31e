//! What a workflow costs beside its tasks: building and ordering it, running it, and how close tasks that run
//! together come to the longest chain among them.
//!
//! `cargo bench --package nodewright-conformance --bench workflow`

use std::time::Duration;

use divan::Bencher;
use futures_util::FutureExt as _;
use nodewright::Clock;
use nodewright::effect::Cancel;
use nodewright::workflow::{Done, Verdict, Workflow};
use nodewright_conformance::Chooser;
use tokio::runtime::{Builder, Runtime};

fn main() {
    divan::main();
}

/// Names and edges, as a caller has them.
type Tasks = Vec<(String, Vec<String>)>;

/// Tasks that are after five others each, whose names say nothing of their order.
fn wide(count: usize) -> Tasks {
    let mut chooser = Chooser::new(7);
    let mut numbers: Vec<usize> = (0..count).collect();
    for place in (1..count).rev() {
        numbers.swap(place, chooser.below(place + 1));
    }
    let name = |place: usize| format!("task-{:06}", numbers[place]);
    let after = |place: usize, chooser: &mut Chooser| {
        let others = if place < 5 { 0 } else { 5 };
        (0..others).map(|_| name(chooser.below(place))).collect()
    };
    (0..count)
        .map(|place| (name(place), after(place, &mut chooser)))
        .collect()
}

/// Tasks of which each is after the next.
fn chain(count: usize) -> Tasks {
    let name = |place: usize| format!("task-{place:06}");
    let after = |place: usize| (place + 1 < count).then(|| name(place + 1));
    (0..count)
        .map(|place| (name(place), after(place).into_iter().collect()))
        .collect()
}

fn build(tasks: &Tasks) -> Workflow<()> {
    let mut builder = Workflow::builder(());
    for (name, after) in tasks {
        builder.task(name, |_| async { Ok(Done::Unchanged) }).after(after);
    }
    builder.build().expect("there is no cycle")
}

#[divan::bench]
fn build_and_order_100_000_tasks_of_five_edges(bencher: Bencher) {
    let tasks = wide(100_000);
    bencher.bench(|| build(&tasks));
}

#[divan::bench]
fn build_and_order_a_chain_of_10_000_tasks(bencher: Bencher) {
    let tasks = chain(10_000);
    bencher.bench(|| build(&tasks));
}

fn runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().expect("a runtime")
}

#[divan::bench]
fn run_100_000_tasks_that_have_nothing_to_do(bencher: Bencher) {
    let (runtime, clock) = (runtime(), Clock::system());
    let mut workflow = build(&wide(100_000));
    bencher.bench_local(|| {
        let report = runtime.block_on(workflow.run(&clock, &Cancel::new()));
        assert_eq!(report.verdict(), Verdict::Done);
    });
}

/// What a step of a backend pays for being a workflow.
#[divan::bench]
fn build_and_run_five_tasks_that_have_nothing_to_do(bencher: Bencher) {
    let (runtime, clock, tasks) = (runtime(), Clock::system(), chain(5));
    let _entered = runtime.enter();
    bencher.bench_local(|| {
        let mut workflow = build(&tasks);
        let run = workflow.run(&clock, &Cancel::new()).now_or_never();
        assert_eq!(run.expect("nothing waits").verdict(), Verdict::Done);
    });
}

const SLEEP: Duration = Duration::from_millis(10);

/// The longest chain of the layers below, without a workflow.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn ten_sleeps_of_10_ms_in_a_row(bencher: Bencher) {
    let runtime = runtime();
    bencher.bench_local(|| {
        runtime.block_on(async {
            for _ in 0..10 {
                tokio::time::sleep(SLEEP).await;
            }
        });
    });
}

/// A thousand tasks of 10 ms in ten layers, each after five of the layer below.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn a_thousand_sleeps_of_10_ms_in_ten_layers(bencher: Bencher) {
    let (runtime, clock) = (runtime(), Clock::system());
    let mut tasks = Workflow::builder(());
    for layer in 0..10 {
        for place in 0..100 {
            let below = (0..5).map(|step| format!("{}-{:02}", layer - 1, (place * 7 + step) % 100));
            tasks
                .task(format!("{layer}-{place:02}"), |_| async {
                    tokio::time::sleep(SLEEP).await;
                    Ok(Done::Unchanged)
                })
                .after(below.take(if layer == 0 { 0 } else { 5 }));
        }
    }
    let mut workflow = tasks.build().expect("there is no cycle").unlimited();
    bencher.bench_local(|| {
        let report = runtime.block_on(workflow.run(&clock, &Cancel::new()));
        assert_eq!(report.verdict(), Verdict::Done);
    });
}

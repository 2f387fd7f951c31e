//! Small clusters, exhaustively.

use nodewright_conformance::exhaustive::{Budget, Setup, explore};
use nodewright_conformance::{group, template};

fn all(n: u8) -> Budget {
    Budget::of(n).calls(n).throttles(n).fatals(n).streams(n).reports(n).losses(n).executors(n).processes(n).journals(n).looks(n).shapes(n).hands(n)
}

#[test]
fn one_slot() {
    let n = std::env::var("N").map_or(1, |n| n.parse().unwrap());
    let mut setup = Setup::new("one slot", all(n));
    setup.shapes = vec![
        vec![group("w", 1, template("alpha", "one"))],
        vec![group("w", 1, template("alpha", "two"))],
        vec![group("w", 0, template("alpha", "one"))],
        vec![],
    ];
    if std::env::var("TWO").is_ok() {
    setup.shapes = vec![
        vec![group("w", 2, template("alpha", "one"))],
        vec![group("w", 2, template("alpha", "two"))],
        vec![group("w", 1, template("alpha", "one"))],
        vec![],
    ];
    }
    if std::env::var("GROUPS").is_ok() {
    setup.shapes = vec![
        vec![group("a", 1, template("alpha", "one")), group("b", 1, template("alpha", "one"))],
        vec![group("a", 1, template("alpha", "two")), group("b", 1, template("alpha", "one"))],
        vec![group("b", 1, template("alpha", "one"))],
        vec![],
    ];
    }
    if std::env::var("PACE").is_ok() {
        setup.pace.max_in_flight = std::num::NonZeroU32::MIN;
    }
    setup.passes_apart = std::env::var("APART").is_ok();
    setup.stages = std::env::var("STAGES").is_ok();
    setup.abortable = std::env::var("BLOCKING").is_err();
    setup.endpoint_at_once = std::env::var("LOOKUP").is_err();
    let begun = std::time::Instant::now();
    let visited = explore(setup).unwrap_or_else(|broken| panic!("{broken}"));
    eprintln!("{visited:?} {:?}", begun.elapsed());
}

//! Small clusters, exhaustively.

use nodewright_conformance::exhaustive::{Budget, Setup, explore};

#[test]
fn one_slot() {
    let budget = Budget::of(1).calls(1).streams(1).reports(1);
    let visited = explore(Setup::new("one slot", budget)).unwrap_or_else(|broken| panic!("{broken}"));
    eprintln!("{visited:?}");
}

//! The mutants that are kept fit the sources as they are. That the kit catches them is what
//! `cargo run -p nodewright-conformance --bin mutants` shows.

use std::collections::BTreeSet;

use nodewright_conformance::mutants::{Mutant, workspace};

#[test]
fn every_mutant_still_applies_and_changes_its_file() {
    for mutant in Mutant::all().unwrap() {
        let (source, changed) = mutant.change().unwrap();
        assert_ne!(source, changed, "{} changes nothing", mutant.name);
    }
}

#[test]
fn every_mutant_is_named_by_a_guarantee_of_the_page() {
    let page = std::fs::read_to_string(workspace().join("tests/GUARANTEES.md")).unwrap();
    for mutant in Mutant::all().unwrap() {
        let guarantee = mutant.guarantee();
        let prefix = format!("{}-", guarantee.to_lowercase());
        assert!(
            mutant.name.starts_with(&prefix),
            "{}: {}",
            mutant.name,
            mutant.breaks
        );
        assert!(page.contains(&format!("\n## {guarantee} ")), "{}", mutant.name);
    }
}

/// A guarantee without a mutant that it catches is not checked.
#[test]
fn every_guarantee_that_core_can_break_alone_has_a_mutant() {
    let mutants = Mutant::all().unwrap();
    let broken: BTreeSet<&str> = mutants.iter().map(Mutant::guarantee).collect();
    let missing: Vec<String> = (1..=33)
        .map(|number| format!("G{number}"))
        .filter(|guarantee| !broken.contains(guarantee.as_str()))
        .collect();
    assert!(missing.is_empty(), "without a mutant: {missing:?}");
    assert!(mutants.len() >= 30, "{} mutants", mutants.len());
}

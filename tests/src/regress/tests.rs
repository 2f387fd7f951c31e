use std::cell::RefCell;
use std::fs;

use super::{Regressions, Traces, play_from, runner, shorten, trace};
use crate::oracle::Broken;
use crate::trace::{Input, Theme, Trace};

fn traces(inputs: usize, least: u64) -> Traces<'static> {
    Traces {
        name: "a-test",
        theme: Theme::ROUGH,
        inputs,
        least,
    }
}

/// Breaks where a pass is asked for at some time after a wait.
fn breaks_on_a_pair(trace: &Trace) -> Result<(), Broken> {
    let mut inputs = trace.inputs.iter();
    let waits = inputs.any(|input| *input == Input::Wait);
    if waits && inputs.any(|input| *input == Input::Trigger) {
        return Err(Broken(format!("G0: a pair in\n{trace}")));
    }
    Ok(())
}

#[test]
fn a_trace_that_breaks_is_shown_as_nothing_but_what_breaks_it() {
    // Given: seeds of which some have the pair, far apart.
    let folder = tempfile::tempdir().unwrap();
    let file = Regressions::below(folder.path(), "a-test");
    // When
    let Broken(what) = play_from(&file, traces(100, 20), breaks_on_a_pair).unwrap_err();
    // Then: nothing is left beside it.
    let inputs = what.split_once("inputs: vec![").unwrap().1;
    let inputs = inputs.split_once(']').unwrap().0;
    assert_eq!(
        inputs.split_whitespace().collect::<Vec<_>>(),
        ["Input::Wait,", "Input::Trigger,"],
        "{what}"
    );
}

#[test]
fn a_shorter_trace_that_holds_is_not_taken() {
    let long = trace(Theme::ROUGH, 50, 3);
    let least = RefCell::new(long.inputs.len());
    let _ = shorten(long, |trace: &Trace| {
        if trace.inputs.len() >= 7 {
            *least.borrow_mut() = trace.inputs.len();
            return Err(Broken("G0: too long".to_owned()));
        }
        Ok(())
    });
    assert_eq!(least.into_inner(), 7);
}

#[test]
fn a_seed_that_broke_is_kept_once_and_played_first_from_then_on() {
    // Given: a file with a seed that is beyond those that are asked for, with a word on it.
    let folder = tempfile::tempdir().unwrap();
    let file = Regressions::below(folder.path(), "a-test");
    fs::write(folder.path().join("a-test.txt"), "77 # a late create\n").unwrap();
    let played = RefCell::new(Vec::new());
    let seen = |played: &Trace, seed| *played == trace(Theme::ROUGH, 10, seed);
    // When: seed 2 breaks, twice.
    for _ in 0..2 {
        let broken = play_from(&file, traces(10, 4), |trace| {
            played.borrow_mut().push(trace.clone());
            match seen(trace, 2) {
                true => Err(Broken("G0: seed 2".to_owned())),
                false => Ok(()),
            }
        });
        let Broken(what) = broken.unwrap_err();
        assert!(what.starts_with("seed 2 of a-test"), "{what}");
    }
    // Then: the known seed came first, and each time.
    let played = played.into_inner();
    let first: Vec<bool> = [(0, 77), (1, 0), (2, 1), (3, 2)]
        .map(|(at, seed)| seen(&played[at], seed))
        .into();
    assert_eq!(first, [true; 4]);
    assert_eq!(file.seeds(), [77, 2]);
    // And now it is known, it comes before those that never broke.
    let played = RefCell::new(Vec::new());
    let _ = play_from(&file, traces(10, 4), |trace| {
        played.borrow_mut().push(trace.clone());
        Ok::<_, Broken>(())
    });
    let played = played.into_inner();
    assert!(seen(&played[0], 77) && seen(&played[1], 2) && seen(&played[2], 0));
}

#[test]
fn a_seed_names_one_trace() {
    assert_eq!(trace(Theme::ROUGH, 40, 5), trace(Theme::ROUGH, 40, 5));
    assert_ne!(trace(Theme::ROUGH, 40, 5), trace(Theme::ROUGH, 40, 6));
    // Whatever runs it is seeded, and writes no file of its own.
    assert!(runner(5).config().failure_persistence.is_some());
}

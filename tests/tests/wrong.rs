//! The kit fails whoever breaks a promise.
//!
//! Each line names a mutant and all that has to notice it: clauses of the contract by their names, guarantees by
//! their numbers. A guarantee notices it if one of many broken traces names it: which comes first in a trace follows
//! from how traces are made up. With `--nocapture` all that notices it is printed, with how often.

use std::collections::{BTreeMap, BTreeSet};

use nodewright_conformance::trace::Theme;
use nodewright_conformance::wrong::{Erased, Flaw, Slip, Wrong, flaws};
use nodewright_conformance::{Broken, Memory, Plugin, Sim, Subject, check_contract, trace};

/// How many traces a mutant is put through at most, until all that has to notice it did.
const SEEDS: u64 = 600;

/// The inputs of each.
const INPUTS: usize = 100;

/// What noticed a mutant, and how often: names of clauses, and the guarantees that broken traces name.
type Noticed = BTreeMap<String, u32>;

/// The name that comes before what was seen.
fn name(Broken(what): &Broken) -> String {
    what.split(':').next().unwrap_or_default().to_owned()
}

/// Plays traces until each of these guarantees was named, and adds all that were. Where none is to be named, all
/// traces are played. All providers are played by one simulation, or it would be compiled for each of them.
fn play<S: Subject>(slip: Option<Slip>, expected: &[&str], noticed: &mut Noticed) {
    let guarantees: BTreeSet<&str> = expected
        .iter()
        .copied()
        .filter(|name| is_guarantee(name))
        .collect();
    if guarantees.is_empty() && !expected.is_empty() {
        return;
    }
    Erased::standing_for::<S, _>(|| {
        for seed in 0..SEEDS {
            if let Err(broken) = Sim::<Erased>::play_wrongly(&trace(Theme::ROUGH, INPUTS, seed), slip) {
                *noticed.entry(name(&broken)).or_default() += 1;
            }
            let all = guarantees.iter().all(|name| noticed.contains_key(*name));
            if all && !guarantees.is_empty() {
                break;
            }
        }
    });
}

/// Whether a name is a guarantee's number, and not a clause's.
fn is_guarantee(name: &str) -> bool {
    name.starts_with('G')
}

/// All that notices a wrong backend.
fn noticed_of<S: Subject, F: Flaw>(expected: &[&str]) -> Noticed {
    let clauses = Erased::standing_for::<Wrong<S, F>, _>(check_contract::<Erased>);
    let clauses = clauses.err().unwrap_or_default();
    let mut noticed: Noticed = clauses.iter().map(|broken| (name(broken), 1)).collect();
    play::<Wrong<S, F>>(None, expected, &mut noticed);
    noticed
}

#[expect(clippy::print_stdout, reason = "the table is for whoever asks for it")]
fn demand(mutant: &str, noticed: &Noticed, expected: &[&str]) {
    println!("{mutant}: {noticed:?}");
    let missing: Vec<&str> = expected
        .iter()
        .copied()
        .filter(|name| !noticed.contains_key(*name))
        .collect();
    assert!(
        missing.is_empty(),
        "{mutant} should have been noticed by {missing:?}, and was by {noticed:?}"
    );
}

macro_rules! wrong_backends {
    ($($test:ident: $flaw:ident is noticed by $($expected:literal),+;)*) => {$(
        #[test]
        fn $test() {
            let expected = [$($expected),+];
            let noticed = noticed_of::<Memory, flaws::$flaw>(&expected);
            demand(stringify!($flaw), &noticed, &expected);
        }
    )*};
}

macro_rules! wrong_executors {
    ($($test:ident: $slip:ident is noticed by $($expected:literal),+;)*) => {$(
        #[test]
        fn $test() {
            let expected = [$($expected),+];
            let mut noticed = Noticed::new();
            play::<Memory>(Some(Slip::$slip), &expected, &mut noticed);
            demand(stringify!($slip), &noticed, &expected);
        }
    )*};
}

wrong_backends! {
    a_backend_that_never_adopts: NeverAdopts is noticed by "a create adopts", "G10";
    a_backend_that_adopts_another_attempts_machine: AdoptsAnotherAttempts is noticed by "each attempt has its own";
    a_backend_that_adopts_another_runs_machine: AdoptsAnotherRuns is noticed by "each run has its own";
    a_backend_that_says_nothing_happened_where_something_did: SaysDefinite is noticed by "G9", "G10";
    a_backend_that_stamps_nothing: StampsNothing is noticed by "a create stamps what it makes";
    a_backend_that_stamps_what_it_adopts_anew: StampsAnything is noticed by "a create adopts";
    a_backend_whose_creates_go_on_when_they_are_dropped: WorksOn is noticed by "an abandoned create is found";
    a_backend_that_changes_what_it_states: ChangesWhatItStates is noticed by "capabilities are plain data";
    a_backend_that_forgets_on_restart: ForgetsOnRestart is noticed by "another process finds it all", "G10", "G23";
    a_backend_that_sees_later_than_it_states: SeesLate is noticed by "what was made is found", "G10";
    a_backend_whose_look_ups_create: FindsByMaking is noticed by "a look-up never creates";
    a_backend_without_the_inventory_that_it_states: ListsNothing is noticed by "capabilities are plain data";
    a_backend_that_lists_one_page: ListsHalf is noticed by "a list is complete", "G4", "G10", "G28";
    a_backend_that_lists_other_runs_machines: ListsStrangers is noticed by "a list shows the run and no other";
    a_backend_that_lists_the_dead_as_living: RaisesTheDead is noticed by "a death is told and listed";
    a_backend_that_takes_the_dead_for_gone: HidesTheDead is noticed by "a death is told and listed", "G4", "G23";
    a_backend_without_the_watch_that_it_states: NeverTellsOfDeaths is noticed by "a death is told and listed";
    a_backend_that_destroys_another_lease: DestroysAnything is noticed by "a destroy takes that lease only";
    a_backend_that_destroys_another_nodes_machine: DestroysTheFirst is noticed by "a destroy takes that lease only", "G10", "G23", "G28";
    a_backend_that_tells_a_failed_destroy_as_success: SaysGone is noticed by "a destroy takes that lease only", "G10", "G23";
    a_backend_that_says_gone_while_it_lives: GoingIsGone is noticed by "a destroy takes that lease only", "G10", "G23";
    a_backend_to_which_gone_is_an_error: GoneIsAnError is noticed by "already gone is success", "G22";
    a_backend_whose_calls_never_end: HangsForEver is noticed by "a destroy takes that lease only", "G22";
    a_backend_that_starts_a_second_session: StartsAnother is noticed by "sessions are adopted and end";
    a_backend_whose_cancels_end_nothing: CancelsNothing is noticed by "sessions are adopted and end";
}

wrong_executors! {
    an_executor_that_calls_twice: CallsTwice is noticed by "G9";
    an_executor_that_tells_of_another_operation: TellsOfAnother is noticed by "G5";
    an_executor_that_exchanges_outcomes: SwapsOutcomes is noticed by "G7";
    an_executor_that_keeps_results: KeepsResults is noticed by "G22";
    an_executor_that_keeps_the_end_of_calls: KeepsEnds is noticed by "G22";
    an_executor_that_ends_calls_on_paper: EndsOnPaper is noticed by "G9", "G8";
    an_executor_that_runs_calls_of_one_attempt_in_parallel: RunsInParallel is noticed by "G9";
    an_executor_that_says_nothing_happened_when_it_gave_up: SaysExpiredIsDefinite is noticed by "G24", "G10";
    an_executor_that_says_nothing_happened_when_it_does_not_know: SaysLostIsDefinite is noticed by "G10";
    an_executor_that_says_done_when_it_does_not_know: SaysLostIsDone is noticed by "G10";
    an_executor_that_tells_a_late_answer_too: TellsBoth is noticed by "G24";
    an_executor_that_forgets_its_ledger: ForgetsItsLedger is noticed by "G9", "G22";
    an_executor_that_loses_its_ledger_in_a_crash: ForgetsItsLedgerInACrash is noticed by "G9", "G8";
    a_process_whose_calls_live_on: LivesOn is noticed by "G8", "G9";
    an_executor_that_backdates_the_end_of_calls: BackdatesEnds is noticed by "G10";
    a_first_look_that_shows_an_old_list: ShowsOldLists is noticed by "G4", "G10";
    a_first_look_that_takes_a_failure_for_nothing: ShowsEmptyLists is noticed by "G10";
    an_executor_that_runs_no_sessions: RunsNoSessions is noticed by "G22";
}

/// The wrapper itself is not what the kit notices.
#[test]
fn a_backend_without_a_flaw_is_not_noticed() {
    assert_eq!(noticed_of::<Memory, flaws::NoFlaw>(&[]), Noticed::new());
    assert_eq!(noticed_of::<Plugin, flaws::NoFlaw>(&[]), Noticed::new());
}

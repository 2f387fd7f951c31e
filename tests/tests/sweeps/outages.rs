//! The brake: many missing at once are believed only after a while.

use nodewright_conformance::policy;

use super::{INTERVAL, after, all_but, answer, lost, ready};

/// The brake: one answer, or five minutes of them, that list nothing burn nobody down.
#[test]
fn an_api_that_answers_empty_for_a_while_loses_nobody() {
    let mut run = ready(10);
    let (findings, sent) = answer(&mut run, vec![]);
    assert_eq!((findings.missing, findings.held), (10, true));
    assert!(sent.is_empty());
    assert!(run.driver.summary().providers[0].mass_loss_since.is_some());
    for _ in 0..2 {
        answer(&mut run, vec![]);
    }
    let entries = all_but(&run, &[]);
    let (findings, _) = answer(&mut run, entries);
    assert!(findings.is_as_known());
    assert!(lost(&run).is_empty() && run.driver.is_converged());
    assert_eq!(run.driver.summary().providers[0].mass_loss_since, None);
}

/// The brake: what is missing in every answer for longer than the hold is believed.
#[test]
fn a_mass_loss_is_believed_once_the_same_leases_were_missing_for_long_enough() {
    let mut run = ready(10);
    let hold = policy().mass_loss_hold.as_secs();
    let begun = after(run.now, INTERVAL);
    while run.now < after(begun, hold) {
        assert!(lost(&run).is_empty(), "{} after {begun}", run.now);
        answer(&mut run, vec![]);
    }
    assert_eq!(lost(&run).len(), 10);
}

/// The brake: all must miss the same.
#[test]
fn answers_that_each_miss_others_lose_nobody() {
    let mut run = ready(10);
    for round in 0..10 {
        let missing: Vec<u32> = (0..10).filter(|slot| (slot + round) % 3 != 0).collect();
        let entries = all_but(&run, &missing);
        let (findings, _) = answer(&mut run, entries);
        assert!(findings.held);
    }
    assert!(lost(&run).is_empty());
}

/// The brake holds from three on, and only above the share.
#[test]
fn two_of_two_and_half_of_ten_are_lost_and_six_of_ten_are_held() {
    let mut run = ready(2);
    answer(&mut run, vec![]);
    answer(&mut run, vec![]);
    assert_eq!(lost(&run).len(), 2);
    for (missing, expected) in [(5, 5), (6, 0)] {
        let mut run = ready(10);
        for _ in 0..2 {
            let missing: Vec<u32> = (0..missing).collect();
            let entries = all_but(&run, &missing);
            answer(&mut run, entries);
        }
        assert_eq!(lost(&run).len(), expected, "{missing} of ten");
    }
}

/// The brake: what was missed in an outage is missed anew once that is over.
#[test]
fn an_outage_that_ends_little_by_little_loses_nobody() {
    let mut run = ready(10);
    answer(&mut run, vec![]);
    answer(&mut run, vec![]);
    let entries = all_but(&run, &[0, 1, 2]);
    let (findings, _) = answer(&mut run, entries);
    assert_eq!((findings.missing, findings.held), (3, false));
    assert!(lost(&run).is_empty());
    let entries = all_but(&run, &[2]);
    answer(&mut run, entries);
    assert_eq!(lost(&run), ["w-2"]);
}

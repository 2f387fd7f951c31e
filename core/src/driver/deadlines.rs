//! Moments that somebody waits for, earliest first.
//!
//! A heap with lazy cancellation: the truth about a moment is kept where it belongs (a node's pending
//! operation, a slot's wait), and an entry that no longer agrees with it is dropped when it comes up.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use jiff::Timestamp;

#[derive(Debug, Clone)]
pub(super) struct Deadlines<K> {
    heap: BinaryHeap<Reverse<(Timestamp, K)>>,
}

impl<K: Ord> Default for Deadlines<K> {
    fn default() -> Self {
        Self {
            heap: BinaryHeap::new(),
        }
    }
}

impl<K: Ord + Clone> Deadlines<K> {
    pub(super) fn push(&mut self, at: Timestamp, key: K) {
        self.heap.push(Reverse((at, key)));
    }

    /// The earliest entry, whether anything still agrees with it or not.
    pub(super) fn peek(&self) -> Option<(Timestamp, K)> {
        let Reverse((at, key)) = self.heap.peek()?;
        Some((*at, key.clone()))
    }

    /// Puts the earliest entry off.
    pub(super) fn put_off(&mut self, later: Timestamp) {
        if let Some(mut entry) = self.heap.peek_mut() {
            entry.0.0 = later;
        }
    }

    /// Takes the earliest entry.
    pub(super) fn pop(&mut self) {
        self.heap.pop();
    }

    /// The earliest entry that `truth` still agrees with.
    pub(super) fn next(&mut self, truth: impl Fn(&K) -> Option<Timestamp>) -> Option<Timestamp> {
        while let Some(Reverse((at, key))) = self.heap.peek() {
            if truth(key) == Some(*at) {
                return Some(*at);
            }
            self.heap.pop();
        }
        None
    }

    /// Takes an entry that is due and that `truth` still agrees with.
    pub(super) fn pop_due(&mut self, now: Timestamp, truth: impl Fn(&K) -> Option<Timestamp>) -> Option<K> {
        while self.heap.peek().is_some_and(|Reverse((at, _))| *at <= now) {
            let Reverse((at, key)) = self.heap.pop()?;
            if truth(&key) == Some(at) {
                return Some(key);
            }
        }
        None
    }

    /// Drops entries that `truth` no longer agrees with once they outnumber the `live` ones, so that the
    /// heap stays as large as what waits, whatever the history.
    pub(super) fn compact(&mut self, live: usize, truth: impl Fn(&K) -> Option<Timestamp>) {
        if self.heap.len() > 2 * live + 64 {
            let mut entries = std::mem::take(&mut self.heap).into_vec();
            entries.retain(|Reverse((at, key))| truth(key) == Some(*at));
            // The same moment may have been pushed twice for one key.
            entries.sort_unstable();
            entries.dedup();
            self.heap = entries.into();
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn moment(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn only_what_the_truth_agrees_with_comes_up_and_the_rest_does_not_pile_up() {
        let mut truth = BTreeMap::new();
        let mut deadlines = Deadlines::default();
        for round in 0..1000 {
            truth.insert(7, moment(round));
            deadlines.push(moment(round), 7);
            deadlines.compact(truth.len(), |key| truth.get(key).copied());
            assert!(deadlines.len() <= 67, "{}", deadlines.len());
        }
        assert_eq!(deadlines.next(|key| truth.get(key).copied()), Some(moment(999)));
        assert_eq!(
            deadlines.pop_due(moment(998), |key| truth.get(key).copied()),
            None
        );
        assert_eq!(
            deadlines.pop_due(moment(999), |key| truth.get(key).copied()),
            Some(7)
        );
        assert_eq!(
            deadlines.pop_due(moment(999), |key| truth.get(key).copied()),
            None
        );
    }
}

//! Guesses what somebody meant to write.

/// The candidate that this text is most likely a slip of, if one is close: at most two letters off, and
/// fewer than half of the text's. Of equally close ones it is the first.
pub(super) fn nearest<'a>(text: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let text: Vec<char> = text.chars().take(SENSIBLE).collect();
    let limit = 2.min(text.len().saturating_sub(1) / 2);
    candidates
        .into_iter()
        .map(|candidate| (distance(&text, candidate), candidate))
        .filter(|(distance, _)| (1..=limit).contains(distance))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Nothing that can be meant is longer; a longer text is not worth comparing.
const SENSIBLE: usize = 64;

/// How many letters were inserted, dropped, changed, or swapped with their neighbour.
fn distance(one: &[char], other: &str) -> usize {
    let other: Vec<char> = other.chars().take(SENSIBLE).collect();
    if one.len().abs_diff(other.len()) > 2 {
        return usize::MAX;
    }
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for row in 0..one.len() {
        let mut now = vec![row + 1];
        for column in 0..other.len() {
            let changed = last[column] + usize::from(one[row] != other[column]);
            let mut least = changed.min(last[column + 1] + 1).min(now[column] + 1);
            let swapped =
                row > 0 && column > 0 && one[row] == other[column - 1] && one[row - 1] == other[column];
            if swapped {
                least = least.min(before[column - 1] + 1);
            }
            now.push(least);
        }
        before = std::mem::replace(&mut last, now);
    }
    last[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_what_was_meant_and_something_else_finds_nothing() {
        let known = ["count", "depends_on", "role", "provider", "env"];
        for (text, meant) in [
            ("cuont", Some("count")),
            ("counts", Some("count")),
            ("dependson", Some("depends_on")),
            ("rol", Some("role")),
            ("vne", None),
            ("machines", None),
            ("", None),
        ] {
            assert_eq!(nearest(text, known), meant, "{text}");
        }
    }
}

//! Many names in one string, and an interner over them: a name is looked up once, and an integer from then on.

use std::hash::BuildHasher as _;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

/// Many names in a row, which lie one behind the other in one string.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Names {
    text: String,
    /// Where each name begins in the text, and where the last one ends.
    bounds: Vec<u32>,
}

impl Names {
    fn with_capacity(names: usize, bytes: usize) -> Self {
        let mut bounds = Vec::with_capacity(names + 1);
        bounds.push(0);
        Self {
            text: String::with_capacity(bytes),
            bounds,
        }
    }

    fn push(&mut self, name: &str) {
        self.text.push_str(name);
        let end = u32::try_from(self.text.len()).expect("names take less than 4 GiB in all");
        self.bounds.push(end);
    }

    /// How many names there are.
    pub fn len(&self) -> usize {
        self.bounds.len() - 1
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The name at this place. Panics where there is none.
    pub fn get(&self, place: usize) -> &str {
        &self.text[self.bounds[place] as usize..self.bounds[place + 1] as usize]
    }

    /// The bytes of the name: to compare them, no look at where characters begin is needed.
    fn bytes(&self, place: usize) -> &[u8] {
        &self.text.as_bytes()[self.bounds[place] as usize..self.bounds[place + 1] as usize]
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        (0..self.len()).map(|place| self.get(place))
    }

    /// The names at these places, in this order.
    pub(super) fn picked(&self, places: &[u32]) -> Self {
        let mut picked = Self::with_capacity(places.len(), self.text.len());
        for &place in places {
            picked.push(self.get(place as usize));
        }
        picked
    }

    /// The place of this name among names that ascend.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.bytes(middle) < name.as_bytes() {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        (low < self.len() && self.get(low) == name).then_some(low)
    }

    /// The numbers of these places in the order of the names there, equal ones as they were given.
    ///
    /// The bytes behind what all names begin with are compared as one number first: that settles nearly all
    /// comparisons without a look at the text.
    pub(super) fn ascending(&self, places: &[u32]) -> Vec<u32> {
        let shared = self.shared_prefix();
        let key = |place: u32| {
            let mut first = [0; 8];
            let rest = &self.bytes(place as usize)[shared..];
            let length = rest.len().min(first.len());
            first[..length].copy_from_slice(&rest[..length]);
            u64::from_be_bytes(first)
        };
        let mut keyed: Vec<(u64, u32)> = (0..)
            .zip(places)
            .map(|(number, &place)| (key(place), number))
            .collect();
        keyed.sort_unstable_by(|one, other| {
            let bytes = |number: u32| self.bytes(places[number as usize] as usize);
            let text = || bytes(one.1).cmp(bytes(other.1));
            one.0.cmp(&other.0).then_with(text).then(one.1.cmp(&other.1))
        });
        keyed.into_iter().map(|(_, number)| number).collect()
    }

    /// With how many equal bytes all names begin.
    fn shared_prefix(&self) -> usize {
        let first = if self.is_empty() { &[] } else { self.bytes(0) };
        (0..self.len()).fold(first.len(), |shared, place| {
            let equal = first[..shared].iter().zip(self.bytes(place));
            equal.take_while(|(one, other)| one == other).count()
        })
    }
}

impl Default for Names {
    fn default() -> Self {
        Self::with_capacity(0, 0)
    }
}

/// Gives each name a place, the same one whenever it comes again. The hasher is fixed and nothing is iterated,
/// so that nothing differs from run to run.
#[derive(Debug, Clone, Default)]
pub(super) struct Interner {
    names: Names,
    /// Places, by the hash of their names.
    places: HashTable<u32>,
    hasher: FixedState,
}

impl Interner {
    /// The place of this name.
    pub(super) fn place(&mut self, name: &str) -> u32 {
        let Self {
            names,
            places,
            hasher,
        } = self;
        let hash = hasher.hash_one(name);
        if let Some(&place) = places.find(hash, |&place| names.bytes(place as usize) == name.as_bytes()) {
            return place;
        }
        let place = u32::try_from(names.len()).expect("each name has a byte, but for one");
        names.push(name);
        places.insert_unique(hash, place, |&place| hasher.hash_one(names.get(place as usize)));
        place
    }

    /// All names, by their places.
    pub(super) fn into_names(self) -> Names {
        self.names
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn places_ascend_by_their_names_whatever_these_have_in_common(
            prefix in "[a-c\u{e9}]{0,10}",
            rest in proptest::collection::vec("[\0a-c\u{e9}]{0,12}", 0..20),
        ) {
            let mut interner = Interner::default();
            let given: Vec<String> = rest.iter().map(|rest| format!("{prefix}{rest}")).collect();
            let places: Vec<u32> = given.iter().map(|name| interner.place(name)).collect();
            let names = interner.into_names();
            prop_assert!(given.iter().zip(&places).all(|(name, &place)| names.get(place as usize) == name));

            let mut expected: Vec<u32> = (0..).zip(&given).map(|(number, _)| number).collect();
            expected.sort_by_key(|&number| &given[number as usize]);
            prop_assert_eq!(names.ascending(&places), expected);

            let mut sorted: Vec<u32> = places;
            sorted.sort_by_key(|&place| names.get(place as usize));
            sorted.dedup();
            let sorted = names.picked(&sorted);
            for name in &given {
                let place = sorted.find(name);
                prop_assert_eq!(place.map(|place| sorted.get(place)), Some(name.as_str()));
            }
            prop_assert_eq!(sorted.find("none of these"), None);
        }
    }
}

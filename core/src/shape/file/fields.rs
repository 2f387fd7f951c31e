//! Reads single fields out of the raw tree, noting what is wrong with them and where everything stands.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::id::{GroupId, NameError};
use crate::shape::check::{Found, Spot, out_of_range, ranges};
use crate::shape::nearest::nearest;
use crate::shape::path::Path;
use crate::shape::raw::{Raw, RawEntry, RawValue};

/// The fields of one table, each at its first mention.
pub(super) struct Fields<'t> {
    path: Path,
    entries: BTreeMap<&'t str, &'t RawEntry>,
}

impl Fields<'_> {
    /// Whether the field is there, usable or not.
    pub(super) fn has(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }
}

/// Where a part of the file begins.
#[derive(Debug, Clone, Copy)]
struct Place {
    key: usize,
    value: usize,
}

/// Collects what the walk finds.
#[derive(Debug, Default)]
pub(super) struct Notes {
    found: Vec<Found>,
    places: BTreeMap<Path, Place>,
    /// Where a list of groups mentions a group: the path of the item and its place.
    mentions: BTreeMap<(Path, GroupId), (Path, usize)>,
}

impl Notes {
    pub(super) fn found_mut(&mut self) -> &mut Vec<Found> {
        &mut self.found
    }

    pub(super) fn take(&mut self) -> Vec<Found> {
        std::mem::take(&mut self.found)
    }

    /// The path to show for a problem and the byte at which it stands: that of the nearest part which is there.
    pub(super) fn locate(&self, found: &Found) -> (Path, usize) {
        if let Spot::Mention(group) = &found.spot
            && let Some((path, at)) = self.mentions.get(&(found.path.clone(), group.clone()))
        {
            return (path.clone(), *at);
        }
        if let Spot::Byte(at) = found.spot {
            return (found.path.clone(), at);
        }
        let mut path = Some(found.path.clone());
        while let Some(part) = path {
            if let Some(place) = self.places.get(&part) {
                let at = match found.spot {
                    Spot::Key => place.key,
                    _ => place.value,
                };
                return (found.path.clone(), at);
            }
            path = part.parent();
        }
        (found.path.clone(), 0)
    }

    /// Whether this misses a group that is in the file, if only as something that is none.
    pub(super) fn has_missing(&self, found: &Found) -> bool {
        let Spot::Mention(group) = &found.spot else {
            return false;
        };
        let declared = Path::default().key("groups").key(group.as_str());
        found.absence && self.places.contains_key(&declared)
    }

    pub(super) fn note(&mut self, path: &Path, spot: Spot, message: impl Into<String>) {
        self.found.push(Found::new(path.clone(), spot, message));
    }

    pub(super) fn absent(&mut self, path: &Path, message: impl Into<String>) {
        self.found.push(Found {
            absence: true,
            ..Found::value(path.clone(), message)
        });
    }

    fn wrong_type(&mut self, path: &Path, raw: &Raw, right: &str) {
        let message = format!("is {}; must be {right}", raw.value.describe());
        self.note(path, Spot::Value, message);
    }

    /// Notes where the entries of a table stand; a key that is repeated is refused and its first value taken.
    pub(super) fn entries<'t>(&mut self, path: &Path, entries: &'t [RawEntry]) -> Vec<(Path, &'t RawEntry)> {
        let mut first = Vec::with_capacity(entries.len());
        for entry in entries {
            let inner = path.key(&entry.key);
            let place = Place {
                key: entry.at,
                value: entry.raw.at,
            };
            if self.places.contains_key(&inner) {
                let message = "is given a second time; once is enough";
                self.note(&inner, Spot::Byte(entry.at), message);
            } else {
                self.places.insert(inner.clone(), place);
                first.push((inner, entry));
            }
        }
        first
    }

    /// The fields of a table with these fields, named for messages.
    pub(super) fn fields<'t>(
        &mut self,
        path: &Path,
        entries: &'t [RawEntry],
        name: &str,
        known: &[&str],
    ) -> Fields<'t> {
        let mut fields = BTreeMap::new();
        for (inner, entry) in self.entries(path, entries) {
            if known.contains(&entry.key.as_str()) {
                fields.insert(entry.key.as_str(), entry);
            } else {
                let hint = match nearest(&entry.key, known.iter().copied()) {
                    Some(meant) => format!("did you mean {meant:?}?"),
                    None => format!("it has {}", known.join(", ")),
                };
                self.note(&inner, Spot::Key, format!("is not a field of {name}; {hint}"));
            }
        }
        Fields {
            path: path.clone(),
            entries: fields,
        }
    }

    pub(super) fn optional<'t, T>(
        &mut self,
        fields: &Fields<'t>,
        name: &str,
        read: impl FnOnce(&mut Self, &Path, &'t Raw) -> Option<T>,
    ) -> Option<T> {
        let entry = fields.entries.get(name)?;
        read(self, &fields.path.key(name), &entry.raw)
    }

    pub(super) fn required<'t, T>(
        &mut self,
        fields: &Fields<'t>,
        name: &str,
        right: &str,
        read: impl FnOnce(&mut Self, &Path, &'t Raw) -> Option<T>,
    ) -> Option<T> {
        if !fields.has(name) {
            self.absent(&fields.path.key(name), format!("is missing; must be {right}"));
        }
        self.optional(fields, name, read)
    }

    pub(super) fn table<'t>(&mut self, path: &Path, raw: &'t Raw) -> Option<&'t [RawEntry]> {
        match &raw.value {
            RawValue::Table(entries) => Some(entries),
            _ => {
                self.wrong_type(path, raw, "a table");
                None
            }
        }
    }

    pub(super) fn text(&mut self, path: &Path, raw: &Raw) -> Option<String> {
        match &raw.value {
            RawValue::Text(text) => Some(text.clone()),
            _ => {
                self.wrong_type(path, raw, "a text");
                None
            }
        }
    }

    pub(super) fn name<T: FromStr<Err = NameError>>(&mut self, path: &Path, raw: &Raw) -> Option<T> {
        match self.text(path, raw)?.parse() {
            Ok(name) => Some(name),
            Err(error) => {
                self.note(path, Spot::Value, error.to_string());
                None
            }
        }
    }

    pub(super) fn bool(&mut self, path: &Path, raw: &Raw) -> Option<bool> {
        match raw.value {
            RawValue::Bool(value) => Some(value),
            _ => {
                self.wrong_type(path, raw, "true or false");
                None
            }
        }
    }

    /// A whole number in this range.
    pub(super) fn whole<T: TryFrom<i128> + PartialOrd + Display + Copy>(
        &mut self,
        path: &Path,
        raw: &Raw,
        range: RangeInclusive<T>,
    ) -> Option<T> {
        let most = *range.end();
        self.whole_told(path, raw, range, most)
    }

    /// A whole number in a range of which messages tell another upper end.
    pub(super) fn whole_told<T: TryFrom<i128> + PartialOrd + Display>(
        &mut self,
        path: &Path,
        raw: &Raw,
        range: RangeInclusive<T>,
        most: T,
    ) -> Option<T> {
        let RawValue::Integer(number, text) = &raw.value else {
            let right = format!("a whole number from {} to {most}", range.start());
            self.wrong_type(path, raw, &right);
            return None;
        };
        let number = number.and_then(|number| T::try_from(number).ok());
        let inside = number.filter(|number| range.contains(number));
        if inside.is_none() {
            let message = out_of_range(text, range.start(), most);
            self.note(path, Spot::Value, message);
        }
        inside
    }

    /// A fraction from 0 to 1, as per mille. A finer one is refused: it would come to mean something else.
    pub(super) fn per_mille(&mut self, path: &Path, raw: &Raw) -> Option<u16> {
        const RIGHT: &str = "a fraction from 0 to 1";
        let (fraction, text) = match &raw.value {
            RawValue::Fraction(fraction, text) => (*fraction, text),
            RawValue::Integer(Some(number @ (0 | 1)), text) => (if *number == 0 { 0.0 } else { 1.0 }, text),
            RawValue::Integer(_, text) => (f64::INFINITY, text),
            _ => {
                self.wrong_type(path, raw, RIGHT);
                return None;
            }
        };
        let scaled = fraction * f64::from(*ranges::RELIABILITY_PER_MILLE.end());
        if !(0.0..=1.0).contains(&fraction) {
            self.note(path, Spot::Value, format!("is {text}; must be {RIGHT}"));
            return None;
        }
        if (scaled - scaled.round()).abs() > 1e-6 {
            let message = format!("is {text}; must be {RIGHT} with at most three decimals");
            self.note(path, Spot::Value, message);
            return None;
        }
        // In range, as both ends of the fraction were checked.
        Some(scaled.round() as u16)
    }

    /// The items of a list, each with its path; what could not be read is none, so that places stay as they are.
    pub(super) fn list<T>(
        &mut self,
        path: &Path,
        raw: &Raw,
        mut read: impl FnMut(&mut Self, &Path, &Raw) -> Option<T>,
    ) -> Option<Vec<Option<T>>> {
        let RawValue::List(items) = &raw.value else {
            self.wrong_type(path, raw, "a list");
            return None;
        };
        let items = items.iter().enumerate().map(|(index, item)| {
            let inner = path.item(index);
            let place = Place {
                key: item.at,
                value: item.at,
            };
            self.places.insert(inner.clone(), place);
            read(self, &inner, item)
        });
        Some(items.collect())
    }

    /// A list of texts. What is none of these is replaced by something that no rule refuses.
    pub(super) fn texts(&mut self, path: &Path, raw: &Raw) -> Option<Vec<String>> {
        let texts = self.list(path, raw, Self::text)?;
        Some(
            texts
                .into_iter()
                .map(|text| text.unwrap_or_else(|| "unusable".to_owned()))
                .collect(),
        )
    }

    /// A table of texts by free keys.
    pub(super) fn texts_by_key(&mut self, path: &Path, raw: &Raw) -> Option<BTreeMap<String, String>> {
        let entries = self.table(path, raw)?;
        let mut texts = BTreeMap::new();
        for (inner, entry) in self.entries(path, entries) {
            let text = self.text(&inner, &entry.raw).unwrap_or_default();
            texts.insert(entry.key.clone(), text);
        }
        Some(texts)
    }

    /// A list of groups, each named once, remembering where.
    pub(super) fn groups(&mut self, path: &Path, raw: &Raw) -> Option<Vec<GroupId>> {
        let groups = self.list(path, raw, |notes, inner, item| {
            let group: GroupId = notes.name(inner, item)?;
            match notes.mentions.entry((path.clone(), group.clone())) {
                Entry::Vacant(free) => {
                    free.insert((inner.clone(), item.at));
                }
                Entry::Occupied(_) => {
                    let message = format!("names {:?} again; once is enough", group.as_str());
                    notes.note(inner, Spot::Value, message);
                }
            }
            Some(group)
        })?;
        Some(groups.into_iter().flatten().collect())
    }
}

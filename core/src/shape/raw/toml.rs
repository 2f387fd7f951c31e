//! Reads TOML into the raw tree.

use toml::de::{DeTable, DeValue};

use super::{Raw, RawEntry, RawFile, RawValue};

/// How many broken places are looked for. Each costs another reading of the text.
const BROKEN_LIMIT: usize = 32;

/// Reads on after an error, so that several are found; what is broken may be missing from the tree then.
///
/// The parser can go on by itself, but may lose the rest of a table to one bad line of it. So the line is
/// taken out instead and the text read again, until it is whole or there is no more sense in it.
pub(in crate::shape) fn parse(text: &str) -> RawFile {
    let mut rest = text.to_owned();
    let mut broken = Vec::new();
    loop {
        let (root, errors) = DeTable::parse_recoverable(&rest);
        let place =
            |error: &toml::de::Error| error.span().map_or(text.len(), |span| span.start.min(text.len()));
        let told = |error| (place(error), format!("is not TOML: {}", error.message()));
        let first = errors.iter().min_by_key(|error| place(error));
        let shortened = first.and_then(|error| without_line(&rest, place(error)));
        match shortened {
            Some(shortened) if broken.len() < BROKEN_LIMIT => {
                broken.extend(first.map(told));
                rest = shortened;
            }
            _ => {
                broken.extend(errors.iter().map(told));
                return RawFile {
                    root: entries(root.get_ref()),
                    broken,
                };
            }
        }
    }
}

/// The text with the line around this byte blanked, so that all else keeps its place. A table's header takes
/// its table with it, whose fields would be another table's otherwise. None if the line is blank already.
fn without_line(text: &str, at: usize) -> Option<String> {
    let start = text.as_bytes()[..at]
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |end| end + 1);
    let mut lines = text[start..].split_inclusive('\n');
    let line = lines.next().filter(|line| !line.trim().is_empty())?;
    let header = |line: &&str| line.trim_start().starts_with('[');
    let mut end = start + line.len();
    if header(&line) {
        end += lines
            .take_while(|line| !header(line))
            .map(str::len)
            .sum::<usize>();
    }
    let blank = text[start..end]
        .bytes()
        .map(|byte| if byte == b'\n' { '\n' } else { ' ' });
    Some(
        text[..start]
            .chars()
            .chain(blank)
            .chain(text[end..].chars())
            .collect(),
    )
}

/// The depth of the recursion is bounded by the parser's own limit.
fn entries(table: &DeTable<'_>) -> Vec<RawEntry> {
    let mut entries: Vec<RawEntry> = table
        .iter()
        .map(|(key, value)| {
            let at = key.span().start;
            let raw = match value.get_ref() {
                // A table can begin with a header elsewhere, or with none: its key says best where it is.
                DeValue::Table(table) => Raw {
                    at,
                    value: RawValue::Table(entries(table)),
                },
                other => Raw {
                    at: value.span().start,
                    value: convert(other),
                },
            };
            RawEntry {
                key: key.get_ref().clone().into_owned(),
                at,
                raw,
            }
        })
        .collect();
    entries.sort_by_key(|entry| entry.at);
    entries
}

fn convert(value: &DeValue<'_>) -> RawValue {
    match value {
        DeValue::String(text) => RawValue::Text(text.clone().into_owned()),
        DeValue::Integer(number) => RawValue::Integer(
            i128::from_str_radix(number.as_str(), number.radix()).ok(),
            number.to_string(),
        ),
        DeValue::Float(number) => {
            let text = number.as_str().to_owned();
            RawValue::Fraction(text.parse().unwrap_or(f64::NAN), text)
        }
        DeValue::Boolean(value) => RawValue::Bool(*value),
        DeValue::Datetime(_) => RawValue::Other("a date or time"),
        DeValue::Array(items) => RawValue::List(
            items
                .iter()
                .map(|item| Raw {
                    at: item.span().start,
                    value: convert(item.get_ref()),
                })
                .collect(),
        ),
        DeValue::Table(table) => RawValue::Table(entries(table)),
    }
}

//! Reads JSON into the raw tree: JSON as it is defined, with none of what friendlier dialects allow.

use jsonc_parser::ast::{ObjectProp, Value};
use jsonc_parser::common::Ranged;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use serde::de::IgnoredAny;

use super::{Raw, RawEntry, RawFile, RawValue};

const STRICT: ParseOptions = ParseOptions {
    allow_comments: false,
    allow_loose_object_property_names: false,
    allow_trailing_commas: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// Ends at the first error, after which JSON has no place to begin again. A text of nothing but space is an
/// empty table.
pub(in crate::shape) fn parse(text: &str) -> RawFile {
    let broken = |at: usize, message: String| RawFile {
        root: Vec::new(),
        broken: vec![(at, format!("is not JSON: {message}"))],
    };
    let value = match parse_to_ast(text, &CollectOptions::default(), &STRICT) {
        Ok(parsed) => match parsed.value {
            Some(value) => value,
            None => {
                return RawFile {
                    root: Vec::new(),
                    broken: Vec::new(),
                };
            }
        },
        Err(error) => {
            let message = error.kind().to_string();
            let mut letters = message.chars();
            let first = letters
                .next()
                .into_iter()
                .flat_map(|letter| letter.to_lowercase());
            return broken(
                error.range().start,
                first.chain(letters.as_str().chars()).collect(),
            );
        }
    };
    // The parser that knows places comes from a laxer dialect. One that knows only JSON has the last word.
    if let Err(error) = serde_json::from_str::<IgnoredAny>(text) {
        return broken(offset(text, error.line(), error.column()), without_place(&error));
    }
    let raw = convert(value);
    match raw.value {
        RawValue::Table(root) => RawFile {
            root,
            broken: Vec::new(),
        },
        other => RawFile {
            root: Vec::new(),
            broken: vec![(
                raw.at,
                format!("is {}; a shape is an object with groups", other.describe()),
            )],
        },
    }
}

/// The depth of the recursion is bounded by the parser's own limit.
fn convert(value: Value<'_>) -> Raw {
    let at = value.start();
    let value = match value {
        Value::StringLit(text) => RawValue::Text(text.value.into_owned()),
        Value::NumberLit(number) => {
            let text = number.value.to_owned();
            if text.contains(['.', 'e', 'E']) {
                RawValue::Fraction(text.parse().unwrap_or(f64::NAN), text)
            } else {
                RawValue::Integer(text.parse().ok(), text)
            }
        }
        Value::BooleanLit(value) => RawValue::Bool(value.value),
        Value::Object(object) => RawValue::Table(object.properties.into_iter().map(entry).collect()),
        Value::Array(array) => RawValue::List(array.elements.into_iter().map(convert).collect()),
        Value::NullKeyword(_) => RawValue::Other("null"),
    };
    Raw { at, value }
}

fn entry(property: ObjectProp<'_>) -> RawEntry {
    let at = property.name.start();
    let mut raw = convert(property.value);
    // As in TOML, where a table is found by its key.
    if matches!(raw.value, RawValue::Table(_)) {
        raw.at = at;
    }
    RawEntry {
        key: property.name.into_string(),
        at,
        raw,
    }
}

/// The byte that a line and a column, both counted from 1 and the latter in bytes, stand for.
fn offset(text: &str, line: usize, column: usize) -> usize {
    let start: usize = text
        .split_inclusive('\n')
        .take(line.saturating_sub(1))
        .map(str::len)
        .sum();
    (start + column.saturating_sub(1)).min(text.len())
}

fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or_default().to_owned()
}

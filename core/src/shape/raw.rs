//! The raw tree of a file: what stands where, before anything is read into it.
//!
//! TOML and JSON become the same tree, so that one walk knows them both. Places are byte offsets here; they
//! become lines and columns only where a person will read them.

mod json;
mod toml;

pub(super) use json::parse as parse_json;
pub(super) use toml::parse as parse_toml;

/// A value and where it begins.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Raw {
    pub(super) at: usize,
    pub(super) value: RawValue,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum RawValue {
    Text(String),
    /// A number without a fraction; none beyond 128 bits. The text is for messages.
    Integer(Option<i128>, String),
    /// A number with a fraction, an exponent or without an end. The text is for messages.
    Fraction(f64, String),
    Bool(bool),
    List(Vec<Raw>),
    Table(Vec<RawEntry>),
    /// What has no use in a shape, by its name.
    Other(&'static str),
}

/// A key, where it begins, and its value. A table has them in the order of the file, repeated keys included.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RawEntry {
    pub(super) key: String,
    pub(super) at: usize,
    pub(super) raw: Raw,
}

/// What a file holds, as far as it could be read.
#[derive(Debug)]
pub(super) struct RawFile {
    pub(super) root: Vec<RawEntry>,
    /// Where the text is not of its format, and how.
    pub(super) broken: Vec<(usize, String)>,
}

impl RawValue {
    /// The value for a message: `the text "three"`.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Text(text) => {
                let mut short: String = text.chars().take(SHOWN).collect();
                if short.len() < text.len() {
                    short.push('…');
                }
                format!("the text {short:?}")
            }
            Self::Integer(_, text) | Self::Fraction(_, text) => {
                let short: String = text.chars().take(SHOWN).collect();
                format!("the number {short}")
            }
            Self::Bool(value) => format!("{value}"),
            Self::List(_) => "a list".to_owned(),
            Self::Table(_) => "a table".to_owned(),
            Self::Other(name) => (*name).to_owned(),
        }
    }
}

/// How much of a value a message shows: enough to recognise it by.
const SHOWN: usize = 60;

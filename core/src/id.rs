//! Names that people choose, and the five identities that nodewright gives.
//!
//! Every level of identity is a type of its own, so that one cannot be passed for another; each reads and
//! writes as its text, in messages as in serialized form.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

/// The longest name, in characters: names end up in host names and provider labels (RFC 1123 labels).
pub const NAME_LIMIT: usize = 63;

/// Why a text is not a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {value:?} {rule}")]
pub struct NameError {
    kind: &'static str,
    value: String,
    rule: &'static str,
}

/// Checks the one rule that all names share; the error is the part of it that was broken.
fn check_name(value: &str) -> Result<(), &'static str> {
    let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = value.as_bytes();
    match (bytes.first(), bytes.last()) {
        (None, _) | (_, None) => Err("is empty: a name has 1 to 63 characters"),
        _ if bytes.len() > NAME_LIMIT => Err("is too long: a name has at most 63 characters"),
        _ if !bytes.iter().all(|byte| alphanumeric(byte) || *byte == b'-') => {
            Err("has a character other than a-z, 0-9 and '-'")
        }
        (Some(first), Some(last)) if !alphanumeric(first) || !alphanumeric(last) => {
            Err("must begin and end with a letter or digit")
        }
        _ => Ok(()),
    }
}

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident = $kind:literal;)*) => {$(
        $(#[$doc])*
        ///
        /// 1 to 63 characters of `a-z 0-9 -`, beginning and ending with a letter or digit; parsing and
        /// deserializing both check that. A clone shares the text.
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Parses a name. # Errors: the value and the rule that it broke.
            pub fn new(value: &str) -> Result<Self, NameError> {
                match check_name(value) {
                    Ok(()) => Ok(Self(value.into())),
                    Err(rule) => Err(NameError { kind: $kind, value: value.to_owned(), rule }),
                }
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(value: &str) -> Result<Self, NameError> {
                Self::new(value)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        text_serde!($name);
    )*};
}

/// Serializes a type as its `Display` text and deserializes it through `FromStr`.
macro_rules! text_serde {
    ($name:ty) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?
                    .parse()
                    .map_err(serde::de::Error::custom)
            }
        }
    };
}

names! {
    /// One cluster's lifetime; everything that nodewright owns at a provider carries it.
    RunId = "run id";
    /// A group of interchangeable nodes.
    GroupId = "group id";
    /// What a node is for, as the application names it.
    RoleId = "role";
    /// A provider, as the shape names it and as the application registered it.
    ProviderKind = "provider";
}

/// Why a text is not one of the composed identities.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is not {expected}")]
pub struct IdError {
    value: String,
    expected: &'static str,
}

/// Reads a number in its one canonical form: no sign, no leading zero.
fn canonical<N: FromStr + ToString>(text: &str) -> Option<N> {
    text.parse().ok().filter(|number: &N| number.to_string() == text)
}

/// The stable place of a node in its group; outlives any machine that fills it. Text: `w-2`.
///
/// Orders by group, then by number: `w-2 < w-10`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogicalNodeId {
    /// The group that the slot belongs to.
    pub group: GroupId,
    /// Its number in the group, from 0.
    pub index: u32,
}

impl fmt::Display for LogicalNodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.group, self.index)
    }
}

impl FromStr for LogicalNodeId {
    type Err = IdError;

    fn from_str(value: &str) -> Result<Self, IdError> {
        let parsed = value.rsplit_once('-').and_then(|(group, index)| {
            Some(Self {
                group: GroupId::new(group).ok()?,
                index: canonical(index)?,
            })
        });
        parsed.ok_or_else(|| IdError {
            value: value.to_owned(),
            expected: "a node id such as `workers-2`",
        })
    }
}

text_serde!(LogicalNodeId);

/// One incarnation of a slot, from a run-wide counter that starts at 1 and never goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeAttemptId(u64);

impl NodeAttemptId {
    /// The first attempt of a run.
    pub const FIRST: Self = Self(1);

    /// The attempt with this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Its number.
    pub const fn number(self) -> u64 {
        self.0
    }

    /// The attempt after this one, while there is one.
    pub fn next(self) -> Option<Self> {
        self.0.checked_add(1).map(Self)
    }
}

impl fmt::Display for NodeAttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for NodeAttemptId {
    type Err = IdError;

    fn from_str(value: &str) -> Result<Self, IdError> {
        let parsed = canonical(value).map(Self);
        parsed.ok_or_else(|| IdError {
            value: value.to_owned(),
            expected: "an attempt id such as `17`",
        })
    }
}

text_serde!(NodeAttemptId);

/// One dispatched effect. Sequences start at 1 in every attempt. Text: `17.3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId {
    /// The attempt that the effect is for.
    pub attempt: NodeAttemptId,
    /// Its number within the attempt, from 1.
    pub sequence: u32,
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.attempt, self.sequence)
    }
}

impl FromStr for OperationId {
    type Err = IdError;

    fn from_str(value: &str) -> Result<Self, IdError> {
        let parsed = value.split_once('.').and_then(|(attempt, sequence)| {
            Some(Self {
                attempt: attempt.parse().ok()?,
                sequence: canonical(sequence)?,
            })
        });
        parsed.ok_or_else(|| IdError {
            value: value.to_owned(),
            expected: "an operation id such as `17.3`",
        })
    }
}

text_serde!(OperationId);

/// A bootstrap session, named after the operation that started it. Text: `17.3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootstrapSessionId(pub OperationId);

impl BootstrapSessionId {
    /// The attempt whose machine the session boots.
    pub const fn attempt(self) -> NodeAttemptId {
        self.0.attempt
    }
}

impl fmt::Display for BootstrapSessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for BootstrapSessionId {
    type Err = IdError;

    fn from_str(value: &str) -> Result<Self, IdError> {
        value.parse().map(Self)
    }
}

text_serde!(BootstrapSessionId);

/// The request identity that a provider sees: whose machine a resource is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AttemptIdentity {
    /// The run that owns the resource.
    pub run: RunId,
    /// The slot that it fills.
    pub node: LogicalNodeId,
    /// The incarnation of the slot.
    pub attempt: NodeAttemptId,
}

impl AttemptIdentity {
    /// The readable head is cut to this, so that head, dash and digest fit one label.
    const HEAD_LIMIT: usize = NAME_LIMIT - 1 - 32;

    /// One label for providers that have only a name or an idempotency key: at most 63 characters of
    /// `a-z 0-9 -`, a short readable head and 128 bits of SHA-256 over the length-prefixed parts, so that
    /// no two identities share one however their names are cut.
    pub fn token(&self) -> String {
        let mut hash = Sha256::new();
        for part in [
            self.run.as_str(),
            &self.node.to_string(),
            &self.attempt.to_string(),
        ] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        let head = format!("{}-{}", self.node, self.attempt);
        let head = head[..head.len().min(Self::HEAD_LIMIT)].trim_end_matches('-');
        format!("{head}-{}", hex(&hash.finalize()[..16]))
    }
}

impl fmt::Display for AttemptIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} attempt {} of run {}", self.node, self.attempt, self.run)
    }
}

/// 128 bits of SHA-256 over a template: a resource carries the digest of the template that it was made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TemplateDigest([u8; 16]);

impl TemplateDigest {
    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let mut digest = [0; 16];
        digest.copy_from_slice(&Sha256::digest(bytes)[..16]);
        Self(digest)
    }
}

impl fmt::Display for TemplateDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl FromStr for TemplateDigest {
    type Err = IdError;

    fn from_str(value: &str) -> Result<Self, IdError> {
        let fail = || IdError {
            value: value.to_owned(),
            expected: "a template digest of 32 hex digits",
        };
        let number = u128::from_str_radix(value, 16).map_err(|_| fail())?;
        let digest = Self(number.to_be_bytes());
        if digest.to_string() == value {
            Ok(digest)
        } else {
            Err(fail())
        }
    }
}

text_serde!(TemplateDigest);

fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(run: &str, node: &str, attempt: u64) -> AttemptIdentity {
        AttemptIdentity {
            run: run.parse().unwrap(),
            node: node.parse().unwrap(),
            attempt: NodeAttemptId::new(attempt),
        }
    }

    #[test]
    fn a_bad_name_is_refused_with_its_value_and_the_rule_it_broke() {
        for (value, rule) in [
            ("", "is empty"),
            ("-a", "begin and end"),
            ("a-", "begin and end"),
            ("Web", "other than"),
            ("a_b", "other than"),
            ("ä", "other than"),
            (&"a".repeat(64), "too long"),
        ] {
            let error = GroupId::new(value).unwrap_err().to_string();
            assert!(
                error.contains(rule) && error.contains(&format!("{value:?}")),
                "{error}"
            );
            let json = serde_json::to_string(value).unwrap();
            assert!(serde_json::from_str::<GroupId>(&json).is_err());
        }
        for value in ["a", "0", "a-b", &"a".repeat(63)] {
            assert_eq!(GroupId::new(value).unwrap().as_str(), value);
        }
    }

    #[test]
    fn slots_order_by_number_and_not_by_text() {
        let mut slots: Vec<LogicalNodeId> = ["w-10", "w-2", "a-3", "w-a-1"]
            .iter()
            .map(|text| text.parse().unwrap())
            .collect();
        slots.sort();
        let text: Vec<String> = slots.iter().map(ToString::to_string).collect();
        assert_eq!(text, ["a-3", "w-2", "w-10", "w-a-1"]);
    }

    #[test]
    fn every_identity_reads_back_from_its_text_and_only_from_that() {
        assert_eq!("w-a-12".parse::<LogicalNodeId>().unwrap().to_string(), "w-a-12");
        assert_eq!("17.3".parse::<OperationId>().unwrap().to_string(), "17.3");
        assert_eq!("17.3".parse::<BootstrapSessionId>().unwrap().to_string(), "17.3");
        for bad in ["w", "w-", "w-02", "w-+2", "-2", "w-4294967296"] {
            assert!(bad.parse::<LogicalNodeId>().is_err(), "{bad}");
        }
        for bad in ["17", "17.", ".3", "17.03", "17.3.1"] {
            assert!(bad.parse::<OperationId>().is_err(), "{bad}");
        }
        let digest = TemplateDigest::of(b"x");
        assert_eq!(digest.to_string().parse::<TemplateDigest>().unwrap(), digest);
    }

    #[test]
    fn a_token_is_a_label_and_never_shared_by_two_identities() {
        let long = "a".repeat(63);
        let tokens = [
            identity("a-b", "c-1", 1).token(),
            identity("a", "b-c-1", 1).token(),
            identity("a", "c-1", 1).token(),
            identity("a", "c-1", 2).token(),
            identity("a", "c-11", 2).token(),
            identity(&long, &format!("{long}-4294967295"), u64::MAX).token(),
            identity(&long, &format!("{long}-4294967294"), u64::MAX).token(),
        ];
        for (position, token) in tokens.iter().enumerate() {
            assert!(check_name(token).is_ok(), "{token}");
            assert!(!tokens[..position].contains(token), "{token}");
        }
        assert!(tokens[0].starts_with("c-1-1-"));
    }
}

//! Says which part of a shape is meant.

use std::fmt;

/// A path through a shape, such as `groups.workers.depends_on[1]`; empty for the whole.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Path(String);

impl Path {
    /// The part with this key. A key that could be misread is quoted.
    pub(crate) fn key(&self, key: &str) -> Self {
        let bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        let mut text = self.0.clone();
        if !text.is_empty() {
            text.push('.');
        }
        if !key.is_empty() && key.bytes().all(bare) {
            text.push_str(key);
        } else {
            text.push_str(&format!("{key:?}"));
        }
        Self(text)
    }

    /// The part with this place in a list.
    pub(crate) fn item(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    /// Some part that this one lies in, if it lies in any.
    pub(super) fn parent(&self) -> Option<Self> {
        let end = self.0.rfind(['.', '[']).unwrap_or(0);
        (!self.0.is_empty()).then(|| Self(self.0[..end].to_owned()))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

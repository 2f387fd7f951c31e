//! What the identity system keeps, and its rules: it is strict about order, and never makes anything twice.

use std::collections::BTreeSet;

use hyper::StatusCode;

/// Entries by path: `groups/staff`, `groups/everyone/members/staff`, `roles/reader/groups/staff`.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    entries: BTreeSet<String>,
}

impl Directory {
    pub(crate) fn find(&self, path: &str) -> StatusCode {
        if self.entries.contains(path) {
            StatusCode::OK
        } else {
            StatusCode::NOT_FOUND
        }
    }

    /// Makes an entry, unless it exists or something is missing that it speaks of.
    pub(crate) fn create(&mut self, path: &str) -> StatusCode {
        let complete = speaks_of(path).iter().all(|other| self.entries.contains(other));
        if complete && self.entries.insert(path.to_owned()) {
            StatusCode::CREATED
        } else {
            StatusCode::CONFLICT
        }
    }

    /// Removes an entry, unless another one speaks of it.
    pub(crate) fn remove(&mut self, path: &str) -> StatusCode {
        if self.entries.iter().any(|entry| uses(entry, path)) {
            StatusCode::CONFLICT
        } else if self.entries.remove(path) {
            StatusCode::NO_CONTENT
        } else {
            StatusCode::NOT_FOUND
        }
    }

    /// Removes an entry and all that speak of it, as an administrator's tool does.
    pub(crate) fn lose(&mut self, path: &str) {
        self.entries.retain(|entry| entry != path && !uses(entry, path));
    }

    pub(crate) fn entries(&self) -> Vec<&str> {
        self.entries.iter().map(String::as_str).collect()
    }
}

/// The entries that this one ties together, if it does.
fn speaks_of(path: &str) -> Vec<String> {
    let parts: Vec<&str> = path.split('/').collect();
    match parts[..] {
        [kind, name, _, group] => vec![format!("{kind}/{name}"), format!("groups/{group}")],
        _ => Vec::new(),
    }
}

fn uses(entry: &str, path: &str) -> bool {
    speaks_of(entry).iter().any(|other| other == path)
}

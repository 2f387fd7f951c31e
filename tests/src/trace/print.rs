//! A trace as code, to be pasted into a test.

use std::fmt;

use super::Trace;

impl Trace {
    /// The trace as an expression. It speaks of `Trace`, `Setup`, `GroupPlan`, `Input` and their parts, which are
    /// all in [`trace`](mod@crate::trace).
    pub fn to_code(&self) -> String {
        let mut text = format!("Trace {{\n    setup: {},\n    inputs: vec![\n", code(&self.setup));
        for input in &self.inputs {
            text.push_str(&format!("        {},\n", code(input)));
        }
        text.push_str("    ],\n}");
        text
    }
}

/// What is printed for debugging is code, but that a list is a slice and a variant has no enum.
fn code(value: &impl fmt::Debug) -> String {
    let debug = format!("{value:?}");
    let mut code = String::with_capacity(debug.len() + 64);
    let mut rest = debug.as_str();
    while let Some(at) = rest.find(|at: char| at == '[' || at.is_ascii_uppercase()) {
        let (before, from) = rest.split_at(at);
        code.push_str(before);
        if let Some(after) = from.strip_prefix('[') {
            code.push_str("vec![");
            rest = after;
            continue;
        }
        let end = from.find(|c: char| !c.is_ascii_alphanumeric());
        let (name, after) = from.split_at(end.unwrap_or(from.len()));
        code.push_str(home(name));
        code.push_str(name);
        rest = after;
    }
    code.push_str(rest);
    code
}

/// The enum that a variant belongs to.
fn home(name: &str) -> &'static str {
    match name {
        "Setup" | "GroupPlan" => "",
        "Honest" | "Before" | "Lost" | "Later" | "Late" | "Slow" | "Hang" | "PanicBefore" | "PanicAfter"
        | "NotYet" => "Reply::",
        "Definite" | "Ambiguous" | "Throttled" | "Fatal" => "Failing::",
        "Fails" | "Empty" | "Truncated" | "Full" => "Listing::",
        "Executor" | "Streams" | "Timer" => "Part::",
        "None" | "State" => "Memory::",
        _ => "Input::",
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_code())
    }
}

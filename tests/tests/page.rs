//! The page that lists every guarantee with its tests speaks of tests that are there.

use std::path::Path;

#[test]
fn every_test_that_the_page_of_guarantees_names_is_there() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(tests.join("GUARANTEES.md")).unwrap();
    let mut file = (String::new(), String::new());
    let mut named = 0;
    for line in page.lines() {
        let quoted = |line: &str| Some(line.strip_prefix("- `")?.strip_suffix('`')?.to_owned());
        if let Some(path) = quoted(line).filter(|path| path.ends_with(".rs")) {
            let text = std::fs::read_to_string(tests.join("..").join(&path));
            file = (text.unwrap_or_else(|error| panic!("{path}: {error}")), path);
        } else if let Some(name) = line.strip_prefix("  ").and_then(quoted) {
            let function = name.rsplit("::").next().unwrap();
            assert!(
                file.0.contains(&format!("fn {function}(")),
                "{} has no test {name}",
                file.1
            );
            named += 1;
        }
    }
    let missing: Vec<u32> = (1..=33)
        .filter(|number| !page.contains(&format!("## G{number} ")))
        .collect();
    assert_eq!(missing, [], "guarantees that the page does not speak of");
    assert!(named > 100, "{named} tests are named");
}

/// What is not built says so, and by what one sees that it is; then the page has to speak of its checks.
#[test]
fn nothing_that_is_built_is_called_not_yet_built() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(tests.join("GUARANTEES.md")).unwrap();
    for section in page
        .split("\n## ")
        .filter(|section| section.contains("Not yet built"))
    {
        let quoted: Vec<&str> = section.split('`').skip(1).step_by(2).collect();
        let [function, file, ..] = quoted[..] else {
            panic!("{section}\nsays not by what one sees that it is built");
        };
        let text = std::fs::read_to_string(tests.join("..").join(file));
        let text = text.unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(
            !text.contains(&format!("{function}(")),
            "{file} has {function}: the page has to say what checks it"
        );
    }
}

//! What is read, what is refused, and where each mistake is said to stand.

use super::*;
use crate::desired::Desired;

fn read(text: impl AsRef<[u8]>, format: ShapeFormat) -> Result<ClusterShape, ShapeErrors> {
    let defaults = ShapeDefaults {
        run_id: run_id_from_stem("from-file"),
        generation: Generation(7),
    };
    ShapeFile::parse(
        text.as_ref(),
        format,
        &defaults,
        &ShapeLimits::default(),
        &providers(),
    )
}

fn providers() -> BTreeSet<ProviderKind> {
    ["process", "fake"].map(|kind| kind.parse().unwrap()).into()
}

fn refused(text: impl AsRef<[u8]>, format: ShapeFormat) -> Vec<String> {
    let errors = read(text, format).unwrap_err();
    errors.problems().iter().map(ShapeProblem::to_string).collect()
}

fn toml(text: impl AsRef<[u8]>) -> Vec<String> {
    refused(text, ShapeFormat::Toml)
}

fn json(text: impl AsRef<[u8]>) -> Vec<String> {
    refused(text, ShapeFormat::Json)
}

/// A group `w` without a mistake, but for these lines, which come first in it.
fn group(lines: &str) -> String {
    let given = |name: &str| lines.lines().any(|line| line.starts_with(name));
    let mut text = format!("[groups.w]\n{lines}\n");
    for (name, line) in [
        ("count", "count = 1"),
        ("role", "role = \"r\""),
        ("provider", "provider = \"process\""),
        ("shape", "shape.image = \"local\""),
        ("boot", "boot.start = \"agent\""),
    ] {
        if !given(name) {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

const FULL_TOML: &str = r#"
run_id = "demo"
generation = 3
[groups.store]
count = 1
role = "store"
provider = "fake"
shape.image = "db"
boot.start = "store"

[groups.workers]
run_id = "demo"
count = 3
depends_on = ["store"]
role = "worker"
provider = "process"
[groups.workers.shape]
image = "local"
disk_gb = 20
gpu = "H100"
min_gpu_memory_mb = 80_000
min_down_mbps = 100
min_up_mbps = 50
min_reliability = 0.95
verified_only = true
labels = { zone = "a" }
[groups.workers.boot]
ssh_user = "ubuntu"
verify = ["true"]
start = "$FLEET agent"
args = ["--x"]
env = { A = "b" }
extra_stdout = ["/o"]
extra_stderr = ["/e"]
[groups.workers.join]
orchestrator = "127.0.0.1:1"
token_ref = "env:TOKEN"
"#;

const FULL_JSON: &str = r#"{
  "run_id": "demo", "generation": 3,
  "groups": {
    "workers": {
      "run_id": "demo", "count": 3, "depends_on": ["store"], "role": "worker", "provider": "process",
      "shape": {
        "image": "local", "disk_gb": 20, "gpu": "H100", "min_gpu_memory_mb": 80000, "min_down_mbps": 100,
        "min_up_mbps": 50, "min_reliability": 9.5e-1, "verified_only": true, "labels": {"zone": "a"}
      },
      "boot": {
        "ssh_user": "ubuntu", "verify": ["true"], "start": "$FLEET agent", "args": ["--x"],
        "env": {"A": "b"}, "extra_stdout": ["/o"], "extra_stderr": ["/e"]
      },
      "join": {"orchestrator": "127.0.0.1:1", "token_ref": "env:TOKEN"}
    },
    "store": {
      "count": 1, "role": "store", "provider": "fake", "shape": {"image": "db"}, "boot": {"start": "store"}
    }
  }
}"#;

#[test]
fn every_field_is_read_and_both_formats_say_the_same() {
    let shape = read(FULL_TOML, ShapeFormat::Toml).unwrap();
    assert_eq!((shape.run_id.as_str(), shape.generation), ("demo", Generation(3)));
    let workers = &shape.groups[1];
    assert_eq!(workers.count, 3);
    assert!(workers.depends_on.contains(&"store".parse().unwrap()));
    let template = &*workers.template;
    assert_eq!(
        (template.role.as_str(), template.provider.as_str()),
        ("worker", "process")
    );
    let text = |text: &str| text.to_owned();
    assert_eq!(
        template.shape,
        crate::template::NodeShape {
            image: text("local"),
            disk_gb: 20,
            gpu: Some(text("H100")),
            min_gpu_memory_mb: 80_000,
            min_down_mbps: 100,
            min_up_mbps: 50,
            min_reliability_per_mille: 950,
            verified_only: true,
            labels: [(text("zone"), text("a"))].into(),
        }
    );
    assert_eq!(
        template.boot,
        crate::template::BootSpec {
            ssh_user: text("ubuntu"),
            verify: vec![text("true")],
            start: text("$FLEET agent"),
            args: vec![text("--x")],
            env: [(text("A"), text("b"))].into(),
            extra_stdout: vec![text("/o")],
            extra_stderr: vec![text("/e")],
        }
    );
    assert_eq!(template.join.orchestrator, "127.0.0.1:1");
    assert_eq!(template.join.token_ref, "env:TOKEN");

    let accept = |shape| Desired::new(shape, &ShapeLimits::default(), &providers()).unwrap();
    let other = read(FULL_JSON, ShapeFormat::Json).unwrap();
    assert_eq!(accept(shape), accept(other));
}

#[test]
fn what_a_file_leaves_out_has_its_default() {
    let shape = read(group(""), ShapeFormat::Toml).unwrap();
    assert_eq!(
        (shape.run_id.as_str(), shape.generation),
        ("from-file", Generation(7))
    );
    let group = &shape.groups[0];
    assert_eq!(group.run_id, shape.run_id);
    assert!(group.depends_on.is_empty());
    assert_eq!(group.template.shape, crate::template::NodeShape::new("local"));
    assert_eq!(group.template.boot, crate::template::BootSpec::new("agent"));
}

#[test]
fn five_kinds_of_mistake_in_toml_are_all_named_with_their_places() {
    let text = r#"# The ä and the tab before a value count as one character each.
[groups.workers]
count = "three"
cuont = 3
role = 'worker'
provider =	"vast"
shape.image = "local"
shape.min_reliability = 1.5
boot = { start = "agent", env = { "ä" = "1", B = 2 } }

[groups.Web]
count = 1
role = "web"
provider = "process"
shape = { image = "local" }
boot = { start = "agent" }
"#;
    assert_eq!(
        toml(text),
        [
            r#"line 3, column 9: groups.workers.count: is the text "three"; must be a whole number from 0 to 1000000"#,
            r#"line 4, column 1: groups.workers.cuont: is not a field of a group; did you mean "count"?"#,
            r#"line 6, column 12: groups.workers.provider: nothing is registered for "vast"; registered: "fake", "process""#,
            "line 8, column 25: groups.workers.shape.min_reliability: is 1.5; must be a fraction from 0 to 1",
            r#"line 9, column 35: groups.workers.boot.env."ä": "ä" is not a variable's name: it has letters, digits and '_' and begins with no digit"#,
            "line 9, column 50: groups.workers.boot.env.B: is the number 2; must be a text",
            r#"line 11, column 9: groups.Web: group id "Web" has a character other than a-z, 0-9 and '-'"#,
        ]
    );
}

#[test]
fn five_kinds_of_mistake_in_json_are_all_named_with_their_places() {
    let text = r#"{
  "groups": {
    "workers": {
      "count": 1.5, "cuont": 3, "role": null, "provider": "vast",
      "shape": {"image": "local", "disk_gb": 0, "min_reliability": 1e999},
      "boot": {"start": "agent"}
    },
    "Web": {"count": -1, "role": "web", "provider": "process", "shape": {}, "boot": []}
  }
}"#;
    assert_eq!(
        json(text),
        [
            "line 4, column 16: groups.workers.count: is the number 1.5; must be a whole number from 0 to 1000000",
            r#"line 4, column 21: groups.workers.cuont: is not a field of a group; did you mean "count"?"#,
            "line 4, column 41: groups.workers.role: is null; must be a text",
            r#"line 4, column 59: groups.workers.provider: nothing is registered for "vast"; registered: "fake", "process""#,
            "line 5, column 46: groups.workers.shape.disk_gb: is 0; must be from 1 to 1000000",
            "line 5, column 68: groups.workers.shape.min_reliability: is 1e999; must be a fraction from 0 to 1",
            r#"line 8, column 5: groups.Web: group id "Web" has a character other than a-z, 0-9 and '-'"#,
            "line 8, column 22: groups.Web.count: is -1; must be from 0 to 1000000",
            "line 8, column 64: groups.Web.shape.image: is missing; must be the name of an image",
            "line 8, column 85: groups.Web.boot: is a list; must be a table",
        ]
    );
}

#[test]
fn a_count_that_no_machine_could_hold_is_refused_where_it_stands() {
    for (count, message) in [
        (
            "4294967295",
            "is 4294967295, but a shape may have at most 1000000 nodes in all",
        ),
        ("4294967296", "is 4294967296; must be from 0 to 1000000"),
        ("-1", "is -1; must be from 0 to 1000000"),
        (
            "0xffff_ffff_ffff_ffff_ffff_ffff_ffff_ffff_ffff",
            "must be from 0 to 1000000",
        ),
    ] {
        let problems = toml(group(&format!("count = {count}")));
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(
            problems[0].starts_with("line 2, column 9: groups.w.count: "),
            "{problems:?}"
        );
        assert!(problems[0].ends_with(message), "{problems:?}");
    }
    let two = format!(
        "{}{}",
        group("count = 600000"),
        group("count = 600000").replace(".w]", ".v]")
    );
    assert_eq!(
        toml(two),
        ["line 1, column 2: groups: declare 1200000 nodes in all, but a shape may have at most 1000000"]
    );
}

#[test]
fn a_file_without_groups_is_answered_with_a_shape_that_works() {
    let providers = providers();
    for (texts, format, example) in [
        (
            ["", " \n\n", "# only a remark\n"],
            ShapeFormat::Toml,
            least_toml(&providers),
        ),
        (["", " \n\n", "{}"], ShapeFormat::Json, least_json(&providers)),
    ] {
        for text in texts {
            let message = format!("line 1, column 1: no groups are declared; the least shape is {example}");
            assert_eq!(refused(text, format), [message]);
        }
        read(example, format).unwrap();
    }
    assert_eq!(read("[groups]", ShapeFormat::Toml).unwrap().groups, []);
}

#[test]
fn bytes_that_are_not_utf_8_are_one_mistake_at_the_first_of_them() {
    for format in [ShapeFormat::Toml, ShapeFormat::Json] {
        assert_eq!(
            refused(b"run_id = 'a'\n# \xc3\xa4 \xff\xfe", format),
            ["line 2, column 5: byte 0xff is not UTF-8; a shape is UTF-8 text"]
        );
        assert_eq!(
            refused(b"\xe2\x82", format),
            ["line 1, column 1: byte 0xe2 is not UTF-8; a shape is UTF-8 text"]
        );
    }
}

#[test]
fn graph_mistakes_stand_where_the_dependency_is_named() {
    let text = r#"[groups]
a = { depends_on = ["c", "stor"], REST }
b = { depends_on = [ "a", "b" ], REST }
c = { depends_on = [
  "store", "b", "B", "store"], REST }
store = { REST }
"#;
    let rest = r#"count = 1, role = "r", provider = "fake", shape.image = "i", boot.start = "s""#;
    assert_eq!(
        toml(text.replace("REST", rest)),
        [
            "line 2, column 21: groups.a.depends_on[0]: a → c → b → a is a cycle; tied up in cycles: a, b, c; groups cannot wait for each other",
            r#"line 2, column 26: groups.a.depends_on[1]: names "stor", which is no group of the shape; did you mean "store"?"#,
            r#"line 3, column 27: groups.b.depends_on[1]: names "b" itself: a group can depend only on other groups"#,
            r#"line 5, column 17: groups.c.depends_on[2]: group id "B" has a character other than a-z, 0-9 and '-'"#,
            r#"line 5, column 22: groups.c.depends_on[3]: names "store" again; once is enough"#,
        ]
    );
}

#[test]
fn a_group_that_cannot_be_used_is_not_missing_for_those_that_depend_on_it() {
    assert_eq!(
        toml(format!("groups.store = 5\n{}", group("depends_on = [\"store\"]"))),
        ["line 1, column 16: groups.store: is the number 5; must be a table"]
    );
}

#[test]
fn several_places_where_the_syntax_is_broken_are_found_and_the_rest_is_still_checked() {
    let text = r#"generation = -3
[groups.w]
count 3
role = "Bad"
provider =
shape.image = "i
boot = 5
[groups.x
role = "Bad"
[groups.w]
role = "Bad"
[groups.y]
depends_on = ["x"]
boot = 6
"#;
    let problems = toml(text);
    let starts = [
        "line 1, column 14: generation: is -3; must be from 0 to",
        "line 3, column 7: is not TOML: key with no value",
        "line 4, column 8: groups.w.role: role \"Bad\" has",
        "line 5, column 11: is not TOML: ",
        "line 6, column 17: is not TOML: ",
        "line 7, column 8: groups.w.boot: is the number 5; must be a table",
        "line 8, column 10: is not TOML: unclosed table",
        "line 10, column 9: is not TOML: duplicate key",
        "line 14, column 8: groups.y.boot: is the number 6; must be a table",
    ];
    assert_eq!(problems.len(), starts.len(), "{problems:#?}");
    for (problem, start) in problems.iter().zip(starts) {
        assert!(problem.starts_with(start), "{problem} is not {start}");
    }
}

#[test]
fn syntax_that_is_broken_to_the_end_of_the_file_is_given_up_on() {
    for text in [
        "a = [1,\nb = 2\n[groups]\n".to_owned(),
        "a = \"\"\"\nb = 2\n".to_owned(),
        "a = {\n".to_owned(),
        "=\n".repeat(1000),
        "[".repeat(1000),
    ] {
        let problems = toml(&text);
        assert!(
            problems.iter().any(|problem| problem.contains("is not TOML: ")),
            "{problems:?}"
        );
    }
}

#[test]
fn json_is_read_as_json_and_not_as_something_friendlier() {
    for (text, place) in [
        ("{\"groups\": {}, }", "line 1, column 14"),
        ("{\n// remark\n\"groups\": {}}", "line 2, column 1"),
        ("{groups: {}}", "line 1, column 2"),
        ("{'groups': {}}", "line 1, column 2"),
        ("{\"groups\": {}} {}", "line 1, column 16"),
        ("{\"generation\": 0x1, \"groups\": {}}", "line 1, column 16"),
        ("{\"generation\": 01, \"groups\": {}}", "line 1, column 17"),
        ("{\"generation\": NaN, \"groups\": {}}", "line 1, column 16"),
        ("{\"groups\": {}", "line 1, column 1"),
        ("[]", "line 1, column 1"),
    ] {
        let problems = json(text);
        assert_eq!(problems.len(), 1, "{text}: {problems:?}");
        assert!(
            problems[0].starts_with(&format!("{place}: is ")),
            "{text}: {problems:?}"
        );
    }
}

#[test]
fn a_repeated_key_is_refused_in_both_formats() {
    assert_eq!(
        json("{\"generation\": 1,\n\"generation\": 2, \"groups\": {}}"),
        ["line 2, column 1: generation: is given a second time; once is enough"]
    );
    let problems = toml(format!("{}{}", group(""), group("")));
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(
        problems[0].starts_with("line 8, column 9: is not TOML: duplicate key"),
        "{problems:?}"
    );
}

#[test]
fn a_group_of_another_run_is_refused_and_no_group_is_measured_by_an_unreadable_run() {
    assert_eq!(
        toml(group("run_id = \"other\"")),
        [
            r#"line 2, column 10: groups.w.run_id: is "other", but the run of the shape is "from-file": a group belongs to the run of its shape"#
        ]
    );
    assert_eq!(
        toml(format!("run_id = \"X\"\n{}", group("run_id = \"other\""))),
        [r#"line 1, column 10: run_id: run id "X" has a character other than a-z, 0-9 and '-'"#]
    );
}

#[test]
fn reliability_is_a_finite_fraction_and_nothing_is_rounded_away() {
    for (text, per_mille) in [
        ("0.95", 950),
        ("0", 0),
        ("1", 1000),
        ("0.999", 999),
        ("1.0", 1000),
        ("29e-2", 290),
    ] {
        let shape = read(
            group(&format!("shape = {{ image = \"i\", min_reliability = {text} }}")),
            ShapeFormat::Toml,
        );
        assert_eq!(
            shape.unwrap().groups[0].template.shape.min_reliability_per_mille,
            per_mille
        );
    }
    for (text, rule) in [
        ("nan", "is nan; must be a fraction from 0 to 1"),
        ("inf", "is inf; must be a fraction from 0 to 1"),
        ("-0.1", "is -0.1; must be a fraction from 0 to 1"),
        ("95", "is 95; must be a fraction from 0 to 1"),
        (
            "0.9995",
            "is 0.9995; must be a fraction from 0 to 1 with at most three decimals",
        ),
        ("\"0.9\"", "is the text \"0.9\"; must be a fraction from 0 to 1"),
    ] {
        assert_eq!(
            toml(group(&format!(
                "shape = {{ image = \"i\", min_reliability = {text} }}"
            ))),
            [format!(
                "line 2, column 42: groups.w.shape.min_reliability: {rule}"
            )]
        );
    }
}

#[test]
fn a_missing_field_is_named_at_the_table_that_lacks_it() {
    assert_eq!(
        toml("\n[groups.w]\nboot.args = [1, \"\"]\nboot.verify = [2, \"\"]\n"),
        [
            "line 2, column 9: groups.w.count: is missing; must be a whole number from 0 to 1000000",
            "line 2, column 9: groups.w.role: is missing; must be a role's name",
            "line 2, column 9: groups.w.provider: is missing; must be a provider's name",
            "line 2, column 9: groups.w.shape: is missing; must be a table with an image",
            "line 3, column 1: groups.w.boot.start: is missing; must be a command",
            "line 3, column 14: groups.w.boot.args[0]: is the number 1; must be a text",
            "line 4, column 16: groups.w.boot.verify[0]: is the number 2; must be a text",
            r#"line 4, column 19: groups.w.boot.verify[1]: is ""; must not be empty"#,
        ]
    );
}

#[test]
fn a_byte_order_mark_and_foreign_line_ends_do_not_move_places() {
    let text = format!("\u{feff}{}", group("count = true")).replace('\n', "\r\n");
    assert_eq!(
        toml(text),
        ["line 2, column 9: groups.w.count: is true; must be a whole number from 0 to 1000000"]
    );
}

#[test]
fn nesting_without_end_is_refused_and_not_followed() {
    let depth = 100_000;
    for text in ["{\"a\":".repeat(depth), "[".repeat(depth)] {
        assert_eq!(json(text).len(), 1);
    }
    for text in [
        format!("a = {}", "[".repeat(depth)),
        format!("a = {}", "{b=".repeat(depth)),
        format!("{} = 1", vec!["a"; depth].join(".")),
        format!("[{}]", vec!["a"; depth].join(".")),
    ] {
        assert!(!toml(text).is_empty());
    }
}

#[test]
fn a_file_name_gives_the_format_and_the_run() {
    assert_eq!(
        ShapeFormat::from_path(FilePath::new("a/b.toml")),
        Ok(ShapeFormat::Toml)
    );
    assert_eq!(
        ShapeFormat::from_path(FilePath::new("b.JSON")),
        Ok(ShapeFormat::Json)
    );
    let error = ShapeFormat::from_path(FilePath::new("b.yaml")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "shape file \"b.yaml\" ends neither in .toml nor in .json"
    );
    let long = "x".repeat(62) + "_y";
    for (stem, run) in [
        ("demo", "demo"),
        ("My Fleet_2", "my-fleet-2"),
        ("-ä-", "run"),
        ("", "run"),
        (&long, &long[..62]),
    ] {
        assert_eq!(run_id_from_stem(stem).as_str(), run);
    }
}

proptest::proptest! {
    #[test]
    fn any_damage_to_a_file_is_answered_with_places_inside_it(
        json in proptest::prelude::any::<bool>(),
        at in 0_usize..1200,
        len in 0_usize..12,
        junk in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..4),
    ) {
        let (text, format) =
            if json { (FULL_JSON, ShapeFormat::Json) } else { (FULL_TOML, ShapeFormat::Toml) };
        let mut bytes = text.as_bytes().to_vec();
        let at = at.min(bytes.len());
        let end = (at + len).min(bytes.len());
        bytes.splice(at..end, junk);
        match read(&bytes, format) {
            Ok(shape) => {
                proptest::prop_assert!(
                    Desired::new(shape, &ShapeLimits::default(), &providers()).is_ok()
                );
            }
            Err(errors) => {
                let lines = bytes.iter().filter(|byte| **byte == b'\n').count() + 1;
                proptest::prop_assert!(!errors.problems().is_empty());
                for problem in errors.problems() {
                    let at = problem.at.unwrap();
                    proptest::prop_assert!((1..=lines).contains(&at.line) && at.column >= 1);
                }
            }
        }
    }
}

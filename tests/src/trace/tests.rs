use super::{Failing, GroupPlan, Input, Listing, Memory, Part, Reply, Setup, Theme, Trace};

/// A trace with every kind of input, reply, failure, list, part and memory in it.
#[rustfmt::skip]
fn every_word() -> Trace {
    // As it was printed.
    Trace {
    setup: Setup { groups: vec![GroupPlan { group: 0, count: 2, image: 1, provider: 0, after: 0 }, GroupPlan { group: 2, count: 0, image: 0, provider: 1, after: 0 }], fresh: true, visibility: 3, lags: false, abortable: true, places: 64, rated: false, attempt_limit: 0 },
    inputs: vec![
        Input::Wait,
        Input::Advance(20),
        Input::Reshape(vec![]),
        Input::Reshape(vec![GroupPlan { group: 1, count: 3, image: 0, provider: 1, after: 0 }]),
        Input::Resize { group: 0, count: 1 },
        Input::Work(7),
        Input::WorkAll(65535),
        Input::Script(Reply::Honest),
        Input::Script(Reply::Before(Failing::Definite)),
        Input::Script(Reply::Before(Failing::Ambiguous)),
        Input::Script(Reply::Before(Failing::Throttled(30))),
        Input::Script(Reply::Before(Failing::Fatal)),
        Input::Script(Reply::Lost),
        Input::Script(Reply::Later(4)),
        Input::Script(Reply::Late(9)),
        Input::Script(Reply::Slow),
        Input::Script(Reply::Hang),
        Input::Script(Reply::PanicBefore),
        Input::Script(Reply::PanicAfter),
        Input::Script(Reply::NotYet),
        Input::List(Listing::Full),
        Input::List(Listing::Fails),
        Input::List(Listing::Empty),
        Input::List(Listing::Truncated),
        Input::Repeat(0),
        Input::Mislay(1),
        Input::Join(2),
        Input::Impersonate(3),
        Input::HandOff(4),
        Input::Lose(5),
        Input::Kill(6),
        Input::Retry(7),
        Input::Replace(8),
        Input::Forge(9),
        Input::Crash(Part::Executor(1)),
        Input::Crash(Part::Streams),
        Input::Crash(Part::Timer),
        Input::Restart(Memory::None),
        Input::Restart(Memory::State),
        Input::Gather(2),
        Input::Trigger,
    ],
}
}

/// What is printed is the very text of the function above, so that it compiles.
#[test]
fn a_printed_trace_is_code_that_makes_it() {
    let source = include_str!("tests.rs");
    let printed = source.split_once("// As it was printed.\n    ").unwrap().1;
    let printed = printed.split_once("\n}\n}\n").unwrap().0;
    assert_eq!(every_word().to_code(), format!("{printed}\n}}"));
}

#[test]
fn a_trace_is_the_same_after_it_was_written_and_read() {
    for trace in (0..20).map(one_of_seed).chain([every_word()]) {
        let text = serde_json::to_string(&trace).unwrap();
        assert_eq!(serde_json::from_str::<Trace>(&text).unwrap(), trace);
    }
}

/// Whatever is made up is made of words that the printer knows: each with the enum that it belongs to.
#[test]
fn every_word_of_a_made_up_trace_has_its_home_when_it_is_printed() {
    for seed in 0..20 {
        let code = one_of_seed(seed).to_code();
        let homes = [
            "Input",
            "Reply",
            "Failing",
            "Listing",
            "Part",
            "Memory",
            "Trace",
            "Setup",
            "GroupPlan",
        ];
        let words = code.split(|c: char| !(c.is_ascii_alphanumeric() || c == ':'));
        for word in words.filter(|word| word.starts_with(|c: char| c.is_ascii_uppercase())) {
            let home = word.split("::").next().unwrap();
            assert!(homes.contains(&home), "{word} in {code}");
        }
    }
}

fn one_of_seed(seed: u64) -> Trace {
    crate::regress::trace(Theme::ROUGH, 100, seed)
}

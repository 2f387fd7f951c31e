//! A slot that waits for groups says for which, and what is the matter with them.

use std::sync::Arc;

use nodewright_core::decide::WaitReason;
use nodewright_core::effect::EffectError;
use nodewright_core::id::GroupId;
use nodewright_core::node::Intent;
use nodewright_core::status::{Awaited, Trouble, Why};

use super::{CHAIN, converged, run, said, sends, update, waits, waves};

#[test]
fn a_halted_dependency_holds_back_starts_and_is_named_and_holds_back_no_deletion() {
    let mut run = converged(&[("db", 1, &[]), ("api", 1, &["db"])]);
    update(&mut run, 2, &[("db", 2, &[]), ("api", 2, &["db"])]);
    let create = sends(&mut run, &["db-1 create-lease"]);
    let _ = run.fail(&create[0], EffectError::fatal("no such image"));
    sends(&mut run, &[]);
    assert_eq!(
        waits(&run, "api-1", WaitReason::Dependencies),
        [Awaited {
            group: GroupId::new("db").unwrap(),
            slots: 1,
            trouble: Some(Trouble {
                node: "db-1".parse().unwrap(),
                halted: true,
                error: Arc::from("no such image"),
            }),
        }]
    );
    update(&mut run, 3, &[("db", 2, &[]), ("api", 0, &["db"])]);
    assert_eq!(waves(&mut run), ["destroy-lease api-0"]);
}

#[test]
fn a_dependent_that_cannot_be_destroyed_holds_its_dependencies_and_is_named() {
    let mut run = converged(&CHAIN);
    update(&mut run, 2, &[]);
    let mut destroy = sends(&mut run, &["web-0 destroy-lease"]);
    for _ in 0..5 {
        let _ = run.fail(&destroy[0], EffectError::definite("it is locked"));
        destroy = run.pass(60);
        assert_eq!(said(&destroy), ["web-0 destroy-lease"]);
    }
    let awaited = waits(&run, "db-0", WaitReason::Dependents);
    let told: Vec<String> = awaited.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        ["api (1 to wait for)", "web (1 to wait for; web-0: it is locked)"]
    );
    assert_eq!(
        run.node("db-0").intent,
        Intent::Active,
        "it is not even asked to go"
    );
    let _ = run.succeed(&destroy[0]);
    assert_eq!(waves(&mut run), ["destroy-lease api-0", "destroy-lease db-0"]);
}

#[test]
fn a_view_says_that_a_slot_waits_for_groups_and_names_none() {
    let mut run = run(&CHAIN);
    run.drive();
    let status = run.driver.node_glance(&"web-0".parse().unwrap(), run.now);
    let expected = Why::WaitingFor {
        reason: WaitReason::Dependencies,
        until: None,
        groups: Vec::new(),
    };
    assert_eq!(status.why, expected);
}

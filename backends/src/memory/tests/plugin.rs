use nodewright_core::plugin::{PluginBackend, ProvisionPlugin};

use super::*;

fn lifted(plugin: &MemoryPlugin) -> PluginBackend<MemoryPlugin, MemoryTransports> {
    PluginBackend::new(plugin.clone(), plugin.transports(JoinMode::AtOnce))
}

#[test]
fn a_plugin_makes_one_machine_per_attempt_and_says_no_to_a_second() {
    let plugin = MemoryPlugin::new();
    let made = now(plugin.make(&call(1, 1), &spec())).unwrap();
    assert_eq!(made.lease.template, Some(spec().template.digest()));
    let again = now(plugin.make(&call(1, 2), &spec()));
    let refused = EffectError::definite("w-0 attempt 1 of run r has a machine already");
    assert_eq!(again, Err(refused));
    assert_eq!(plugin.live(), [(call(1, 1).identity, made.lease.id)]);
}

#[test]
fn every_lift_of_a_plugin_adopts_what_another_one_made() {
    let plugin = MemoryPlugin::new();
    let created = create(&lifted(&plugin), 1);
    let backend = lifted(&plugin);
    assert_eq!(create(&backend, 1), created);
    assert_eq!(now(backend.find_lease(&call(1, 2))), Ok(Some(created.clone())));
    assert_eq!(now(backend.find_lease(&call(2, 1))), Ok(None));
    let endpoint = now(backend.lookup_endpoint(&call(1, 3), &created.lease));
    assert_eq!(endpoint, Ok(created.endpoint));
    assert_eq!(plugin.created(&call(1, 1).identity), 1);
}

#[test]
fn destroying_twice_destroys_once_and_only_the_lease_that_was_named() {
    let plugin = MemoryPlugin::new();
    let backend = lifted(&plugin);
    let created = create(&backend, 1);
    let other = LeaseFacts::new(LeaseId::new("m-9"));
    for (lease, live) in [(&other, 1), (&created.lease, 0), (&created.lease, 0)] {
        let destroyed = now(backend.destroy_lease(&call(1, 2), lease));
        assert_eq!((destroyed, plugin.live().len()), (Ok(Destroyed::Gone), live));
    }
    assert_eq!(plugin.destroyed(&call(1, 1).identity), 1);
}

#[test]
fn deaths_are_listed_and_watched_and_what_vanished_is_listed_no_more() {
    let plugin = MemoryPlugin::new();
    let backend = lifted(&plugin);
    create(&backend, 1);
    let lost = Arc::new(Mutex::new(Vec::new()));
    let told = lost.clone();
    let sink = LossSink::new(move |loss| told.lock().unwrap().push(loss.attempt));
    let run: RunId = "r".parse().unwrap();
    let mut watch = pin!(backend.watch(&run, sink));
    assert!(poll(watch.as_mut()).is_pending());
    let alive = || -> Vec<bool> {
        let inventory = now(backend.list_leases(&run)).unwrap();
        inventory.entries.iter().map(|entry| entry.alive).collect()
    };
    assert_eq!(alive(), [true]);
    assert!(plugin.kill(&call(1, 1).identity));
    assert_eq!((alive(), lost.lock().unwrap().len()), (vec![false], 1));
    assert!(plugin.vanish(&call(1, 1).identity));
    assert!(alive().is_empty());
    assert_eq!(now(backend.find_lease(&call(1, 2))), Ok(None));
}

#[test]
fn a_session_over_a_plugin_joins_and_ends_when_it_may() {
    let backend = lifted(&MemoryPlugin::new());
    let (mut session, seen) = start(&backend, &create(&backend, 1), 2);
    assert!(poll(session.run.as_mut()).is_pending());
    let joined = StreamEvent::Joined(AgentId::new("w-0"));
    assert!(seen.lock().unwrap().contains(&joined));
    now(backend.observe_convergence(&call(1, 3), session.id)).unwrap();
    assert!(poll(session.run.as_mut()).is_ready());
    assert_eq!(last(&seen), StreamEvent::Converged);
}

#[test]
fn the_way_to_a_machine_that_goes_breaks_and_to_one_that_is_gone_it_never_opens() {
    let plugin = MemoryPlugin::new();
    let backend = lifted(&plugin);
    let created = create(&backend, 1);
    let failed = |seen: &Seen| match last(seen) {
        StreamEvent::Failed { stage, .. } => stage,
        other => panic!("{other:?}"),
    };
    let (mut session, seen) = start(&backend, &created, 2);
    assert!(poll(session.run.as_mut()).is_pending());
    assert!(plugin.vanish(&call(1, 1).identity));
    assert!(poll(session.run.as_mut()).is_ready());
    assert_eq!(failed(&seen), BootstrapStage::StreamFailed);
    let (mut session, seen) = start(&backend, &created, 3);
    assert!(poll(session.run.as_mut()).is_ready());
    assert_eq!(failed(&seen), BootstrapStage::ConnectFailed);
}

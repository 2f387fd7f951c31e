//! What a process knows that took over from another.

use nodewright_core::effect::CommandKind;
use nodewright_core::node::ManagedNode;
use nodewright_core::state::ClusterState;

use super::{Broken, demand};

/// G32 and G15: with the state come all attempts and all that they hold, and what was under way is remembered.
pub(crate) fn check_restored(before: &ClusterState, after: &ClusterState) -> Result<(), Broken> {
    for (id, old) in before.nodes.iter() {
        let new = after.nodes.get(&id);
        let Some(new) = new.filter(|new| new.attempt == old.attempt) else {
            return Err(Broken(format!(
                "G32: attempt {} of {id} was lost with its process",
                old.attempt
            )));
        };
        demand!(
            old.lease == new.lease && old.endpoint == new.endpoint && old.join == new.join,
            "G32: {id} lost facts with its process: {old:?} became {new:?}"
        );
        demand!(
            new.pending.is_none() && new.unended.is_none(),
            "G32: {id} waits for a call of a process that is gone: {new:?}"
        );
        demand!(
            !may_have(old, CommandKind::CreateLease) || new.retry.create.is_some(),
            "G15: the create of {id} was under way and is not remembered: {new:?}"
        );
        // What has joined needs its session no more, and without a machine there is none.
        let over = new.ready || new.join.is_some() || new.lease.is_none();
        demand!(
            over || !may_have(old, CommandKind::StartBootstrap) || new.retry.start.is_some(),
            "G32: the start of {id} was under way and is not remembered: {new:?}"
        );
    }
    demand!(
        before.orphans.keys().eq(after.orphans.keys()),
        "G32: orphans were lost with the process"
    );
    demand!(
        before.next_attempt_id.is_none() || before.next_attempt_id <= after.next_attempt_id,
        "G32: the allocator went back"
    );
    Ok(())
}

/// Whether a call of this kind may have had an effect that nobody knows of yet.
fn may_have(node: &ManagedNode, kind: CommandKind) -> bool {
    let pending = node.pending.as_ref().map(|pending| pending.kind);
    let unended = node.unended.as_ref().map(|call| call.kind);
    let remembered = match kind {
        CommandKind::CreateLease => node.retry.create.is_some(),
        _ => node.retry.start.is_some(),
    };
    pending == Some(kind) || unended == Some(kind) || remembered
}

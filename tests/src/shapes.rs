//! Shapes and policies for traces, in few words.

use std::collections::BTreeSet;
use std::time::Duration;

use nodewright_core::policy::Policy;
use nodewright_core::shape::{ClusterShape, Generation, NodeGroupSpec};
use nodewright_core::template::{BootSpec, NodeShape, NodeTemplate, SwarmJoinSpec, Template};

use crate::trace::GroupPlan;

/// The run of all shapes here.
pub(crate) const RUN: &str = "sim";

/// The providers of every trace.
pub(crate) const PROVIDERS: [&str; 2] = ["alpha", "beta"];

/// How long the fair tail of a trace may last.
pub(crate) const TAIL: Duration = Duration::from_secs(4 * 3600);

/// An agent that says at once that it joined, and lives on. Its sleep is bounded, so that what a broken test
/// leaves behind goes away by itself.
const AGENT: &str = "echo \"NODEWRIGHT JOINED $NODEWRIGHT_NODE\"; exec sleep 600";

/// The name of the group with this number.
pub(crate) fn group_name(number: u8) -> String {
    char::from(b'a' + number % 26).to_string()
}

/// The groups of a plan.
pub(crate) fn groups(plans: &[GroupPlan]) -> Vec<NodeGroupSpec> {
    let spec = |plan: &GroupPlan| {
        let provider = PROVIDERS[usize::from(plan.provider) % PROVIDERS.len()];
        let template = template(provider, &format!("image-{}", plan.image));
        let mut spec = group(&group_name(plan.group), plan.count.into(), template);
        let below = plans.iter().filter(|other| {
            other.group < plan.group
                && plan
                    .after
                    .checked_shr(other.group.into())
                    .is_some_and(|bit| bit & 1 == 1)
        });
        let below = below.map(|other| group_name(other.group).parse().expect("a name"));
        spec.depends_on = below.collect();
        spec
    };
    plans.iter().map(spec).collect()
}

/// A template of this image at this provider.
pub fn template(provider: &str, image: &str) -> Template {
    Template::new(NodeTemplate {
        role: "worker".parse().expect("a name"),
        provider: provider.parse().expect("a name"),
        shape: NodeShape::new(image),
        boot: BootSpec::new(AGENT),
        join: SwarmJoinSpec::default(),
    })
}

/// A group of this many nodes.
pub fn group(name: &str, count: u32, template: Template) -> NodeGroupSpec {
    NodeGroupSpec {
        run_id: RUN.parse().expect("a name"),
        group_id: name.parse().expect("a name"),
        count,
        depends_on: BTreeSet::new(),
        template,
    }
}

/// A shape of these groups.
pub fn shape(generation: u64, groups: Vec<NodeGroupSpec>) -> ClusterShape {
    ClusterShape {
        run_id: RUN.parse().expect("a name"),
        generation: Generation(generation),
        groups,
    }
}

/// A policy whose timeouts are short beside what a trace lasts.
pub fn policy() -> Policy {
    let mut policy = Policy::default();
    policy.operation_timeout = Duration::from_secs(20);
    policy.startup_timeout = Duration::from_secs(180);
    policy.stall_timeout = Duration::from_secs(60);
    policy.max_throttle = Duration::from_secs(60);
    policy.mass_loss_hold = Duration::from_secs(150);
    policy
}

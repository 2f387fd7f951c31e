//! Shapes and policies for traces, in few words.

use std::collections::BTreeSet;
use std::time::Duration;

use nodewright_core::policy::Policy;
use nodewright_core::shape::{ClusterShape, Generation, NodeGroupSpec};
use nodewright_core::template::{BootSpec, NodeShape, NodeTemplate, SwarmJoinSpec, Template};

/// The run of all shapes here.
const RUN: &str = "sim";

/// A template of this image at this provider.
pub fn template(provider: &str, image: &str) -> Template {
    Template::new(NodeTemplate {
        role: "worker".parse().expect("a name"),
        provider: provider.parse().expect("a name"),
        shape: NodeShape::new(image),
        boot: BootSpec::new("agent"),
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
    policy
}

//! `Desired`: a shape that was accepted.
//!
//! Only a shape without a mistake becomes one, so whoever holds it has nothing left to check. Names are
//! interned: a group is its place among the groups, which is its node in the graph as well.

use std::collections::BTreeSet;

use crate::graph::Graph;
use crate::id::{GroupId, LogicalNodeId, ProviderKind, RunId};
use crate::shape::{ClusterShape, Generation, ShapeErrors, ShapeLimits, check};
use crate::template::{LogicalNodeSpec, Template};

/// A group of an accepted shape.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DesiredGroup {
    /// Its name.
    pub id: GroupId,
    /// How many nodes it has.
    pub count: u32,
    /// What each of them is made from.
    pub template: Template,
    /// The groups that it depends on directly, as their places in [`Desired::groups`], ascending.
    pub depends_on: Vec<usize>,
}

impl DesiredGroup {
    /// The spec of the slot with this number, which shares the group's template. The number is not checked
    /// against the count.
    pub fn spec(&self, index: u32) -> LogicalNodeSpec {
        LogicalNodeSpec {
            id: LogicalNodeId {
                group: self.id.clone(),
                index,
            },
            template: self.template.clone(),
        }
    }
}

/// The accepted shape, with its names interned and its graph ordered.
///
/// Equal for equal content: the order in which a shape lists its groups leaves no trace.
///
/// ```
/// use std::collections::BTreeSet;
/// use nodewright_core::desired::Desired;
/// use nodewright_core::shape::{ClusterShape, Generation, ShapeLimits};
///
/// let shape = ClusterShape {
///     run_id: "demo".parse().unwrap(),
///     generation: Generation(1),
///     groups: Vec::new(),
/// };
/// let desired = Desired::new(shape, &ShapeLimits::default(), &BTreeSet::new()).unwrap();
/// assert_eq!(desired.node_count(), 0);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Desired {
    shape: ClusterShape,
    groups: Vec<DesiredGroup>,
    graph: Graph,
    node_count: u64,
}

impl Desired {
    /// Accepts a shape whose providers are all among these.
    ///
    /// Costs what its groups cost, whatever their counts are.
    ///
    /// # Errors
    ///
    /// All mistakes: a group of another run or declared twice, a number out of range, a text that is empty or
    /// unusable, an unknown or self dependency, a cycle, an unknown provider, too many nodes. Ranges: disk
    /// 1 to 1,000,000 GB, GPU memory 0 to 16,777,216 MB, bandwidth 0 to 10,000,000 Mbit/s, reliability 0 to
    /// 1000 per mille. Without a file there are no positions.
    pub fn new(
        mut shape: ClusterShape,
        limits: &ShapeLimits,
        providers: &BTreeSet<ProviderKind>,
    ) -> Result<Self, ShapeErrors> {
        shape
            .groups
            .sort_by(|one, other| one.group_id.cmp(&other.group_id));
        let graph = check::shape(&shape.run_id, &shape.groups, limits, providers)
            .map_err(|found| ShapeErrors::new(found.into_iter().map(Into::into).collect()))?;
        let groups: Vec<DesiredGroup> = shape
            .groups
            .iter()
            .enumerate()
            .map(|(place, group)| DesiredGroup {
                id: group.group_id.clone(),
                count: group.count,
                template: group.template.clone(),
                depends_on: graph.requires(place).to_vec(),
            })
            .collect();
        Ok(Self {
            node_count: groups.iter().map(|group| u64::from(group.count)).sum(),
            shape,
            groups,
            graph,
        })
    }

    /// The shape, its groups in the order of their names.
    pub fn shape(&self) -> &ClusterShape {
        &self.shape
    }

    /// The run that the shape is for.
    pub fn run_id(&self) -> &RunId {
        &self.shape.run_id
    }

    /// The shape's revision.
    pub fn generation(&self) -> Generation {
        self.shape.generation
    }

    /// The groups, ascending by name; each is the node of its place in the [`graph`](Self::graph).
    pub fn groups(&self) -> &[DesiredGroup] {
        &self.groups
    }

    /// The place of a group, found in O(log n).
    pub fn find(&self, group: &GroupId) -> Option<usize> {
        self.groups.binary_search_by(|probe| probe.id.cmp(group)).ok()
    }

    /// What a slot should be made from; none when it is undesired.
    pub fn template_of(&self, node: &LogicalNodeId) -> Option<&Template> {
        let group = &self.groups[self.find(&node.group)?];
        (node.index < group.count).then_some(&group.template)
    }

    /// How many nodes there should be.
    pub fn node_count(&self) -> u64 {
        self.node_count
    }

    /// Which group depends on which, and their order.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// One spec per slot, ascending by slot. Made one by one; the slots of a group share its template.
    pub fn expand(&self) -> impl Iterator<Item = LogicalNodeSpec> {
        self.groups
            .iter()
            .flat_map(|group| (0..group.count).map(|index| group.spec(index)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::shape::{NodeGroupSpec, ShapeProblem};
    use crate::template::{BootSpec, NodeShape, NodeTemplate, SwarmJoinSpec};

    fn template(provider: &str) -> NodeTemplate {
        NodeTemplate {
            role: "worker".parse().unwrap(),
            provider: provider.parse().unwrap(),
            shape: NodeShape::new("local"),
            boot: BootSpec::new("agent"),
            join: SwarmJoinSpec::default(),
        }
    }

    fn group(name: &str, count: u32, depends_on: &[&str]) -> NodeGroupSpec {
        NodeGroupSpec {
            run_id: "demo".parse().unwrap(),
            group_id: name.parse().unwrap(),
            count,
            depends_on: depends_on.iter().map(|name| name.parse().unwrap()).collect(),
            template: Template::new(template("process")),
        }
    }

    fn accept(groups: Vec<NodeGroupSpec>) -> Result<Desired, ShapeErrors> {
        let shape = ClusterShape {
            run_id: "demo".parse().unwrap(),
            generation: Generation(1),
            groups,
        };
        let providers = ["process", "fake"].map(|kind| kind.parse().unwrap()).into();
        Desired::new(shape, &ShapeLimits::default(), &providers)
    }

    fn refuse(groups: Vec<NodeGroupSpec>) -> Vec<String> {
        let errors = accept(groups).unwrap_err();
        errors.problems().iter().map(ShapeProblem::to_string).collect()
    }

    #[test]
    fn slots_are_desired_up_to_the_count_and_share_the_template_of_their_group() {
        let desired = accept(vec![group("w", 11, &["db"]), group("db", 1, &[])]).unwrap();
        let ids: Vec<String> = desired.expand().map(|spec| spec.id.to_string()).collect();
        assert_eq!(ids.len(), 12);
        assert_eq!(desired.node_count(), 12);
        assert_eq!((&*ids[0], &*ids[3], &*ids[11]), ("db-0", "w-2", "w-10"));
        let shared = desired.template_of(&"w-10".parse().unwrap()).unwrap();
        assert!(std::ptr::eq(&**shared, &*desired.groups()[1].spec(3).template));
        for undesired in ["w-11", "db-1", "x-0"] {
            assert_eq!(desired.template_of(&undesired.parse().unwrap()), None);
        }
        assert_eq!(desired.groups()[1].depends_on, [0]);
        assert_eq!(desired.find(&"w".parse().unwrap()), Some(1));
        assert_eq!(desired.graph().find("w"), Some(1));
    }

    #[test]
    fn every_mistake_of_a_shape_is_reported() {
        let mut bad = template("proces");
        bad.shape = NodeShape {
            disk_gb: 0,
            gpu: Some(String::new()),
            min_reliability_per_mille: 1001,
            min_down_mbps: u32::MAX,
            ..NodeShape::new(" ")
        };
        bad.boot = BootSpec {
            ssh_user: "-oProxyCommand=x".to_owned(),
            verify: vec!["true".to_owned(), String::new()],
            args: vec![String::new(), "a\0".to_owned()],
            env: [("A", "x"), ("1A", ""), ("B C", "\0")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            ..BootSpec::new("")
        };
        let mut workers = group("workers", 1, &["store", "workers"]);
        workers.run_id = "other".parse().unwrap();
        workers.template = Template::new(bad);
        let problems = refuse(vec![workers, group("stores", 1, &[]), group("stores", 2, &[])]);
        assert_eq!(
            problems,
            [
                r#"groups.stores: group "stores" is declared twice: each group has one declaration"#,
                r#"groups.workers.run_id: is "other", but the run of the shape is "demo": a group belongs to the run of its shape"#,
                r#"groups.workers.provider: nothing is registered for "proces"; registered: "fake", "process"; did you mean "process"?"#,
                r#"groups.workers.shape.image: is " "; must not be empty"#,
                r#"groups.workers.shape.gpu: is ""; must not be empty"#,
                "groups.workers.shape.disk_gb: is 0; must be from 1 to 1000000",
                "groups.workers.shape.min_down_mbps: is 4294967295; must be from 0 to 10000000",
                "groups.workers.shape.min_reliability_per_mille: is 1001; must be from 0 to 1000",
                r#"groups.workers.boot.ssh_user: is "-oProxyCommand=x": a user has no spaces or control characters and begins with no '-'"#,
                r#"groups.workers.boot.start: is ""; must not be empty"#,
                r#"groups.workers.boot.verify[1]: is ""; must not be empty"#,
                "groups.workers.boot.args[1]: has a NUL character, which no program can be given",
                r#"groups.workers.boot.env.1A: "1A" is not a variable's name: it has letters, digits and '_' and begins with no digit"#,
                r#"groups.workers.boot.env."B C": "B C" is not a variable's name: it has letters, digits and '_' and begins with no digit"#,
                r#"groups.workers.boot.env."B C": has a NUL character, which no program can be given"#,
                r#"groups.workers.depends_on: names "store", which is no group of the shape; did you mean "stores"?"#,
                r#"groups.workers.depends_on: names "workers" itself: a group can depend only on other groups"#,
            ]
        );
    }

    #[test]
    fn groups_that_wait_for_each_other_are_refused_with_their_cycle() {
        let problems = refuse(vec![
            group("a", 1, &["c"]),
            group("b", 1, &["a"]),
            group("c", 1, &["b"]),
            group("d", 1, &["a"]),
        ]);
        assert_eq!(
            problems,
            [
                "groups.a.depends_on: a → c → b → a is a cycle; tied up in cycles: a, b, c; groups cannot wait for each other"
            ]
        );
    }

    #[test]
    fn too_many_nodes_are_refused_without_making_one() {
        assert_eq!(
            refuse(vec![group("w", u32::MAX, &[])]),
            ["groups.w.count: is 4294967295, but a shape may have at most 1000000 nodes in all"]
        );
        assert_eq!(
            refuse(vec![group("a", 1_000_000, &[]), group("b", 1, &[])]),
            ["groups: declare 1000001 nodes in all, but a shape may have at most 1000000"]
        );
        accept(vec![group("a", 1_000_000, &[]), group("b", 0, &["a"])]).unwrap();
        // Even where anything goes, the check must not make what it counts.
        let shape = ClusterShape {
            run_id: "demo".parse().unwrap(),
            generation: Generation(1),
            groups: vec![group("a", u32::MAX, &[]), group("b", u32::MAX, &[])],
        };
        let limits = ShapeLimits { max_nodes: u64::MAX };
        let desired = Desired::new(shape, &limits, &["process".parse().unwrap()].into()).unwrap();
        assert_eq!(desired.node_count(), 2 * u64::from(u32::MAX));
        assert_eq!(desired.expand().nth(2).unwrap().id.to_string(), "a-2");
    }

    #[test]
    fn without_any_provider_the_message_says_so() {
        let shape = ClusterShape {
            run_id: "demo".parse().unwrap(),
            generation: Generation(1),
            groups: vec![group("a", 1, &[])],
        };
        let errors = Desired::new(shape, &ShapeLimits::default(), &BTreeSet::new()).unwrap_err();
        assert_eq!(
            errors.to_string(),
            r#"groups.a.provider: nothing is registered for "process"; no provider is registered"#
        );
    }

    #[test]
    fn an_accepted_shape_reads_back_from_its_json() {
        let desired = accept(vec![group("w", 2, &["db"]), group("db", 1, &[])]).unwrap();
        let json = serde_json::to_string(desired.shape()).unwrap();
        assert_eq!(
            &serde_json::from_str::<ClusterShape>(&json).unwrap(),
            desired.shape()
        );
    }

    proptest! {
        #[test]
        fn the_order_in_which_groups_are_listed_leaves_no_trace(
            edges in proptest::collection::vec((0_usize..7, 0_usize..7), 0..12),
            shuffle in proptest::collection::vec(any::<u32>(), 7),
        ) {
            let mut groups: Vec<NodeGroupSpec> = (0..7)
                .map(|node| {
                    let below: Vec<String> = edges
                        .iter()
                        .filter(|(from, to)| from.max(to) == &node && from != to)
                        .map(|(from, to)| format!("g{}", from.min(to)))
                        .collect();
                    let below: Vec<&str> = below.iter().map(String::as_str).collect();
                    group(&format!("g{node}"), 1, &below)
                })
                .collect();
            let given = accept(groups.clone()).unwrap();
            groups.sort_by_key(|group| shuffle[group.group_id.as_str()[1..].parse::<usize>().unwrap()]);
            let shuffled = accept(groups).unwrap();
            prop_assert_eq!(given.graph().order(), shuffled.graph().order());
            prop_assert_eq!(given, shuffled);
        }
    }
}

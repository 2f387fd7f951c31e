//! What must exist before what: a directed acyclic graph over names.
//!
//! Nodes are dense integers in the order of their names, so that comparing two nodes compares their names
//! and a tie between nodes is a tie between integers. The graph knows nothing of what its nodes are: the groups
//! of a shape are ordered by it, and what they let each other do is made of it elsewhere. Nothing here
//! recurses: a chain of any length needs no stack.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt;
use std::iter::Rev;
use std::slice;

mod cycle;

/// One thing that keeps names and dependencies from being a graph.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GraphProblem {
    /// Two nodes have one name.
    Duplicate {
        /// The name.
        name: String,
    },
    /// A node depends on a name that no node has.
    Unknown {
        /// The node.
        name: String,
        /// What it depends on.
        dependency: String,
    },
    /// A node depends on itself.
    Itself {
        /// The node.
        name: String,
    },
    /// Nodes depend on each other in a circle. Reported once, however many circles there are.
    Cycle {
        /// One shortest circle: each depends on the next and the last on the first. Begins with its least name;
        /// of several shortest ones it is that with the least first name.
        cycle: Vec<String>,
        /// All nodes that lie on some circle, ascending.
        tied_up: Vec<String>,
    },
}

impl fmt::Display for GraphProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duplicate { name } => write!(f, "{name} is declared twice"),
            Self::Unknown { name, dependency } => {
                write!(f, "{name} depends on {dependency}, which does not exist")
            }
            Self::Itself { name } => write!(f, "{name} depends on itself"),
            Self::Cycle { cycle, tied_up } => {
                let first = cycle.first().map(String::as_str);
                let circle: Vec<&str> = cycle.iter().map(String::as_str).chain(first).collect();
                write!(
                    f,
                    "{} is a cycle; tied up in cycles: {}",
                    circle.join(" → "),
                    tied_up.join(", ")
                )
            }
        }
    }
}

impl std::error::Error for GraphProblem {}

/// A directed acyclic graph over names, with its one stable topological order.
///
/// ```
/// use nodewright_core::graph::Graph;
///
/// let graph = Graph::new([("web", vec!["db", "cache"]), ("db", vec![]), ("cache", vec![])]).unwrap();
/// let order: Vec<&str> = graph.order().iter().map(|&node| graph.name(node)).collect();
/// assert_eq!(order, ["cache", "db", "web"]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Graph {
    names: Vec<String>,
    requires: Vec<Vec<usize>>,
    required_by: Vec<Vec<usize>>,
    order: Vec<usize>,
    ranks: Vec<usize>,
}

impl Graph {
    /// Orders nodes, each given as its name and the names that it depends on, in any order.
    ///
    /// A dependency that is named twice counts once.
    ///
    /// # Errors
    ///
    /// All problems: duplicates, then unknown and self dependencies by node, then the cycle.
    pub fn new<N, D>(nodes: impl IntoIterator<Item = (N, D)>) -> Result<Self, Vec<GraphProblem>>
    where
        N: Into<String>,
        D: IntoIterator,
        D::Item: AsRef<str>,
    {
        let mut nodes: Vec<(String, D)> = nodes
            .into_iter()
            .map(|(name, dependencies)| (name.into(), dependencies))
            .collect();
        nodes.sort_by(|one, other| one.0.cmp(&other.0));
        let mut problems = Vec::new();
        let mut names: Vec<String> = Vec::with_capacity(nodes.len());
        let mut wanted: Vec<Vec<D>> = Vec::with_capacity(nodes.len());
        for (name, dependencies) in nodes {
            match wanted.last_mut() {
                // A third one of the name is the same problem as the second.
                Some(last) if names.last() == Some(&name) => {
                    if last.len() == 1 {
                        problems.push(GraphProblem::Duplicate { name });
                    }
                    last.push(dependencies);
                }
                _ => {
                    names.push(name);
                    wanted.push(vec![dependencies]);
                }
            }
        }

        let mut requires: Vec<Vec<usize>> = Vec::with_capacity(names.len());
        for (node, dependencies) in wanted.into_iter().enumerate() {
            let mut edges = Vec::new();
            for dependency in dependencies.into_iter().flatten() {
                let dependency = dependency.as_ref();
                match find(&names, dependency) {
                    Some(other) if other == node => problems.push(GraphProblem::Itself {
                        name: names[node].clone(),
                    }),
                    Some(other) => edges.push(other),
                    None => problems.push(GraphProblem::Unknown {
                        name: names[node].clone(),
                        dependency: dependency.to_owned(),
                    }),
                }
            }
            edges.sort_unstable();
            edges.dedup();
            requires.push(edges);
        }
        let mut required_by = vec![Vec::new(); names.len()];
        for (node, edges) in requires.iter().enumerate() {
            for &other in edges {
                required_by[other].push(node);
            }
        }

        let order = stable_order(&requires, &required_by);
        if order.len() < names.len() {
            let named = |nodes: Vec<usize>| nodes.into_iter().map(|node| names[node].clone()).collect();
            let (cycle, tied_up) = cycle::find(&requires, &required_by, &order);
            problems.push(GraphProblem::Cycle {
                cycle: named(cycle),
                tied_up: named(tied_up),
            });
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let mut ranks = vec![0; names.len()];
        for (rank, &node) in order.iter().enumerate() {
            ranks[node] = rank;
        }
        Ok(Self {
            names,
            requires,
            required_by,
            order,
            ranks,
        })
    }

    /// How many nodes there are; they are `0..len()`.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The name of a node. Panics beyond [`len`](Self::len), as everything here that takes a node.
    pub fn name(&self, node: usize) -> &str {
        &self.names[node]
    }

    /// All names, ascending: a node is its place in here.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The node of this name.
    pub fn find(&self, name: &str) -> Option<usize> {
        find(&self.names, name)
    }

    /// The topological order: each node after all that it depends on; among those that could come next,
    /// the one with the least name. It depends on names and edges only, not on the order they were given in.
    pub fn order(&self) -> &[usize] {
        &self.order
    }

    /// The order backwards: for taking down.
    pub fn reversed(&self) -> Rev<slice::Iter<'_, usize>> {
        self.order.iter().rev()
    }

    /// The node's place in the [`order`](Self::order).
    pub fn rank(&self, node: usize) -> usize {
        self.ranks[node]
    }

    /// What the node depends on directly, ascending.
    pub fn requires(&self, node: usize) -> &[usize] {
        &self.requires[node]
    }

    /// What depends on the node directly, ascending.
    pub fn required_by(&self, node: usize) -> &[usize] {
        &self.required_by[node]
    }

    /// All that the node depends on, directly or not, each once, nearest first.
    pub fn requires_all(&self, node: usize) -> Reach<'_> {
        Reach::new(&self.requires, node)
    }

    /// All that depends on the node, directly or not, each once, nearest first.
    pub fn required_by_all(&self, node: usize) -> Reach<'_> {
        Reach::new(&self.required_by, node)
    }
}

fn find(names: &[String], name: &str) -> Option<usize> {
    names.binary_search_by(|probe| probe.as_str().cmp(name)).ok()
}

/// What can be ordered; nodes on a cycle, and those that depend on one, are left out.
fn stable_order(requires: &[Vec<usize>], required_by: &[Vec<usize>]) -> Vec<usize> {
    let mut missing: Vec<usize> = requires.iter().map(Vec::len).collect();
    let mut free: BinaryHeap<Reverse<usize>> = (0..missing.len())
        .filter(|&node| missing[node] == 0)
        .map(Reverse)
        .collect();
    let mut order = Vec::with_capacity(missing.len());
    while let Some(Reverse(node)) = free.pop() {
        order.push(node);
        for &above in &required_by[node] {
            missing[above] -= 1;
            if missing[above] == 0 {
                free.push(Reverse(above));
            }
        }
    }
    order
}

/// Walks everything that can be reached from a node, without the node itself. Made by
/// [`Graph::requires_all`] and [`Graph::required_by_all`]; walks as far as it is asked to.
#[derive(Debug, Clone)]
pub struct Reach<'a> {
    edges: &'a [Vec<usize>],
    seen: Vec<bool>,
    queue: VecDeque<usize>,
}

impl<'a> Reach<'a> {
    pub(crate) fn new(edges: &'a [Vec<usize>], node: usize) -> Self {
        let mut reach = Self {
            edges,
            seen: vec![false; edges.len()],
            queue: VecDeque::new(),
        };
        reach.expand(node);
        reach
    }

    fn expand(&mut self, node: usize) {
        for &next in &self.edges[node] {
            if !self.seen[next] {
                self.seen[next] = true;
                self.queue.push_back(next);
            }
        }
    }
}

impl Iterator for Reach<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let node = self.queue.pop_front()?;
        self.expand(node);
        Some(node)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Five nodes with a well-known order.
    fn classic() -> Vec<(&'static str, Vec<&'static str>)> {
        vec![
            ("1", vec!["2", "3", "4", "5"]),
            ("2", vec![]),
            ("3", vec!["2", "5"]),
            ("4", vec!["5"]),
            ("5", vec!["2"]),
        ]
    }

    fn names(graph: &Graph, nodes: impl IntoIterator<Item = usize>) -> Vec<String> {
        nodes
            .into_iter()
            .map(|node| graph.name(node).to_owned())
            .collect()
    }

    #[test]
    fn each_node_comes_after_what_it_depends_on_and_ties_go_by_name() {
        let graph = Graph::new(classic()).unwrap();
        assert_eq!(
            names(&graph, graph.order().iter().copied()),
            ["2", "5", "3", "4", "1"]
        );
        assert_eq!(
            names(&graph, graph.reversed().copied()),
            ["1", "4", "3", "5", "2"]
        );
        assert_eq!(graph.rank(graph.find("5").unwrap()), 1);
    }

    #[test]
    fn dependencies_are_known_in_both_directions_directly_or_not() {
        let graph = Graph::new(classic()).unwrap();
        let node = |name| graph.find(name).unwrap();
        assert_eq!(names(&graph, graph.requires(node("4")).iter().copied()), ["5"]);
        assert_eq!(names(&graph, graph.requires_all(node("4"))), ["5", "2"]);
        assert_eq!(
            names(&graph, graph.required_by(node("2")).iter().copied()),
            ["1", "3", "5"]
        );
        assert_eq!(
            names(&graph, graph.required_by_all(node("2"))),
            ["1", "3", "5", "4"]
        );
        assert_eq!(graph.requires_all(node("2")).count(), 0);
    }

    #[test]
    fn a_cycle_is_shown_at_its_shortest_with_all_that_are_tied_up() {
        let mut nodes = classic();
        nodes[4].1.push("1");
        let problems = Graph::new(nodes).unwrap_err();
        assert_eq!(
            problems[0].to_string(),
            "1 → 5 → 1 is a cycle; tied up in cycles: 1, 3, 4, 5"
        );
        assert_eq!(problems.len(), 1);
    }

    #[test]
    fn what_only_depends_on_a_cycle_is_not_tied_up_in_it() {
        let problems = Graph::new([
            ("a", vec!["b"]),
            ("b", vec!["c"]),
            ("c", vec!["b"]),
            ("x", vec!["y"]),
            ("y", vec!["z"]),
            ("z", vec!["x"]),
        ])
        .unwrap_err();
        let [GraphProblem::Cycle { cycle, tied_up }] = &problems[..] else {
            panic!("{problems:?}")
        };
        assert_eq!(cycle, &["b", "c"]);
        assert_eq!(tied_up, &["b", "c", "x", "y", "z"]);
    }

    #[test]
    fn all_problems_are_reported_together() {
        let problems = Graph::new([
            ("a", vec!["a", "gone"]),
            ("b", vec!["c"]),
            ("c", vec!["b"]),
            ("b", vec![]),
        ])
        .unwrap_err();
        let text: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(
            text,
            [
                "b is declared twice",
                "a depends on itself",
                "a depends on gone, which does not exist",
                "b → c → b is a cycle; tied up in cycles: b, c",
            ]
        );
    }

    /// The nodes of a chain in which each depends on the next, and the last on what is given.
    fn chain(length: usize, last: Option<usize>) -> Vec<(String, Vec<String>)> {
        let name = |node: usize| format!("n{node:05}");
        (0..length)
            .map(|node| {
                let next = if node + 1 < length { Some(node + 1) } else { last };
                (name(node), next.into_iter().map(name).collect())
            })
            .collect()
    }

    #[test]
    fn a_chain_of_ten_thousand_needs_no_stack() {
        const LENGTH: usize = 10_000;
        let run = || {
            let graph = Graph::new(chain(LENGTH, None)).unwrap();
            assert!(graph.order().iter().copied().eq((0..LENGTH).rev()));
            assert_eq!(graph.requires_all(0).count(), LENGTH - 1);
            assert_eq!(graph.required_by_all(LENGTH - 1).last(), Some(0));
            drop(graph.clone());

            let problems = Graph::new(chain(LENGTH, Some(0))).unwrap_err();
            let [GraphProblem::Cycle { cycle, tied_up }] = &problems[..] else {
                panic!("the ring is a cycle")
            };
            assert_eq!((cycle.len(), tied_up.len()), (LENGTH, LENGTH));
        };
        // A stack this small would not survive a frame per node.
        let small = std::thread::Builder::new().stack_size(128 * 1024);
        small.spawn(run).unwrap().join().unwrap();
    }

    /// The length of the shortest walk from each node back to itself, found the slow way.
    fn shortest_return(edges: &[Vec<usize>], from: usize) -> Option<usize> {
        let mut layer = vec![from];
        let mut seen = vec![false; edges.len()];
        for length in 1..=edges.len() {
            let next: Vec<usize> = layer.iter().flat_map(|&node| edges[node].clone()).collect();
            if next.contains(&from) {
                return Some(length);
            }
            layer = next
                .into_iter()
                .filter(|&node| !std::mem::replace(&mut seen[node], true))
                .collect();
        }
        None
    }

    proptest! {
        #[test]
        fn any_set_of_edges_is_ordered_or_refused_for_its_cycles(
            (count, pairs) in (1_usize..9).prop_flat_map(|count| {
                (Just(count), proptest::collection::vec((0..count, 0..count), 0..16))
            }),
            shuffle in proptest::collection::vec(any::<u32>(), 9),
        ) {
            let name = |node: usize| format!("n{node}");
            let mut edges = vec![Vec::new(); count];
            for (node, other) in pairs {
                if node != other {
                    edges[node].push(other);
                }
            }
            let mut nodes: Vec<(String, Vec<String>)> = (0..count)
                .map(|node| (name(node), edges[node].iter().map(|&other| name(other)).collect()))
                .collect();
            let given = Graph::new(nodes.clone());
            nodes.sort_by_key(|(name, _)| shuffle[name[1..].parse::<usize>().unwrap()]);
            prop_assert_eq!(&given, &Graph::new(nodes));

            let returns: Vec<Option<usize>> =
                (0..count).map(|node| shortest_return(&edges, node)).collect();
            match given {
                Ok(graph) => {
                    prop_assert!(returns.iter().all(Option::is_none));
                    for (node, edges) in edges.iter().enumerate() {
                        prop_assert_eq!(graph.order()[graph.rank(node)], node);
                        prop_assert!(edges.iter().all(|&other| graph.rank(other) < graph.rank(node)));
                    }
                    // Stability: a node stands behind a greater one only because something it needs does.
                    for pair in graph.order().windows(2) {
                        prop_assert!(pair[0] < pair[1] || graph.requires(pair[1]).contains(&pair[0]));
                    }
                }
                Err(problems) => {
                    let [GraphProblem::Cycle { cycle, tied_up }] = &problems[..] else {
                        return Err(TestCaseError::fail(format!("{problems:?}")));
                    };
                    let expected: Vec<String> =
                        (0..count).filter(|&node| returns[node].is_some()).map(name).collect();
                    prop_assert_eq!(tied_up, &expected);
                    prop_assert_eq!(Some(cycle.len()), returns.iter().flatten().min().copied());
                    let cycle: Vec<usize> = cycle.iter().map(|name| name[1..].parse().unwrap()).collect();
                    for (place, node) in cycle.iter().enumerate() {
                        prop_assert!(edges[*node].contains(&cycle[(place + 1) % cycle.len()]));
                    }
                    prop_assert_eq!(cycle.iter().min(), cycle.first());
                }
            }
        }
    }
}

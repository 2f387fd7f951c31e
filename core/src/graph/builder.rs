//! Collects nodes and edges by name. Each name is looked up once where it is mentioned; all else is integers.

use super::edges::Edges;
use super::names::{Interner, Names};
use super::{Graph, GraphProblem, cycle, stable_order};

/// Collects nodes and what they depend on, in any order, and makes a [`Graph`] of them.
///
/// ```
/// use nodewright_core::graph::GraphBuilder;
///
/// let mut builder = GraphBuilder::new();
/// let web = builder.node("web");
/// builder.depends_on(web, "db");
/// let db = builder.node("db");
/// let (graph, nodes) = builder.build().unwrap();
/// assert_eq!(graph.order(), [nodes[db], nodes[web]]);
/// ```
#[derive(Debug, Clone, Default)]
pub struct GraphBuilder {
    /// All names that were mentioned.
    names: Interner,
    /// The place of each declared node's name.
    declared: Vec<u32>,
    /// Declaration and place of the name that it depends on.
    edges: Vec<(u32, u32)>,
}

impl GraphBuilder {
    /// Without a node.
    pub fn new() -> Self {
        Self::default()
    }

    /// Declares a node; the number of its declaration, which counts from 0.
    pub fn node(&mut self, name: &str) -> usize {
        self.declared.push(self.names.place(name));
        self.declared.len() - 1
    }

    /// Says that a declared node depends on this name. Saying it twice is the same as once.
    pub fn depends_on(&mut self, declaration: usize, dependency: &str) {
        let declaration = u32::try_from(declaration).expect("there are no more than four billion nodes");
        self.edges.push((declaration, self.names.place(dependency)));
    }

    /// Orders the nodes: the graph, and of each declaration the node that it became.
    ///
    /// # Errors
    ///
    /// All problems: duplicates, then unknown and self dependencies by node, then the cycle.
    pub fn build(self) -> Result<(Graph, Vec<usize>), Vec<GraphProblem>> {
        let Self {
            names,
            declared,
            edges,
        } = self;
        let all = names.into_names();
        let mut problems = Vec::new();
        let (names, nodes) = sorted(&all, &declared, &mut problems);
        let name = |node: usize| names.get(node).to_owned();

        const NOWHERE: usize = usize::MAX;
        let mut node_of = vec![NOWHERE; all.len()];
        for (&place, &node) in declared.iter().zip(&nodes) {
            node_of[place as usize] = node;
        }
        let pairs = edges
            .iter()
            .map(|&(declaration, dependency)| (nodes[declaration as usize], dependency as usize));
        let mut requires = Edges::grouped(names.len(), pairs);
        requires.rewrite(|node, dependency| {
            let other = node_of[dependency];
            if other == node {
                problems.push(GraphProblem::Itself { name: name(node) });
            } else if other == NOWHERE {
                problems.push(GraphProblem::Unknown {
                    name: name(node),
                    dependency: all.get(dependency).to_owned(),
                });
            } else {
                return Some(other);
            }
            None
        });
        let required_by = requires.turned();

        let order = stable_order(&requires, &required_by);
        if order.len() < names.len() {
            let named = |nodes: Vec<usize>| nodes.into_iter().map(name).collect();
            let (cycle, tied_up) = cycle::find(&requires, &required_by, &order);
            problems.push(GraphProblem::Cycle {
                cycle: named(cycle),
                tied_up: named(tied_up),
            });
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let graph = Graph {
            names,
            ranks: ranks(&order),
            requires,
            required_by,
            order,
        };
        Ok((graph, nodes))
    }
}

/// The names of the nodes, which are the declared ones, ascending; and the node of each declaration.
fn sorted(all: &Names, declared: &[u32], problems: &mut Vec<GraphProblem>) -> (Names, Vec<usize>) {
    let mut places: Vec<u32> = Vec::with_capacity(declared.len());
    let mut nodes = vec![0; declared.len()];
    let mut reported = None;
    for declaration in all.ascending(declared) {
        let place = declared[declaration as usize];
        if places.last() != Some(&place) {
            places.push(place);
        } else if reported != Some(place) {
            // A third one of the name is the same problem as the second.
            reported = Some(place);
            let name = all.get(place as usize).to_owned();
            problems.push(GraphProblem::Duplicate { name });
        }
        nodes[declaration as usize] = places.len() - 1;
    }
    (all.picked(&places), nodes)
}

/// The place of each node in the order.
pub(super) fn ranks(order: &[usize]) -> Vec<usize> {
    let mut ranks = vec![0; order.len()];
    for (rank, &node) in order.iter().enumerate() {
        ranks[node] = rank;
    }
    ranks
}

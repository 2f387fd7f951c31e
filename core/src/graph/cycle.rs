//! Explains why nodes could not be ordered. Runs only for what is refused.

use std::collections::VecDeque;

use petgraph::algo::kosaraju_scc;
use petgraph::graph::{DiGraph, NodeIndex};

use super::edges::Edges;

/// One shortest cycle and, ascending, all nodes on any, given what could be ordered.
///
/// The cycle begins with its least node, and of the shortest ones has the least first node.
pub(super) fn find(requires: &Edges, required_by: &Edges, ordered: &[usize]) -> (Vec<usize>, Vec<usize>) {
    let circles = circles(requires, ordered);
    let tied_up = (0..circles.len())
        .filter(|&node| circles[node].is_some())
        .collect();
    let within = |edges: &Edges| {
        let mut within = edges.clone();
        let stays = |node: usize, next: usize| circles[node].is_some() && circles[node] == circles[next];
        within.rewrite(|node, next| stays(node, next).then_some(next));
        within
    };
    (shortest(&within(requires), &within(required_by)), tied_up)
}

/// Of each node on a cycle, the strongly connected component that it belongs to.
fn circles(requires: &Edges, ordered: &[usize]) -> Vec<Option<usize>> {
    let mut stuck = vec![true; requires.len()];
    for &node in ordered {
        stuck[node] = false;
    }
    let mut graph = DiGraph::<(), (), usize>::default();
    for _ in requires.rows() {
        graph.add_node(());
    }
    for (node, next) in requires.pairs() {
        if stuck[node] && stuck[next] {
            graph.add_edge(NodeIndex::new(node), NodeIndex::new(next), ());
        }
    }
    let mut circles = vec![None; requires.len()];
    // Kosaraju's algorithm rather than Tarjan's, because the library's Tarjan recurses.
    for (number, members) in kosaraju_scc(&graph).into_iter().enumerate() {
        if members.len() > 1 {
            for node in members {
                circles[node.index()] = Some(number);
            }
        }
    }
    circles
}

/// A shortest cycle along `forward`, which has at least one and no node that points at itself.
///
/// Looks from each node in turn and then takes the node away, with all that is on no cycle any more, since
/// no cycle through it is left to find. So a long ring costs one look, and once a short cycle is known, a
/// look goes no deeper than that.
fn shortest(forward: &Edges, backward: &Edges) -> Vec<usize> {
    let count = forward.len();
    let mut out: Vec<usize> = forward.rows().map(<[usize]>::len).collect();
    let mut into: Vec<usize> = backward.rows().map(<[usize]>::len).collect();
    let mut alive: Vec<bool> = out.iter().map(|&edges| edges > 0).collect();
    let mut best: Vec<usize> = Vec::new();
    let mut came_from = vec![0; count];
    // The start whose look has seen the node, so that no look has to clear what the one before it wrote.
    let mut seen_from = vec![count; count];
    for start in 0..count {
        // No cycle is shorter than two.
        if best.len() == 2 {
            break;
        }
        if !alive[start] {
            continue;
        }
        let mut queue = VecDeque::from([(start, 1)]);
        'look: while let Some((node, length)) = queue.pop_front() {
            if !best.is_empty() && length >= best.len() {
                break;
            }
            for &next in forward[node].iter().filter(|&&next| alive[next]) {
                if next == start {
                    best = vec![node];
                    let mut node = node;
                    while node != start {
                        node = came_from[node];
                        best.push(node);
                    }
                    best.reverse();
                    break 'look;
                }
                if seen_from[next] != start {
                    seen_from[next] = start;
                    came_from[next] = node;
                    queue.push_back((next, length + 1));
                }
            }
        }
        alive[start] = false;
        let mut gone = vec![start];
        while let Some(node) = gone.pop() {
            for (edges, counts) in [(forward, &mut into), (backward, &mut out)] {
                for &next in &edges[node] {
                    counts[next] -= 1;
                    if counts[next] == 0 && alive[next] {
                        alive[next] = false;
                        gone.push(next);
                    }
                }
            }
        }
    }
    best
}

//! The edges of all nodes in two vectors: walking them touches memory in order, and none is allocated per node.

use std::ops::Index;

/// Of each node, the nodes that it points at, ascending. Indexed by the node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Edges {
    /// Where the edges of each node begin in `ends`, and where the last one's end.
    starts: Vec<u32>,
    ends: Vec<usize>,
}

impl Edges {
    /// Edges of `count` nodes as pairs from and to, which are sorted by where they come from; those of one
    /// node keep the order they are given in.
    pub(crate) fn grouped(count: usize, pairs: impl Iterator<Item = (usize, usize)> + Clone) -> Self {
        let mut starts = vec![0_u32; count + 1];
        for (from, _) in pairs.clone() {
            starts[from] = starts[from]
                .checked_add(1)
                .expect("there are no more than four billion edges");
        }
        let mut all = 0_u32;
        for start in &mut starts {
            let own = std::mem::replace(start, all);
            all = all
                .checked_add(own)
                .expect("there are no more than four billion edges");
        }
        let mut next = starts.clone();
        let mut ends = vec![0; all as usize];
        for (from, to) in pairs {
            ends[next[from] as usize] = to;
            next[from] += 1;
        }
        Self { starts, ends }
    }

    /// Has each node's edges rewritten: what `edge` makes of them stays, ascending and once.
    pub(super) fn rewrite(&mut self, mut edge: impl FnMut(usize, usize) -> Option<usize>) {
        let Self { starts, ends } = self;
        let (mut kept, mut start) = (0, 0);
        for node in 0..starts.len() - 1 {
            let end = starts[node + 1] as usize;
            let first = kept;
            for at in start..end {
                if let Some(to) = edge(node, ends[at]) {
                    ends[kept] = to;
                    kept += 1;
                }
            }
            kept = first + ascending_once(&mut ends[first..kept]);
            starts[node + 1] = u32::try_from(kept).expect("there are no more than there were");
            start = end;
        }
        ends.truncate(kept);
    }

    /// How many nodes there are.
    pub(super) fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// The edges of each node, in order.
    pub(super) fn rows(&self) -> impl Iterator<Item = &[usize]> + Clone {
        self.starts
            .windows(2)
            .map(|bounds| &self.ends[bounds[0] as usize..bounds[1] as usize])
    }

    /// All edges as pairs from and to, ascending.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (usize, usize)> + Clone {
        let rows = self.rows().enumerate();
        rows.flat_map(|(from, ends)| ends.iter().map(move |&to| (from, to)))
    }

    /// The same edges, turned around.
    pub(crate) fn turned(&self) -> Self {
        Self::grouped(self.len(), self.pairs().map(|(from, to)| (to, from)))
    }
}

impl Index<usize> for Edges {
    type Output = [usize];

    fn index(&self, node: usize) -> &[usize] {
        &self.ends[self.starts[node] as usize..self.starts[node + 1] as usize]
    }
}

/// Sorts these and moves each once to the front; how many that are.
fn ascending_once(ends: &mut [usize]) -> usize {
    ends.sort_unstable();
    let mut kept = 0;
    for at in 0..ends.len() {
        if kept == 0 || ends[at] != ends[kept - 1] {
            ends[kept] = ends[at];
            kept += 1;
        }
    }
    kept
}

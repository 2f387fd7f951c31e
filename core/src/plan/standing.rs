//! How groups stand to each other: what opens and shuts their gates, by definition.
//!
//! A slot may start while every group that its group depends on, directly or not, is available. An undesired
//! slot may stop while no slot is going away in a group that depends on its group, directly or not: by the
//! shape, or by what a departed group left behind. The driver keeps the same in numbers.

use super::survey::Survey;
use crate::decide::WaitReason;
use crate::desired::Desired;
use crate::gate::Gate;
use crate::graph::Reach;
use crate::id::GroupId;
use crate::state::ClusterState;
use crate::status::Awaited;

/// Which groups depend on which directly, by their ranks.
struct Ties {
    below: Vec<Vec<usize>>,
    above: Vec<Vec<usize>>,
}

impl Ties {
    fn new(survey: &Survey<'_>) -> Self {
        let mut ties = Self {
            below: vec![Vec::new(); survey.names.len()],
            above: vec![Vec::new(); survey.names.len()],
        };
        let groups = survey.desired.groups();
        for group in groups {
            let below = group.depends_on.iter().map(|place| &groups[*place].id);
            ties.add(survey, &group.id, below);
        }
        for (departed, below) in &survey.observed.departed {
            ties.add(survey, departed, below);
        }
        ties
    }

    fn add<'a>(
        &mut self,
        survey: &Survey<'_>,
        above: &GroupId,
        below: impl IntoIterator<Item = &'a GroupId>,
    ) {
        let above = survey.rank(above) as usize;
        for below in below {
            let below = survey.rank(below) as usize;
            self.below[above].push(below);
            self.above[below].push(above);
        }
    }
}

/// What of every group shuts the gates of others.
pub(super) struct Standing {
    /// None where no group is tied to another.
    ties: Option<Ties>,
    /// Whether a desired slot is not available.
    lacking: Vec<bool>,
    /// Whether an undesired slot holds a node.
    going: Vec<bool>,
}

impl Standing {
    pub(super) fn new(survey: &Survey<'_>) -> Self {
        let ties = Ties::new(survey);
        let tied = ties.below.iter().any(|below| !below.is_empty());
        let mut standing = Self {
            ties: tied.then_some(ties),
            lacking: vec![false; survey.names.len()],
            going: vec![false; survey.names.len()],
        };
        if tied {
            survey.visit(|slot, node| {
                let group = slot.group as usize;
                match survey.template(slot) {
                    Some(template) => {
                        standing.lacking[group] |= node.is_none_or(|node| !node.is_available(template));
                    }
                    None => standing.going[group] |= node.is_some(),
                }
            });
        }
        standing
    }

    /// The gate of all slots of a group, as far as other groups are concerned.
    pub(super) fn gate(&self, group: u32) -> Gate {
        let Some(ties) = &self.ties else {
            return Gate::OPEN;
        };
        let group = group as usize;
        Gate {
            may_start: !Reach::new(&ties.below, group).any(|below| self.lacking[below]),
            may_stop: !Reach::new(&ties.above, group).any(|above| self.going[above]),
            ..Gate::OPEN
        }
    }
}

/// The groups that a slot of this group waits for, nearest first; none for a wait that is not for groups.
/// Costs O(groups), and the slots of those that are asked for.
pub(crate) fn awaited(
    observed: &ClusterState,
    desired: &Desired,
    group: &GroupId,
    reason: WaitReason,
) -> Vec<Awaited> {
    if !matches!(reason, WaitReason::Dependencies | WaitReason::Dependents) {
        return Vec::new();
    }
    let starts = reason == WaitReason::Dependencies;
    let survey = Survey::new(observed, desired);
    let ties = Ties::new(&survey);
    let edges = if starts { &ties.below } else { &ties.above };
    let mut groups = Vec::new();
    for rank in Reach::new(edges, survey.rank(group) as usize) {
        let mut awaited = Awaited::new(survey.names[rank].clone());
        survey.visit_group(rank as u32, |slot, node| {
            let awaits = match survey.template(slot) {
                Some(template) => starts && node.is_none_or(|node| !node.is_available(template)),
                None => !starts && node.is_some(),
            };
            if awaits {
                awaited.add(|| survey.id(slot), node);
            }
        });
        if awaited.slots > 0 {
            groups.push(awaited);
        }
    }
    groups
}

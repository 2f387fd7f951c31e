//! How the providers are, and which groups are degraded: told once, and again when it is otherwise.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use nodewright::id::ProviderKind;
use nodewright::status::{Degraded, ProviderStatus, Summary};
use serde::Serialize;

use crate::wording::ahead;

/// A condition that a person should know of, or the end of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(crate) enum Condition {
    /// How a provider is now.
    Provider(Standing),
    /// The groups with slots that are not tried again by themselves; none once there are no such groups.
    Degraded { groups: Vec<Degraded> },
}

/// How a provider is, without what changes all the time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Standing {
    provider: ProviderKind,
    /// How many calls may be at work there; of how many.
    places: u32,
    most: u32,
    /// Nothing is sent before this moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) not_before: Option<Timestamp>,
    /// What the last question for its machines failed with.
    #[serde(skip_serializing_if = "Option::is_none")]
    look_error: Option<Arc<str>>,
    /// Machines that nobody owns, seen once.
    #[serde(skip_serializing_if = "is_zero")]
    suspects: usize,
    /// Since when more machines are missing at once than is believed.
    #[serde(skip_serializing_if = "Option::is_none")]
    mass_loss_since: Option<Timestamp>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl Standing {
    pub(crate) fn of(status: &ProviderStatus, now: Timestamp) -> Self {
        Self {
            provider: status.provider.clone(),
            places: status.places,
            most: status.most,
            not_before: status.not_before.filter(|at| *at > now),
            look_error: status.look_error.clone(),
            suspects: status.suspects,
            mass_loss_since: status.mass_loss_since,
        }
    }

    /// Whether there is nothing to say of it.
    pub(crate) const fn is_usual(&self) -> bool {
        self.places == self.most
            && self.not_before.is_none()
            && self.look_error.is_none()
            && self.suspects == 0
            && self.mass_loss_since.is_none()
    }

    /// What is unusual, with a moment to come as this says it.
    pub(crate) fn words(&self, until: impl Fn(Timestamp) -> String) -> String {
        let mut words = Vec::new();
        if self.places < self.most {
            words.push(format!("slowed down to {} of {} calls", self.places, self.most));
        }
        if let Some(at) = self.not_before {
            words.push(format!("asked nothing until {}", until(at)));
        }
        if let Some(error) = &self.look_error {
            words.push(format!("does not list its machines: {error}"));
        }
        if self.suspects > 0 {
            words.push(format!("{} machines may be nobody's", self.suspects));
        }
        if self.mass_loss_since.is_some() {
            words.push("too many machines are missing at once to be believed".to_owned());
        }
        if words.is_empty() {
            words.push("as usual".to_owned());
        }
        format!("{}: {}", self.provider, words.join("; "))
    }

    /// The same for a table that is looked at now.
    pub(crate) fn words_at(&self, now: Timestamp) -> String {
        self.words(|at| ahead(at, now))
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Provider(standing) => f.write_str(&standing.words(|at| at.to_string())),
            Self::Degraded { groups } if groups.is_empty() => f.write_str("no group is degraded any more"),
            Self::Degraded { groups } => {
                let group = |one: &Degraded| format!("{} ({} halted)", one.group, one.halted);
                let groups: Vec<String> = groups.iter().map(group).collect();
                write!(f, "degraded: {}", groups.join(", "))
            }
        }
    }
}

/// What was told.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    /// Providers of which something unusual was told.
    providers: BTreeMap<ProviderKind, Standing>,
    degraded: Vec<Degraded>,
}

impl Conditions {
    /// What is to be told after this look.
    pub(crate) fn look(&mut self, seen: &Summary, now: Timestamp) -> Vec<Condition> {
        let mut news = Vec::new();
        for status in &seen.providers {
            let standing = Standing::of(status, now);
            let told = self.providers.remove(&status.provider);
            let is_news = told
                .as_ref()
                .map_or(!standing.is_usual(), |told| *told != standing);
            if !standing.is_usual() {
                self.providers.insert(status.provider.clone(), standing.clone());
            }
            if is_news {
                news.push(Condition::Provider(standing));
            }
        }
        if self.degraded != seen.degraded {
            self.degraded.clone_from(&seen.degraded);
            let groups = self.degraded.clone();
            news.push(Condition::Degraded { groups });
        }
        news
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::board::tests::at;

    /// A provider that may be asked this much, from this second on.
    pub(crate) fn provider(places: u32, not_before: Option<i64>) -> ProviderStatus {
        let status = serde_json::json!({
            "provider": "process",
            "places": places,
            "most": 64,
            "not_before": not_before.map(at),
            "looked": true,
        });
        serde_json::from_value(status).unwrap()
    }

    fn seen(provider: ProviderStatus, halted: u64) -> Summary {
        let group = "workers".parse().unwrap();
        Summary {
            providers: vec![provider],
            degraded: (halted > 0)
                .then_some(Degraded { group, halted })
                .into_iter()
                .collect(),
            ..Summary::default()
        }
    }

    #[test]
    fn a_slowed_down_provider_is_told_when_it_changes_and_once_it_is_as_usual() {
        let mut told = Conditions::default();
        assert_eq!(told.look(&seen(provider(64, None), 0), at(0)), []);
        let slowed = told.look(&seen(provider(32, Some(9)), 0), at(1));
        let line = serde_json::to_value(&slowed).unwrap();
        assert_eq!(
            line[0],
            serde_json::json!({
                "event": "provider", "provider": "process", "places": 32, "most": 64, "not_before": at(9),
            })
        );
        let text = slowed[0].to_string();
        assert!(
            text.contains("slowed down to 32 of 64 calls; asked nothing until 1970"),
            "{text}"
        );
        assert_eq!(told.look(&seen(provider(32, Some(9)), 0), at(2)), []);
        // What it swept since is no news, and the moment that has come is.
        let swept = ProviderStatus {
            swept: Some(at(9)),
            ..provider(32, Some(9))
        };
        assert_eq!(told.look(&seen(swept.clone(), 0), at(10)).len(), 1);
        assert_eq!(told.look(&seen(swept, 0), at(11)), []);
        let usual = told.look(&seen(provider(64, Some(9)), 0), at(12));
        assert_eq!(usual[0].to_string(), "process: as usual");
        assert_eq!(told.look(&seen(provider(64, Some(9)), 0), at(13)), []);
    }

    #[test]
    fn all_that_may_be_unusual_about_a_provider_is_said() {
        let status = ProviderStatus {
            look_error: Some("no answer".into()),
            suspects: 2,
            mass_loss_since: Some(at(1)),
            ..provider(64, None)
        };
        assert_eq!(
            Standing::of(&status, at(5)).words_at(at(5)),
            "process: does not list its machines: no answer; 2 machines may be nobody's; too many machines \
             are missing at once to be believed"
        );
        let held = Standing::of(&provider(64, Some(9)), at(5)).words_at(at(5));
        assert_eq!(held, "process: asked nothing until +4 s");
    }

    #[test]
    fn degraded_groups_are_told_when_they_change_and_when_there_are_none_any_more() {
        let mut told = Conditions::default();
        let of = |halted| seen(provider(64, None), halted);
        let first = told.look(&of(1), at(0));
        assert_eq!(
            serde_json::to_value(&first).unwrap()[0],
            serde_json::json!({ "event": "degraded", "groups": [{ "group": "workers", "halted": 1 }] })
        );
        assert_eq!(told.look(&of(1), at(1)), []);
        assert_eq!(
            told.look(&of(2), at(2))[0].to_string(),
            "degraded: workers (2 halted)"
        );
        assert_eq!(
            told.look(&of(0), at(3))[0].to_string(),
            "no group is degraded any more"
        );
    }
}

//! What must hold, compared with what there is.
//!
//! Each guarantee is a function that is named by its number. The rooms are sorted by what they look at:
//! [`state`] at one state, [`told`] at one observation and what it made of its node, [`shown`] at what it says of
//! the world, [`sweep`] at an inventory and what was concluded from it, [`pass`] at what a drive did, [`restored`] at what a process took over, [`provider`] at what really
//! lives, [`numbers`] at what is counted, [`tail`] at how a trace ends, [`order`] at groups that depend on each
//! other. What has to be remembered from step to step is the [`History`].
//!
//! G1, G2, G18 and G31 compare runs with each other; they are in the
//! [battery](crate::battery).

mod history;
mod numbers;
mod order;
mod pass;
mod provider;
mod restored;
mod shown;
mod state;
mod sweep;
mod tail;
mod told;

use std::fmt;

pub(crate) use self::history::History;
pub(crate) use self::order::{g25_order, g25_what_it_depends_on_is_available};
pub(crate) use self::pass::{check_preview, check_rest};
pub(crate) use self::restored::check_restored;
pub use self::state::check_state;
pub(crate) use self::sweep::Answered;
pub(crate) use self::told::Told;

/// A guarantee that did not hold, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken(pub String);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Broken {}

macro_rules! demand {
    ($holds:expr, $($what:tt)*) => {
        if !$holds {
            return Err($crate::oracle::Broken(format!($($what)*)));
        }
    };
}

use demand;

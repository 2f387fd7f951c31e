//! The fast level: the whole battery in seconds, for judging mutants of core. What it leaves out is numbers only.

use nodewright_conformance::battery::Sizes;
use nodewright_conformance::{Memory, conformance};

conformance! {
    fast: core of Memory, Sizes::FAST;
}

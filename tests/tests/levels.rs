//! The list of levels, each with the whole battery.

use nodewright_conformance::battery::Sizes;
use nodewright_conformance::{Memory, conformance};

conformance! {
    memory: core of Memory, Sizes::THOROUGH;
}

//! The list of levels, each with the whole battery.

use nodewright_conformance::battery::Sizes;
use nodewright_conformance::{Memory, Plugin, Process, conformance};

conformance! {
    memory: core of Memory, Sizes::THOROUGH;
    plugin: core of Plugin, Sizes::QUICK;
    process: core of Process, Sizes::REAL;
    actors: stack of Memory, Sizes::QUICK;
    actors_process: stack of Process, Sizes::SLOW;
}

//! The list of levels makes the tests.

/// Makes a module of tests for each level of a list: what a backend promises, and the whole
/// [battery](crate::battery).
///
/// A line is `name: level of Subject, sizes`; the level is `core` (a driver, its ledgers and the subject under
/// virtual time) or `stack` (the actors). The tests are counted: `TESTS` is how many a line makes.
///
/// ```
/// mod tests {
///     nodewright_conformance::conformance! {
///         memory: core of nodewright_conformance::Memory, nodewright_conformance::battery::Sizes::THOROUGH;
///     }
/// }
/// ```
#[macro_export]
macro_rules! conformance {
    ($($name:ident: $level:ident of $subject:ty, $sizes:expr;)*) => {$(
        #[cfg(test)]
        mod $name {
            use super::*;

            const SIZES: $crate::battery::Sizes = $sizes;

            $crate::conformance!(@$level $name $subject);
        }
    )*};
    (@core $name:ident $subject:ty) => {
        #[test]
        fn the_backend_keeps_its_promises() {
            if let Err(broken) = $crate::check_contract::<$subject>() {
                panic!("{}", broken.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
            }
        }

        #[test]
        fn g18_one_node_never_stops_another() {
            $crate::battery::one_node_never_stops_another::<$subject>();
        }

        #[test]
        fn g20_the_latest_shape_counts_and_no_other() {
            $crate::battery::the_latest_shape_counts_and_no_other::<$subject>();
        }

        $crate::conformance!(@traces $name $crate::Core<$subject>);
    };
    (@stack $name:ident $subject:ty) => {
        $crate::conformance!(@traces $name $crate::Stack<$subject>);
    };
    (@traces $name:ident $level:ty) => {
        #[test]
        fn without_faults_every_trace_holds_and_comes_to_rest() {
            $crate::battery::calm::<$level>(stringify!($name), SIZES);
        }

        #[test]
        fn whatever_goes_wrong_every_trace_holds_and_comes_to_rest() {
            $crate::battery::rough::<$level>(stringify!($name), SIZES);
        }

        #[test]
        fn g1_the_same_trace_ends_the_same() {
            $crate::battery::the_same_trace_ends_the_same::<$level>(SIZES);
        }

        #[test]
        fn g2_faults_leave_no_trace_in_the_end() {
            $crate::battery::faults_leave_no_trace_in_the_end::<$level>(SIZES);
        }
    };
}

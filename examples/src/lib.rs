//! The examples' own tests: the program in the README is compiled and run.

#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

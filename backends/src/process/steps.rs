//! A row of named steps, each with its undo.

use std::io;

use nodewright_core::effect::EffectError;

/// Runs steps one after another; once one fails, undoes those before it, the last one first.
///
/// Every step is short and none waits, so that whoever drops the call that they belong to never ends it in
/// the middle of one.
#[derive(Default)]
pub(super) struct Steps<'a> {
    done: Vec<(&'static str, Undo<'a>)>,
}

type Undo<'a> = Box<dyn FnOnce() -> io::Result<()> + Send + 'a>;

impl<'a> Steps<'a> {
    /// Runs a step, with what undoes it. The undo sees what the step made.
    ///
    /// # Errors
    ///
    /// Definite where the step failed and all before it is undone; ambiguous where an undo failed, too, so
    /// that something may be left.
    pub(super) fn run<T: Clone + Send + 'a>(
        &mut self,
        name: &'static str,
        step: impl FnOnce() -> io::Result<T>,
        undo: impl FnOnce(T) -> io::Result<()> + Send + 'a,
    ) -> Result<T, EffectError> {
        match step() {
            Ok(made) => {
                let undone = made.clone();
                self.done.push((name, Box::new(move || undo(undone))));
                Ok(made)
            }
            Err(error) => Err(self.undo(&format!("step {name:?}: {error}"))),
        }
    }

    fn undo(&mut self, failed: &str) -> EffectError {
        let mut left = String::new();
        for (name, undo) in self.done.drain(..).rev() {
            if let Err(error) = undo() {
                left.push_str(&format!("; undoing step {name:?}: {error}"));
            }
        }
        let reason = format!("{failed}{left}");
        if left.is_empty() {
            EffectError::definite(reason)
        } else {
            EffectError::ambiguous(reason)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use nodewright_core::effect::FailureKind;

    use super::*;

    #[test]
    fn a_failed_step_undoes_those_before_it_backwards_and_an_undo_that_fails_makes_it_ambiguous() {
        for (undo_fails, kind) in [(false, FailureKind::Definite), (true, FailureKind::Ambiguous)] {
            let undone = Mutex::new(Vec::new());
            let mut steps = Steps::default();
            steps
                .run(
                    "first",
                    || Ok(1),
                    |made| {
                        undone.lock().unwrap().push(made);
                        if undo_fails {
                            Err(io::Error::other("no"))
                        } else {
                            Ok(())
                        }
                    },
                )
                .unwrap();
            steps
                .run(
                    "second",
                    || Ok(2),
                    |made| {
                        undone.lock().unwrap().push(made);
                        Ok(())
                    },
                )
                .unwrap();
            let error = steps
                .run("third", || Err::<(), _>(io::Error::other("full")), |()| Ok(()))
                .unwrap_err();
            assert_eq!(error.kind, kind);
            assert!(
                error.reason.contains("third") && error.reason.contains("full"),
                "{error}"
            );
            drop(steps);
            assert_eq!(undone.into_inner().unwrap(), [2, 1]);
        }
    }
}

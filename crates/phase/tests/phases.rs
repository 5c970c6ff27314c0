// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which class a process is in, read from the page as the kernel side reads it.

use paceline::{EnterError, Page, Phases, Token, Unbalanced, CLASSES};
use proptest::prelude::*;

fn phases() -> Phases {
    Phases::new(Page::unshared().expect("memory"))
}

/// Class and generation that the kernel side would see.
fn shown(phases: &Phases) -> (u32, u32) {
    let (phase, _) = phases.page().read(0);
    (phase & 0xff, phase >> 8)
}

fn class(phases: &Phases) -> u32 {
    shown(phases).0
}

#[test]
fn classes_nest_and_are_counted() {
    let phases = phases();
    assert_eq!(shown(&phases), (0, 0));
    for class in [3, 5, 3] {
        phases.enter(class).expect("in range");
    }
    assert_eq!(class(&phases), 3);
    assert_eq!(phases.leave(), Ok(()));
    assert_eq!(class(&phases), 5);
    assert_eq!((phases.page().read(3).1, phases.page().read(5).1), (2, 1));
    assert_eq!((phases.leave(), phases.leave()), (Ok(()), Ok(())));
    assert_eq!(shown(&phases), (0, 0));
    assert_eq!(phases.leave(), Err(Unbalanced));
}

#[test]
fn the_class_entered_last_counts_whichever_thread_entered_it() {
    let phases = phases();
    phases.enter(1).expect("in range");
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                assert_eq!(phases.leave(), Err(Unbalanced), "another thread's");
                phases.enter(2).expect("in range");
                assert_eq!(class(&phases), 2);
            })
            .join()
            .expect("no panic");
    });
    // What that thread left open is between it and the phases; ours goes first.
    assert_eq!(phases.leave(), Ok(()));
    assert_eq!(class(&phases), 2);
}

#[test]
fn operations_end_in_any_order_and_only_once() {
    let phases = phases();
    let first = phases.begin(1).expect("in range");
    let second = phases.begin(2).expect("in range");
    phases.enter(3).expect("in range");
    assert_eq!(phases.end(first), Ok(()));
    assert_eq!(class(&phases), 3);
    assert_eq!(phases.leave(), Ok(()));
    assert_eq!(class(&phases), 2);
    assert_eq!(phases.end(first), Err(Unbalanced));
    assert_eq!(phases.end(second), Ok(()));
    assert_eq!(class(&phases), 0);
}

#[test]
fn more_than_fit_are_counted_and_left() {
    let phases = phases();
    let mut refused = 0;
    for _ in 0..100 {
        match phases.enter(4) {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error, EnterError::Full);
                refused += 1;
            }
        }
    }
    assert!(refused > 0);
    assert_eq!(phases.begin(5), Err(EnterError::Full));
    for _ in 0..100 {
        assert_eq!(phases.leave(), Ok(()));
    }
    assert_eq!(class(&phases), 0);
    assert_eq!(phases.leave(), Err(Unbalanced));
}

#[test]
fn a_class_that_is_given_again_has_another_generation() {
    let phases = phases();
    let given = phases.new_class().expect("one is free");
    assert_eq!(given, CLASSES - 1);
    phases.enter(given).expect("in range");
    let before = shown(&phases);
    assert_eq!(phases.free_class(given), Ok(()));
    assert_eq!(phases.free_class(given), Err(EnterError::OutOfRange));
    assert_eq!(phases.new_class(), Some(given));
    let after = shown(&phases);
    assert_eq!(before.0, after.0);
    assert_ne!(before.1, after.1, "who is in it learns anew");
    let all = std::iter::from_fn(|| phases.new_class()).count();
    assert_eq!(all as u32, CLASSES - 2, "all but class 0 and the one above");
}

/// What the phases should say, done slowly.
#[derive(Default)]
struct Model {
    active: Vec<(Option<Token>, u32)>,
}

proptest! {
    #[test]
    fn any_sequence_is_as_in_the_model(
        steps in prop::collection::vec((0..4u8, 0..70u32), 0..60),
    ) {
        let (phases, mut model) = (phases(), Model::default());
        for (step, class) in steps {
            let now = model.active.last().map_or(0, |(_, class)| *class);
            match step {
                0 => {
                    let known = class < CLASSES;
                    prop_assert_eq!(phases.enter(class).is_ok(), known);
                    model.active.push((None, if known { class } else { now }));
                }
                1 => {
                    let at = model.active.iter().rposition(|(token, _)| token.is_none());
                    prop_assert_eq!(phases.leave().is_ok(), at.is_some());
                    at.map(|at| model.active.remove(at));
                }
                2 => match phases.begin(class) {
                    Ok(token) => model.active.push((Some(token), class)),
                    Err(error) => prop_assert_eq!((error, class >= CLASSES), (EnterError::OutOfRange, true)),
                },
                _ => {
                    let at = model.active.iter().position(|(token, _)| token.is_some());
                    if let Some(at) = at {
                        let (token, _) = model.active.remove(at);
                        prop_assert_eq!(phases.end(token.expect("it has one")), Ok(()));
                    }
                }
            }
            let expected = model.active.last().map_or(0, |(_, class)| *class);
            prop_assert_eq!(phases.page().read(0).0 & 0xff, expected);
        }
    }
}

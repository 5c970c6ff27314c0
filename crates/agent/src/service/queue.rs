// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The order of answers: round-robin over users, whatever number of calls each has waiting.

use std::collections::VecDeque;

/// Limit of waiting calls per user; further calls are closed, and the client calls again.
const MOST_PER_USER: usize = 1024;

/// The waiting calls of each user, oldest first.
#[derive(Debug)]
pub(super) struct Queue<T> {
    waiting: VecDeque<(u32, T)>,
    /// The user of the last turn.
    last: Option<u32>,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            last: None,
        }
    }
}

impl<T> Queue<T> {
    /// One more of a user's; given back where that has too many.
    pub fn push(&mut self, user: u32, what: T) -> Result<(), T> {
        let same = self.waiting.iter().filter(|(other, _)| *other == user);
        if same.count() >= MOST_PER_USER {
            return Err(what);
        }
        self.waiting.push_back((user, what));
        Ok(())
    }

    /// The oldest call of the next user.
    pub fn next(&mut self) -> Option<T> {
        let users = || self.waiting.iter().map(|(user, _)| *user);
        let later = users().filter(|user| self.last.is_none_or(|last| *user > last));
        let user = later.min().or_else(|| users().min())?;
        let at = users().position(|other| other == user)?;
        self.last = Some(user);
        self.waiting.remove(at).map(|(_, what)| what)
    }

    /// Whether no call waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_waits_for_one_request_of_another_user_with_a_hundred() {
        let mut queue = Queue::default();
        for number in 0..100 {
            queue.push(1000, number).unwrap();
        }
        assert_eq!(queue.next(), Some(0));
        queue.push(1001, 500).unwrap();
        queue.push(7, 600).unwrap();
        let next: Vec<i32> = std::iter::from_fn(|| queue.next()).take(5).collect();
        assert_eq!(next, [500, 600, 1, 2, 3]);
    }

    #[test]
    fn a_user_has_no_more_than_so_many_waiting() {
        let mut queue = Queue::default();
        for _ in 0..MOST_PER_USER {
            queue.push(1000, ()).unwrap();
        }
        assert!(queue.push(1000, ()).is_err());
        assert!(queue.push(1001, ()).is_ok());
    }
}

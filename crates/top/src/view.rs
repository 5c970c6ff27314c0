// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of the view, and the effect of keys.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use paceline_agent::status::Status;
use paceline_input::units::Time;

use super::gateway::Gateway;
use super::seen::Seen;
use super::table::{Pane, Row};

/// The next step after a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    Stay,
    Leave,
}

/// All that is drawn.
#[derive(Debug)]
pub struct View {
    pub seen: Seen,
    pub gateway: Gateway,
    pub pane: Pane,
    pub help: bool,
    /// Why the last look saw nothing.
    pub problem: Option<String>,
    pub interval: Time,
    /// No look yet, and no pane chosen.
    unseen: bool,
    /// Rows that a page has.
    pub page: usize,
    /// Of each pane: the column that sorts, and the row that was chosen.
    panes: [(usize, Option<String>); 3],
}

impl View {
    pub fn new(interval: Time) -> Self {
        Self {
            seen: Seen::default(),
            gateway: Gateway::default(),
            pane: Pane::Connections,
            help: false,
            problem: None,
            interval,
            unseen: true,
            page: 1,
            panes: Pane::ALL.map(|pane| (pane.first_sort(), None)),
        }
    }

    /// Takes a snapshot. The first one decides the first view: the connections, or the jobs,
    /// where these have none.
    pub fn see(&mut self, at: Duration, status: Status) {
        let first = std::mem::take(&mut self.unseen);
        self.seen.add(at, status);
        if first && !self.seen.jobs.is_empty() && self.seen.connections().next().is_none() {
            self.pane = Pane::Jobs;
        }
    }

    /// The column by which the pane is sorted.
    pub fn sort(&self) -> usize {
        self.panes[self.pane as usize].0
    }

    /// The pane's rows, and which of them is chosen: the first, if the one that was is gone.
    pub fn rows(&self) -> (Vec<Row>, usize) {
        let (sort, chosen) = &self.panes[self.pane as usize];
        let rows = self.pane.rows(&self.seen, *sort);
        let chosen = chosen
            .as_ref()
            .and_then(|key| rows.iter().position(|row| row.key == *key));
        (rows, chosen.unwrap_or(0))
    }

    pub fn press(&mut self, key: KeyEvent) -> Next {
        if key.kind == KeyEventKind::Release {
            return Next::Stay;
        }
        self.unseen = false;
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if control => return Next::Leave,
            // Whatever is pressed, the help goes.
            _ if self.help => self.help = false,
            KeyCode::Char('q') | KeyCode::Esc => return Next::Leave,
            KeyCode::Char('?' | 'h') => self.help = true,
            KeyCode::Char('j') => self.pane = Pane::Jobs,
            KeyCode::Char('c') => self.pane = Pane::Connections,
            KeyCode::Char('g') => self.pane = Pane::Groups,
            KeyCode::Tab => self.turn(1),
            KeyCode::BackTab => self.turn(Pane::ALL.len() - 1),
            KeyCode::Char('s') => {
                let columns = self.pane.columns().len();
                let sort = &mut self.panes[self.pane as usize].0;
                *sort = (*sort + 1) % columns;
            }
            KeyCode::Up => self.choose(|at, _| at.saturating_sub(1)),
            KeyCode::Down => self.choose(|at, _| at + 1),
            KeyCode::PageUp => self.choose(|at, page| at.saturating_sub(page)),
            KeyCode::PageDown => self.choose(|at, page| at + page),
            KeyCode::Home => self.choose(|_, _| 0),
            KeyCode::End => self.choose(|_, _| usize::MAX),
            _ => {}
        }
        Next::Stay
    }

    fn turn(&mut self, by: usize) {
        self.pane = Pane::ALL[(self.pane as usize + by) % Pane::ALL.len()];
    }

    fn choose(&mut self, to: impl Fn(usize, usize) -> usize) {
        let (rows, at) = self.rows();
        let last = rows.len().saturating_sub(1);
        let row = rows.get(to(at, self.page).min(last));
        self.panes[self.pane as usize].1 = row.map(|row| row.key.clone());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::seen::tests as example;
    use super::*;

    fn view(connections: std::ops::Range<u8>) -> View {
        let mut view = View::new(Time::from_micros(1_000_000));
        look(&mut view, 0, connections);
        view.page = 4;
        view
    }

    fn look(view: &mut View, second: u64, connections: std::ops::Range<u8>) {
        let connections = connections.map(|number| example::connection(number, 0));
        let jobs = vec![example::job(connections.collect())];
        let status = example::status(jobs, Vec::new());
        view.see(Duration::from_secs(second), status);
    }

    fn press(view: &mut View, code: KeyCode) -> Next {
        view.press(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn chosen(view: &View) -> String {
        let (rows, at) = view.rows();
        rows[at].key.clone()
    }

    #[test]
    fn a_selected_row_stays_selected_while_it_exists() {
        let mut view = view(1..9);
        assert_eq!(chosen(&view), "1");
        for (code, now) in [
            (KeyCode::Down, "2"),
            (KeyCode::PageDown, "6"),
            (KeyCode::PageDown, "8"),
            (KeyCode::Up, "7"),
            (KeyCode::Home, "1"),
            (KeyCode::Up, "1"),
            (KeyCode::End, "8"),
            (KeyCode::PageUp, "4"),
        ] {
            press(&mut view, code);
            assert_eq!(chosen(&view), now, "{code:?}");
        }
        look(&mut view, 1, 3..9);
        assert_eq!(chosen(&view), "4", "others are gone");
        while view.sort() != 7 {
            press(&mut view, KeyCode::Char('s'));
        }
        let (rows, at) = view.rows();
        assert_eq!(
            (rows[0].key.as_str(), at),
            ("8", 4),
            "the most retransmissions first"
        );
        look(&mut view, 2, 5..9);
        assert_eq!(chosen(&view), "8", "it is gone itself");
        look(&mut view, 3, 0..0);
        press(&mut view, KeyCode::Down);
        assert!(view.rows().0.is_empty());
    }

    #[test]
    fn jobs_without_connections_are_seen_at_first_unless_a_pane_was_asked_for() {
        assert_eq!(view(1..2).pane, Pane::Connections);
        assert_eq!(view(0..0).pane, Pane::Jobs);
        let mut view = View::new(Time::from_micros(1_000_000));
        press(&mut view, KeyCode::Char('g'));
        look(&mut view, 0, 0..0);
        assert_eq!(view.pane, Pane::Groups);
    }

    #[test]
    fn keys_choose_the_pane_and_leave() {
        let mut view = view(1..2);
        for (code, pane) in [
            (KeyCode::Char('j'), Pane::Jobs),
            (KeyCode::Tab, Pane::Connections),
            (KeyCode::Char('g'), Pane::Groups),
            (KeyCode::Tab, Pane::Jobs),
            (KeyCode::BackTab, Pane::Groups),
            (KeyCode::Char('c'), Pane::Connections),
        ] {
            assert_eq!(press(&mut view, code), Next::Stay);
            assert_eq!(view.pane, pane, "{code:?}");
        }
        press(&mut view, KeyCode::Char('?'));
        assert!(view.help);
        assert_eq!(press(&mut view, KeyCode::Esc), Next::Stay);
        assert!(!view.help);
        assert_eq!(press(&mut view, KeyCode::Esc), Next::Leave);
        assert_eq!(press(&mut view, KeyCode::Char('q')), Next::Leave);
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(view.press(interrupt), Next::Leave);
    }
}

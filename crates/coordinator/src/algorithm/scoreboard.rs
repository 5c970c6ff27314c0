// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The paper's majority decision (kamezawa-2004, 5.5): windows vote for blocks of
//! window sizes on a board whose scores decay; the best block, and a little more, is
//! the upper limit of all.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Algorithm, Limits, Stream};

/// How windows are divided into blocks, and what is added to the best one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Blocks {
    /// Blocks of the same size, as in the paper; both in segments.
    Fixed {
        /// Size of a block; the paper's is 30.
        block_segs: f64,
        /// Added to the best block; the paper's is 60.
        headroom_segs: f64,
    },
    /// Blocks that grow with the window; both as shares of it. The paper's windows were
    /// of some 1,900 segments, of which its own sizes are 1.6 % and 3.2 %.
    Scaled {
        /// Size of a block.
        block: f64,
        /// Added to the best block, and one segment at least.
        headroom: f64,
    },
}

/// The paper's parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoreboardConfig {
    /// The division into blocks.
    pub blocks: Blocks,
    /// Share of each score that is lost in a round: 0.1 in the paper.
    pub decay: f64,
    /// For the window's own block, its neighbours, and theirs: 3, 2, 1 in the paper.
    pub points: [f64; 3],
    /// The round: 1 s in the paper.
    pub period: Duration,
    /// A stream in its first slow start is not limited. With a headroom of a few
    /// percent it would otherwise never get out of it.
    pub spare_slow_start: bool,
}

impl ScoreboardConfig {
    /// As in the paper.
    pub const PAPER: Self = Self {
        blocks: Blocks::Fixed {
            block_segs: 30.0,
            headroom_segs: 60.0,
        },
        decay: 0.1,
        points: [3.0, 2.0, 1.0],
        period: Duration::from_secs(1),
        spare_slow_start: false,
    };
    /// The paper's, with sizes as shares of the window.
    pub const SCALED: Self = Self {
        blocks: Blocks::Scaled {
            block: 30.0 / 1900.0,
            headroom: 60.0 / 1900.0,
        },
        spare_slow_start: true,
        ..Self::PAPER
    };
}

impl Blocks {
    fn index(self, segs: f64) -> u32 {
        match self {
            Self::Fixed { block_segs, .. } => (segs / block_segs).round() as u32,
            Self::Scaled { block, .. } => (segs.ln() / block.ln_1p()).round() as u32,
        }
    }

    fn window(self, index: u32) -> f64 {
        match self {
            Self::Fixed { block_segs, .. } => f64::from(index) * block_segs,
            Self::Scaled { block, .. } => (f64::from(index) * block.ln_1p()).exp(),
        }
    }

    fn with_headroom(self, window: f64) -> f64 {
        match self {
            Self::Fixed { headroom_segs, .. } => window + headroom_segs,
            Self::Scaled { headroom, .. } => window + (window * headroom).max(1.0),
        }
    }
}

/// A score this small is forgotten: no vote that still counts is.
const FORGOTTEN: f64 = 1e-3;
/// Linux's ssthresh while no loss has set one (TCP_INFINITE_SSTHRESH).
const NO_SSTHRESH: u32 = i32::MAX as u32;

/// The board.
#[derive(Debug, Clone)]
pub struct Scoreboard {
    config: ScoreboardConfig,
    scores: BTreeMap<u32, f64>,
    goal_segs: Option<f64>,
}

impl Scoreboard {
    /// An empty board.
    pub fn new(config: ScoreboardConfig) -> Self {
        Self {
            config,
            scores: BTreeMap::new(),
            goal_segs: None,
        }
    }

    fn vote(&mut self, segs: f64) {
        let index = self.config.blocks.index(segs);
        for (distance, points) in (0u32..).zip(self.config.points) {
            let above = index.saturating_add(distance);
            *self.scores.entry(above).or_default() += points;
            if let (true, Some(below)) = (distance > 0, index.checked_sub(distance)) {
                *self.scores.entry(below).or_default() += points;
            }
        }
    }
}

impl Algorithm for Scoreboard {
    fn round(&mut self, _now: Duration, streams: &[Stream]) -> Vec<Limits> {
        let kept = 1.0 - self.config.decay;
        self.scores.retain(|_, score| {
            *score *= kept;
            *score > FORGOTTEN
        });
        for stream in streams {
            if stream.sample.inflight_segs > 0 {
                self.vote(f64::from(stream.sample.inflight_segs));
            }
        }
        // Of equals the larger window: the limit is meant to rise.
        let best = self.scores.iter().max_by(|a, b| a.1.total_cmp(b.1));
        self.goal_segs = best.map(|(index, _)| self.config.blocks.window(*index));
        let limits = match self.goal_segs {
            None => Limits::FREE,
            Some(goal) => Limits::upper(self.config.blocks.with_headroom(goal)),
        };
        streams
            .iter()
            .map(|stream| {
                let first_start = stream.sample.ssthresh_segs >= NO_SSTHRESH;
                match self.config.spare_slow_start && first_start {
                    true => Limits::FREE,
                    false => limits,
                }
            })
            .collect()
    }

    fn period(&self) -> Duration {
        self.config.period
    }

    fn beliefs(&self) -> Vec<String> {
        match self.goal_segs {
            None => vec!["no window has voted yet".to_owned()],
            Some(goal) => vec![format!(
                "best block {goal:.0} segments, limit {:.0}",
                self.config.blocks.with_headroom(goal)
            )],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn board(votes: &[u32]) -> Scoreboard {
        let mut board = Scoreboard::new(ScoreboardConfig::PAPER);
        for vote in votes {
            board.vote(f64::from(*vote));
        }
        board
    }

    #[test]
    fn a_vote_is_convex() {
        let scores: Vec<_> = board(&[300]).scores.into_iter().collect();
        assert_eq!(
            scores,
            [(8, 1.0), (9, 2.0), (10, 3.0), (11, 2.0), (12, 1.0)]
        );
        let scores: Vec<_> = board(&[10]).scores.into_iter().collect();
        assert_eq!(scores, [(0, 3.0), (1, 2.0), (2, 1.0)]);
    }

    #[test]
    fn neighbours_outvote_a_lone_larger_one() {
        let board = board(&[300, 330, 330, 900, 900]);
        let best = board.scores.iter().max_by(|a, b| a.1.total_cmp(b.1));
        assert_eq!(best, Some((&11, &8.0)));
    }

    #[test]
    fn scaled_blocks_keep_their_share() {
        let blocks = ScoreboardConfig::SCALED.blocks;
        for segs in [10.0, 130.0, 1900.0] {
            let window = blocks.window(blocks.index(segs));
            assert!((window / segs - 1.0).abs() < 0.01, "{segs}: {window}");
        }
        assert_eq!(blocks.with_headroom(10.0), 11.0);
        assert_eq!(blocks.with_headroom(1900.0), 1960.0);
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The paper's majority decision (kamezawa-2004, 5.5): windows vote for blocks of
//! window sizes on a board whose scores decay; the best block, and a little more, is
//! the upper limit of all.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Algorithm, Limits, Stream};

/// How long a round is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Round {
    /// 1 s in the paper.
    Fixed(Duration),
    /// So many of the least round trip. The paper's round trip was 350 ms (6.1).
    RoundTrips(f64),
}

/// The paper's parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoreboardConfig {
    /// Size of a block of windows, segments: 30 in the paper.
    pub block_segs: f64,
    /// Margin of the limit above the best block, segments: 60 in the paper.
    pub headroom_segs: f64,
    /// Share of each score that is lost in a round: 0.1 in the paper.
    pub decay: f64,
    /// For the window's own block, its neighbours, and theirs: 3, 2, 1 in the paper.
    pub points: [f64; 3],
    /// The round.
    pub round: Round,
}

impl ScoreboardConfig {
    /// As in the paper.
    pub const PAPER: Self = Self {
        block_segs: 30.0,
        headroom_segs: 60.0,
        decay: 0.1,
        points: [3.0, 2.0, 1.0],
        round: Round::Fixed(Duration::from_secs(1)),
    };
}

/// Smaller scores are deleted: no vote that still counts is as small.
const FORGOTTEN: f64 = 1e-3;
/// Rounds in round trips: no shorter than the answer of a group of many hosts, no longer than
/// the paper's.
const LEAST_ROUND: Duration = Duration::from_millis(20);
const LONGEST_ROUND: Duration = Duration::from_secs(1);

/// The board.
#[derive(Debug, Clone)]
pub struct Scoreboard {
    config: ScoreboardConfig,
    scores: BTreeMap<u32, f64>,
    goal_segs: Option<f64>,
    min_rtt: Option<Duration>,
}

impl Scoreboard {
    /// An empty board.
    pub fn new(config: ScoreboardConfig) -> Self {
        Self {
            config,
            scores: BTreeMap::new(),
            goal_segs: None,
            min_rtt: None,
        }
    }

    /// The block of a window: its number times its size is the largest window in it. This
    /// value stands for the block, which the paper leaves open: no stream that voted for the
    /// best one is cut.
    fn block(&self, segs: f64) -> u32 {
        (segs / self.config.block_segs).ceil() as u32
    }

    fn vote(&mut self, segs: f64) {
        let index = self.block(segs);
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
        let rtts = streams.iter().map(|s| s.sample.min_rtt_us);
        let least = rtts.filter(|rtt| *rtt > 0).min();
        self.min_rtt = least.map(|rtt| Duration::from_micros(rtt.into()));
        for stream in streams {
            if stream.sample.inflight_segs > 0 {
                self.vote(f64::from(stream.sample.inflight_segs));
            }
        }
        // Of equals the larger window: the limit is meant to rise.
        let best = self.scores.iter().max_by(|a, b| a.1.total_cmp(b.1));
        self.goal_segs = best.map(|(index, _)| f64::from(*index) * self.config.block_segs);
        let limits = match self.goal_segs {
            None => Limits::FREE,
            Some(goal) => Limits::upper(goal + self.config.headroom_segs),
        };
        vec![limits; streams.len()]
    }

    fn period(&self) -> Duration {
        let trips = match self.config.round {
            Round::Fixed(period) => return period,
            Round::RoundTrips(trips) => trips,
        };
        match self.min_rtt {
            Some(rtt) => rtt.mul_f64(trips).clamp(LEAST_ROUND, LONGEST_ROUND),
            None => LONGEST_ROUND,
        }
    }

    fn beliefs(&self) -> Vec<String> {
        match self.goal_segs {
            None => vec!["no window has a vote yet".to_owned()],
            Some(goal) => vec![format!(
                "best block {goal:.0} segments, limit {:.0}",
                goal + self.config.headroom_segs
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
        assert_eq!(scores, [(0, 2.0), (1, 3.0), (2, 2.0), (3, 1.0)]);
    }

    #[test]
    fn neighbours_outvote_a_lone_larger_one() {
        let board = board(&[300, 330, 330, 900, 900]);
        let best = board.scores.iter().max_by(|a, b| a.1.total_cmp(b.1));
        assert_eq!(best, Some((&11, &8.0)));
    }

    #[test]
    fn a_round_may_follow_the_round_trip() {
        let mut board = Scoreboard::new(ScoreboardConfig {
            round: Round::RoundTrips(1000.0 / 350.0),
            ..ScoreboardConfig::PAPER
        });
        assert_eq!(board.period(), LONGEST_ROUND, "no round trip is known");
        let stream = |min_rtt_us: u32| Stream {
            id: crate::algorithm::StreamId {
                client: 0,
                cookie: min_rtt_us.into(),
            },
            taken: Duration::ZERO,
            sample: crate::local::StreamSample {
                min_rtt_us,
                ..Default::default()
            },
        };
        board.round(
            Duration::ZERO,
            &[stream(0), stream(210_000), stream(700_000)],
        );
        assert_eq!(board.period(), Duration::from_millis(600));
        board.round(Duration::ZERO, &[stream(350_000)]);
        assert_eq!(board.period(), Duration::from_secs(1), "the paper's");
    }
}

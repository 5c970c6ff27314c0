// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Balance between routes. A bottleneck that two of them share is not visible from
//! outside, so a trial finds it: the one that would end first gives a little of its
//! budget to the one that would end last. If that one then delivers more, they meet, and
//! from now on share by their remaining data. If not, both get their former budgets
//! back.

use std::collections::HashMap;
use std::time::Duration;

use super::route::Route;
use super::{Known, RouteId};

/// Room that is moved for a trial, as a share of the receiver's budget. Half a shallow
/// buffer holds it where the routes do not meet.
const TRIED: f64 = 0.05;
/// Share of it that must arrive as rate. Rates over a round trip are good to a percent
/// or two of themselves, which is a third of the moved budget.
const ARRIVED: f64 = 0.5;
/// Round trips of the slower route until the trial is judged: the windows change within
/// one, the rate is measured over the next.
const TRIAL_RTTS: f64 = 2.5;
/// After a trial that failed, round trips until the next one of these two; twice as many
/// after each more.
const PATIENCE_RTTS: f64 = 4.0;
const LONGEST_PATIENCE: Duration = Duration::from_secs(300);
/// Ends that are apart by less, as a share of the time that is left, need no trial.
const APART: f64 = 0.05;
/// Largest change of a route's rate in one round trip where routes are known to meet.
const STEP: f64 = 0.2;
/// Routes that meet see one queue. If their delays differ by this share of the larger,
/// and by this much, in this many looks, they do not meet any more.
const DIFFERS: f64 = 0.5;
const DIFFERS_US: f64 = 3_000.0;
const DIFFERS_LOOKS: u32 = 4;
/// A route whose given rate is this many times its delivery, as often, does not meet
/// those that gave.
const IN_VAIN: f64 = 1.2;

#[derive(Debug)]
struct Trial {
    giver: RouteId,
    receiver: RouteId,
    judged: Duration,
    moved_segs_per_s: f64,
    before_segs_per_s: f64,
    before_us: f64,
}

#[derive(Debug)]
struct Failed {
    again: Duration,
    patience: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Balance {
    trials: Vec<Trial>,
    failed: HashMap<(RouteId, RouteId), Failed>,
    /// Routes that meet have the same number.
    meeting: HashMap<RouteId, RouteId>,
    differs: HashMap<RouteId, u32>,
    shared: Duration,
}

/// A route that takes part: its place, and the rate it is given.
struct Place {
    id: RouteId,
    place: usize,
    demand: f64,
    rate: f64,
    rtt_s: f64,
}

impl Place {
    /// Seconds until its streams have sent all.
    fn end(&self) -> f64 {
        self.demand / self.rate.max(1e-9)
    }
}

impl Balance {
    pub fn update(&mut self, now: Duration, routes: &mut [(RouteId, Known)]) {
        let places: Vec<Place> = routes
            .iter()
            .enumerate()
            .filter(|(_, (_, known))| known.used == now && known.route.follows())
            .map(|(place, (id, known))| Place {
                id: *id,
                place,
                demand: known.route.demand,
                rate: known.route.rate_segs_per_s(),
                rtt_s: known.route.rtt().as_secs_f64(),
            })
            .filter(|place| place.demand > 0.0 && place.rate > 0.0)
            .collect();
        let known: Vec<RouteId> = routes.iter().map(|(id, _)| *id).collect();
        self.meeting.retain(|id, _| known.contains(id));
        self.judge(now, &places, routes);
        self.share(now, &places, routes);
        self.try_more(now, &places, routes);
    }

    fn class(&self, id: RouteId) -> RouteId {
        self.meeting.get(&id).copied().unwrap_or(id)
    }

    fn judge(&mut self, now: Duration, places: &[Place], routes: &mut [(RouteId, Known)]) {
        let (due, running): (Vec<Trial>, _) = std::mem::take(&mut self.trials)
            .into_iter()
            .partition(|trial| now >= trial.judged);
        self.trials = running;
        for trial in due {
            let of = |id| places.iter().find(|place| place.id == id);
            let (Some(giver), Some(receiver)) = (of(trial.giver), of(trial.receiver)) else {
                continue;
            };
            let gained = receiver.rate - trial.before_segs_per_s;
            // If they do not meet, the moved segments wait in the receiver's queue.
            let waits_us = trial.moved_segs_per_s / receiver.rate * receiver.rtt_s * 1e6;
            let longer_us = routes[receiver.place].1.route.delay_us() - trial.before_us;
            if gained >= ARRIVED * trial.moved_segs_per_s && longer_us < ARRIVED * waits_us {
                self.join(trial.giver, trial.receiver);
                continue;
            }
            let moved = trial.moved_segs_per_s;
            routes[receiver.place].1.route.add_rate(-moved);
            routes[giver.place].1.route.add_rate(moved);
            self.fail(now, giver, receiver);
        }
    }

    /// No trial of these two for a while.
    fn fail(&mut self, now: Duration, giver: &Place, receiver: &Place) {
        let patience = Duration::from_secs_f64(PATIENCE_RTTS * giver.rtt_s.max(receiver.rtt_s));
        let failed = self
            .failed
            .entry((giver.id, receiver.id))
            .or_insert(Failed {
                again: now,
                patience,
            });
        failed.again = now + failed.patience;
        failed.patience = (2 * failed.patience).min(LONGEST_PATIENCE);
    }

    /// A route does not meet the others of its class after all.
    fn part(&mut self, now: Duration, id: RouteId, class: &[&Place]) {
        self.meeting.remove(&id);
        self.differs.remove(&id);
        let Some(one) = class.iter().find(|place| place.id == id) else {
            return;
        };
        for other in class.iter().filter(|place| place.id != id) {
            self.fail(now, one, other);
            self.fail(now, other, one);
        }
    }

    fn join(&mut self, one: RouteId, other: RouteId) {
        let (to, from) = (self.class(one), self.class(other));
        for class in self.meeting.values_mut().filter(|class| **class == from) {
            *class = to;
        }
        self.meeting.insert(one, to);
        self.meeting.insert(other, to);
        self.meeting.insert(to, to);
    }

    /// Routes that meet divide their rate in proportion to their remaining data.
    fn share(&mut self, now: Duration, places: &[Place], routes: &mut [(RouteId, Known)]) {
        let slowest = places.iter().map(|place| place.rtt_s).fold(0.0, f64::max);
        if now.saturating_sub(self.shared) < Duration::from_secs_f64(slowest) {
            return;
        }
        self.shared = now;
        let mut classes: HashMap<RouteId, Vec<&Place>> = HashMap::new();
        for place in places {
            if let Some(class) = self.meeting.get(&place.id) {
                classes.entry(*class).or_default().push(place);
            }
        }
        for class in classes.values().filter(|class| class.len() > 1) {
            let delay = |place: &Place| routes[place.place].1.route.delay_us();
            let most = class.iter().map(|p| delay(p)).fold(0.0, f64::max);
            let mut differ = Vec::new();
            for place in class {
                let apart = most - delay(place);
                let looks = self.differs.entry(place.id).or_default();
                let own = apart > DIFFERS_US && apart > DIFFERS * most;
                let route = &routes[place.place].1.route;
                let in_vain = route.given_rate() > IN_VAIN * place.rate;
                *looks = match own || in_vain {
                    true => *looks + 1,
                    false => 0,
                };
                if *looks >= DIFFERS_LOOKS {
                    differ.push(place.id);
                }
            }
            for id in differ {
                self.part(now, id, class);
            }
            let rate: f64 = class
                .iter()
                .map(|p| routes[p.place].1.route.given_rate())
                .sum();
            let demand: f64 = class.iter().map(|p| p.demand).sum();
            let wanted = |place: &Place| {
                let route = &routes[place.place].1.route;
                let given = route.given_rate();
                let change = rate * place.demand / demand - given;
                change.clamp(-STEP * given, STEP * given)
            };
            let changes: Vec<f64> = class.iter().map(|place| wanted(place)).collect();
            // In sum the routes give as much as they get.
            let gets: f64 = changes.iter().filter(|c| **c > 0.0).sum();
            let gives: f64 = -changes.iter().filter(|c| **c < 0.0).sum::<f64>();
            let both = gets.min(gives);
            for (place, change) in class.iter().zip(changes) {
                let side = if change > 0.0 { gets } else { gives };
                if side > 0.0 {
                    routes[place.place].1.route.add_rate(change * both / side);
                }
            }
        }
    }

    fn try_more(&mut self, now: Duration, places: &[Place], routes: &mut [(RouteId, Known)]) {
        let busy = |id: RouteId, trials: &[Trial]| {
            trials
                .iter()
                .any(|trial| trial.giver == id || trial.receiver == id)
        };
        let mut free: Vec<&Place> = places
            .iter()
            .filter(|place| !busy(place.id, &self.trials))
            .filter(|place| routes[place.place].1.route.steady())
            .collect();
        free.sort_by(|a, b| a.end().total_cmp(&b.end()));
        // First with last, second with second last.
        let pairs = free.len() / 2;
        for (giver, receiver) in free.iter().zip(free.iter().rev()).take(pairs) {
            let apart = receiver.end() > giver.end() * (1.0 + APART);
            let meet = self.class(giver.id) == self.class(receiver.id);
            let waits = self
                .failed
                .get(&(giver.id, receiver.id))
                .is_some_and(|failed| now < failed.again);
            if !apart || meet || waits {
                continue;
            }
            let moved = TRIED * receiver.rate;
            let given = moved.min(TRIED * giver.rate);
            routes[giver.place].1.route.add_rate(-given);
            routes[receiver.place].1.route.add_rate(given);
            let length = Duration::from_secs_f64(TRIAL_RTTS * giver.rtt_s.max(receiver.rtt_s));
            for place in [giver.place, receiver.place] {
                routes[place].1.route.keep_until(now + length);
            }
            self.trials.push(Trial {
                giver: giver.id,
                receiver: receiver.id,
                judged: now + length,
                moved_segs_per_s: given,
                before_segs_per_s: receiver.rate,
                before_us: routes[receiver.place].1.route.delay_us(),
            });
        }
    }
}

impl Route {
    /// Enlarges a route's budget for so much more rate, segments per second.
    fn add_rate(&mut self, segs_per_s: f64) {
        self.add_window(segs_per_s * self.rtt().as_secs_f64());
    }
}

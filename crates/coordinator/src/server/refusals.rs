// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Refusals and their reasons, for `status`.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use paceline_security::FrameError;
use tokio::time::Instant;

use crate::status::Refusal;
use crate::Error;

/// Longest text that is kept, characters.
const LONGEST: usize = 200;

/// Refusals so far, by reason.
#[derive(Default)]
pub(super) struct Refusals(Mutex<BTreeMap<&'static str, Last>>);

struct Last {
    count: u64,
    text: String,
    when: Instant,
}

impl Refusals {
    /// One more. `text` names the peer and the reason.
    pub fn add(&self, reason: &'static str, text: &str) {
        let mut reasons = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = reasons.entry(reason).or_insert_with(|| Last {
            count: 0,
            text: String::new(),
            when: Instant::now(),
        });
        last.count += 1;
        last.text = text.chars().take(LONGEST).collect();
        last.when = Instant::now();
    }

    /// Logs the end of a connection. A broken connection is no refusal.
    pub fn ended(&self, peer: &str, ended: Result<(), Error>) {
        match ended {
            Ok(()) => tracing::debug!("{peer}: ended"),
            Err(error @ Error::Frame(FrameError::Closed | FrameError::Io(_))) => {
                tracing::debug!("{peer}: {error}");
            }
            Err(error) => {
                tracing::info!("{peer}: refused: {error}");
                self.add(error.reason(), &format!("{peer}: {error}"));
            }
        }
    }

    /// All reasons.
    pub fn list(&self) -> Vec<Refusal> {
        let reasons = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let refusal = |(reason, last): (&&'static str, &Last)| Refusal {
            reason: (*reason).to_owned(),
            count: last.count,
            last: last.text.clone(),
            last_ago_s: last.when.elapsed().as_secs_f64(),
        };
        reasons.iter().map(refusal).collect()
    }
}

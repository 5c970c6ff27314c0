// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A standing receiver's page.

use paceline_metrics::Page;
use paceline_mover::session::Counted;

/// The page of a receiver with these counts.
pub fn receiver(now: &Counted) -> Page {
    let (mut page, _) = super::begin(Ok(()));
    page.gauge(
        "receiver_running_transfers",
        "Transfers that are under way",
        now.running as f64,
    );
    page.counters(
        "receiver_transfers",
        "Transfers that ended: all was there, or it ended early",
        "outcome",
        [
            ("done".to_owned(), now.done),
            ("failed".to_owned(), now.failed),
        ],
    );
    page.counter(
        "receiver_refused_connections",
        "Connections that did not authenticate, or stayed silent",
        now.refused,
    );
    page.counter(
        "receiver_written_bytes",
        "Bytes of files that came and were written",
        now.bytes,
    );
    page.counter(
        "receiver_entries",
        "Entries that were made, replaced or found as they should be",
        now.entries,
    );
    page
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table `[spacing]`.

use super::{Reader, Section, MOST_RATE};
use crate::error::ProblemKind;
use crate::policy::{Base, Gap, Spacing};
use paceline_input::units::{Rate, Size};

pub(super) const KEYS: &[&str] = &["clustered", "line_rate", "gap"];

/// An Ethernet that is slower has no gap to speak of.
const LEAST_LINE: Rate = Rate::from_bits_per_second(1_000_000);
/// Of the paper's interface, kamezawa-2004, 4.1.
const LEAST_GAP: Size = Size::from_bytes(8);
const MOST_GAP: Size = Size::from_bytes(1023);

impl<'t> Reader<'t> {
    pub(super) fn spacing(&mut self, section: &Section<'t>, base: Option<Base>) -> Option<Spacing> {
        self.known_keys(section, KEYS);
        let clustered_field = section.field("clustered");
        let line_field = section.field("line_rate");
        let gap_field = section.field("gap");
        if base == Some(Base::Keep) {
            for field in [&clustered_field, &line_field, &gap_field]
                .into_iter()
                .flatten()
            {
                self.report(
                    field.key_at,
                    field.path.clone(),
                    ProblemKind::TargetWithoutBase,
                );
            }
            return None;
        }
        let clustered = clustered_field.is_some_and(|field| {
            let clustered = self.boolean(&field, "write true or false");
            if clustered && base == Some(Base::Bbr) {
                self.at_value(&field, ProblemKind::ClusteredOfBbr);
            }
            clustered
        });
        let gap = match (line_field, gap_field) {
            (Some(line), Some(gap)) => {
                let line_rate = self.quantity(&line, LEAST_LINE, MOST_RATE);
                let gap = self.quantity(&gap, LEAST_GAP, MOST_GAP);
                line_rate
                    .zip(gap)
                    .map(|(line_rate, gap)| Gap { line_rate, gap })
            }
            (Some(line), None) => {
                self.report(line.key_at, line.path, ProblemKind::NeedsGap);
                None
            }
            (None, Some(gap)) => {
                self.report(gap.key_at, gap.path, ProblemKind::NeedsLineRate);
                None
            }
            (None, None) => None,
        };
        (clustered || gap.is_some()).then_some(Spacing { clustered, gap })
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The time-sequence ladder.

use crate::sample;
use crate::views::parse;
use paceline_report::html::{figure_svg, page, LADDER_ACK, LADDER_DATA};
use paceline_report::{Report, Series};

fn line(variant: &str, line: &str, points: &[(f64, f64)]) -> Series {
    Series {
        experiment_part: "ladder/100B".to_owned(),
        variant: variant.to_owned(),
        line: line.to_owned(),
        x_label: "time since the first segment (ms)".to_owned(),
        y_label: "sequence number (bytes)".to_owned(),
        points: points.to_vec(),
    }
}

fn report() -> Report {
    let mut report = sample::startup();
    report.results.link.one_way_delay_s.asked = 0.001;
    report.series.extend([
        line("cubic", LADDER_DATA, &[(0.0, 100.0), (42.0, 200.0)]),
        line("cubic", LADDER_ACK, &[(41.0, 100.0), (44.0, 200.0)]),
        line("paceline", LADDER_DATA, &[(0.0, 100.0)]),
        line("paceline", LADDER_ACK, &[(9.0, 100.0)]),
    ]);
    report
}

#[test]
fn segments_go_down_to_the_receiver_and_acks_come_down_from_it() {
    let svg = figure_svg(&report(), "ladder/100B").expect("a ladder");
    let document = parse(&svg);
    let texts: Vec<&str> = document
        .descendants()
        .filter(|node| node.has_tag_name("text"))
        .filter_map(|node| node.text())
        .collect();
    for text in [
        "cubic", "paceline", "sender", "receiver", "ACK 100", "ACK 200",
        // When they passed the sender, and the silences.
        "41.00", "44.00", "41.0 ms", "9.0 ms",
    ] {
        assert!(texts.contains(&text), "{text}: {texts:?}");
    }
    let number = |node: &roxmltree::Node, name: &str| {
        node.attribute(name)
            .and_then(|text| text.parse::<f64>().ok())
    };
    // Slanted lines only: from the sender's rail to the receiver's, (dashed, down by).
    let packets: Vec<(bool, f64)> = document
        .descendants()
        .filter(|node| node.has_tag_name("line"))
        .filter_map(|node| {
            let [x1, x2, y1, y2] = ["x1", "x2", "y1", "y2"].map(|name| number(&node, name));
            let slanted = x1? != x2? && y1? != y2?;
            slanted.then_some((node.has_attribute("stroke-dasharray"), y2? - y1?))
        })
        .collect();
    assert_eq!(packets.len(), 6, "{packets:?}");
    assert_eq!(packets.iter().filter(|(ack, _)| *ack).count(), 3);
    for (ack, down) in packets {
        // An ACK left the other rail earlier.
        assert!(if ack { down < 0.0 } else { down > 0.0 }, "{down}");
        // The silence before it does not flatten it.
        assert!(down.abs() > 30.0, "{down}");
    }
}

#[test]
fn the_page_has_it_and_no_chart_of_it() {
    let page = page(&report());
    parse(&page);
    assert!(page.contains("segments (solid) and ACKs (dashed)"));
    let without = sample::startup();
    assert!(figure_svg(&without, "ladder/100B").is_none());
}

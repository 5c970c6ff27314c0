// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rates, sizes and times: exact in both directions, and never a panic.

use std::time::Duration;

use paceline_input::units::{
    parse_duration, parse_rate, parse_size, Rate, Share, Size, Time, UnitError,
};
use proptest::prelude::*;

#[test]
fn units_have_their_standard_factors() {
    assert_eq!(parse_rate("500mbit"), Ok(500_000_000));
    assert_eq!(parse_rate("2.5gbit"), Ok(2_500_000_000));
    assert_eq!(parse_rate("0.008kbit"), Ok(8));
    for text in ["500Mbit", "500MBIT", "0.5Gbit", "500000Kbit"] {
        assert_eq!(parse_rate(text), Ok(500_000_000), "{text}");
    }
    assert_eq!(parse_size("100KB"), Ok(100_000));
    assert_eq!(parse_size("100kB"), Ok(100_000));
    assert_eq!(parse_size("128KiB"), Ok(131_072));
    assert_eq!(parse_size("1.5MiB"), Ok(1_572_864));
    assert_eq!(parse_size("0B"), Ok(0));
    assert_eq!(parse_duration("10ms"), Ok(Duration::from_millis(10)));
    assert_eq!(parse_duration("1.50s"), Ok(Duration::from_millis(1500)));
    assert_eq!(parse_duration("2min"), Ok(Duration::from_secs(120)));
    assert_eq!(parse_duration("1h"), Ok(Duration::from_secs(3600)));
    assert_eq!("0.5%".parse(), Ok(Share::from_permille(5)));
    assert_eq!(
        Rate::from_bits_per_second(1_000_001).bytes_per_second(),
        125_000
    );
}

#[test]
fn the_shortest_exact_form_is_written() {
    let written = [
        (
            Rate::from_bits_per_second(500_000_000).to_string(),
            "500mbit",
        ),
        (
            Rate::from_bits_per_second(2_500_000_000).to_string(),
            "2500mbit",
        ),
        (Rate::from_bits_per_second(1).to_string(), "1bit"),
        (Size::from_bytes(131_072).to_string(), "128KiB"),
        (Size::from_bytes(128_000).to_string(), "128KB"),
        (Size::from_bytes(10_000_000).to_string(), "10MB"),
        (Size::from_bytes(600_000).to_string(), "600KB"),
        (Size::from_bytes(0).to_string(), "0B"),
        (Time::from_secs(60).to_string(), "60s"),
        (Time::from_secs(3600).to_string(), "1h"),
        (Time::from_micros(1500).to_string(), "1500us"),
        (Time::from_micros(0).to_string(), "0s"),
        (Share::from_permille(20).to_string(), "2%"),
        (Share::from_permille(5).to_string(), "0.5%"),
    ];
    for (text, expected) in written {
        assert_eq!(text, expected);
    }
}

#[test]
fn messages_show_the_right_form() {
    let message = |result: Result<u64, UnitError>| result.expect_err("wrong").to_string();
    let cases = [
        (
            parse_rate("500"),
            "500 has no unit: write a rate as \"500mbit\" or \"2.5gbit\"",
        ),
        (
            parse_rate("500Mbps"),
            "\"Mbps\" is not a unit of a rate: write \"500mbit\"",
        ),
        (
            parse_rate("500MB"),
            "\"MB\" is not a unit of a rate: use bit, kbit, mbit, gbit",
        ),
        (
            parse_size("128kib"),
            "\"kib\" is not a unit of a size: write \"128KiB\"",
        ),
        (
            parse_size("10 bytes"),
            "\" bytes\" is not a unit of a size: write \"10B\"",
        ),
        (
            parse_size("-1KB"),
            "\"-1KB\" is not a size: write a number with its unit, as \"128KiB\" or \"100KB\"",
        ),
        (parse_size("1.5B"), "\"1.5B\" is finer than one byte"),
        (
            parse_rate("99999999999gbit"),
            "\"99999999999gbit\" is too large a rate",
        ),
    ];
    for (result, expected) in cases {
        assert_eq!(message(result), expected);
    }
    // Bits or bytes, milli or mega: nobody can tell.
    for text in ["500Mb", "500MB", "500mb", "500b", "500M"] {
        assert!(parse_rate(text).is_err(), "{text:?} is a rate");
    }
    for text in ["10b", "10kb", "10Mb", "10mB", "10MBIT"] {
        assert!(parse_size(text).is_err(), "{text:?} is a size");
    }
    for text in ["10MS", "10S", "10M"] {
        assert!(parse_duration(text).is_err(), "{text:?} is a time");
    }
    for text in [
        "", ".", "1.", ".5s", "1..2s", "1.2.3s", "s", "1e3s", "+1s", "∞s",
    ] {
        assert!(parse_duration(text).is_err(), "{text:?} is accepted");
    }
}

#[test]
fn in_json_and_toml_a_bare_number_is_an_error() {
    let rate: Rate = serde_json::from_str("\"500mbit\"").expect("a rate");
    assert_eq!(serde_json::to_string(&rate).expect("text"), "\"500mbit\"");
    for bare in ["500", "-1", "0.5"] {
        let error = serde_json::from_str::<Rate>(bare).expect_err("no unit");
        let expected = format!("{bare} has no unit: write a rate");
        assert!(error.to_string().starts_with(&expected), "{error}");
    }
    let error = serde_json::from_str::<Time>("true").expect_err("not a time");
    assert!(
        error.to_string().contains("expected a time as \"10ms\""),
        "{error}"
    );
}

proptest! {
    #[test]
    fn displayed_values_parse_to_the_same_value(value: u64) {
        let rate = Rate::from_bits_per_second(value);
        prop_assert_eq!(rate.to_string().parse(), Ok(rate));
        let size = Size::from_bytes(value);
        prop_assert_eq!(size.to_string().parse(), Ok(size));
        let time = Time::from_micros(value);
        prop_assert_eq!(time.to_string().parse(), Ok(time));
        let share = Share::from_permille(value);
        prop_assert_eq!(share.to_string().parse(), Ok(share));
    }

    #[test]
    fn round_values_are_read_again_too(value in 0u64..1_000_000, power in 0u32..13, two: bool) {
        let value = if two { value << power } else { value.saturating_mul(10u64.pow(power)) };
        let size = Size::from_bytes(value);
        prop_assert_eq!(size.to_string().parse(), Ok(size));
        let rate = Rate::from_bits_per_second(value);
        prop_assert_eq!(rate.to_string().parse(), Ok(rate));
    }

    #[test]
    fn decimals_are_exact(whole in 0u64..1_000_000, thousandths in 0u64..1000) {
        let text = format!("{whole}.{thousandths:03}");
        prop_assert_eq!(parse_size(&format!("{text}KB")), Ok(whole * 1000 + thousandths));
        prop_assert_eq!(
            parse_duration(&format!("{text}s")),
            Ok(Duration::from_millis(whole * 1000 + thousandths))
        );
    }

    #[test]
    fn no_text_panics(text in "\\PC*") {
        let _ = (parse_rate(&text), parse_size(&text), parse_duration(&text));
    }

    #[test]
    fn no_number_like_text_panics(text in "[0-9.]{0,60}[ a-zA-Zµ%/]{0,6}") {
        for error in [parse_rate(&text).err(), parse_size(&text).err(), parse_duration(&text).err()] {
            prop_assert!(error.is_none_or(|error| !error.to_string().is_empty()));
        }
    }
}

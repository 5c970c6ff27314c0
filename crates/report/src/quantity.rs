// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How the numbers of a metric are shown: one unit and one number of decimals
//! for all that stand together.

/// A rate that ends like a time; its name says its unit.
const OPERATIONS: &str = "mop_per_s";
/// So do all rates of a number.
const PER_SECOND: &str = "_per_s";

/// A unit that fits a set of numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    /// Shown number = number × factor.
    pub factor: f64,
    /// Such as `ms`; empty for plain numbers.
    pub unit: &'static str,
    /// Digits after the point.
    pub decimals: usize,
}

/// A metric's name without its unit and tail: `completion` of `completion_s/1MB`.
pub fn name(metric: &str) -> String {
    let family = family(metric);
    if family == OPERATIONS {
        return "Mop/s".to_owned();
    }
    if let Some(counted) = family.strip_suffix(PER_SECOND) {
        return format!("{}/s", counted.replace('_', " "));
    }
    let bare = ["_s", "_bps", "_share", "_bytes"]
        .iter()
        .find_map(|unit| family.strip_suffix(unit));
    bare.unwrap_or(family).replace('_', " ")
}

/// The text with a capital first letter.
pub(crate) fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| {
        first.to_uppercase().chain(chars).collect()
    })
}

/// A metric's [`name`] as a heading.
pub(crate) fn headline(metric: &str) -> String {
    capital(&name(metric))
}

/// A metric's name with its unit and without its tail: `completion_s`.
pub fn family(metric: &str) -> &str {
    metric.split_once('/').map_or(metric, |(family, _)| family)
}

/// What follows the family, `1MB` of `completion_s/1MB`; empty if nothing does.
pub fn tail(metric: &str) -> &str {
    metric.split_once('/').map_or("", |(_, tail)| tail)
}

impl Scale {
    /// The unit and precision in which `numbers` of `metric` read best: three
    /// significant digits of the least, as few as the greatest allows.
    pub fn fit(metric: &str, numbers: impl IntoIterator<Item = f64>) -> Self {
        let (mut least, mut greatest) = (f64::INFINITY, 0.0_f64);
        for number in numbers {
            let size = number.abs();
            if size > 0.0 && size.is_finite() {
                least = least.min(size);
                greatest = greatest.max(size);
            }
        }
        let least = least.min(greatest);
        let family = family(metric);
        let (factor, unit) = if family.ends_with(PER_SECOND) {
            (1.0, "")
        } else if family.ends_with("_s") {
            match (least, greatest) {
                (_, g) if g < 1e-3 => (1e6, "\u{b5}s"),
                (l, g) if l >= 1.0 || g >= 10.0 => (1.0, "s"),
                _ => (1e3, "ms"),
            }
        } else if family.ends_with("_bps") {
            match greatest {
                g if g >= 1e9 => (1e-9, "Gbit/s"),
                g if g >= 1e6 => (1e-6, "Mbit/s"),
                g if g >= 1e3 => (1e-3, "kbit/s"),
                _ => (1.0, "bit/s"),
            }
        } else if family.ends_with("_share") {
            return Scale {
                factor: 100.0,
                unit: "%",
                decimals: 2,
            };
        } else if family.ends_with("_bytes") {
            match greatest {
                g if g >= 1024.0 * 1024.0 => (1.0 / (1024.0 * 1024.0), "MiB"),
                g if g >= 1024.0 => (1.0 / 1024.0, "KiB"),
                _ => (1.0, "bytes"),
            }
        } else {
            (1.0, "")
        };
        // A number that reads as 36.9 has its digits left of the point counted.
        let digits = |number: f64| {
            if number > 0.0 {
                number.log10().floor() as i32 + 1
            } else {
                1
            }
        };
        let wanted = (3 - digits(least * factor)).clamp(0, 3);
        let room = (5 - digits(greatest * factor)).clamp(0, 3);
        Scale {
            factor,
            unit,
            decimals: wanted.min(room) as usize,
        }
    }

    /// The number alone, `36.9`.
    pub fn number(&self, value: f64) -> String {
        let shown = format!("{:.*}", self.decimals, value * self.factor);
        // -0.0 and what rounds to it.
        match shown.strip_prefix('-') {
            Some(rest) if rest.chars().all(|c| c == '0' || c == '.') => rest.to_owned(),
            _ => shown,
        }
    }

    /// Number and unit, `36.9 ms`.
    pub fn with_unit(&self, value: f64) -> String {
        if self.unit.is_empty() {
            self.number(value)
        } else {
            format!("{} {}", self.number(value), self.unit)
        }
    }
}

/// One value of `metric` in its own best unit, without zeros at the end.
pub fn alone(metric: &str, value: f64) -> String {
    let mut scale = Scale::fit(metric, [value]);
    let shown = |decimals| Scale { decimals, ..scale }.number(value);
    if let Some(fewer) = (0..scale.decimals)
        .find(|&d| shown(d).parse::<f64>() == shown(scale.decimals).parse::<f64>())
    {
        scale.decimals = fewer;
    }
    scale.with_unit(value)
}

/// Like [`alone`] with five significant digits: for measured against requested
/// values, where the fourth digit matters.
pub fn precise(metric: &str, value: f64) -> String {
    let mut scale = Scale::fit(metric, [value]);
    scale.decimals += 2;
    scale.with_unit(value)
}

/// A ratio to a bound, as people compare it: two decimals as a rule.
pub fn ratio(value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

/// The value of a claim, four significant digits: enough for a comparison with
/// any limit in a claim.
pub fn value(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{}", value + 0.0);
    }
    let decimals = (3.0 - value.abs().log10().floor()).clamp(0.0, 9.0) as usize;
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

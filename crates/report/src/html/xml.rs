// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Characters that XML cannot hold even when they are escaped.

/// The markup with U+FFFD in place of each character that XML has no form for: control
/// characters other than tab and line ends, and the two that are no characters.
///
/// No markup of ours has one, so this is done once, to what is finished.
pub fn legal(markup: &str) -> String {
    let illegal = |c: char| match c {
        '\t' | '\n' | '\r' => false,
        '\u{fffe}' | '\u{ffff}' => true,
        c => c.is_control(),
    };
    markup.replace(illegal, "\u{fffd}")
}

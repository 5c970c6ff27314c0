// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The nearest known name to a misspelt one.

use crate::units::quoted;

/// The known word that `wrong` was probably meant to be: at most a third of its letters
/// are others. Hyphens and underscores are the same.
pub fn nearest<'k>(wrong: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let plain = |word: &str| word.replace('-', "_");
    let wrong = plain(&quoted(wrong).to_lowercase());
    known
        .into_iter()
        .map(|known| (strsim::osa_distance(&wrong, &plain(known)), known))
        .filter(|(distance, known)| *distance <= known.len().div_ceil(3))
        .min()
        .map(|(_, known)| known)
}

/// `, did you mean "WORD"?`, or nothing.
pub fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |nearest| {
        format!(", did you mean \"{nearest}\"?")
    })
}

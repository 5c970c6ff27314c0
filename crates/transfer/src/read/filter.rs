// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which entries take part: patterns in their order, of which the first that fits decides.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};

/// An invalid pattern.
#[derive(Debug, thiserror::Error)]
#[error("{pattern:?} is not a pattern: {what}")]
pub struct FilterError {
    /// As given.
    pub pattern: String,
    /// The error.
    pub what: String,
}

#[derive(Debug)]
struct Rule {
    includes: bool,
    matcher: GlobMatcher,
    /// It is about the last name of a path; else about all of it.
    of_name: bool,
    of_directories: bool,
}

/// See the module's text.
#[derive(Debug, Default)]
pub struct Filter {
    rules: Vec<Rule>,
}

impl Filter {
    /// From pairs: include or not, and the pattern. `*` and `?` stop at a slash, `**` does
    /// not. A pattern without a slash is about names, one with a slash about whole paths below
    /// the destination; with one at its end it is about directories.
    ///
    /// # Errors
    /// [`FilterError`].
    pub fn new(patterns: &[(bool, String)]) -> Result<Self, FilterError> {
        let rules = patterns.iter().map(|(includes, pattern)| {
            let error = |what: String| FilterError {
                pattern: pattern.clone(),
                what,
            };
            let body = pattern.trim_end_matches('/');
            if body.is_empty() {
                return Err(error(
                    "it is empty: expected *.o, /build/ or docs/**".to_owned(),
                ));
            }
            let glob = GlobBuilder::new(body.trim_start_matches('/'))
                .literal_separator(true)
                .backslash_escape(true)
                .build()
                .map_err(|cause| error(cause.kind().to_string()))?;
            Ok(Rule {
                includes: *includes,
                matcher: glob.compile_matcher(),
                of_name: !body.contains('/'),
                of_directories: body.len() < pattern.len(),
            })
        });
        Ok(Self {
            rules: rules.collect::<Result<_, _>>()?,
        })
    }

    /// Whether the entry at `path` takes part. It does not if a directory above it does not,
    /// which the caller knows.
    pub fn takes(&self, path: &[u8], is_directory: bool) -> bool {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        let fits = |rule: &&Rule| {
            let subject = if rule.of_name { name } else { path };
            (is_directory || !rule.of_directories)
                && rule.matcher.is_match(Path::new(OsStr::from_bytes(subject)))
        };
        self.rules
            .iter()
            .find(fits)
            .is_none_or(|rule| rule.includes)
    }

    /// The same, of a path alone: with the directories above it.
    pub fn takes_all_of(&self, path: &[u8], is_directory: bool) -> bool {
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let above = slashes.map(|(at, _)| &path[..at]);
        above.into_iter().all(|above| self.takes(above, true)) && self.takes(path, is_directory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(rules: &[&str]) -> Filter {
        let rules: Vec<_> = rules
            .iter()
            .map(|rule| (rule.starts_with('+'), rule[1..].to_owned()))
            .collect();
        Filter::new(&rules).expect("patterns")
    }

    #[test]
    fn the_first_pattern_that_fits_decides() {
        let all = filter(&[]);
        assert!(all.takes(b"\xff/x", false));
        let some = filter(&["+keep.o", "-*.o", "-/build/", "-docs/**/old", "-tmp/"]);
        for (path, is_directory, takes) in [
            (&b"a/keep.o"[..], false, true),
            (b"a/b.o", false, false),
            (b"a/b.c", false, true),
            (b"build", true, false),
            (b"build", false, true),
            (b"docs/a/b/old", false, false),
            (b"docs/old", false, false),
            (b"x/docs/old", false, true),
            (b"x/tmp", true, false),
            (b"tmp", false, true),
        ] {
            let shown = String::from_utf8_lossy(path);
            assert_eq!(some.takes(path, is_directory), takes, "{shown}");
        }
        assert!(!some.takes_all_of(b"x/tmp/a/b.c", false));
        assert!(some.takes_all_of(b"x/y/b.c", false));
        let only = filter(&["+*/", "+*.c", "-*"]);
        assert!(only.takes_all_of(b"a/b/c.c", false));
        assert!(!only.takes_all_of(b"a/b/c.h", false));
    }

    #[test]
    fn a_wrong_pattern_is_named() {
        for wrong in ["", "/", "a[", "{a"] {
            let error = Filter::new(&[(false, wrong.to_owned())]).expect_err("wrong");
            assert!(error.to_string().contains(&format!("{wrong:?}")), "{error}");
        }
    }
}

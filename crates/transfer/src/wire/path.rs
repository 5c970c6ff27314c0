// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Paths that a peer names. They are bytes: names need not be UTF-8.

use super::{WireError, MOST_PATH};

/// Directory of journals in a destination. It is never sent, nor taken.
pub const JOURNALS: &str = ".paceline";
/// Directories above an entry at most.
pub const MOST_DEPTH: usize = 512;
/// Longest name in a directory, bytes (NAME_MAX).
const MOST_NAME: usize = 255;
/// Between a file's name and the transfer's in a temporary file's name.
const MARK: &[u8] = b".paceline-";
/// Hexadecimal digits of a transfer in such a name.
const DIGITS: usize = 16;

/// Whether this is the name of a transfer's temporary file: `.NAME.paceline-ID`.
pub fn is_temporary(name: &[u8]) -> bool {
    let Some(at) = name.len().checked_sub(MARK.len() + DIGITS) else {
        return false;
    };
    let (before, rest) = name.split_at(at);
    let (mark, digits) = rest.split_at(MARK.len());
    before.starts_with(b".") && mark == MARK && digits.iter().all(u8::is_ascii_hexdigit)
}

/// One name in a directory.
///
/// # Errors
/// [`WireError::Path`].
pub fn check_name(name: &[u8]) -> Result<(), WireError> {
    let what = match name {
        b"" => "it has an empty name in it",
        b"." | b".." => "it has . or .. in it",
        _ if name.len() > MOST_NAME => "a name has more than 255 bytes",
        _ if name.contains(&0) => "it has a zero byte in it",
        _ if name.contains(&b'/') => "a name has a slash in it",
        _ if name == JOURNALS.as_bytes() => ".paceline belongs to Paceline",
        _ if is_temporary(name) => "it is the name of a temporary file of Paceline's",
        _ => return Ok(()),
    };
    Err(refused(name, what))
}

/// A path below the destination: names joined by single slashes. The empty one is the
/// destination itself.
///
/// # Errors
/// [`WireError::Path`].
pub fn check_path(path: &[u8]) -> Result<(), WireError> {
    if path.is_empty() {
        return Ok(());
    }
    if path.len() >= MOST_PATH {
        return Err(refused(path, "it has 4,096 bytes or more"));
    }
    if path.starts_with(b"/") {
        return Err(refused(path, "it is absolute"));
    }
    let mut depth = 0;
    for name in path.split(|byte| *byte == b'/') {
        check_name(name).map_err(|error| match error {
            WireError::Path { what, .. } => refused(path, what),
            other => other,
        })?;
        depth += 1;
    }
    match depth <= MOST_DEPTH {
        true => Ok(()),
        false => Err(refused(path, "it has more than 512 names")),
    }
}

fn refused(path: &[u8], what: &'static str) -> WireError {
    let shown = &path[..path.len().min(200)];
    WireError::Path {
        path: String::from_utf8_lossy(shown).into_owned(),
        what,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stays_below_is_taken() {
        let long = vec![b'n'; 256];
        let deep = vec![b"d".as_slice(); 513].join(&b'/');
        let wide = vec![b"directory".as_slice(); 500].join(&b'/');
        for wrong in [
            &b"/"[..],
            b"/etc/passwd",
            b"..",
            b"../x",
            b"a/..",
            b"a/../b",
            b".",
            b"a/./b",
            b"a//b",
            b"a/",
            b"a\0b",
            b".paceline",
            b"a/.paceline/journal",
            &long,
            &deep,
            &wide,
            b"a/.x.paceline-0123456789abcdef",
        ] {
            let refused = check_path(wrong);
            assert!(refused.is_err(), "{:?}", String::from_utf8_lossy(wrong));
        }
        for right in [
            &b""[..],
            b"a",
            b"a/b",
            b"...",
            b"a/..b",
            b".hidden",
            b"\xff\xfe",
            b"new\nline",
            b" ",
            b"-rf",
            b".paceline2",
            b".x.paceline-",
            b"x.paceline-0123456789abcdef",
        ] {
            check_path(right).unwrap_or_else(|error| panic!("{error}"));
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The built-in policies, and finding a policy by name or path.

use std::fs::File;
use std::io::Read;

use paceline_input::nearest;

use crate::error::{NotText, PolicyError};
use crate::policy::Policy;

/// The preset used when a command names no policy.
pub const DEFAULT: &str = "lfn";

/// Name and TOML text, in the order in which they are listed.
const PRESETS: [(&str, &str); 6] = [
    ("standard", include_str!("../presets/standard.toml")),
    ("lfn", include_str!("../presets/lfn.toml")),
    ("pace", include_str!("../presets/pace.toml")),
    ("rto", include_str!("../presets/rto.toml")),
    ("paper", include_str!("../presets/paper.toml")),
    ("beowulf", include_str!("../presets/beowulf.toml")),
];

/// Files longer than this are no policies (a wrong path, a device).
const LONGEST_FILE: u64 = 64 << 10;

/// Names of all presets.
pub fn names() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().map(|(name, _)| *name)
}

impl Policy {
    /// The preset of that name.
    pub fn preset(name: &str) -> Option<Self> {
        let (name, text) = PRESETS.iter().find(|(preset, _)| *preset == name)?;
        Some(Self::parse(text, name).expect("the tests read every preset"))
    }

    /// A preset by its name, or else a file by its path. A text without `/`
    /// that does not end in `.toml` is a name.
    ///
    /// # Errors
    /// When there is no such preset, the file cannot be read, or it is no
    /// valid policy.
    pub fn load(name_or_path: &str) -> Result<Self, PolicyError> {
        if let Some(preset) = Self::preset(name_or_path) {
            return Ok(preset);
        }
        if !name_or_path.contains('/') && !name_or_path.ends_with(".toml") {
            let known = names().collect();
            return Err(PolicyError::UnknownPreset {
                name: name_or_path.to_owned(),
                nearest: nearest(name_or_path, names()),
                known,
            });
        }
        Self::parse(&read(name_or_path)?, name_or_path)
    }

    /// Reads and checks a file, whatever its name.
    ///
    /// # Errors
    /// When the file cannot be read or is no valid policy.
    pub fn load_file(path: &str) -> Result<Self, PolicyError> {
        Self::parse(&read(path)?, path)
    }
}

fn read(path: &str) -> Result<String, PolicyError> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(LONGEST_FILE + 1).read_to_end(&mut bytes))
        .map_err(|reason| PolicyError::Read {
            file: path.to_owned(),
            reason,
        })?;
    let not_text = |reason| PolicyError::NotText {
        file: path.to_owned(),
        reason,
    };
    if bytes.len() as u64 > LONGEST_FILE {
        return Err(not_text(NotText::TooLong));
    }
    String::from_utf8(bytes).map_err(|_| not_text(NotText::NotUtf8))
}

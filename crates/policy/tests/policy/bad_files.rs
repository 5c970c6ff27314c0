// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every file in `tests/bad` is refused with exactly the text beside it.
//!
//! `UPDATE_EXPECT=1 cargo test -p paceline-policy --test policy bad_files` writes the
//! texts anew; read the difference before you keep it.

use std::fs;
use std::path::Path;

use paceline_policy::Policy;

#[test]
fn bad_files_are_refused_with_the_text_beside_them() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bad");
    let update = std::env::var_os("UPDATE_EXPECT").is_some();
    let mut files = 0;
    for entry in fs::read_dir(&folder).expect("the corpus is there") {
        let path = entry.expect("readable").path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        files += 1;
        let name = path.file_name().expect("a file").to_string_lossy();
        let text = fs::read_to_string(&path).expect("readable");
        let error = match Policy::parse(&text, &name) {
            Ok(policy) => panic!("{name} is accepted: {policy:?}"),
            Err(error) => format!("{error}\n"),
        };
        let expected_path = path.with_extension("txt");
        if update {
            fs::write(&expected_path, error).expect("writable");
            continue;
        }
        let expected = fs::read_to_string(&expected_path).unwrap_or_else(|_| {
            panic!("{name} has no expected text beside it; it gives:\n{error}")
        });
        assert_eq!(error, expected, "{name}");
    }
    assert!(files > 0, "no bad files in {}", folder.display());
}

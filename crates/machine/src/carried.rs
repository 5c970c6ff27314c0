// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files of this machine that a guest has beside its image: programs with their libraries, and
//! what programs read.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::entry::{libraries_of, Entry};
use super::{VirtualError, Wrong};
use crate::guest::INIT;

/// The program that runs, for a command in the guest.
const OWN_NAME: &str = "/usr/bin/paceline";

/// Files of this machine for a command in the guest, beside the image: each of `files` at
/// its own path, programs with their libraries, directories with their content. The program
/// that runs is there under its own path and as `paceline`.
///
/// A file under several names is one in the guest, too, with links to it: the dynamic linker
/// loads a library a second time that is another file.
///
/// # Errors
/// If one of them cannot be read.
pub fn files_for_guest(files: &[PathBuf]) -> Result<Vec<Entry>, VirtualError> {
    let own = std::env::current_exe().wrong("find", Path::new("/proc/self/exe"))?;
    let mut entries: Vec<Entry> = [own.to_string_lossy().into_owned(), OWN_NAME.to_owned()]
        .map(|path| Entry::link(path, Path::new(INIT)))
        .into();
    let mut links: Vec<(PathBuf, PathBuf)> = Vec::new();
    let mut wanted: Vec<PathBuf> = files.to_vec();
    let mut taken = BTreeSet::from([own]);
    while let Some(path) = wanted.pop() {
        if !taken.insert(path.clone()) {
            continue;
        }
        let place = match fs::canonicalize(&path) {
            Ok(place) => place,
            // A link to nothing, in a directory that is asked for, is left out.
            Err(_) if path.is_symlink() && !files.contains(&path) => continue,
            Err(error) => return Err(error).wrong("read", &path),
        };
        if place != path {
            links.push((path, place.clone()));
            wanted.push(place);
            continue;
        }
        if place.is_dir() {
            entries.push(Entry::directory(place.to_string_lossy().into_owned()));
            for inside in fs::read_dir(&place).wrong("list", &place)? {
                wanted.push(inside.wrong("list", &place)?.path());
            }
        } else if place.is_file() {
            let entry = Entry::copy(&place, &place.to_string_lossy())?.dated(&place)?;
            if entry.is_program() {
                wanted.extend(libraries_of(&place)?);
            }
            entries.push(entry);
        }
    }
    // What is below a link to a directory is there by that link.
    let names: BTreeSet<&Path> = links.iter().map(|(path, _)| path.as_path()).collect();
    let is_below = |path: &Path| path.ancestors().skip(1).any(|above| names.contains(above));
    for (path, place) in links.iter().filter(|(path, _)| !is_below(path)) {
        entries.push(Entry::link(path.to_string_lossy().into_owned(), place));
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_with_two_names_is_one_in_the_guest() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let root = directory.path().canonicalize().expect("it is there");
        let path = |name: &str| root.join(name);
        fs::create_dir(path("lib")).expect("made");
        fs::create_dir(path("lib/empty")).expect("made");
        fs::write(path("lib/libx.so.1.2"), "x").expect("written");
        symlink("libx.so.1.2", path("lib/libx.so.1")).expect("linked");
        symlink("lib", path("lib64")).expect("linked");
        symlink("nowhere", path("lib/gone")).expect("linked");
        let files = [path("lib64/libx.so.1"), path("lib64"), path("lib")];
        let entries = files_for_guest(&files).expect("all readable");
        let found = |name: &str| {
            let path = path(name).to_string_lossy().into_owned();
            let found = entries.iter().find(|entry| entry.path() == path);
            found.map(|entry| String::from_utf8_lossy(entry.content()).into_owned())
        };
        let real = path("lib/libx.so.1.2").to_string_lossy().into_owned();
        assert_eq!(found("lib/libx.so.1.2").as_deref(), Some("x"));
        assert_eq!(found("lib/libx.so.1"), Some(real));
        let to = path("lib").to_string_lossy().into_owned();
        assert_eq!(found("lib64"), Some(to));
        assert_eq!(found("lib64/libx.so.1"), None, "it would replace the file");
        assert_eq!(found("lib/gone"), None);
        assert_eq!(found("lib/empty").as_deref(), Some(""));
        let missing = files_for_guest(&[path("missing")]).expect_err("it is not there");
        assert!(missing.to_string().contains("missing"), "{missing}");
    }
}

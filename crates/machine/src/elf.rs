// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Removes the debugger's parts of a program: the guest unpacks its image
//! instruction by instruction.

/// Cuts a 64-bit little-endian ELF file after the last byte that a program header
/// names, and forgets its sections. Other files are left as they are.
pub fn strip(file: &mut Vec<u8>) {
    if let Some(end) = end_of_segments(file) {
        file.truncate(end);
        // e_shoff; e_shnum and e_shstrndx.
        file[40..48].fill(0);
        file[60..64].fill(0);
    }
}

fn end_of_segments(file: &[u8]) -> Option<usize> {
    const HEADER_BYTES: usize = 64;
    const PROGRAM_HEADER_BYTES: usize = 56;
    if !file.starts_with(b"\x7fELF\x02\x01") || file.len() < HEADER_BYTES {
        return None;
    }
    let headers = usize::try_from(word(file, 32)?).ok()?;
    let size = usize::from(u16::from_le_bytes([file[54], file[55]]));
    let count = usize::from(u16::from_le_bytes([file[56], file[57]]));
    if size != PROGRAM_HEADER_BYTES || count == 0 {
        return None;
    }
    let mut end = headers + size * count;
    for index in 0..count {
        let header = headers + index * size;
        let (offset, length) = (word(file, header + 8)?, word(file, header + 32)?);
        end = end.max(usize::try_from(offset.checked_add(length)?).ok()?);
    }
    (end <= file.len()).then_some(end)
}

fn word(file: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(file.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stripped_program_still_runs() {
        use std::os::unix::fs::PermissionsExt;
        let mut program =
            std::fs::read(std::env::current_exe().expect("a test has a file")).expect("readable");
        let before = program.len();
        strip(&mut program);
        assert!(program.len() < before);
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("program");
        std::fs::write(&path, &program).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))
            .expect("made executable");
        let output = std::process::Command::new(&path)
            .arg("--list")
            .output()
            .expect("it starts");
        assert!(String::from_utf8_lossy(&output.stdout).contains("a_stripped_program_still_runs"));
    }

    #[test]
    fn other_files_stay_unchanged() {
        let mut text = b"#!/bin/sh\n".to_vec();
        strip(&mut text);
        assert_eq!(text, b"#!/bin/sh\n");
        let mut short = b"\x7fELF\x02\x01".to_vec();
        strip(&mut short);
        assert_eq!(short.len(), 6);
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The files that are sent.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use paceline_experiment::plan::Transfer;
use paceline_net::Doing;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

use crate::Result;

/// Files of one directory.
const PER_DIRECTORY: u32 = 100;
/// Written at once, bytes.
const PIECE: usize = 64 << 10;

/// Makes the files below `root`, and says how many bytes they have.
pub fn make(root: &Path, transfer: &Transfer, seed: u64) -> Result<u64> {
    let mut random = Pcg64::seed_from_u64(seed);
    let mut sum = 0;
    for (number, size) in (0..).zip(sizes(transfer, &mut random)) {
        let directory = root.join(format!("{:03}", number / PER_DIRECTORY));
        fs::create_dir_all(&directory).doing("making a directory")?;
        let path = directory.join(format!("{number:06}"));
        fill(&path, size, &mut random).doing(format!("writing {}", path.display()))?;
        sum += size;
    }
    Ok(sum)
}

/// The files' sizes, from the smallest to the largest as often in each octave.
fn sizes(transfer: &Transfer, random: &mut Pcg64) -> Vec<u64> {
    let (smallest, largest) = (transfer.smallest_bytes, transfer.largest_bytes);
    let octaves = (largest as f64 / smallest as f64).log2();
    let mut draw = || {
        let share = random.next_u64() as f64 / u64::MAX as f64;
        let size = smallest as f64 * (octaves * share).exp2();
        (size as u64).clamp(smallest, largest)
    };
    (0..transfer.files).map(|_| draw()).collect()
}

fn fill(path: &Path, size: u64, random: &mut Pcg64) -> io::Result<()> {
    let mut file = BufWriter::new(File::create_new(path)?);
    let mut piece = vec![0; PIECE];
    let mut left = size;
    while left > 0 {
        let length = left.min(PIECE as u64) as usize;
        random.fill_bytes(&mut piece[..length]);
        file.write_all(&piece[..length])?;
        left -= length as u64;
    }
    file.flush()
}

/// Bytes of all files below a directory.
pub fn bytes(directory: &Path) -> io::Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let about = entry.metadata()?;
        sum += match about.is_dir() {
            true => bytes(&entry.path())?,
            false => about.len(),
        };
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transfer(files: u32, [smallest_bytes, largest_bytes]: [u64; 2]) -> Transfer {
        Transfer {
            label: String::new(),
            hosts: 1,
            files,
            smallest_bytes,
            largest_bytes,
            streams: None,
            plain: false,
            rate_bps: None,
            beside: None,
            repeats: 1,
        }
    }

    #[test]
    fn a_seed_gives_the_same_files() {
        let place = tempfile::tempdir().unwrap();
        let plan = transfer(250, [1, 3000]);
        let [one, other] = ["one", "other"].map(|name| place.path().join(name));
        let made = make(&one, &plan, 7).unwrap();
        assert_eq!(make(&other, &plan, 7).unwrap(), made);
        assert_eq!(bytes(&one).unwrap(), made);
        let last = "002/000249";
        assert_eq!(
            fs::read(one.join(last)).unwrap(),
            fs::read(other.join(last)).unwrap()
        );
        assert_ne!(make(&place.path().join("third"), &plan, 8).unwrap(), made);
    }

    #[test]
    fn sizes_are_between_their_bounds_and_as_often_in_each_octave() {
        let mut random = Pcg64::seed_from_u64(1);
        let sizes = sizes(&transfer(4000, [1 << 10, 1 << 20]), &mut random);
        assert!(sizes.iter().all(|size| (1 << 10..=1 << 20).contains(size)));
        let small = sizes.iter().filter(|size| **size < 1 << 15).count();
        assert!(
            (1800..2200).contains(&small),
            "{small} of 4000 below the middle"
        );
        let one = transfer(1, [200_000_000; 2]);
        assert_eq!(super::sizes(&one, &mut random), [200_000_000]);
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages between two hosts, and a program that keeps its matrix in files of all hosts: the
//! workloads of ligon-1999, section 4.

use serde::{Deserialize, Serialize};

/// Messages of one size on one connection, one way or there and back: ligon-1999, 4.2.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Messages {
    /// Tail of the metrics' names, such as `1448B`.
    pub label: String,
    /// Bytes of each.
    pub size_bytes: u64,
    /// Messages; there and back, exchanges.
    pub count: u32,
    /// Each exchange brings an answer as large as a message; else all messages go one way.
    pub answered: bool,
    /// Messages before each answer.
    pub writes: u32,
    /// From a message, or an answer, to the next message, nanoseconds.
    pub gap_ns: u64,
    /// Interval of the receiver's reads, nanoseconds; 0: it reads at once.
    pub read_every_ns: u64,
    /// The sender's socket is without TCP_NODELAY.
    pub nagle: bool,
    /// How often the whole is run, each time on a new connection.
    pub repeats: u32,
    /// Packets of the first run, from its first message on, that are recorded.
    pub trace: u32,
}

/// One message there and back, with growing sizes: NetPIPE.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Netpipe {
    /// Tail of the metrics' names; empty for none.
    pub label: String,
    /// Sizes, bytes, ascending.
    pub sizes: Vec<u64>,
    /// Trials of each, of which the fastest counts.
    pub trials: u32,
    /// How long a trial is to take, nanoseconds.
    pub trial_ns: u64,
}

/// A matrix that is larger than the memory of a host: each rank reads its slab from all
/// hosts' files, computes, exchanges a row with each neighbour, and writes its slab back:
/// Jacobi's method of ligon-1999, 4.3.3.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OutOfCore {
    /// Rows, and columns, of 8 bytes each.
    pub side: u64,
    /// Bytes of a file that are on one host before the next one has the next ones.
    pub stripe_bytes: u64,
    /// Computing of a rank in one iteration, nanoseconds.
    pub compute_ns: u64,
    /// Iterations.
    pub iterations: u32,
    /// The first iteration, from 1, that counts.
    pub from_iteration: u32,
}

/// Bytes of a number of a matrix.
const NUMBER_BYTES: u64 = 8;

impl Messages {
    /// Payload towards the receiver in one run, bytes.
    pub fn payload_bytes(&self) -> u64 {
        self.size_bytes * u64::from(self.count) * u64::from(self.writes)
    }
}

impl Netpipe {
    /// Sizes up to `largest` as NetPIPE takes them: each power of two and what is half-way to
    /// the next, and each of these three bytes less and three more.
    pub fn sizes_to(largest: u64) -> Vec<u64> {
        /// NetPIPE's perturbation, bytes: it shows effects of alignment.
        const BESIDE: u64 = 3;
        let powers = (0..u64::BITS).map(|power| 1_u64 << power);
        let mut sizes: Vec<u64> = powers
            .take_while(|power| *power <= largest)
            .flat_map(|power| [power, power + power / 2])
            .flat_map(|size| match size > BESIDE {
                true => vec![size - BESIDE, size, size + BESIDE],
                false => vec![size],
            })
            .filter(|size| *size <= largest)
            .collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }
}

impl OutOfCore {
    /// Bytes of one row.
    pub fn row_bytes(&self) -> u64 {
        self.side * NUMBER_BYTES
    }

    /// Bytes of a rank's slab that are on one host, of `ranks`.
    pub fn share_bytes(&self, ranks: u32) -> u64 {
        let ranks = u64::from(ranks.max(1));
        self.side / ranks * self.row_bytes() / ranks
    }

    /// Why so many ranks cannot divide the matrix, and its stripes, evenly.
    pub fn problem(&self, ranks: u32) -> Option<String> {
        let ranks = u64::from(ranks.max(1));
        if !self.side.is_multiple_of(ranks) {
            return Some(format!(
                "side must be a multiple of the {ranks} ranks, which have as many rows each"
            ));
        }
        let slab = self.side / ranks * self.row_bytes();
        let round = ranks * self.stripe_bytes.max(1);
        (!slab.is_multiple_of(round)).then(|| {
            format!("the slab of a rank, {slab} bytes, must be a multiple of {ranks} stripes")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_grow_as_those_of_netpipe_do() {
        assert_eq!(Netpipe::sizes_to(1), [1]);
        let to_32 = [
            1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 15, 16, 19, 21, 24, 27, 29, 32,
        ];
        assert_eq!(Netpipe::sizes_to(32), to_32);
        let last = Netpipe::sizes_to(1 << 20);
        assert!(last.is_sorted() && last.contains(&65_536) && last.contains(&65_539));
        assert_eq!(last.last(), Some(&(1 << 20)));
    }

    #[test]
    fn a_slab_lies_on_all_hosts() {
        let jacobi = OutOfCore {
            side: 2048,
            stripe_bytes: 65_536,
            compute_ns: 0,
            iterations: 1,
            from_iteration: 1,
        };
        assert_eq!(jacobi.row_bytes(), 16_384);
        // 2 MiB of 32 MiB, an eighth of a MiB on each host: two stripes.
        assert_eq!(jacobi.share_bytes(16), 131_072);
        assert_eq!(jacobi.problem(16), None);
        assert!(jacobi.problem(24).unwrap().contains("multiple of the 24"));
        let wide = OutOfCore {
            stripe_bytes: 1 << 20,
            ..jacobi
        };
        assert!(wide.problem(16).unwrap().contains("16 stripes"));
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random bytes.

use ring::rand::{SecureRandom, SystemRandom};

use crate::Result;

/// From the kernel.
///
/// # Errors
/// The kernel has none.
pub fn draw<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| paceline_security::Error::Random)?;
    Ok(bytes)
}

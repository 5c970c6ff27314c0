// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The emulator: its arithmetic, and links between real interfaces.

mod arithmetic;
mod link;

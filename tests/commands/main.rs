// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands that need neither root nor a kernel side.

mod command_line;
mod sim;

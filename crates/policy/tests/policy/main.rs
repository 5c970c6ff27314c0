// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Policy files: what is read, and what is refused.

mod bad_files;
mod policies;

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The lab as a page.
pub fn page(_state: &super::State) -> String {
    String::new()
}

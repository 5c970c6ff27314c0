// SPDX-License-Identifier: Apache-2.0 OR MIT
#![no_main]

libfuzzer_sys::fuzz_target!(|said: &[u8]| paceline_testbed::socket::fuzz(said));

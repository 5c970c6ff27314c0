// SPDX-License-Identifier: Apache-2.0 OR MIT
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| paceline_gateway::session::fuzz_datagram(data));

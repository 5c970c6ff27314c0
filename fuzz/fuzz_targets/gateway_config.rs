// SPDX-License-Identifier: Apache-2.0 OR MIT
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| paceline_fuzz::gateway_config(text));

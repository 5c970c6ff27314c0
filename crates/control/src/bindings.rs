// SPDX-License-Identifier: Apache-2.0 OR MIT
#![allow(dead_code, non_camel_case_types, missing_docs)]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Structs survive the way through bytes, and foreign lengths are refused.

use paceline_abi::{
    as_bytes, from_bytes, name_text, name_to_array, pl_base, pl_connection_record, pl_job,
    pl_policy, pl_target, WrongLength, PL_NAME_LEN,
};

#[test]
fn a_policy_has_the_memory_layout_of_the_header() {
    let policy = pl_policy {
        base: pl_base::PL_BASE_CUBIC as u8,
        target: pl_target::PL_TARGET_DELIVERY_RATE as u8,
        initial_window_segs: 0x0304,
        initial_rate_bps: 31_250_000,
        rto_min_us: 8_000,
        ..pl_policy::default()
    };
    let bytes = as_bytes(&policy);
    assert_eq!(bytes.len(), 72);
    assert_eq!(bytes[..2], [1, 2]);
    assert_eq!(bytes[2..4], 0x0304_u16.to_ne_bytes());
    assert_eq!(bytes[16..24], 31_250_000_u64.to_ne_bytes());
    assert_eq!(bytes[28..32], 8_000_u32.to_ne_bytes());
}

#[test]
fn structs_come_back_from_unaligned_bytes() {
    let record = pl_connection_record {
        job: 7,
        remote_port: 443,
        error: -22,
        congestion: name_to_array("paceline_cubic"),
        ..pl_connection_record::default()
    };
    let mut shifted = vec![0xff];
    shifted.extend_from_slice(as_bytes(&record));
    assert_eq!(
        from_bytes::<pl_connection_record>(&shifted[1..]),
        Ok(record)
    );
}

#[test]
fn any_bytes_of_the_right_length_are_a_struct() {
    let bytes = [0xff; size_of::<pl_job>()];
    let job: pl_job = from_bytes(&bytes).expect("the length is right");
    assert_eq!(as_bytes(&job), bytes);
}

#[test]
fn another_length_is_another_abi() {
    let expected = WrongLength {
        found: 39,
        expected: 72,
    };
    assert_eq!(from_bytes::<pl_policy>(&[0; 39]), Err(expected));
    assert!(from_bytes::<pl_policy>(&[0; 41]).is_err());
    assert!(from_bytes::<pl_policy>(&[]).is_err());
}

#[test]
fn names_are_cut_between_characters_and_terminated() {
    const LEN: usize = PL_NAME_LEN as usize;
    assert_eq!(name_text(&name_to_array::<LEN>("lfn")), "lfn");
    assert_eq!(name_text(&name_to_array::<LEN>("")), "");
    let long = format!("{}é", "x".repeat(LEN - 2));
    let array = name_to_array::<LEN>(&long);
    assert_eq!(array[LEN - 1], 0);
    assert_eq!(name_text(&array), "x".repeat(LEN - 2));
}

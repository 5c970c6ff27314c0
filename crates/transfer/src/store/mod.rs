// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sink's files on its disks.

mod attributes;
mod delete;
mod file;
mod journal;
mod metadata;
mod names;
mod root;
mod space;

pub use attributes::{read_attributes, set_attributes, Which};
pub use delete::{delete, temporaries, Deletion};
pub use file::{sync_where_it_lies, temporary_name, Placement, Temporary};
pub use journal::{fuzz as fuzz_journal, short, Found, Journal, Known, Record};
pub use metadata::{
    file_bits, is_same, set_directory, set_file, set_link, set_mode_at, set_owner, set_owner_at,
    stamp_of,
};
pub use names::{hard_link, make_special, special_of, Made};
pub use root::{other_kind, Root};
pub use space::{is_broken, is_full, missing, Missing};

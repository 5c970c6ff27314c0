// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::*;
use proptest::prelude::*;

const ID: [u8; 32] = [7; 32];

fn done(n: u64, offset: u64) -> Record {
    Record::Done {
        n,
        offset: offset << 20,
        length: 1 << 20,
        cv: [offset as u8; 32],
    }
}

fn start(boot: &str) -> Record {
    Record::Start {
        version: VERSION,
        id: ID,
        boot_id: boot.to_owned(),
    }
}

fn entry(n: u64, path: &[u8], ino: u64) -> Record {
    Record::Entry {
        n,
        path: path.to_vec(),
        stamp: Stamp {
            size: 10 << 20,
            ino,
            ..Stamp::default()
        },
    }
}

fn offsets(tree: &Tree) -> Vec<u64> {
    tree.iter().map(|(at, _, _)| at >> 20).collect()
}

#[test]
fn after_a_kill_all_counts_and_after_a_power_cut_what_was_committed() {
    let records = [
        start("a"),
        entry(1, b"f", 5),
        done(1, 0),
        done(1, 3),
        done(1, 5),
        // While it was written, the last one came.
        Record::Commit {
            upto: 4,
            since: 1000,
        },
        done(1, 1),
    ];
    let killed = gather(&records, &ID, "a");
    let file = &killed.files[&b"f"[..]];
    assert_eq!(
        (offsets(&file.sure), offsets(&file.unsure)),
        (vec![0, 3], vec![1, 5])
    );
    assert_eq!(killed.unsure_since, None);
    let cut = gather(&records, &ID, "b");
    let file = &cut.files[&b"f"[..]];
    assert_eq!(
        (offsets(&file.sure), offsets(&file.unsure)),
        (vec![0, 3], vec![])
    );
    assert_eq!(cut.unsure_since, Some(1000));
    assert_eq!(gather(&records, &[8; 32], "a"), Found::default());
    // Killed, resumed with other numbers, killed again.
    let more = [
        start("a"),
        entry(9, b"f", 5),
        done(9, 2),
        entry(1, b"g", 1),
        done(1, 4),
    ];
    let both = [&records[..], &more[..]].concat();
    let twice = gather(&both, &ID, "a");
    let file = &twice.files[&b"f"[..]];
    assert_eq!(
        (offsets(&file.sure), offsets(&file.unsure)),
        (vec![0, 3], vec![1, 2, 5])
    );
    // A power cut between the runs: what was unsure then is gone, whatever came later.
    let later = [&records[..], &[start("b"), entry(2, b"f", 5), done(2, 2)]].concat();
    let file = gather(&later, &ID, "b");
    let file = &file.files[&b"f"[..]];
    assert_eq!(
        (offsets(&file.sure), offsets(&file.unsure)),
        (vec![0, 3], vec![2])
    );
}

#[test]
fn another_file_of_the_same_name_and_a_placed_one_begin_anew() {
    let records = [start("a"), entry(1, b"f", 5), done(1, 0), entry(2, b"f", 6)];
    let found = gather(&records, &ID, "a");
    assert_eq!(found.files[&b"f"[..]].unsure.known(), 0);
    let records = [
        start("a"),
        entry(1, b"f", 5),
        done(1, 0),
        Record::Placed { n: 1 },
    ];
    assert!(gather(&records, &ID, "a").files.is_empty());
    let gone = Record::Gone {
        n: 1,
        start: 0,
        end: 1,
    };
    let records = [start("a"), entry(1, b"f", 5), done(1, 0), done(1, 1), gone];
    let found = gather(&records, &ID, "a");
    assert_eq!(offsets(&found.files[&b"f"[..]].unsure), [1]);
}

proptest! {
    /// Cut anywhere, or with any bit changed: what precedes the place is read, and nothing
    /// else.
    #[test]
    fn a_damaged_journal_is_read_up_to_the_damage(
        count in 1u64..20,
        place in any::<prop::sample::Index>(),
        bit in 0u8..8,
        cut in any::<bool>(),
    ) {
        let mut records = vec![start("a"), entry(1, b"f", 5)];
        records.extend((0..count).map(|n| done(1, n)));
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for record in &records {
            write(record, &mut bytes);
            ends.push(bytes.len());
        }
        let place = place.index(bytes.len());
        match cut {
            true => bytes.truncate(place),
            false => bytes[place] ^= 1 << bit,
        }
        let whole = ends.iter().filter(|end| **end <= place).count();
        let (read, good) = read(&bytes);
        prop_assert_eq!(&read[..], &records[..whole]);
        prop_assert_eq!(good, if whole == 0 { 0 } else { ends[whole - 1] });
    }

    #[test]
    fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..500)) {
        fuzz(&bytes);
    }
}

#[test]
fn a_journal_is_opened_by_one_at_a_time_and_removed() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = Root::open(directory.path(), false).expect("ours");
    let (mut journal, found) = Journal::open(&root, &ID, false).expect("new");
    assert_eq!(found, Found::default());
    assert_eq!(journal.count(), 1);
    let error = Journal::open(&root, &ID, false).expect_err("it is open");
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    let (other, _) = Journal::open(&root, &[8; 32], false).expect("another transfer's");
    journal.append(&entry(1, b"f", 5)).expect("room");
    journal.append(&done(1, 0)).expect("room");
    drop(journal);
    let (journal, found) = Journal::open(&root, &ID, false).expect("resumed");
    assert_eq!(found.files[&b"f"[..]].unsure.known(), 1 << 20);
    journal.remove(&root).expect("ours");
    assert!(
        directory.path().join(JOURNALS).exists(),
        "the other's is there"
    );
    other.remove(&root).expect("ours");
    assert!(!directory.path().join(JOURNALS).exists());
}

/// Of several sessions: what one has synced counts for another, and one removes them all.
#[test]
fn each_session_has_its_own_and_reads_all() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = Root::open(directory.path(), false).expect("ours");
    let open = |session| Journal::open_of(&root, &ID, false, session).expect("opened");
    let (mut one, found) = open(1);
    assert!(!found.is_resumed);
    let (mut two, found) = open(2);
    assert!(found.is_resumed, "there is another journal");
    for (journal, at) in [(&mut one, 0), (&mut two, 3)] {
        journal.append(&entry(7, b"f", 5)).expect("room");
        journal.append(&done(7, at)).expect("room");
    }
    let upto = one.count();
    one.append(&Record::Commit { upto, since: 1 })
        .expect("room");
    drop((one, two));
    let (last, found) = open(0);
    let known = &found.files[&b"f"[..]];
    assert_eq!(
        (offsets(&known.sure), offsets(&known.unsure)),
        (vec![0], vec![3])
    );
    assert_eq!(found.unsure_since, None);
    last.remove(&root).expect("ours");
    root.forget();
    assert!(!directory.path().join(JOURNALS).exists());
    // A file that is another one since: the newer state counts.
    let (mut one, _) = open(1);
    let newer = Stamp {
        ctime: (9, 0),
        ..Stamp::default()
    };
    one.append(&Record::Entry {
        n: 1,
        path: b"f".to_vec(),
        stamp: newer,
    })
    .expect("room");
    let (mut two, _) = open(2);
    two.append(&entry(1, b"f", 5)).expect("room");
    two.append(&done(1, 0)).expect("room");
    drop((one, two));
    let (_last, found) = open(2);
    assert_eq!(found.files[&b"f"[..]].stamp, newer);
    assert_eq!(found.files[&b"f"[..]].sure.known(), 0);
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules of nftables in the calling thread's namespace, by `nft` (package nftables).

use crate::namespace::feed;
use crate::Error;

/// A rule of each kind that a transparent gateway needs, and the option of the kernel's
/// configuration that it takes.
const NEEDED: [(&str, &str); 3] = [
    (
        "meta l4proto tcp tproxy ip to :1",
        "CONFIG_NFT_TPROXY (nft_tproxy)",
    ),
    ("socket transparent 1", "CONFIG_NFT_SOCKET (nft_socket)"),
    ("fib daddr type local", "CONFIG_NFT_FIB_INET (nft_fib_inet)"),
];

/// The same, for connects that wait for their destination.
const NEEDED_FOR_HONEST: [(&str, &str); 1] = [(
    "log group 1 queue-threshold 1",
    "CONFIG_NFT_LOG and CONFIG_NETFILTER_NETLINK_LOG (nft_log, nfnetlink_log)",
)];

/// Applies a ruleset: all of it, or nothing.
///
/// # Errors
/// [`Error::Tool`] with the message of `nft`; [`Error::System`] if there is no `nft`.
pub fn apply(ruleset: &str) -> Result<(), Error> {
    feed("nft", &["-f", "-"], None, ruleset)
}

/// The features that this kernel lacks for a transparent gateway. It needs CAP_NET_ADMIN,
/// changes no rule, and lets the kernel load its modules.
///
/// # Errors
/// [`Error::System`] if there is no `nft`; [`Error::Tool`] if not even an empty chain is taken.
pub fn missing_for_transparent() -> Result<Vec<&'static str>, Error> {
    missing(&NEEDED)
}

/// The same for a transparent gateway whose connects wait for their destination: the further
/// features that it lacks.
///
/// # Errors
/// As [`missing_for_transparent`].
pub fn missing_for_honest() -> Result<Vec<&'static str>, Error> {
    missing(&NEEDED_FOR_HONEST)
}

fn missing(needed: &[(&str, &'static str)]) -> Result<Vec<&'static str>, Error> {
    let check = |rule: &str| {
        let ruleset = format!(
            "add table inet paceline_probe\n\
             add chain inet paceline_probe prerouting \
             {{ type filter hook prerouting priority mangle; }}\n\
             add rule inet paceline_probe prerouting {rule}\n"
        );
        feed("nft", &["-c", "-f", "-"], None, &ruleset)
    };
    check("accept")?;
    let mut missing = Vec::new();
    for (rule, option) in needed {
        match check(rule) {
            Ok(()) => {}
            Err(Error::Tool { .. }) => missing.push(*option),
            Err(error) => return Err(error),
        }
    }
    Ok(missing)
}

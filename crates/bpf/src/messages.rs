// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages of libbpf and the verifier go to the log, not to the user's terminal.

use std::cell::RefCell;
use std::sync::Once;

use libbpf_rs::PrintLevel;

thread_local! {
    /// Warnings during this thread's present work.
    static COLLECTED: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Routes libbpf's messages to the log from now on.
pub fn route_libbpf_messages() {
    static ROUTED: Once = Once::new();
    ROUTED.call_once(|| {
        libbpf_rs::set_print(Some((PrintLevel::Debug, |level, message| {
            let message = message.trim_end();
            match level {
                PrintLevel::Warn => {
                    COLLECTED.with_borrow_mut(|collected| {
                        if let Some(collected) = collected {
                            collected.push(message.to_owned());
                        }
                    });
                    tracing::info!(target: "libbpf", "{message}");
                }
                _ => tracing::trace!(target: "libbpf", "{message}"),
            }
        })));
    });
}

/// The result of `work`, and libbpf's warnings in this thread meanwhile.
pub fn collect<T>(work: impl FnOnce() -> T) -> (T, Vec<String>) {
    COLLECTED.set(Some(Vec::new()));
    let returned = work();
    (returned, COLLECTED.take().unwrap_or_default())
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors that end a session.

use super::frame::WireError;

/// The peer broke the protocol. The session must end, and all its streams with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// A datagram that cannot be read.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// Data beyond the credit that it has.
    #[error("the peer sent more than its credit")]
    Credit,
    /// Data after the end of a stream, or another end.
    #[error("the peer sent two different ends of a stream")]
    End,
    /// It sends, and does not report received datagrams.
    #[error("the peer does not report what it receives")]
    Unreported,
    /// More streams than it may open, or one that only this side may open.
    #[error("the peer used stream {0}, which it may not open")]
    Stream(u64),
}

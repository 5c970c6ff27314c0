// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The data connections of a side, from the first to the last.

use std::future::Future;
use std::sync::atomic::Ordering;
use std::time::Duration;

use paceline_transfer::wire::MOST_STREAMS;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::progress::{Event, Progress};
use paceline_conduit::stream::Stream;
use paceline_conduit::{Error, Result};

/// Longest wait for the other side's reason without data connections.
const LAST_WORD: Duration = Duration::from_secs(2);
/// Serves each data connection by `serve`. Ends when none is left and no more can come; one that
/// fails is reported, unless all `is_over`.
pub async fn serve_streams<F>(
    progress: &Progress,
    streams: &mut mpsc::Receiver<Stream>,
    running: &mut JoinSet<(u16, Result<()>)>,
    serve: impl Fn(Stream) -> F,
    is_over: impl Fn() -> bool,
) -> Error
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let (mut last, mut may_come) = (None, true);
    loop {
        tokio::select! {
            stream = streams.recv(), if may_come => match stream {
                // Beyond the limit.
                Some(_) if running.len() >= MOST_STREAMS => {}
                Some(stream) => {
                    progress.streams.fetch_add(1, Ordering::Relaxed);
                    let number = stream.number;
                    let serving = serve(stream);
                    running.spawn(async move { (number, serving.await) });
                }
                None => may_come = false,
            },
            Some(ended) = running.join_next() => {
                progress.streams.fetch_sub(1, Ordering::Relaxed);
                match ended {
                    Ok((stream, Err(error))) if !is_over() => {
                        let text = error.to_string();
                        last = Some(text.clone());
                        progress.report(Event::StreamLost { stream, text });
                    }
                    Ok(_) => {}
                    Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                    Err(_) => {}
                }
            }
            else => break,
        }
    }
    // If the other side ends the transfer, its message has the reason.
    tokio::time::sleep(LAST_WORD).await;
    Error::NoStreams(last.unwrap_or_else(|| "none was made".to_owned()))
}

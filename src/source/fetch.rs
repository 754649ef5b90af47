//! One GET of the wire server (contract section 6, difference D12): plain HTTP, no proxy, no redirect, one limit on the
//! whole of it and one on the size of the body.

use std::io::{BufRead, BufReader};
use std::time::Duration;

use ureq::Agent;

use crate::host::words;

/// Larger answers than this are refused. 65,536 addresses take 3.6 MB.
const BODY_LIMIT: u64 = 4 << 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The server answered with something else than 200.
    #[error("it answered with status {0}")]
    Status(u16),
    /// It did not answer in time.
    #[error("it did not answer within {} s", .0.as_secs())]
    TimedOut(Duration),
    /// It cannot be reached, or breaks off.
    #[error("{0}")]
    Transport(String),
}

/// Asks `url` and hands the body to `read` while it arrives.
///
/// # Errors
/// See [`FetchError`]. Once the body has begun, errors reach `read`, as errors of reading.
pub fn get<T>(
    url: &str,
    limit: Duration,
    read: impl FnOnce(&mut dyn BufRead) -> T,
) -> Result<T, FetchError> {
    let agent: Agent = Agent::config_builder()
        .proxy(None)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .http_status_as_error(false)
        .timeout_global(Some(limit))
        .user_agent(concat!("azure-vnet-ipam/", env!("CARGO_PKG_VERSION")))
        .accept_encoding("identity")
        .input_buffer_size(16 * 1024)
        .output_buffer_size(4 * 1024)
        .max_idle_connections(0)
        .build()
        .into();
    let mut response = agent.get(url).call().map_err(|error| match error {
        ureq::Error::Timeout(_) => FetchError::TimedOut(limit),
        ureq::Error::Io(e) => FetchError::Transport(words(&e)),
        other => FetchError::Transport(other.to_string()),
    })?;
    match response.status().as_u16() {
        200 => {}
        other => return Err(FetchError::Status(other)),
    }
    let body = response.body_mut().with_config().limit(BODY_LIMIT).reader();
    Ok(read(&mut BufReader::with_capacity(16 * 1024, body)))
}

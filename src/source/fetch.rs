//! One GET request to the wire server (contract section 6, difference D12): plain HTTP, no proxy, no redirects, with limits on the
//! total time and the size of the body.

use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rustix::io::Errno;
use ureq::Agent;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{NextTimeout, TcpConnector};

use crate::host::io_reason;

/// Larger answers than this are refused. 65,536 addresses take 3.6 MB.
const BODY_LIMIT: u64 = 4 << 20;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The server answered with a status other than 200.
    #[error("it answered with status {0}")]
    Status(u16),
    /// It did not answer in time.
    #[error("it did not answer within {} s", .0.as_secs())]
    TimedOut(Duration),
    /// The host is there, but nothing listens.
    #[error("connection refused")]
    Refused,
    /// No route of this node leads to it, or one that blocks it.
    #[error("no route leads to it ({0})")]
    NoRoute(String),
    /// The connection broke, or something else went wrong.
    #[error("{0}")]
    Transport(String),
}

impl FetchError {
    /// Tells what an error of the connection means.
    fn from_io(error: &io::Error) -> FetchError {
        let reason = io_reason(error);
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::CONNREFUSED) => FetchError::Refused,
            // The kernel's answer to connect(2) where the route is of the type blackhole.
            Some(Errno::INVAL) => {
                FetchError::NoRoute("a blackhole route discards the packets".to_owned())
            }
            Some(Errno::ACCESS | Errno::PERM) => {
                FetchError::NoRoute(format!("a route or rule forbids it: {reason}"))
            }
            Some(Errno::NETUNREACH | Errno::HOSTUNREACH) => FetchError::NoRoute(reason),
            _ => FetchError::Transport(reason),
        }
    }
}

/// Requests `url` and passes the body to `read` while it arrives.
///
/// # Errors
/// See [`FetchError`]. Errors after the start of the body reach `read` as I/O errors.
pub fn get<T>(
    url: &str,
    limit: Duration,
    read: impl FnOnce(&mut dyn Read) -> T,
) -> Result<T, FetchError> {
    // ureq fills the room for a line with zeros, one by one.
    let longest_line = url.len() + 512;
    let agent = Agent::with_parts(
        config(limit, longest_line),
        TcpConnector::default(),
        LiteralIpResolver::default(),
    );
    let mut response = agent.get(url).call().map_err(|error| match error {
        ureq::Error::Timeout(_) => FetchError::TimedOut(limit),
        ureq::Error::Io(e) => FetchError::from_io(&e),
        other => FetchError::Transport(other.to_string()),
    })?;
    match response.status().as_u16() {
        200 => {}
        other => return Err(FetchError::Status(other)),
    }
    let mut body = response.body_mut().with_config().limit(BODY_LIMIT).reader();
    Ok(read(&mut body))
}

/// Returns the HTTP settings for all servers. A request with a line of more than `longest_line` bytes fails.
pub fn config(limit: Duration, longest_line: usize) -> Config {
    Agent::config_builder()
        .proxy(None)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .http_status_as_error(false)
        .timeout_global(Some(limit))
        .user_agent(concat!("azure-vnet-ipam/", env!("CARGO_PKG_VERSION")))
        .accept_encoding("identity")
        .input_buffer_size(4 * 1024)
        .output_buffer_size(longest_line)
        .max_idle_connections(0)
        .build()
}

/// Resolves literal addresses, such as the wire server's, without ureq's resolver, which starts a thread to limit the time of a
/// look-up.
#[derive(Debug, Default)]
pub struct LiteralIpResolver {
    names: DefaultResolver,
}

impl Resolver for LiteralIpResolver {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let Some(address) = literal_address(uri) else {
            return self.names.resolve(uri, config, timeout);
        };
        let mut addresses = self.empty();
        addresses.push(address);
        Ok(addresses)
    }
}

/// Returns the address and port of a URL whose host is a literal address.
fn literal_address(uri: &Uri) -> Option<SocketAddr> {
    let host = uri.host()?;
    let port = if uri.scheme_str() == Some("https") {
        443
    } else {
        80
    };
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    let address: IpAddr = bare.unwrap_or(host).parse().ok()?;
    Some((address, uri.port_u16().unwrap_or(port)).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_connection_name_their_cause() {
        let text = |errno: Errno| FetchError::from_io(&errno.into()).to_string();
        assert_eq!(text(Errno::CONNREFUSED), "connection refused");
        assert_eq!(
            text(Errno::INVAL),
            "no route leads to it (a blackhole route discards the packets)"
        );
        assert_eq!(
            text(Errno::NETUNREACH),
            "no route leads to it (network is unreachable)"
        );
        assert!(text(Errno::ACCESS).contains("forbids it"));
        assert_eq!(text(Errno::CONNRESET), "connection reset by peer");
    }

    #[test]
    fn literal_addresses_need_no_lookup() {
        for (url, address) in [
            ("http://168.63.129.16/machine?a=b", Some("168.63.129.16:80")),
            ("http://127.0.0.1:8080/", Some("127.0.0.1:8080")),
            ("http://[::1]/", Some("[::1]:80")),
            ("http://[::1]:8080/", Some("[::1]:8080")),
            ("https://[::1]/", Some("[::1]:443")),
            ("https://10.0.0.1:6443/", Some("10.0.0.1:6443")),
            ("http://wire.example/", None),
        ] {
            let found = literal_address(&url.parse().unwrap());
            assert_eq!(found, address.map(|a| a.parse().unwrap()), "{url}");
        }
    }
}

//! Sends one GET request to the wire server (contract section 6, difference D12). It uses plain HTTP,
//! no proxy and no redirects, and limits the total time and the size of the body.

use std::io::{self, Read};
use std::net::{IpAddr, ToSocketAddrs};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use ureq::Agent;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{NextTimeout, TcpConnector};

use crate::cni::without_secrets;
use crate::host::{boot_now, io_reason};

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
    /// Its answer began, but did not end in time.
    #[error("its answer did not end within {} s", .0.as_secs())]
    SlowAnswer(Duration),
    /// The host is there, but nothing listens.
    #[error("connection refused")]
    Refused,
    /// No route of this node leads to it, a route or rule blocks it, or the next host on the way does not answer.
    #[error("it cannot be reached ({0})")]
    NoRoute(String),
    /// No local port is free.
    #[error("no local port is free")]
    NoLocalPort,
    /// The connection broke, or something else went wrong.
    #[error("{0}")]
    Transport(String),
}

impl FetchError {
    /// Converts an error of the connection.
    fn from_io(error: &io::Error) -> FetchError {
        let reason = io_reason(error);
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::CONNREFUSED) => FetchError::Refused,
            // connect(2) fails with this error if the route has the type blackhole.
            Some(Errno::INVAL) => {
                FetchError::NoRoute("a blackhole route discards the packets".to_owned())
            }
            Some(Errno::ACCESS | Errno::PERM) => {
                FetchError::NoRoute(format!("a route or rule forbids it: {reason}"))
            }
            Some(Errno::ADDRNOTAVAIL) => FetchError::NoLocalPort,
            Some(Errno::NETUNREACH | Errno::HOSTUNREACH) => FetchError::NoRoute(reason),
            _ => FetchError::Transport(reason),
        }
    }

    /// Converts an error that occurred while the body was read.
    fn from_body(error: &io::Error, limit: Duration) -> FetchError {
        let cause = error
            .get_ref()
            .and_then(|e| e.downcast_ref::<ureq::Error>());
        match cause {
            Some(ureq::Error::Timeout(_)) => FetchError::SlowAnswer(limit),
            Some(ureq::Error::BodyExceedsLimit(_)) => {
                FetchError::Transport(format!("its answer is larger than {BODY_LIMIT} bytes"))
            }
            _ if error.kind() == io::ErrorKind::TimedOut => FetchError::SlowAnswer(limit),
            _ => FetchError::Transport(format!("its answer broke off: {}", io_reason(error))),
        }
    }
}

/// A body that records why it cannot be read to its end.
struct Body<R> {
    body: R,
    limit: Duration,
    error: Option<FetchError>,
}

impl<R: Read> Read for Body<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.body.read(buffer).inspect_err(|error| {
            if error.kind() != io::ErrorKind::Interrupted {
                self.error = Some(FetchError::from_body(error, self.limit));
            }
        })
    }
}

/// Requests `url` and passes the body to `read` while it arrives.
///
/// # Errors
/// See [`FetchError`]. An error in the body also reaches `read`, as an I/O error.
pub fn get<T>(
    url: &str,
    limit: Duration,
    read: impl FnOnce(&mut dyn Read) -> T,
) -> Result<T, FetchError> {
    // ureq clears a buffer of this size, so it is not larger than needed.
    let longest_line = url.len() + 512;
    let agent = Agent::with_parts(
        config(limit, longest_line),
        TcpConnector::default(),
        TimedResolver,
    );
    let mut response = agent.get(url).call().map_err(|error| match error {
        ureq::Error::Timeout(_) => FetchError::TimedOut(limit),
        ureq::Error::Io(e) => FetchError::from_io(&e),
        other => FetchError::Transport(without_secrets(&other.to_string())),
    })?;
    let status = response.status().as_u16();
    if status != 200 {
        return Err(FetchError::Status(status));
    }
    let mut body = Body {
        body: response.body_mut().with_config().limit(BODY_LIMIT).reader(),
        limit,
        error: None,
    };
    let answer = read(&mut body);
    match body.error {
        Some(error) => Err(error),
        None => Ok(answer),
    }
}

/// Returns the HTTP settings for all servers. A request with a line of more than `longest_line`
/// bytes fails.
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

/// Resolves names in a thread, within the remaining time of the request. Literal addresses, such as
/// that of the wire server, need no thread.
///
/// ureq's own resolver uses a channel. The thread-local variables of channels take a page of memory
/// at every start.
#[derive(Debug, Default)]
pub struct TimedResolver;

impl Resolver for TimedResolver {
    fn resolve(
        &self,
        uri: &Uri,
        _: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        /// The maximum number of addresses that ureq has room for.
        const MOST: usize = 16;
        let (host, port) = host_and_port(uri);
        let mut found = self.empty();
        if let Ok(address) = host.parse::<IpAddr>() {
            found.push((address, port).into());
            return Ok(found);
        }
        let target = (host.to_owned(), port);
        let deadline = boot_now().after(*timeout.after);
        let lookup = thread::Builder::new().spawn(move || target.to_socket_addrs())?;
        while !lookup.is_finished() {
            if deadline <= boot_now() {
                return Err(ureq::Error::Timeout(timeout.reason));
            }
            thread::sleep(Duration::from_millis(1));
        }
        let addresses = lookup.join().map_err(|_| ureq::Error::HostNotFound)??;
        for address in addresses.take(MOST) {
            found.push(address);
        }
        if found.is_empty() {
            return Err(ureq::Error::HostNotFound);
        }
        Ok(found)
    }
}

/// Returns the host of a URL without brackets, and its port.
fn host_and_port(uri: &Uri) -> (&str, u16) {
    let host = uri.host().unwrap_or_default();
    let bare_host = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(host);
    let default_port = match uri.scheme_str() {
        Some("https") => 443,
        _ => 80,
    };
    (bare_host, uri.port_u16().unwrap_or(default_port))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn connection_errors_name_their_cause() {
        let text = |errno: Errno| FetchError::from_io(&errno.into()).to_string();
        assert_eq!(text(Errno::CONNREFUSED), "connection refused");
        assert_eq!(
            text(Errno::INVAL),
            "it cannot be reached (a blackhole route discards the packets)"
        );
        assert_eq!(text(Errno::ADDRNOTAVAIL), "no local port is free");
        assert_eq!(
            text(Errno::NETUNREACH),
            "it cannot be reached (network is unreachable)"
        );
        assert!(text(Errno::ACCESS).contains("forbids it"));
        assert_eq!(text(Errno::CONNRESET), "connection reset by peer");
    }

    #[test]
    fn answer_that_does_not_end_times_out() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", server.local_addr().unwrap());
        let answer = thread::spawn(move || {
            let (mut client, _) = server.accept().unwrap();
            client
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n<")
                .unwrap();
            // Waits until the client closes the connection.
            let _ = client.read_to_end(&mut Vec::new());
        });
        let read = |body: &mut dyn Read| body.read_to_end(&mut Vec::new()).is_ok();
        let error = get(&url, Duration::from_millis(200), read).unwrap_err();
        assert!(matches!(error, FetchError::SlowAnswer(_)), "{error}");
        answer.join().unwrap();
    }

    #[test]
    fn host_and_port_of_a_url_are_found() {
        for (url, expected) in [
            ("http://168.63.129.16/machine?a=b", ("168.63.129.16", 80)),
            ("http://127.0.0.1:8080/", ("127.0.0.1", 8080)),
            ("http://[::1]/", ("::1", 80)),
            ("http://[::1]:8080/", ("::1", 8080)),
            ("https://[::1]/", ("::1", 443)),
            ("https://10.0.0.1:6443/", ("10.0.0.1", 6443)),
            ("http://wire.example/", ("wire.example", 80)),
        ] {
            assert_eq!(host_and_port(&url.parse().unwrap()), expected, "{url}");
        }
    }

    #[test]
    fn name_lookup_obeys_the_time_limit() {
        let get = |limit| get("http://localhost:1/", limit, |_| ()).unwrap_err();
        let refused = get(Duration::from_secs(10));
        assert!(matches!(refused, FetchError::Refused), "{refused}");
        let late = get(Duration::ZERO);
        assert!(matches!(late, FetchError::TimedOut(_)), "{late}");
    }
}

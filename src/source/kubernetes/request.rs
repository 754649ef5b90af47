//! One GET request for a node object, and its errors.

use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError, ClientConfig};
use ureq::Agent;
use ureq::unversioned::transport::{Connector, TcpConnector};

use super::error::{NodeError, bounded, list_names};
use super::object::parse_refusal;
use super::tls::TlsConnector;
use crate::host::{Timestamp, io_reason};
use crate::source::fetch::{LiteralIpResolver, config};

/// Larger answers than this are refused. A node with all its images takes a few dozen KiB.
const BODY_LIMIT: u64 = 4 << 20;

/// At most this much of the answer to a refused request is read.
const REFUSAL_LIMIT: u64 = 16 << 10;

/// The request for a node object.
pub struct Request<'a> {
    /// The server's URL, without a slash at its end.
    pub server: &'a str,
    /// The name of the node, which needs no escapes.
    pub node: &'a str,
    /// TLS, unless the server uses plain HTTP.
    pub tls: Option<(ClientConfig, ServerName<'static>)>,
    /// The place of the certificates to verify the server with, for messages.
    pub authority: String,
    /// The token for the `Authorization` header.
    pub token: Option<String>,
    /// The time limit of the whole query, for messages.
    pub limit: Duration,
    /// When the request must be complete.
    pub deadline: Instant,
}

impl Request<'_> {
    /// Sends the request, and returns the body of the answer.
    ///
    /// # Errors
    /// The server cannot be reached or trusted, refuses, or is too slow.
    pub fn send(mut self) -> Result<Vec<u8>, NodeError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let (config, names) = (config(left), LiteralIpResolver::default());
        let agent = match self.tls.take() {
            None => Agent::with_parts(config, TcpConnector::default(), names),
            Some((tls, name)) => {
                let tls = TlsConnector {
                    config: Arc::new(tls),
                    name,
                };
                let both = Connector::<()>::chain(TcpConnector::default(), tls);
                Agent::with_parts(config, both, names)
            }
        };
        let url = format!("{}/api/v1/nodes/{}", self.server, self.node);
        let mut request = agent.get(url).header("Accept", "application/json");
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let mut response = request.call().map_err(|e| self.describe(e))?;
        let status = response.status().as_u16();
        let limit = if status == 200 {
            BODY_LIMIT
        } else {
            REFUSAL_LIMIT
        };
        let mut body = Vec::new();
        let mut reader = response.body_mut().with_config().limit(limit).reader();
        let read = reader.read_to_end(&mut body);
        match (status, read) {
            (200, Ok(_)) => Ok(body),
            (200, Err(e)) => Err(self.describe(e.into())),
            // A partial body is enough.
            (status, _) => Err(NodeError::Status {
                server: self.server(),
                status,
                node: self.node.to_owned(),
                reason: parse_refusal(&body),
            }),
        }
    }

    fn server(&self) -> String {
        self.server.to_owned()
    }

    /// Converts the error of a request without an answer.
    fn describe(&self, error: ureq::Error) -> NodeError {
        let unreachable = |why: String| NodeError::Unreachable {
            server: self.server(),
            why,
        };
        match error {
            ureq::Error::Timeout(_) => unreachable(format!(
                "it did not answer within {} s",
                self.limit.as_secs()
            )),
            ureq::Error::HostNotFound => unreachable("its name has no address".to_owned()),
            ureq::Error::BodyExceedsLimit(most) => NodeError::BadAnswer {
                server: self.server(),
                why: format!("it is larger than {most} bytes"),
            },
            ureq::Error::Io(e) => match e.get_ref().and_then(|inner| inner.downcast_ref()) {
                Some(tls) => self.describe_tls(tls),
                None if e.kind() == ErrorKind::UnexpectedEof => {
                    unreachable("it closed the connection".to_owned())
                }
                None => unreachable(io_reason(&e)),
            },
            other => unreachable(bounded(&other.to_string())),
        }
    }

    fn describe_tls(&self, error: &rustls::Error) -> NodeError {
        let server = self.server();
        match error {
            rustls::Error::InvalidCertificate(e) => self.describe_certificate(e),
            rustls::Error::AlertReceived(alert) if is_about_certificate(*alert) => {
                NodeError::ClientRefused {
                    server,
                    why: format!("{alert:?}"),
                }
            }
            rustls::Error::AlertReceived(alert) => NodeError::Handshake {
                server,
                why: format!("it sent the alert {alert:?}"),
            },
            rustls::Error::InvalidMessage(_) => NodeError::Handshake {
                server,
                why: "it does not speak TLS".to_owned(),
            },
            other => NodeError::Handshake {
                server,
                why: bounded(&other.to_string()),
            },
        }
    }

    /// Converts the error for a certificate of the server that is not accepted.
    fn describe_certificate(&self, error: &CertificateError) -> NodeError {
        let server = self.server();
        let seconds = |seconds: u64| i64::try_from(seconds).unwrap_or(i64::MAX);
        let time = |at: u64| Timestamp::from_seconds(seconds(at)).utc();
        let why = match error {
            CertificateError::ExpiredContext { not_after, .. } => {
                let why = format!("expired at {}", time(not_after.as_secs()));
                return NodeError::ServerExpired { server, why };
            }
            CertificateError::NotValidYetContext { not_before, .. } => {
                let why = format!("is not valid before {}", time(not_before.as_secs()));
                return NodeError::ServerExpired { server, why };
            }
            CertificateError::NotValidForNameContext {
                expected,
                presented,
            } => {
                let names: Vec<_> = presented.iter().map(|name| bare(name)).collect();
                format!("is not for {}; {}", expected.to_str(), list_names(&names))
            }
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                format!("is not of the certificate-authority {}", self.authority)
            }
            other => format!("is not valid: {}", bounded(&other.to_string())),
        };
        NodeError::ServerUntrusted { server, why }
    }
}

/// Returns the plain name from `DnsName("a.example")` or `IpAddress(10.0.0.1)`.
fn bare(name: &str) -> String {
    let inside = name.split_once('(').and_then(|(_, n)| n.strip_suffix(')'));
    inside.unwrap_or(name).trim_matches('"').to_owned()
}

/// Whether an alert means that the peer refuses the certificate.
fn is_about_certificate(alert: AlertDescription) -> bool {
    use AlertDescription as Alert;
    [
        Alert::NoCertificate,
        Alert::BadCertificate,
        Alert::UnsupportedCertificate,
        Alert::CertificateRevoked,
        Alert::CertificateExpired,
        Alert::CertificateUnknown,
        Alert::UnknownCA,
        Alert::AccessDenied,
        Alert::CertificateRequired,
    ]
    .contains(&alert)
}

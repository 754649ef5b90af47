//! One GET of a node object, and the errors of it.

use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError, ClientConfig};
use ureq::Agent;
use ureq::unversioned::transport::{Connector, TcpConnector};

use super::error::{NodeError, bounded, list_names};
use super::object::refusal;
use super::tls::TlsConnector;
use crate::host::{io_reason, utc};
use crate::source::fetch::{LiteralIpResolver, config};

/// Larger answers than this are refused. A node with all its images takes a few dozen KiB.
const BODY_LIMIT: u64 = 4 << 20;

/// What a refusal says beyond this is not read.
const REFUSAL_LIMIT: u64 = 16 << 10;

/// Whom to ask, and how.
pub struct Request<'a> {
    /// The server's URL, without a slash at its end.
    pub server: &'a str,
    /// The node to ask for; must need no escapes.
    pub node: &'a str,
    /// TLS, unless the server uses plain HTTP.
    pub tls: Option<(ClientConfig, ServerName<'static>)>,
    /// Where the certificates are that vouch for the server, for people.
    pub authority: String,
    /// For the header `Authorization`.
    pub token: Option<String>,
    /// All the time there was.
    pub limit: Duration,
    /// When it must all be over.
    pub deadline: Instant,
}

impl Request<'_> {
    /// The bytes of the node object.
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
        let mut asked = agent.get(url).header("Accept", "application/json");
        if let Some(token) = &self.token {
            asked = asked.header("Authorization", format!("Bearer {token}"));
        }
        let mut response = asked.call().map_err(|e| self.describe(e))?;
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
            // As much of it as there is.
            (status, _) => Err(NodeError::Status {
                server: self.server(),
                status,
                node: self.node.to_owned(),
                reason: refusal(&body),
            }),
        }
    }

    fn server(&self) -> String {
        self.server.to_owned()
    }

    /// The error for a request that got no answer.
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

    /// The error for a certificate of the server that is not accepted.
    fn describe_certificate(&self, error: &CertificateError) -> NodeError {
        let server = self.server();
        let time = |seconds: u64| utc(i64::try_from(seconds).unwrap_or(i64::MAX));
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

/// A name of a certificate, which rustls tells as `DnsName("a.example")` or `IpAddress(10.0.0.1)`.
fn bare(name: &str) -> String {
    let inside = name.split_once('(').and_then(|(_, n)| n.strip_suffix(')'));
    inside.unwrap_or(name).trim_matches('"').to_owned()
}

/// Whether an alert is about the certificate of the one who gets it.
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

//! One GET of a node object, and what goes wrong with it in our words.

use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError, ClientConfig};
use ureq::Agent;
use ureq::unversioned::transport::{Connector, TcpConnector};

use super::error::{Fault, NodeError, bounded};
use super::object::refusal;
use super::tls::Tls;
use crate::host::io_reason;
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
                let tls = Tls {
                    config: Arc::new(tls),
                    name,
                    deadline: self.deadline,
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
        let mut response = asked.call().map_err(|e| self.trouble(e))?;
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
            (200, Err(e)) => Err(self.trouble(e.into())),
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

    fn trouble(&self, error: ureq::Error) -> NodeError {
        let server = self.server();
        match error {
            ureq::Error::Timeout(_) => NodeError::TimedOut {
                server,
                limit: self.limit,
            },
            ureq::Error::HostNotFound => NodeError::NoSuchHost {
                server,
                why: "its name has no address".to_owned(),
            },
            ureq::Error::BodyExceedsLimit(most) => NodeError::BadAnswer {
                server,
                why: format!("it is larger than {most} bytes"),
            },
            ureq::Error::Io(e) => {
                if let Some(tls) = e.get_ref().and_then(|inner| inner.downcast_ref()) {
                    return self.of_tls(tls);
                }
                let why = match e.kind() {
                    ErrorKind::UnexpectedEof => "it breaks the connection off".to_owned(),
                    _ => io_reason(&e),
                };
                // The standard library tells it by these words alone.
                match why.strip_prefix("failed to lookup address information: ") {
                    Some(why) => NodeError::NoSuchHost {
                        server,
                        why: why.to_lowercase(),
                    },
                    None => NodeError::Unreachable { server, why },
                }
            }
            other => NodeError::Unreachable {
                server,
                why: bounded(&other.to_string()),
            },
        }
    }

    fn of_tls(&self, error: &rustls::Error) -> NodeError {
        let server = self.server();
        match error {
            rustls::Error::InvalidCertificate(e) => NodeError::ServerCertificate {
                server,
                fault: self.fault(e),
            },
            rustls::Error::AlertReceived(alert) if is_of_certificates(*alert) => {
                NodeError::ClientRefused {
                    server,
                    why: format!("{alert:?}"),
                }
            }
            rustls::Error::AlertReceived(alert) => NodeError::Handshake {
                server,
                why: format!("it says {alert:?}"),
            },
            rustls::Error::InvalidMessage(_) => NodeError::NotTls(server),
            other => NodeError::Handshake {
                server,
                why: bounded(&other.to_string()),
            },
        }
    }

    fn fault(&self, error: &CertificateError) -> Fault {
        let seconds = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        match error {
            CertificateError::ExpiredContext { not_after, .. } => {
                Fault::Expired(seconds(not_after.as_secs()))
            }
            CertificateError::NotValidYetContext { not_before, .. } => {
                Fault::NotYet(seconds(not_before.as_secs()))
            }
            CertificateError::NotValidForNameContext {
                expected,
                presented,
            } => Fault::Name {
                expected: expected.to_str().into_owned(),
                names: presented.iter().map(|name| bare(name)).collect(),
            },
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                Fault::Authority(self.authority.clone())
            }
            other => Fault::Other(bounded(&other.to_string())),
        }
    }
}

/// A name of a certificate, which rustls tells as `DnsName("a.example")` or `IpAddress(10.0.0.1)`.
fn bare(name: &str) -> String {
    let inside = name.split_once('(').and_then(|(_, n)| n.strip_suffix(')'));
    inside.unwrap_or(name).trim_matches('"').to_owned()
}

/// Whether an alert is about the certificate of the one who gets it.
fn is_of_certificates(alert: AlertDescription) -> bool {
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

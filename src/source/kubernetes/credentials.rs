//! Reads and checks the certificates, key and token of a kubeconfig before the request.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, InconsistentKeys, RootCertStore};

use super::error::NodeError;
use super::kubeconfig::{Cluster, Material, Token, User};
use crate::host::{Paths, ReadOutcome, io_reason, read_bounded};

/// The cluster key that names the certificates to verify the server with.
pub const AUTHORITY: &str = "certificate-authority";

/// Larger files than this are refused.
const LIMIT: usize = 1 << 20;

/// Resolves and reads the files that a kubeconfig names.
#[derive(Clone, Copy, Debug)]
pub struct Files<'a> {
    /// The path of the kubeconfig. Relative paths start at its folder.
    pub kubeconfig: &'a Path,
    /// The root for absolute paths.
    pub paths: &'a Paths,
}

/// The bytes of a certificate or key, and their place for messages.
struct Credential {
    bytes: Vec<u8>,
    place: String,
}

impl Files<'_> {
    /// Reads the kubeconfig.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn kubeconfig(&self) -> Result<Vec<u8>, NodeError> {
        match read("kubeconfig", self.kubeconfig)? {
            Some(bytes) => Ok(bytes),
            None => Err(NodeError::NoKubeconfig(self.kubeconfig.to_owned())),
        }
    }

    /// Creates the TLS configuration for `cluster`, with the client certificate of `user`.
    ///
    /// # Errors
    /// A certificate or key cannot be read, is malformed, or does not match the other.
    pub fn tls(&self, cluster: &Cluster, user: &User) -> Result<ClientConfig, NodeError> {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| NodeError::Handshake {
                server: cluster.server.clone(),
                why: e.to_string(),
            })?
            .with_root_certificates(self.roots(cluster)?);
        let alone = |has, lacks| NodeError::BadCredentials {
            what: has,
            why: format!("of user {:?} has no {lacks}", user.name),
        };
        let mut config = match (&user.certificate, &user.key) {
            (None, None) => builder.with_no_client_auth(),
            (Some(_), None) => return Err(alone(CERTIFICATE, KEY)),
            (None, Some(_)) => return Err(alone(KEY, CERTIFICATE)),
            (Some(certificate), Some(key)) => {
                let certificate = self.material(CERTIFICATE, certificate)?;
                let key = self.material(KEY, key)?;
                let chain = certificate.certificates(CERTIFICATE)?;
                let private = PrivateKeyDer::from_pem_slice(&key.bytes)
                    .map_err(|_| key.malformed(KEY, "holds no private key"))?;
                let built = builder.with_client_auth_cert(chain, private);
                built.map_err(|e| match e {
                    rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                        let certificate = certificate.place;
                        key.malformed(
                            KEY,
                            &format!("does not belong to the client-certificate {certificate}"),
                        )
                    }
                    rustls::Error::InvalidCertificate(_) => {
                        certificate.malformed(CERTIFICATE, "holds a malformed certificate")
                    }
                    _ => key.malformed(KEY, "holds a malformed private key"),
                })?
            }
        };
        // There is only one connection.
        config.resumption = Resumption::disabled();
        Ok(config)
    }

    fn roots(&self, cluster: &Cluster) -> Result<RootCertStore, NodeError> {
        let material = cluster.authority.as_ref();
        let material = material.ok_or_else(|| NodeError::Unverifiable {
            cluster: cluster.name.clone(),
            why: "has no certificate-authority to verify the server with",
        })?;
        let authority = self.material(AUTHORITY, material)?;
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(authority.certificates(AUTHORITY)?);
        match roots.is_empty() {
            true => Err(authority.malformed(AUTHORITY, "holds a malformed certificate")),
            false => Ok(roots),
        }
    }

    /// Returns the place of a certificate or key, for messages.
    pub fn place(&self, what: &'static str, material: &Material) -> String {
        match material {
            Material::Data(_) => format!("in {what}-data"),
            Material::File(path) => self.path(path).display().to_string(),
        }
    }

    fn material(&self, what: &'static str, material: &Material) -> Result<Credential, NodeError> {
        let place = self.place(what, material);
        let bytes = match material {
            Material::File(path) => self.file(what, path)?,
            Material::Data(base64) => {
                let text: String = base64.split_ascii_whitespace().collect();
                STANDARD
                    .decode(text)
                    .map_err(|_| NodeError::BadCredentials {
                        what,
                        why: format!("{place} is not base64"),
                    })?
            }
        };
        Ok(Credential { bytes, place })
    }

    /// Reads the token of `user` for the `Authorization` header.
    ///
    /// # Errors
    /// Its file cannot be read, or it is not a token.
    pub fn token(&self, user: &User) -> Result<Option<String>, NodeError> {
        let (what, place, text) = match &user.token {
            None => return Ok(None),
            Some(Token::Inline(token)) => ("token", "of the kubeconfig".to_owned(), token.clone()),
            Some(Token::File(path)) => {
                let bytes = self.file("tokenFile", path)?;
                let text = String::from_utf8_lossy(&bytes).into_owned();
                ("tokenFile", self.path(path).display().to_string(), text)
            }
        };
        let token = text.trim();
        let why = match token {
            "" => "is empty",
            token if token.bytes().all(|b| b.is_ascii_graphic()) => {
                return Ok(Some(token.to_owned()));
            }
            _ => "is not a token",
        };
        let why = format!("{place} {why}");
        Err(NodeError::BadCredentials { what, why })
    }

    fn file(&self, what: &'static str, path: &str) -> Result<Vec<u8>, NodeError> {
        let path = self.path(path);
        read(what, &path)?.ok_or_else(|| NodeError::Unreadable {
            what,
            path,
            why: "it does not exist".to_owned(),
            denied: false,
        })
    }

    fn path(&self, path: &str) -> PathBuf {
        match (path.starts_with('/'), self.kubeconfig.parent()) {
            (false, Some(folder)) => folder.join(path),
            _ => self.paths.under_root(path),
        }
    }
}

const CERTIFICATE: &str = "client-certificate";
const KEY: &str = "client-key";

impl Credential {
    fn certificates(&self, what: &'static str) -> Result<Vec<CertificateDer<'static>>, NodeError> {
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.bytes).collect();
        match found {
            Ok(certificates) if !certificates.is_empty() => Ok(certificates),
            Ok(_) => Err(self.malformed(what, "holds no certificate")),
            Err(_) => Err(self.malformed(what, "is not complete PEM")),
        }
    }

    fn malformed(&self, what: &'static str, why: &str) -> NodeError {
        NodeError::BadCredentials {
            what,
            why: format!("{} {why}", self.place),
        }
    }
}

/// Reads a file; `None` if it does not exist.
fn read(what: &'static str, path: &Path) -> Result<Option<Vec<u8>>, NodeError> {
    let cannot = |why: String, denied| NodeError::Unreadable {
        what,
        path: path.to_owned(),
        why,
        denied,
    };
    match read_bounded(path, LIMIT) {
        Ok(ReadOutcome::Read(bytes)) => Ok(Some(bytes)),
        Ok(ReadOutcome::Missing) => Ok(None),
        Ok(ReadOutcome::TooLarge) => Err(cannot(format!("it is larger than {LIMIT} bytes"), false)),
        Err(e) => {
            let denied = e.kind() == std::io::ErrorKind::PermissionDenied;
            Err(cannot(io_reason(&e), denied))
        }
    }
}

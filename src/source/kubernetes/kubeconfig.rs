//! Parses a kubeconfig, and reads the certificates, key and token of its current user.

use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde::Deserialize;
use serde::de::IgnoredAny;
use ureq::http::Uri;

use super::error::{NodeError, bounded};
use super::tls::TlsConnector;
use crate::host::{Paths, ReadOutcome, io_reason, read_bounded};

/// Larger files than this are refused.
const FILE_LIMIT: usize = 1 << 20;

/// How to reach the API server of a kubeconfig's current context.
pub struct Access {
    /// The URL, without a slash at its end: `https://10.0.0.1:443`.
    pub server: String,
    /// The settings of TLS; `None` for plain HTTP.
    pub tls: Option<TlsConnector>,
    /// The token for the header `Authorization`.
    pub token: Option<String>,
}

/// The cluster and the user of the current context.
pub struct Kubeconfig {
    cluster: Cluster,
    user: User,
    /// The parsed URL of the cluster's server.
    server: Uri,
}

/// The members of a kubeconfig that are used. All are optional, as in kubectl.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Document {
    current_context: Option<String>,
    contexts: Option<Vec<Named<Context>>>,
    clusters: Option<Vec<Named<Cluster>>>,
    users: Option<Vec<Named<User>>>,
}

/// An element of one of the lists.
#[derive(Deserialize)]
struct Named<T> {
    name: Option<String>,
    #[serde(alias = "context", alias = "cluster", alias = "user")]
    value: Option<T>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Context {
    cluster: Option<String>,
    user: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Cluster {
    server: Option<String>,
    certificate_authority: Option<String>,
    certificate_authority_data: Option<String>,
    tls_server_name: Option<String>,
    /// A text, because YAML 1.1 has many spellings of truth values.
    insecure_skip_tls_verify: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct User {
    client_certificate: Option<String>,
    client_certificate_data: Option<String>,
    client_key: Option<String>,
    client_key_data: Option<String>,
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<String>,
    username: Option<String>,
    password: Option<String>,
    exec: Option<IgnoredAny>,
    auth_provider: Option<IgnoredAny>,
}

/// Parses a kubeconfig, and resolves its current context.
///
/// # Errors
/// It is not a kubeconfig, a name in it is not found, or it needs something that is not supported.
pub fn parse(text: &[u8]) -> Result<Kubeconfig, NodeError> {
    let bad = |why: &str| Err(NodeError::Kubeconfig(why.to_owned()));
    let document = parse_yaml(&String::from_utf8_lossy(text))?;
    let Some(current) = non_empty(&document.current_context) else {
        return bad("has no current-context");
    };
    let context = find("context", document.contexts, current)?;
    let cluster_name = non_empty(&context.cluster).unwrap_or_default();
    let cluster = find("cluster", document.clusters, cluster_name)?;
    let user = match non_empty(&context.user) {
        Some(name) => find("user", document.users, name)?,
        None => User::default(),
    };
    if let Some(skip) = non_empty(&cluster.insecure_skip_tls_verify)
        && !["false", "no", "off", "n"].contains(&&*skip.to_ascii_lowercase())
    {
        return bad("sets insecure-skip-tls-verify, which is refused: \
             whoever answers could list any addresses");
    }
    let has_password = non_empty(&user.username).is_some() || non_empty(&user.password).is_some();
    if user.exec.is_some() || user.auth_provider.is_some() || has_password {
        return bad(
            "has a user with exec, auth-provider or a password, which is not supported: \
             no other program is started here, and no password is sent",
        );
    }
    // A text that is not a URL may hold a password, so it is not quoted.
    let Some(server) = non_empty(&cluster.server).and_then(parse_url) else {
        return bad("has a cluster whose server is not a URL like https://HOST:PORT");
    };
    let kubeconfig = Kubeconfig {
        cluster,
        user,
        server,
    };
    if kubeconfig.is_plain() && kubeconfig.user.has_credentials() {
        return bad("would send credentials to a server that uses plain HTTP");
    }
    Ok(kubeconfig)
}

/// Parses the first document of a text, as kubectl does. Errors quote no values, because these may
/// be secrets.
fn parse_yaml(text: &str) -> Result<Document, NodeError> {
    let without_mark = text.trim_start_matches('\u{feff}');
    let mut documents = yaml_serde::Deserializer::from_str(without_mark);
    let location = match documents.next().map(Option::deserialize) {
        Some(Ok(Some(document))) => return Ok(document),
        Some(Err(error)) => error.location(),
        Some(Ok(None)) | None => None,
    };
    let place = match location {
        Some(at) => format!(" at line {} column {}", at.line(), at.column()),
        None => String::new(),
    };
    Err(NodeError::Kubeconfig(format!(
        "is not a YAML object, or has deep nesting or values of the wrong type{place}"
    )))
}

/// Finds an element of `clusters`, `contexts` or `users` by name.
fn find<T: Default>(kind: &str, list: Option<Vec<Named<T>>>, name: &str) -> Result<T, NodeError> {
    let found = list
        .unwrap_or_default()
        .into_iter()
        .find(|element| element.name.as_deref() == Some(name));
    match found {
        Some(element) => Ok(element.value.unwrap_or_default()),
        None => {
            let quoted = bounded(name);
            Err(NodeError::Kubeconfig(format!("has no {kind} {quoted:?}")))
        }
    }
}

/// Returns a text that is present and not empty.
fn non_empty(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|text| !text.is_empty())
}

/// Parses the URL of a server. The default scheme is https. Returns `None` if it is not a URL, or
/// has a user or a query.
fn parse_url(text: &str) -> Option<Uri> {
    let (listed_scheme, rest) = text.split_once("://").unwrap_or(("https", text));
    let scheme = listed_scheme.to_ascii_lowercase();
    if !["http", "https"].contains(&&*scheme) || rest.contains(['?', '#']) {
        return None;
    }
    let uri: Uri = format!("{scheme}://{}", rest.trim_end_matches('/'))
        .parse()
        .ok()?;
    let host = uri.host().filter(|host| !host.is_empty())?;
    // A user would precede the host, and the prefix would not match.
    let port = uri.authority()?.as_str().strip_prefix(host)?;
    let is_port_valid = port.is_empty() || uri.port_u16().is_some();
    is_port_valid.then_some(uri)
}

impl User {
    fn has_credentials(&self) -> bool {
        let credentials = [
            &self.client_certificate,
            &self.client_certificate_data,
            &self.client_key,
            &self.client_key_data,
            &self.token,
            &self.token_file,
        ];
        credentials
            .into_iter()
            .any(|text| non_empty(text).is_some())
    }
}

impl Kubeconfig {
    fn is_plain(&self) -> bool {
        self.server.scheme_str() == Some("http")
    }

    /// Returns the name that the certificate of the server must be for.
    fn server_name(&self) -> Result<ServerName<'static>, NodeError> {
        let host = self.server.host().unwrap_or_default();
        let name =
            non_empty(&self.cluster.tls_server_name).unwrap_or(host.trim_matches(['[', ']']));
        ServerName::try_from(name.to_owned()).map_err(|_| {
            let quoted = bounded(name);
            NodeError::Kubeconfig(format!(
                "names the server {quoted:?}, which is not a host name"
            ))
        })
    }

    /// Creates the settings of TLS, with the certificates to trust and the client certificate.
    fn tls(&self, files: &Files<'_>) -> Result<ClientConfig, NodeError> {
        let authority = files.pem(
            "certificate-authority",
            &self.cluster.certificate_authority_data,
            &self.cluster.certificate_authority,
        )?;
        let Some(authority) = authority else {
            let why = "has no certificate-authority to verify the server with";
            return Err(NodeError::Kubeconfig(why.to_owned()));
        };
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(authority.certificates()?);
        if roots.is_empty() {
            return Err(authority.bad("holds a malformed certificate"));
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| NodeError::Unreachable(e.to_string()))?
            .with_root_certificates(roots);
        let user = &self.user;
        let certificate = files.pem(
            "client-certificate",
            &user.client_certificate_data,
            &user.client_certificate,
        )?;
        let key = files.pem("client-key", &user.client_key_data, &user.client_key)?;
        match (certificate, key) {
            (None, None) => Ok(builder.with_no_client_auth()),
            (Some(certificate), None) => Err(certificate.bad("has no client-key")),
            (None, Some(key)) => Err(key.bad("has no client-certificate")),
            (Some(certificate), Some(key)) => {
                let private = PrivateKeyDer::from_pem_slice(&key.bytes)
                    .map_err(|_| key.bad("holds no private key"))?;
                let chain = certificate.certificates()?;
                builder
                    .with_client_auth_cert(chain, private)
                    .map_err(|error| match error {
                        rustls::Error::InvalidCertificate(_) => {
                            certificate.bad("holds a malformed certificate")
                        }
                        _ => key.bad("is malformed, or does not belong to the client-certificate"),
                    })
            }
        }
    }

    /// Reads the token. A file takes precedence, because the token in a file is renewed.
    fn token(&self, files: &Files<'_>) -> Result<Option<String>, NodeError> {
        let credential = match (
            non_empty(&self.user.token_file),
            non_empty(&self.user.token),
        ) {
            (Some(file), _) => files.read("tokenFile", file)?,
            (None, Some(token)) => Credential {
                name: "token of the kubeconfig".to_owned(),
                bytes: token.as_bytes().to_vec(),
            },
            (None, None) => return Ok(None),
        };
        let token = str::from_utf8(credential.bytes.trim_ascii()).unwrap_or_default();
        if token.is_empty() || !token.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(credential.bad("is not one line of visible ASCII characters"));
        }
        Ok(Some(token.to_owned()))
    }
}

impl Access {
    /// Reads a kubeconfig, and the files that it names.
    ///
    /// # Errors
    /// One of them cannot be read or used.
    pub fn read(path: &Path, paths: &Paths) -> Result<Access, NodeError> {
        let file = read(path, &path.display().to_string(), NodeError::Kubeconfig)?;
        let kubeconfig = parse(&file)?;
        let files = Files {
            folder: path.parent().unwrap_or(path),
            paths,
        };
        let tls = if kubeconfig.is_plain() {
            None
        } else {
            Some(TlsConnector {
                config: Arc::new(kubeconfig.tls(&files)?),
                name: kubeconfig.server_name()?,
            })
        };
        let server = kubeconfig.server.to_string();
        Ok(Access {
            server: server.trim_end_matches('/').to_owned(),
            tls,
            token: kubeconfig.token(&files)?,
        })
    }
}

/// Reads the files that a kubeconfig names.
struct Files<'a> {
    /// The folder of the kubeconfig, where relative paths start.
    folder: &'a Path,
    /// The root for absolute paths.
    paths: &'a Paths,
}

/// A certificate, key or token, and its name for messages.
struct Credential {
    name: String,
    bytes: Vec<u8>,
}

impl Files<'_> {
    /// Reads certificates or a key. Data in the kubeconfig itself takes precedence over a file.
    fn pem(
        &self,
        key: &str,
        data: &Option<String>,
        file: &Option<String>,
    ) -> Result<Option<Credential>, NodeError> {
        let Some(data) = non_empty(data) else {
            return non_empty(file).map(|path| self.read(key, path)).transpose();
        };
        let base64: String = data.split_ascii_whitespace().collect();
        let name = format!("{key}-data");
        match STANDARD.decode(base64) {
            Ok(bytes) => Ok(Some(Credential { name, bytes })),
            Err(_) => Err(NodeError::Credentials(format!("{name} is not base64"))),
        }
    }

    /// Reads the file that the kubeconfig names under `key`.
    fn read(&self, key: &str, listed_path: &str) -> Result<Credential, NodeError> {
        let path = if listed_path.starts_with('/') {
            self.paths.under_root(listed_path)
        } else {
            self.folder.join(listed_path)
        };
        let name = format!("{key} {}", path.display());
        let bytes = read(&path, &name, NodeError::Credentials)?;
        Ok(Credential { name, bytes })
    }
}

impl Credential {
    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, NodeError> {
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.bytes).collect();
        match found {
            Ok(certificates) if !certificates.is_empty() => Ok(certificates),
            Ok(_) => Err(self.bad("holds no certificate")),
            Err(_) => Err(self.bad("is not complete PEM")),
        }
    }

    fn bad(&self, why: &str) -> NodeError {
        NodeError::Credentials(format!("{} {why}", self.name))
    }
}

/// Reads a file. Errors call it `name`, and are of this `kind`.
fn read(path: &Path, name: &str, kind: fn(String) -> NodeError) -> Result<Vec<u8>, NodeError> {
    let error = |why: &str| kind(format!("{name} {why}"));
    match read_bounded(path, FILE_LIMIT) {
        Ok(ReadOutcome::Read(bytes)) => Ok(bytes),
        Ok(ReadOutcome::Missing) => Err(NodeError::Missing {
            path: path.to_owned(),
            error: Box::new(error("does not exist")),
        }),
        Ok(ReadOutcome::TooLarge) => Err(error(&format!("is larger than {FILE_LIMIT} bytes"))),
        Err(e) => Err(error(&format!("cannot be read: {}", io_reason(&e)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = "
apiVersion: v1
kind: Config
clusters:
- name: localcluster
  cluster:
    certificate-authority: /etc/kubernetes/certs/ca.crt
    server: https://10.0.0.1:443/
- cluster:
    server: HTTPS://other.example/k8s/clusters/c1//
    tls-server-name: kubernetes
    proxy-url: http://10.9.9.9:3128
    insecure-skip-tls-verify: false
    extensions: [{name: x, extension: {a: b}}]
  name: other
users:
- name: client
  user: {client-certificate: pki/current.pem, client-key: pki/current.pem, username: ''}
- name: bearer
  user:
    token: said
    tokenFile: /var/run/token
contexts:
- name: localclustercontext
  context: {cluster: localcluster, user: client}
- {name: b, context: {cluster: other, user: bearer, namespace: x}}
- {name: nobody, context: {cluster: other}}
preferences: {}
current-context: ";

    fn read(text: &str) -> Result<Kubeconfig, String> {
        parse(text.as_bytes()).map_err(|e| e.to_string())
    }

    fn with(context: &str) -> Kubeconfig {
        read(&format!("{FULL}{context}\n")).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Creates a kubeconfig with these members of its cluster and user.
    fn kubeconfig_with(cluster: &str, user: &str) -> Result<Kubeconfig, String> {
        read(&format!(
            "{{current-context: d, \
             contexts: [{{name: d, context: {{cluster: k, user: u}}}}], \
             clusters: [{{name: k, cluster: {{{cluster}}}}}], \
             users: [{{name: u, user: {{{user}}}}}]}}"
        ))
    }

    #[test]
    fn current_context_selects_cluster_and_user() {
        let own = with("localclustercontext");
        assert_eq!(own.server.to_string(), "https://10.0.0.1:443/");
        let authority = own.cluster.certificate_authority.as_deref();
        assert_eq!(authority, Some("/etc/kubernetes/certs/ca.crt"));
        assert_eq!(own.user.client_key.as_deref(), Some("pki/current.pem"));
        let other = with("\"b\"");
        assert_eq!(
            other.server.to_string(),
            "https://other.example/k8s/clusters/c1"
        );
        assert_eq!(other.user.token_file.as_deref(), Some("/var/run/token"));
        assert!(!with("nobody").user.has_credentials());
        let json = r#"{"current-context":"x","contexts":[{"name":"x","context":{"cluster":"k"}}],
            "clusters":[{"name":"k","cluster":{"server":"http://127.0.0.1:8080"}}]}"#;
        assert!(read(json).ok().unwrap().is_plain());
    }

    /// kubectl uses only the first document. Every spelling of a name is text.
    #[test]
    fn yaml_is_read_as_kubectl_reads_it() {
        let config = |context: &str, name: &str| {
            format!(
                "current-context: {context}\n\
                 contexts:\n\
                 - {{name: {name}, context: {{cluster: 7}}}}\n\
                 clusters:\n\
                 - name: 7\n  \
                 cluster: {{server: h, tls-server-name: '', certificate-authority: ~}}\n\
                 <<: {{users: x}}\n\
                 users: ~\n"
            )
        };
        let one = config("d", "d");
        for text in [
            format!("---\n{one}---\ncurrent-context: []\n"),
            format!("# comment\n{one}---\na: ["),
            format!("\u{feff}{one}...\n"),
            config("\"null\"", "'null'"),
            config("7", "'7'"),
            config("true", "\"true\""),
            config("0x1F", "0x1F"),
        ] {
            let found = read(&text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(found.server.to_string(), "https://h/");
            assert!(non_empty(&found.cluster.certificate_authority).is_none());
            assert!(non_empty(&found.cluster.tls_server_name).is_none());
        }
        for empty in ["null", "''"] {
            assert!(read(&config(empty, empty)).is_err());
        }
    }

    #[test]
    fn documents_that_could_expand_are_refused_without_quoting_them() {
        let mut bomb = "a0: &a0 [x]\n".to_owned();
        for n in 1..10 {
            bomb += &format!("a{n}: &a{n} [{}]\n", format!("*a{},", n - 1).repeat(10));
        }
        let deep = "[".repeat(100_000);
        for (text, words) in [
            (&*(bomb + "users: *a9"), "is not a YAML object"),
            ("a: *x", "at line 1"),
            ("users: ~\nusers: ~", "is not a YAML object"),
            (&*deep, "is not a YAML object"),
            ("[a, b", "at line 1"),
            ("a: b: c", "at line 1"),
            ("a: \"x", "at line 1"),
            ("a:\n\t- b", "at line 2"),
            ("users: [{name: u, user: secret}]", "at line 1 column 25"),
            ("", "is not a YAML object"),
            ("# comment\n---\n", "is not a YAML object"),
            ("text", "is not a YAML object"),
            ("\u{0}", "is not a YAML object"),
        ] {
            let error = read(text).err().unwrap();
            assert!(
                error.contains(words) && error.len() < 256,
                "{text:.20}: {error}"
            );
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn missing_elements_are_named() {
        let no_user = "{current-context: d, \
            contexts: [{name: d, context: {cluster: k, user: v}}], \
            clusters: [{name: k}]}";
        for (text, words) in [
            (FULL, "has no current-context"),
            (&format!("{FULL}d"), "has no context \"d\""),
            (
                "{current-context: d, contexts: [{name: d}]}",
                "has no cluster \"\"",
            ),
            (no_user, "has no user \"v\""),
        ] {
            assert_eq!(read(text).err().unwrap(), format!("the kubeconfig {words}"));
        }
    }

    #[test]
    fn servers_are_urls_of_http_or_https() {
        for (text, url, name) in [
            ("https://10.0.0.1:443", "https://10.0.0.1:443/", "10.0.0.1"),
            ("10.0.0.1:6443", "https://10.0.0.1:6443/", "10.0.0.1"),
            ("api.example", "https://api.example/", "api.example"),
            (
                "https://[fd00::1]:6443/",
                "https://[fd00::1]:6443/",
                "fd00::1",
            ),
        ] {
            let kubeconfig = kubeconfig_with(&format!("server: '{text}'"), "")
                .ok()
                .unwrap();
            assert_eq!(kubeconfig.server.to_string(), url);
            assert_eq!(kubeconfig.server_name().ok().unwrap().to_str(), name);
        }
        let with_secrets =
            "https://user:secret@h/ user:sec@ret@h:1 https://h/?token=secret https://h#secret";
        let others = "ftp://h https:// / https://h:99999";
        for bad in with_secrets
            .split(' ')
            .chain(others.split(' '))
            .chain(["", "a b"])
        {
            let error = kubeconfig_with(&format!("server: '{bad}'"), "")
                .err()
                .unwrap();
            assert!(error.contains("is not a URL like"), "{bad}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn certificate_name_is_a_host_name() {
        for bad in ["server: h, tls-server-name: a b", "server: 'a_b!'"] {
            assert!(
                kubeconfig_with(bad, "")
                    .ok()
                    .unwrap()
                    .server_name()
                    .is_err(),
                "{bad}"
            );
        }
    }

    #[test]
    fn unsupported_credentials_are_refused() {
        for user in [
            "exec: {command: kubelogin}, token: t",
            "auth-provider: {name: azure}",
            "username: a, password: b",
            "password: b",
        ] {
            let error = kubeconfig_with("server: h", user).err().unwrap();
            assert!(error.contains("which is not supported"), "{user}: {error}");
        }
        let nothing = "username: '', password: , exec: null, token: t";
        assert!(kubeconfig_with("server: h", nothing).is_ok());
        for truth in ["true", "True", "yes", "\"true\""] {
            let cluster = format!("server: h, insecure-skip-tls-verify: {truth}");
            let error = kubeconfig_with(&cluster, "").err().unwrap();
            assert!(error.contains("insecure-skip-tls-verify"), "{error}");
        }
        assert!(kubeconfig_with("server: h, insecure-skip-tls-verify: no", "").is_ok());
        let plain = kubeconfig_with("server: 'http://h'", "token: secret")
            .err()
            .unwrap();
        assert!(plain.contains("plain HTTP") && !plain.contains("secret"));
    }
}

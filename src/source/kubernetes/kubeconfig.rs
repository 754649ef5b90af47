//! A kubeconfig: the cluster and the user of its current context.

use super::error::{NodeError, bounded, list_names};
use super::raw_kubeconfig::{Named, RawCluster, RawKubeconfig, RawUser};

/// The cluster and the user of the current context.
#[derive(Clone, PartialEq)]
pub struct Kubeconfig {
    /// The cluster of the current context.
    pub cluster: Cluster,
    /// The user of the current context.
    pub user: User,
}

/// How to reach a cluster.
#[derive(Clone, PartialEq)]
pub struct Cluster {
    /// Its name in the file.
    pub name: String,
    /// The URL, without a slash at its end: `https://10.0.0.1:443`.
    pub server: String,
    /// The certificates to verify the server with.
    pub authority: Option<Material>,
    /// The name in the server's certificate, if it differs from the URL's.
    pub tls_server_name: Option<String>,
}

/// The user, with its credentials.
#[derive(Clone, Default, PartialEq)]
pub struct User {
    /// The name in the file.
    pub name: String,
    /// The client certificate with its chain.
    pub certificate: Option<Material>,
    /// Its private key.
    pub key: Option<Material>,
    /// A token for the header `Authorization`.
    pub token: Option<Token>,
}

/// Certificates or a key in PEM.
#[derive(Clone, PartialEq)]
pub enum Material {
    /// Base64 in the kubeconfig itself.
    Data(String),
    /// The path of a file, relative to the folder of the kubeconfig.
    File(String),
}

/// A token.
#[derive(Clone, PartialEq)]
pub enum Token {
    /// In the kubeconfig itself.
    Inline(String),
    /// The path of a file, as for [`Material`].
    File(String),
}

/// Parses a kubeconfig, and resolves its current context.
///
/// # Errors
/// It is not a kubeconfig, a name in it is not found, or it needs something that is not supported.
pub fn parse(text: &[u8]) -> Result<Kubeconfig, NodeError> {
    let file = RawKubeconfig::parse(&String::from_utf8_lossy(text))?;
    let name =
        non_empty(file.current_context).ok_or_else(|| bad("has no current-context".to_owned()))?;
    let context = find("context", file.contexts, &name)?;
    let cluster = context.cluster.unwrap_or_default();
    let user = context.user.unwrap_or_default();
    Ok(Kubeconfig {
        cluster: Cluster::new(find("cluster", file.clusters, &cluster)?, cluster)?,
        user: match user.as_str() {
            // A context without user is anonymous.
            "" => User::default(),
            name => User::new(find("user", file.users, name)?, user)?,
        },
    })
}

/// Finds an element of `clusters`, `contexts` or `users` by name.
fn find<T: Default>(
    kind: &'static str,
    list: Option<Vec<Named<T>>>,
    name: &str,
) -> Result<T, NodeError> {
    let mut list = list.unwrap_or_default();
    let position = list.iter().position(|n| n.name.as_deref() == Some(name));
    match position {
        Some(position) => Ok(list.swap_remove(position).value.unwrap_or_default()),
        None => {
            let known: Vec<_> = list.into_iter().filter_map(|n| non_empty(n.name)).collect();
            let known = list_names(&known);
            Err(bad(format!("has no {kind} {name:?}; {known}")))
        }
    }
}

fn bad(why: String) -> NodeError {
    NodeError::BadKubeconfig(why)
}

/// Turns an empty text into `None`.
fn non_empty(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

impl Cluster {
    fn new(raw: RawCluster, name: String) -> Result<Cluster, NodeError> {
        let Some(server) = non_empty(raw.server) else {
            return Err(bad(format!("has cluster {name:?} without a server")));
        };
        if raw.insecure_skip_tls_verify.is_some_and(|t| is_true(&t)) {
            return Err(NodeError::Unverifiable {
                cluster: name,
                why: "sets insecure-skip-tls-verify, which is refused: whoever answers could list any addresses",
            });
        }
        Ok(Cluster {
            name,
            server: parse_url(&server).ok_or_else(|| bad_server(&redact_url(&server)))?,
            authority: Material::new(raw.certificate_authority_data, raw.certificate_authority),
            tls_server_name: non_empty(raw.tls_server_name),
        })
    }

    /// Whether it uses plain HTTP.
    pub fn is_plain(&self) -> bool {
        has_scheme(&self.server, "http://")
    }
}

impl User {
    fn new(raw: RawUser, name: String) -> Result<User, NodeError> {
        let has_password = non_empty(raw.username)
            .or(non_empty(raw.password))
            .is_some();
        let unsupported = match () {
            () if raw.exec.is_some() => Some("exec"),
            () if raw.auth_provider.is_some() => Some("auth-provider"),
            () if has_password => Some("username and password"),
            () => None,
        };
        if let Some(key) = unsupported {
            return Err(NodeError::Unsupported { user: name, key });
        }
        // The file takes precedence, as its token is renewed.
        let file = non_empty(raw.token_file).map(Token::File);
        let token = non_empty(raw.token).map(Token::Inline);
        Ok(User {
            name,
            certificate: Material::new(raw.client_certificate_data, raw.client_certificate),
            key: Material::new(raw.client_key_data, raw.client_key),
            token: file.or(token),
        })
    }

    /// Whether it has a certificate, key or token.
    pub fn has_credentials(&self) -> bool {
        self.certificate.is_some() || self.key.is_some() || self.token.is_some()
    }
}

impl Material {
    /// Data in the kubeconfig itself take precedence over a file.
    fn new(data: Option<String>, file: Option<String>) -> Option<Material> {
        let data = non_empty(data).map(Material::Data);
        data.or(non_empty(file).map(Material::File))
    }
}

/// The error for a server that is not a URL. `server` holds no secrets.
pub fn bad_server(server: &str) -> NodeError {
    bad(format!(
        "has the server {server:?}, which is not a URL like https://HOST:PORT"
    ))
}

/// Whether a text is true in YAML 1.1, which kubectl reads.
fn is_true(text: &str) -> bool {
    let words = ["true", "yes", "on", "y"];
    words.iter().any(|word| text.eq_ignore_ascii_case(word))
}

fn has_scheme(url: &str, scheme: &str) -> bool {
    let start = url.get(..scheme.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(scheme))
}

/// Removes from a malformed URL what may hold a password or token.
fn redact_url(text: &str) -> String {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), text),
    };
    let (hidden, host) = match rest.rsplit_once('@') {
        Some((_, host)) => ("...@", host),
        None => ("", rest),
    };
    let shown = match host.split_once(['?', '#']) {
        Some((before, _)) => format!("{scheme}{hidden}{before}?..."),
        None => format!("{scheme}{hidden}{host}"),
    };
    bounded(&shown)
}

/// Parses the URL of a server, and removes slashes at its end. The default scheme is https. `None` if it is not a URL, or has a
/// user or a query.
fn parse_url(text: &str) -> Option<String> {
    let url = match text.contains("://") {
        true => text.to_owned(),
        false => format!("https://{text}"),
    };
    let url = url.trim_end_matches('/');
    let known = has_scheme(url, "https://") || has_scheme(url, "http://");
    let uri: ureq::http::Uri = url.parse().ok()?;
    let port = uri.authority()?.as_str().strip_prefix(uri.host()?)?;
    let plain = !url.contains(['@', '?', '#'])
        && uri.host() != Some("")
        && (port.is_empty() || uri.port_u16().is_some());
    (known && plain).then(|| url.to_owned())
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
    certificate-authority: ignored.crt
    certificate-authority-data: Q0E=
    tls-server-name: kubernetes
    proxy-url: http://10.9.9.9:3128
    insecure-skip-tls-verify: false
  name: other
users:
- name: client
  user: {client-certificate: pki/current.pem, client-key: pki/current.pem, username: ''}
- name: bearer
  user:
    token: said
    tokenFile: /var/run/token
- name: data
  user:
    client-certificate: a
    client-certificate-data: Q0VSVA==
    client-key-data: |
      S0
      VZ
contexts:
- name: localclustercontext
  context: {cluster: localcluster, user: client}
- {name: b, context: {cluster: other, user: bearer, namespace: x}}
- {name: c, context: {cluster: other, user: data}}
- {name: nobody, context: {cluster: other}}
preferences: {}
current-context: ";

    fn with(context: &str) -> Kubeconfig {
        read(&format!("{FULL}{context}\n")).unwrap_or_else(|e| panic!("{e}"))
    }

    fn read(text: &str) -> Result<Kubeconfig, String> {
        parse(text.as_bytes()).map_err(|e| e.to_string())
    }

    fn file(path: &str) -> Option<Material> {
        Some(Material::File(path.to_owned()))
    }

    fn data(base64: &str) -> Option<Material> {
        Some(Material::Data(base64.to_owned()))
    }

    #[test]
    fn current_context_selects_cluster_and_user() {
        let Kubeconfig { cluster, user } = with("localclustercontext");
        assert_eq!(
            (cluster.name.as_str(), cluster.server.as_str()),
            ("localcluster", "https://10.0.0.1:443")
        );
        assert!(cluster.authority == file("/etc/kubernetes/certs/ca.crt"));
        assert!(cluster.tls_server_name.is_none() && !cluster.is_plain());
        assert_eq!(user.name, "client");
        assert!(user.certificate == file("pki/current.pem") && user.key == user.certificate);
        assert!(user.token.is_none() && user.has_credentials());
    }

    #[test]
    fn data_precede_files_and_token_file_precedes_token() {
        let Kubeconfig { cluster, user } = with("\"b\"");
        assert_eq!(cluster.server, "HTTPS://other.example/k8s/clusters/c1");
        assert!(cluster.authority == data("Q0E="));
        assert_eq!(cluster.tls_server_name.as_deref(), Some("kubernetes"));
        assert!(user.token == Some(Token::File("/var/run/token".to_owned())));
        let user = with("c").user;
        assert!(user.certificate == data("Q0VSVA==") && user.key == data("S0\nVZ\n"));
        let user = with("nobody").user;
        assert!(user == User::default() && !user.has_credentials());
    }

    #[test]
    fn json_is_parsed() {
        let json = r#"{"current-context":"x","contexts":[{"name":"x","context":{"cluster":"k","user":"u"}}],
            "clusters":[{"name":"k","cluster":{"server":"http://127.0.0.1:8080"}}],"users":[{"name":"u","user":{"token":"t"}}]}"#;
        let Kubeconfig { cluster, user } = parse(json.as_bytes()).ok().unwrap();
        assert!(cluster.is_plain() && user.token == Some(Token::Inline("t".to_owned())));
    }

    #[test]
    fn only_first_document_is_used() {
        let one = "clusters: [{name: k, cluster: {server: h}}]\ncontexts: [{name: d, context: {cluster: k}}]\ncurrent-context: d\n";
        for text in [
            format!("---\n{one}---\ncurrent-context: []\n"),
            format!("# comment\n{one}---\na: ["),
            format!("\u{feff}{one}...\n"),
        ] {
            assert_eq!(read(&text).ok().unwrap().cluster.server, "https://h");
        }
        for nothing in ["", "\n", "# comment\n", "---\n", "\u{feff}"] {
            assert!(read(nothing).is_err(), "{nothing:?}");
        }
    }

    #[test]
    fn every_spelling_of_a_value_is_text() {
        let read = |context: &str, name: &str| {
            read(&format!(
                "current-context: x\ncurrent-context: {context}\ncontexts:\n- name: {name}\n  context: {{cluster: 7}}\nclusters:\n- {{name: 7, cluster: {{server: h, tls-server-name: '', certificate-authority: ~}}}}\n<<: {{users: x}}\nusers: ~\n"
            ))
        };
        for (context, name) in [
            ("\"null\"", "'null'"),
            ("7", "'7'"),
            ("true", "\"true\""),
            ("0x1F", "0x1F"),
        ] {
            let cluster = read(context, name)
                .unwrap_or_else(|e| panic!("{e}"))
                .cluster;
            assert_eq!(cluster.name, "7");
            assert!(cluster.authority.is_none() && cluster.tls_server_name.is_none());
        }
        assert!(read("null", "null").is_err() && read("''", "''").is_err());
    }

    #[test]
    fn documents_that_could_expand_are_refused() {
        let bomb = "a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]";
        let deep = "[".repeat(100_000);
        let blocks: String = (0..40).map(|n| format!("{}a:\n", " ".repeat(n))).collect();
        let many = format!("a: [{}]", "x,".repeat(60_000));
        let secret = "users: [{name: u, user: secret}]";
        for (text, words) in [
            (&*many, "more than 50000 values"),
            (bomb, "an anchor or an alias"),
            ("a: &x y", "an anchor or an alias"),
            ("a: *x", "an anchor or an alias"),
            (&*deep, "recursion limit"),
            (&*blocks, "32 levels"),
            ("[a, b", "line 1"),
            ("a: b: c", "line 1"),
            ("a: \"x", "line 1"),
            ("a:\n\t- b", "line 2"),
            (secret, "at line 1, column 25"),
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
    fn errors_for_unknown_names_list_the_known_ones() {
        let error_for = |text: &str| read(text).err().unwrap();
        assert!(error_for("a: [").starts_with("the kubeconfig is not a YAML object: "));
        for none in ["", "[]", "text", "null", "\u{0}", "current-context: []"] {
            let error = error_for(none);
            assert!(error.contains("is not a YAML object"), "{none:?}: {error}");
        }
        for none in ["{}", FULL, "current-context: ''"] {
            assert_eq!(error_for(none), "the kubeconfig has no current-context");
        }
        for (text, words) in [
            (
                format!("{FULL}d"),
                "no context \"d\"; it has localclustercontext, b, c, nobody",
            ),
            (
                "{current-context: d, contexts: [{name: d}]}".to_owned(),
                "no cluster \"\"; it has none",
            ),
            (
                "{current-context: d, contexts: [{name: d, context: {cluster: k, user: v}}], clusters: [{name: k, cluster: {server: h}}], users: [{name: u}]}".to_owned(),
                "no user \"v\"; it has u",
            ),
            (
                "{current-context: d, contexts: [{name: d, context: {cluster: k}}], clusters: [{name: k}]}".to_owned(),
                "has cluster \"k\" without a server",
            ),
        ] {
            assert!(error_for(&text).contains(words), "{}", error_for(&text));
        }
    }

    #[test]
    fn servers_are_urls_of_http_or_https() {
        for (text, url) in [
            ("https://10.0.0.1:443", Some("https://10.0.0.1:443")),
            ("10.0.0.1:6443", Some("https://10.0.0.1:6443")),
            ("api.example", Some("https://api.example")),
            ("https://[fd00::1]:6443/", Some("https://[fd00::1]:6443")),
            ("https://user:secret@h/", None),
            ("https://h/?a=b", None),
            ("https://h#a", None),
            ("ftp://h", None),
            ("https://", None),
            ("/", None),
            ("a b", None),
            ("https://h:99999", None),
        ] {
            assert_eq!(super::parse_url(text).as_deref(), url, "{text}");
        }
    }

    #[test]
    fn errors_for_malformed_servers_hide_secrets() {
        for (said, told) in [
            ("https://user:secret@h/", "https://...@h/"),
            ("user:sec@ret@h:1", "...@h:1"),
            ("https://h/?token=secret@x", "https://...@x"),
            ("https://h/?token=secret", "https://h/?..."),
            ("https://h#secret", "https://h?..."),
            ("ftp://h", "ftp://h"),
        ] {
            let text = format!(
                "{{current-context: d, contexts: [{{name: d, context: {{cluster: k}}}}], clusters: [{{name: k, cluster: {{server: \"{said}\"}}}}]}}"
            );
            let words = format!("the kubeconfig has the server {told:?}, which is not a URL");
            let found = read(&text).err().unwrap();
            assert!(found.starts_with(&words), "{found}");
        }
    }

    #[test]
    fn unsupported_credentials_are_refused() {
        let user = |said: &str| {
            read(&format!(
                "{{current-context: d, contexts: [{{name: d, context: {{cluster: k, user: u}}}}], clusters: [{{name: k, cluster: {{server: h}}}}], users: [{{name: u, user: {said}}}]}}"
            ))
        };
        for (said, what) in [
            ("{exec: {command: kubelogin}, token: t}", "exec"),
            ("{auth-provider: {name: azure}}", "auth-provider"),
            ("{username: a, password: b}", "username and password"),
            ("{password: b}", "username and password"),
        ] {
            let words = format!("user \"u\" of the kubeconfig has {what}, which is not supported");
            assert_eq!(user(said).err(), Some(words));
        }
        assert!(user("{username: '', password: , exec: null, token: t}").is_ok());
        for truth in ["true", "True", "yes", "\"true\""] {
            let error = read(&format!(
                "{{current-context: d, contexts: [{{name: d, context: {{cluster: k}}}}], clusters: [{{name: k, cluster: {{server: h, insecure-skip-tls-verify: {truth}}}}}]}}"
            ));
            assert!(error.err().unwrap().contains("insecure-skip-tls-verify"));
        }
    }
}

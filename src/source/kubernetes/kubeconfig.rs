//! A kubeconfig, as kubelets have it: what its current context leads to.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy};
use serde_saphyr::{Error, with_deserializer_from_str_with_options};

use super::error::{NodeError, bounded, list_names};

/// Deeper than any kubeconfig, and not so deep that a call's stack ends.
const MOST_LEVELS: usize = 32;

/// More values than any kubeconfig has, and so few that they take little memory.
const MOST_EVENTS: usize = 50_000;

/// Where to ask, and with which credentials.
#[derive(Clone, PartialEq)]
pub struct Kubeconfig {
    /// The cluster of the current context.
    pub cluster: Cluster,
    /// Its user.
    pub user: User,
}

/// How to reach a cluster.
#[derive(Clone, PartialEq)]
pub struct Cluster {
    /// Its name in the file.
    pub name: String,
    /// The URL, without a slash at its end: `https://10.0.0.1:443`.
    pub server: String,
    /// The certificates of those who may vouch for the server.
    pub authority: Option<Material>,
    /// The name in the server's certificate, where it is not the URL's.
    pub tls_server_name: Option<String>,
}

/// Who asks.
#[derive(Clone, Default, PartialEq)]
pub struct User {
    /// The name in the file.
    pub name: String,
    /// The client certificate, and what follows it up to its authority.
    pub certificate: Option<Material>,
    /// Its private key.
    pub key: Option<Material>,
    /// A token for the header `Authorization`.
    pub token: Option<Token>,
}

/// Certificates or a key in PEM.
#[derive(Clone, PartialEq)]
pub enum Material {
    /// Base64 in the file itself.
    Data(String),
    /// The path of another, relative to the folder of this one.
    File(String),
}

/// A token.
#[derive(Clone, PartialEq)]
pub enum Token {
    /// In the file itself.
    Inline(String),
    /// The path of another, as for [`Material`].
    File(String),
}

/// Parses a kubeconfig, and resolves its current context.
///
/// # Errors
/// It is not a kubeconfig, a name in it leads nowhere, or it asks for something that is not supported.
pub fn parse(text: &[u8]) -> Result<Kubeconfig, NodeError> {
    let file = File::parse(&String::from_utf8_lossy(text))?;
    let name =
        text_of(file.current_context).ok_or_else(|| bad("has no current-context".to_owned()))?;
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

/// The members of a kubeconfig that are used. All are optional, as kubectl has it.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct File {
    current_context: Option<String>,
    contexts: Option<Vec<Named<RawContext>>>,
    clusters: Option<Vec<Named<RawCluster>>>,
    users: Option<Vec<Named<RawUser>>>,
}

/// An element of one of the lists: a name, and what it stands for.
#[derive(Deserialize)]
struct Named<T> {
    #[serde(default)]
    name: Option<String>,
    #[serde(default, alias = "context", alias = "cluster", alias = "user")]
    value: Option<T>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawContext {
    cluster: Option<String>,
    user: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct RawCluster {
    server: Option<String>,
    certificate_authority: Option<String>,
    certificate_authority_data: Option<String>,
    tls_server_name: Option<String>,
    /// Text, as YAML 1.1 spells truth values in many ways.
    insecure_skip_tls_verify: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct RawUser {
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

impl File {
    /// Reads the first document of a text, as kubectl does. What is wrong is described without quoting values, which may be
    /// secrets.
    fn parse(text: &str) -> Result<File, NodeError> {
        let options = serde_saphyr::options! {
            // With anchors a short text can mean a huge value, and deep nesting ends the stack.
            budget: serde_saphyr::budget! {
                max_anchors: 0,
                max_aliases: 0,
                max_depth: MOST_LEVELS,
                max_events: MOST_EVENTS,
            },
            duplicate_keys: DuplicateKeyPolicy::LastWins,
            merge_keys: MergeKeyPolicy::AsOrdinary,
            with_snippet: false,
        };
        let not_yaml = |why: &str| bad(format!("is not a YAML object: {why}"));
        let mut file = None;
        let read = with_deserializer_from_str_with_options(text, options, |document| {
            file = Option::<File>::deserialize(document)?;
            Ok(())
        });
        match (file, read) {
            // An error after the first document does not matter.
            (Some(file), _) => Ok(file),
            (None, Err(error)) => Err(not_yaml(&describe(&error))),
            (None, Ok(())) => Err(not_yaml("it is not an object")),
        }
    }
}

/// Says what is wrong with a document. Of the errors that can happen here, only those of types quote values.
fn describe(error: &Error) -> String {
    let what = match error {
        Error::Budget {
            breach: BudgetBreach::Anchors { .. } | BudgetBreach::Aliases { .. },
            ..
        }
        | Error::UnknownAnchor { .. } => "it has an anchor or an alias (& or *)".to_owned(),
        Error::Budget { .. } => format!(
            "it has more than {MOST_EVENTS} values or is nested more than {MOST_LEVELS} levels deep"
        ),
        Error::SerdeInvalidType { expected, .. } | Error::SerdeInvalidValue { expected, .. } => {
            format!("it has a value that is not {expected}")
        }
        _ => return bounded(&error.to_string()),
    };
    match error.location() {
        Some(at) => format!("{what} at line {} column {}", at.line(), at.column()),
        None => what,
    }
}

/// The element of this name in `clusters`, `contexts` or `users`.
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
            let known: Vec<_> = list.into_iter().filter_map(|n| text_of(n.name)).collect();
            let known = list_names(&known);
            Err(bad(format!("has no {kind} {name:?}; {known}")))
        }
    }
}

fn bad(why: String) -> NodeError {
    NodeError::BadKubeconfig(why)
}

/// A text that is there and not empty.
fn text_of(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

impl Cluster {
    fn new(raw: RawCluster, name: String) -> Result<Cluster, NodeError> {
        let Some(server) = text_of(raw.server) else {
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
            server: url(&server).ok_or_else(|| bad_server(&without_secrets(&server)))?,
            authority: Material::new(raw.certificate_authority_data, raw.certificate_authority),
            tls_server_name: text_of(raw.tls_server_name),
        })
    }

    /// Whether it uses plain HTTP.
    pub fn is_plain(&self) -> bool {
        has_scheme(&self.server, "http://")
    }
}

impl User {
    fn new(raw: RawUser, name: String) -> Result<User, NodeError> {
        let has_password = text_of(raw.username).or(text_of(raw.password)).is_some();
        let unsupported = match () {
            () if raw.exec.is_some() => Some("exec"),
            () if raw.auth_provider.is_some() => Some("auth-provider"),
            () if has_password => Some("username and password"),
            () => None,
        };
        if let Some(key) = unsupported {
            return Err(NodeError::Unsupported { user: name, key });
        }
        // The file's token is the newer one, as it is renewed.
        let file = text_of(raw.token_file).map(Token::File);
        let token = text_of(raw.token).map(Token::Inline);
        Ok(User {
            name,
            certificate: Material::new(raw.client_certificate_data, raw.client_certificate),
            key: Material::new(raw.client_key_data, raw.client_key),
            token: file.or(token),
        })
    }

    /// Whether it has anything to show.
    pub fn has_credentials(&self) -> bool {
        self.certificate.is_some() || self.key.is_some() || self.token.is_some()
    }
}

impl Material {
    /// Data in the kubeconfig itself take precedence over a file.
    fn new(data: Option<String>, file: Option<String>) -> Option<Material> {
        let data = text_of(data).map(Material::Data);
        data.or(text_of(file).map(Material::File))
    }
}

/// The error for a server that is not a URL. `server` holds no secrets.
pub fn bad_server(server: &str) -> NodeError {
    bad(format!(
        "has the server {server:?}, which is not a URL like https://HOST:PORT"
    ))
}

/// A truth value as YAML 1.1 has them, which is what kubectl reads.
fn is_true(text: &str) -> bool {
    let words = ["true", "yes", "on", "y"];
    words.iter().any(|word| text.eq_ignore_ascii_case(word))
}

fn has_scheme(url: &str, scheme: &str) -> bool {
    let start = url.get(..scheme.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(scheme))
}

/// A text that should be a URL, to be told: what may hold a password or a token is left out.
fn without_secrets(text: &str) -> String {
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

/// A server's URL without the slashes at its end; without scheme it is https. `None` where it is none, or has what does not
/// belong there: a user, a query.
fn url(text: &str) -> Option<String> {
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
    fn the_current_context_leads_to_server_and_user() {
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
    fn data_go_before_files_and_a_file_before_a_token() {
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
    fn json_is_read_as_well() {
        let json = r#"{"current-context":"x","contexts":[{"name":"x","context":{"cluster":"k","user":"u"}}],
            "clusters":[{"name":"k","cluster":{"server":"http://127.0.0.1:8080"}}],"users":[{"name":"u","user":{"token":"t"}}]}"#;
        let Kubeconfig { cluster, user } = parse(json.as_bytes()).ok().unwrap();
        assert!(cluster.is_plain() && user.token == Some(Token::Inline("t".to_owned())));
    }

    #[test]
    fn only_the_first_document_counts() {
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
    fn values_are_text_however_they_are_spelled() {
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
    fn what_leads_nowhere_is_told_with_what_is_there() {
        let wrong = |text: &str| read(text).err().unwrap();
        assert!(wrong("a: [").starts_with("the kubeconfig is not a YAML object: "));
        for none in ["", "[]", "text", "null", "\u{0}", "current-context: []"] {
            let error = wrong(none);
            assert!(error.contains("is not a YAML object"), "{none:?}: {error}");
        }
        for none in ["{}", FULL, "current-context: ''"] {
            assert_eq!(wrong(none), "the kubeconfig has no current-context");
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
            assert!(wrong(&text).contains(words), "{}", wrong(&text));
        }
    }

    #[test]
    fn servers_are_urls_of_http_or_https() {
        for (said, url) in [
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
            assert_eq!(super::url(said).as_deref(), url, "{said}");
        }
    }

    #[test]
    fn a_server_that_is_none_is_told_without_its_secrets() {
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
    fn what_cannot_be_done_is_refused() {
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

//! A kubeconfig, as kubelets have it: what its current context leads to.

use super::error::{Means, NodeError, bounded};
use super::yaml::Yaml;

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

/// Reads a kubeconfig.
///
/// # Errors
/// It is none, or leads nowhere, or asks for what is not done here.
pub fn parse(text: &[u8]) -> Result<Kubeconfig, NodeError> {
    let file = Yaml::parse(&String::from_utf8_lossy(text)).map_err(NodeError::NotYaml)?;
    if !matches!(file, Yaml::Object(_)) {
        return Err(NodeError::NotYaml("it is not an object".to_owned()));
    }
    let current = file.text_at("current-context");
    let name = current.ok_or(NodeError::NoCurrentContext)?;
    let context = named(&file, "context", name)?;
    let cluster = context.text_at("cluster").unwrap_or_default();
    let user = context.text_at("user").unwrap_or_default();
    Ok(Kubeconfig {
        cluster: Cluster::of(cluster, named(&file, "cluster", cluster)?)?,
        user: match user {
            // A context without user asks as nobody.
            "" => User::default(),
            user => User::of(user, named(&file, "user", user)?)?,
        },
    })
}

/// The `kind` of this name: `clusters[].cluster` and the like.
fn named<'y>(file: &'y Yaml, kind: &'static str, name: &str) -> Result<&'y Yaml, NodeError> {
    let all = file.list_at(&format!("{kind}s"));
    let found = all.iter().find(|item| item.text_at("name") == Some(name));
    match found {
        Some(item) => Ok(item.get(kind).unwrap_or(&Yaml::Null)),
        None => Err(NodeError::Unknown {
            kind,
            name: name.to_owned(),
            known: all
                .iter()
                .filter_map(|item| item.text_at("name"))
                .map(str::to_owned)
                .collect(),
        }),
    }
}

impl Cluster {
    fn of(name: &str, said: &Yaml) -> Result<Cluster, NodeError> {
        let text = |key| said.text_at(key).map(str::to_owned);
        let server = text("server").ok_or_else(|| NodeError::NoServer(name.to_owned()))?;
        if said
            .text_at("insecure-skip-tls-verify")
            .is_some_and(is_true)
        {
            return Err(NodeError::SkipsVerification(name.to_owned()));
        }
        Ok(Cluster {
            name: name.to_owned(),
            server: url(&server).ok_or_else(|| NodeError::BadServer(without_secrets(&server)))?,
            authority: Material::of(said, "certificate-authority"),
            tls_server_name: text("tls-server-name"),
        })
    }

    /// Whether it uses plain HTTP.
    pub fn is_plain(&self) -> bool {
        has_scheme(&self.server, "http://")
    }
}

impl User {
    fn of(name: &str, said: &Yaml) -> Result<User, NodeError> {
        let means = [
            (Means::Exec, "exec"),
            (Means::AuthProvider, "auth-provider"),
            (Means::Password, "username"),
            (Means::Password, "password"),
        ];
        let unsupported = means.iter().find(|(_, key)| {
            let said = said.get(key);
            said.is_some_and(|said| *said != Yaml::Text(String::new()))
        });
        if let Some((means, _)) = unsupported {
            return Err(NodeError::Unsupported {
                user: name.to_owned(),
                means: *means,
            });
        }
        // A file's token is the newer one, as it is renewed.
        let file = said
            .text_at("tokenFile")
            .map(|path| Token::File(path.to_owned()));
        let token = said
            .text_at("token")
            .map(|token| Token::Inline(token.to_owned()));
        Ok(User {
            name: name.to_owned(),
            certificate: Material::of(said, "client-certificate"),
            key: Material::of(said, "client-key"),
            token: file.or(token),
        })
    }

    /// Whether it has anything to show.
    pub fn has_credentials(&self) -> bool {
        self.certificate.is_some() || self.key.is_some() || self.token.is_some()
    }
}

impl Material {
    /// What is in the file itself goes before what it points to.
    fn of(said: &Yaml, key: &str) -> Option<Material> {
        let data = said.text_at(&format!("{key}-data"));
        let file = said.text_at(key);
        data.map(|data| Material::Data(data.to_owned()))
            .or(file.map(|path| Material::File(path.to_owned())))
    }
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
    fn what_leads_nowhere_is_told_with_what_is_there() {
        let wrong = |text: &str| read(text).err().unwrap();
        assert!(wrong("a: [").starts_with("the kubeconfig is not a YAML object: "));
        for none in ["", "[]", "text", "null", "\u{0}"] {
            let error = wrong(none);
            assert!(error.contains("is not a YAML object"), "{none:?}: {error}");
        }
        for none in ["{}", FULL, "current-context: ''", "current-context: []"] {
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
                "cluster \"k\" of the kubeconfig has no server",
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
            let words = format!("the server {told:?} of the kubeconfig is not a URL");
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

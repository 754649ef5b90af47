//! The URL of a server. Its user, password and query may be secrets. Only the request uses the whole URL. Messages, the log, files and
//! screens show it without the secrets.

use std::fmt;

/// The URL under which the wire server lists the node's interfaces.
pub const WIRE_SERVER: &str =
    "http://168.63.129.16/machine/plugins?comp=nmagent&type=getinterfaceinfov1";

/// The URL of a server. It is printed without secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerUrl(String);

impl ServerUrl {
    /// Creates it from the configured URL.
    pub fn new(url: &str) -> ServerUrl {
        ServerUrl(url.to_owned())
    }

    /// Returns the whole URL, for the request.
    pub fn whole(&self) -> &str {
        &self.0
    }

    /// Returns whether printing it leaves out secrets.
    pub fn has_secrets(&self) -> bool {
        self.to_string() != self.0
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.split_once("://") {
            Some((scheme, rest)) => write!(f, "{scheme}://{}", hide_secrets(rest)),
            None => f.write_str(&hide_secrets(&self.0)),
        }
    }
}

impl fmt::Debug for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

/// Removes user names, passwords and queries from the URLs in a text. The query of the wire server is not a secret and stays.
pub fn without_secrets(text: &str) -> String {
    let ends = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '\\' | '`');
    let mut cleaned = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("://") {
        let (url, following) = after.split_at(after.find(ends).unwrap_or(after.len()));
        cleaned.push_str(before);
        cleaned.push_str("://");
        cleaned.push_str(&hide_secrets(url));
        rest = following;
    }
    cleaned.push_str(rest);
    cleaned
}

/// Hides user, password and query of a URL without its scheme.
fn hide_secrets(url: &str) -> String {
    let (place, query) = url.split_once('?').unwrap_or((url, ""));
    let (authority, path) = place.split_at(place.find('/').unwrap_or(place.len()));
    let after_colon = authority.split_once(':').map_or("", |(_, after)| after);
    let is_address_or_port = |c: char| c.is_ascii_hexdigit() || matches!(c, ':' | '[' | ']');
    // A password that is not encoded may contain `/` or `?`, which usually end this part.
    if !after_colon.contains('@')
        && !after_colon.chars().all(is_address_or_port)
        && let Some((_, after_at)) = url.rsplit_once('@')
    {
        return format!("***@{}", hide_secrets(after_at));
    }
    let host = match authority.rsplit_once('@') {
        Some((_, host)) => format!("***@{host}"),
        None => authority.to_owned(),
    };
    // The URL may be followed by punctuation of a sentence.
    let alone = query.trim_end_matches([':', '.', ',', ';', ')']);
    let is_query_of_wire_server = WIRE_SERVER.split_once('?').is_some_and(|(_, q)| q == alone);
    if query.is_empty() {
        format!("{host}{path}")
    } else if is_query_of_wire_server {
        format!("{host}{path}?{query}")
    } else {
        format!("{host}{path}?***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_left_out_of_urls() {
        for (text, cleaned) in [
            ("http://user:secret@host/x?a=b", "http://***@host/x?***"),
            (
                "curl 'http://168.63.129.16/machine/plugins?comp=nmagent&type=getinterfaceinfov1'.",
                "curl 'http://168.63.129.16/machine/plugins?comp=nmagent&type=getinterfaceinfov1'.",
            ),
            ("http://h/x?sig=s3cret: timeout", "http://h/x?*** timeout"),
            ("http://host/x@y", "http://host/x@y"),
            (
                "a http://t:k@h b http://h:1/ c",
                "a http://***@h b http://h:1/ c",
            ),
            ("http://h/x?sig=a,b;c)d e", "http://h/x?*** e"),
            ("no url @ all", "no url @ all"),
            ("http://a@b@c", "http://***@c"),
            ("http://user:pa/ss@host/x", "http://***@host/x"),
            ("http://user:pa?ss@host/x?sig=1", "http://***@host/x?***"),
            ("http://[fd00::1]:80/x@y", "http://[fd00::1]:80/x@y"),
        ] {
            assert_eq!(without_secrets(text), cleaned);
        }
    }

    #[test]
    fn a_server_url_shows_no_secret() {
        let url = ServerUrl::new("http://user:secret@host/x?sig=secret");
        assert_eq!(url.whole(), "http://user:secret@host/x?sig=secret");
        assert_eq!(url.to_string(), "http://***@host/x?***");
        assert!(!format!("{url:?}").contains("secret"));
        assert!(url.has_secrets());
        let quoted = ServerUrl::new("http://h/x?sig=\"a b");
        assert_eq!(quoted.to_string(), "http://h/x?***");
        let without_scheme = ServerUrl::new("user:s3cret@host/x?sig=s3cret");
        assert_eq!(without_scheme.to_string(), "***@host/x?***");
        assert!(!ServerUrl::new(WIRE_SERVER).has_secrets());
    }
}

//! Parses `ipam.queryUrl` and AZURE_VNET_IPAM_QUERY_URL.

use std::path::PathBuf;

use super::CallError;

/// What to query instead of the wire server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueryUrl {
    /// An `http:` URL.
    Http(String),
    /// A saved answer.
    File(PathBuf),
}

impl QueryUrl {
    /// Parses `http://...`, `file:///PATH` or `file:PATH`.
    ///
    /// # Errors
    /// Another scheme: the wire server speaks plain HTTP, so there is no TLS here.
    pub fn parse(url: &str) -> Result<QueryUrl, CallError> {
        let scheme = |name: &str| {
            url.get(..name.len())
                .filter(|s| s.eq_ignore_ascii_case(name))
                .and(url.get(name.len()..))
        };
        if scheme("http://").is_some_and(|rest| !rest.is_empty()) {
            return Ok(QueryUrl::Http(url.to_owned()));
        }
        match scheme("file://localhost")
            .or(scheme("file://"))
            .or(scheme("file:"))
        {
            Some(path) if !path.is_empty() => Ok(QueryUrl::File(path.into())),
            _ => Err(CallError::QueryUrl(url.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_http_or_file() {
        assert_eq!(
            QueryUrl::parse("http://h/x").unwrap(),
            QueryUrl::Http("http://h/x".into())
        );
        for path in ["file:/a/b", "file:///a/b", "FILE://localhost/a/b"] {
            assert_eq!(
                QueryUrl::parse(path).unwrap(),
                QueryUrl::File("/a/b".into()),
                "{path}"
            );
        }
        assert_eq!(
            QueryUrl::parse("file:a").unwrap(),
            QueryUrl::File("a".into())
        );
        for bad in ["", "https://h/", "ftp://h", "http://", "file:", "/a/b"] {
            assert!(QueryUrl::parse(bad).is_err(), "{bad}");
        }
    }
}

//! Where services listen, as people write it.

/// An address that no service can have, or none at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidAddress(String);

impl InvalidAddress {
    pub(crate) fn client(error: &reqwest::Error) -> Self {
        Self(format!("the HTTP client can't be built: {error}"))
    }
}

/// Each item may hold several, divided by commas. The scheme may be left out.
pub(crate) fn parse_all<I>(addresses: I) -> Result<Vec<String>, InvalidAddress>
where
    I: IntoIterator,
    I::Item: AsRef<str>,
{
    let mut parsed = Vec::new();
    for item in addresses {
        for text in item.as_ref().split(',').map(str::trim).filter(|text| !text.is_empty()) {
            parsed.push(parse(text)?);
        }
    }
    match parsed.is_empty() {
        true => Err(InvalidAddress("no address; write one such as http://127.0.0.1:7170".to_owned())),
        false => Ok(parsed),
    }
}

fn parse(text: &str) -> Result<String, InvalidAddress> {
    let refuse = |why: &str| InvalidAddress(format!("the address {text:?} {why}"));
    let rest = match text.split_once("://") {
        None => text,
        Some(("http", rest)) => rest,
        Some(("https", _)) => return Err(refuse("asks for TLS, which Muster does not speak yet; write http://")),
        Some(_) => return Err(refuse("has an unknown scheme; write http://host:port")),
    };
    let url = format!("http://{}", rest.trim_end_matches('/'));
    let parsed = reqwest::Url::parse(&url).map_err(|error| refuse(&format!("can't be read: {error}")))?;
    let plain = parsed.path() == "/" && parsed.query().is_none() && parsed.fragment().is_none();
    match plain && parsed.username().is_empty() {
        true => Ok(url),
        false => Err(refuse("is more than a host and a port")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let parsed = parse_all(["127.0.0.1:7170, http://a:1/", "[::1]:2"]).unwrap();
        assert_eq!(parsed, ["http://127.0.0.1:7170", "http://a:1", "http://[::1]:2"]);
        for (bad, sentence) in [
            ("", "no address"),
            (" , ", "no address"),
            ("https://a", "TLS"),
            ("ftp://a", "scheme"),
            ("a:99999", "can't be read"),
            ("http://a/v1", "host and a port"),
            ("http://me@a", "host and a port"),
        ] {
            assert!(parse_all([bad]).unwrap_err().to_string().contains(sentence), "{bad:?}");
        }
    }
}

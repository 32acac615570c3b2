//! URLs of engines:
//! `scheme://[user[:password]@]host[:port][,host[:port]...][/path][?key=value&...]`.
//!
//! WHATWG URLs can't have a list of hosts, so this has its own parser.

use crate::error::Error;
use std::fmt;

/// A parsed URL. Its `Debug` form hides the password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct EngineUrl {
    pub(crate) scheme: String,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    /// At least one, unless the scheme has none (`memory:`).
    pub(crate) hosts: Vec<Host>,
    /// Without its leading slash, percent-decoded; empty if absent.
    pub(crate) path: String,
    pub(crate) options: Vec<(String, String)>,
}

/// A host in the list. IPv6 addresses are stored without their brackets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) port: Option<u16>,
}

impl Host {
    /// `host:port`, with brackets around an IPv6 address.
    pub(crate) fn authority(&self, default_port: u16) -> String {
        let port = self.port.unwrap_or(default_port);
        if self.name.contains(':') {
            format!("[{}]:{port}", self.name)
        } else {
            format!("{}:{port}", self.name)
        }
    }
}

impl EngineUrl {
    pub(crate) fn parse(url: &str) -> Result<Self, Error> {
        let bad = |why: &str| Error::BadUrl(format!("`{}`: {why}", without_password(url)));
        let (scheme, rest) = url
            .split_once(':')
            .ok_or_else(|| bad("it needs a scheme, for example `redis://127.0.0.1:6379`"))?;
        let scheme = scheme.to_ascii_lowercase();
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let options = parse_options(query).map_err(|why| bad(&why))?;
        let Some(rest) = rest.strip_prefix("//") else {
            if !rest.is_empty() {
                return Err(bad("write `//` after the scheme"));
            }
            let (user, password, hosts, path) = (None, None, Vec::new(), String::new());
            return Ok(Self { scheme, user, password, hosts, path, options });
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (credentials, hosts) = match authority.rsplit_once('@') {
            Some((credentials, hosts)) => (Some(credentials), hosts),
            None => (None, authority),
        };
        let (user, password) = match credentials {
            None => (None, None),
            Some(credentials) => match credentials.split_once(':') {
                Some((user, password)) => (Some(user), Some(password)),
                None => (Some(credentials), None),
            },
        };
        let decode_some = |text: Option<&str>| text.map(decode).transpose();
        let user = decode_some(user).map_err(|why| bad(&why))?.filter(|user| !user.is_empty());
        let password = decode_some(password).map_err(|why| bad(&why))?;
        let hosts = hosts
            .split(',')
            .map(parse_host)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|why| bad(&why))?;
        let path = decode(path).map_err(|why| bad(&why))?;
        Ok(Self { scheme, user, password, hosts, path, options })
    }

    /// The value of an option, the last one if it is repeated.
    pub(crate) fn option(&self, key: &str) -> Option<&str> {
        self.options.iter().rev().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    /// Refuses options that the driver does not have: a typo must not silently change a recipe.
    pub(crate) fn check_options(&self, known: &[&str]) -> Result<(), Error> {
        let unknown = self.options.iter().find(|(key, _)| !known.contains(&key.as_str()));
        let Some((key, _)) = unknown else { return Ok(()) };
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Err(Error::BadUrl(format!(
            "unknown option `{key}` for {}:// (known options: {known})",
            self.scheme
        )))
    }
}

impl fmt::Debug for EngineUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineUrl")
            .field("scheme", &self.scheme)
            .field("user", &self.user)
            .field("hosts", &self.hosts)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// The URL without its passwords, for errors: rather too little of it than too much. A password may
/// contain an unescaped `/` or `?`, and a user without a password may itself be one: Holdfast
/// accepts `holdfast://PASSWORD@host`.
fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return without_password_option(url) };
    match rest.rsplit_once('@') {
        None => without_password_option(url),
        Some((credentials, rest)) => {
            let rest = without_password_option(rest);
            match credentials.split_once(':') {
                Some((user, _)) => format!("{scheme}://{user}:***@{rest}"),
                None => format!("{scheme}://***@{rest}"),
            }
        }
    }
}

fn without_password_option(url: &str) -> String {
    let Some((before, query)) = url.split_once('?') else { return url.to_owned() };
    let hide = |pair: &str| match pair.split_once('=') {
        Some((key @ "password", _)) => format!("{key}=***"),
        _ => pair.to_owned(),
    };
    let options: Vec<_> = query.split('&').map(hide).collect();
    format!("{before}?{}", options.join("&"))
}

fn parse_options(query: &str) -> Result<Vec<(String, String)>, String> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decode(key)?, decode(value)?))
        })
        .collect()
}

fn parse_host(text: &str) -> Result<Host, String> {
    let (name, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (name, rest) = rest.split_once(']').ok_or("an IPv6 address needs a closing `]`")?;
            (name, rest.strip_prefix(':'))
        }
        None => match text.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return Err(format!("write the IPv6 address `{text}` in brackets"));
            }
            Some((name, port)) => (name, Some(port)),
            None => (text, None),
        },
    };
    if name.is_empty() {
        return Err("the host is missing".to_owned());
    }
    let port = port
        .map(|port| port.parse().map_err(|_| format!("`{port}` is not a port number")))
        .transpose()?;
    Ok(Host { name: name.to_owned(), port })
}

fn decode(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        let pair = digit(rest.next()).zip(digit(rest.next()));
        let (high, low) =
            pair.ok_or_else(|| format!("`{text}` has a `%` without two hex digits after it"))?;
        bytes.push(u8::try_from(high * 16 + low).unwrap_or(b'?'));
    }
    String::from_utf8(bytes).map_err(|_| format!("`{text}` is not UTF-8 once decoded"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed() {
        let url = "redis://ana:p%40ss@a:1,[::1]:2,b/0?recipe=x&plain=1";
        let url = EngineUrl::parse(url).unwrap();
        assert_eq!((url.user.as_deref(), url.password.as_deref()), (Some("ana"), Some("p@ss")));
        let hosts: Vec<_> = url.hosts.iter().map(|host| host.authority(6379)).collect();
        assert_eq!(hosts, ["a:1", "[::1]:2", "b:6379"]);
        assert_eq!((url.path.as_str(), url.option("plain")), ("0", Some("1")));
    }

    #[test]
    fn bad_urls_are_explained() {
        let cases = [
            ("nothing", "needs a scheme"),
            ("redis:127.0.0.1", "write `//`"),
            ("redis://", "host is missing"),
            ("redis://a,", "host is missing"),
            ("redis://a:port", "`port` is not a port number"),
            ("redis://::1", "brackets"),
            ("redis://a/%zz", "hex digits"),
        ];
        for (url, expected) in cases {
            let error = EngineUrl::parse(url).unwrap_err().to_string();
            assert!(error.contains(expected), "{url}: {error}");
        }
    }

    #[test]
    fn passwords_are_never_shown() {
        // All but the first used to be shown: without a user, among the options, and with
        // characters that should have been escaped with `%`.
        for url in [
            "redis://ana:hunter2@a:port",
            "holdfast://hunter2@a:port",
            "holdfast://a:port?password=hunter2",
            "redis://:x/hunter2@a",
            "redis://:x?hunter2@a",
        ] {
            let error = EngineUrl::parse(url).unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
        let url = EngineUrl::parse("redis://ana:hunter2@a").unwrap();
        assert!(!format!("{url:?}").contains("hunter2"));
    }
}

//! The servers of a client.

/// One or more server addresses: `"http://10.0.0.1:7400"`, a list of them, or several in one
/// string, separated by commas. `http://` is optional.
///
/// ```
/// use holdfast_client::IntoServers;
///
/// let expected = ["http://10.0.0.1:7400", "10.0.0.2:7400"];
/// assert_eq!("http://10.0.0.1:7400, 10.0.0.2:7400".into_servers(), expected);
/// assert_eq!(expected.into_servers(), expected);
/// assert_eq!(expected.map(str::to_owned).to_vec().into_servers(), expected);
/// ```
pub trait IntoServers {
    /// The addresses, one by one.
    fn into_servers(self) -> Vec<String>;
}

fn split(text: &str) -> impl Iterator<Item = String> {
    text.split(',').map(str::trim).filter(|server| !server.is_empty()).map(str::to_owned)
}

fn split_all<S: AsRef<str>>(texts: &[S]) -> Vec<String> {
    texts.iter().flat_map(|text| split(text.as_ref())).collect()
}

impl IntoServers for &str {
    fn into_servers(self) -> Vec<String> {
        split(self).collect()
    }
}

impl IntoServers for String {
    fn into_servers(self) -> Vec<String> {
        split(&self).collect()
    }
}

impl IntoServers for &String {
    fn into_servers(self) -> Vec<String> {
        split(self).collect()
    }
}

impl<S: AsRef<str>> IntoServers for &[S] {
    fn into_servers(self) -> Vec<String> {
        split_all(self)
    }
}

impl<S: AsRef<str>, const N: usize> IntoServers for [S; N] {
    fn into_servers(self) -> Vec<String> {
        split_all(&self)
    }
}

impl<S: AsRef<str>, const N: usize> IntoServers for &[S; N] {
    fn into_servers(self) -> Vec<String> {
        split_all(self)
    }
}

impl<S: AsRef<str>> IntoServers for Vec<S> {
    fn into_servers(self) -> Vec<String> {
        split_all(&self)
    }
}

impl<S: AsRef<str>> IntoServers for &Vec<S> {
    fn into_servers(self) -> Vec<String> {
        split_all(self)
    }
}

//! Where the lock of `holdfast lock` is: on Holdfast servers, or on another engine (`--on`).

use crate::server_flags::ServerFlags;
use crate::tls_flags::TLS_FLAGS;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches};

/// The environment variable for `--on`.
pub(super) const ON: &str = "HOLDFAST_ON";

const ON_ID: &str = "on";

/// Where the lock is, from the command line and the environment.
///
/// `--on` and `--server` exclude each other. The command line takes precedence over the
/// environment, and HOLDFAST_ON over HOLDFAST_SERVER.
#[derive(Debug, Clone)]
pub(super) enum LockTarget {
    Servers(ServerFlags),
    Engine(Engine),
}

/// An engine of `holdfast-locks`.
#[derive(Debug, Clone)]
pub(super) struct Engine {
    /// May contain a password.
    pub(super) url: String,
}

impl Engine {
    /// The engine's name, for messages.
    pub(super) fn name(&self) -> &str {
        match self.url.split(':').next().unwrap_or_default() {
            "etcds" => "etcd",
            "holdfasts" | "http" | "https" => "holdfast",
            "postgresql" => "postgres",
            "rediss" => "redis",
            scheme => scheme,
        }
    }
}

impl FromArgMatches for LockTarget {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let typed = |id| matches.value_source(id) == Some(ValueSource::CommandLine);
        let for_servers = ["server", "password_file"].into_iter().chain(TLS_FLAGS);
        let for_servers = for_servers.into_iter().find(|flag| typed(flag)).map(flag_name);
        if let Some(flag) = for_servers.as_ref().filter(|_| typed(ON_ID)) {
            let why = format!(
                "{flag} is for Holdfast servers, and can't be used with --on: what an engine needs is \
                 in its URL\n"
            );
            return Err(Error::raw(ErrorKind::ArgumentConflict, why));
        }
        let url = matches.get_one::<String>(ON_ID);
        if typed(ON_ID) && url.is_some_and(String::is_empty) {
            let why = "--on needs the URL of an engine, for example redis://127.0.0.1:6379\n";
            return Err(Error::raw(ErrorKind::InvalidValue, why));
        }
        // An empty variable counts as unset.
        let url = url.filter(|url| !url.is_empty());
        match url.filter(|_| for_servers.is_none()) {
            Some(url) => Ok(Self::Engine(Engine { url: url.clone() })),
            None => ServerFlags::from_arg_matches(matches).map(Self::Servers),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn flag_name(id: &str) -> String {
    format!("--{}", id.replace('_', "-"))
}

impl Args for LockTarget {
    fn augment_args(command: Command) -> Command {
        let on = Arg::new(ON_ID)
            .long(ON_ID)
            .value_name("URL")
            .env(ON)
            .hide_env_values(true)
            .help("Take the lock on this engine instead: redis://, etcd://, postgres://, ...")
            .long_help(
                "Take the lock on this engine instead of a Holdfast server: holdfast://, \
                 holdfasts://, etcd://, etcds://, zookeeper://, postgres://, cassandra://, redis:// or rediss://.\n\n\
                 docs/engines.md has the URLs, and what each engine promises. Other users of the \
                 machine can see a command line: put a URL with a password into HOLDFAST_ON.",
            );
        ServerFlags::augment_args(command.arg(on))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<LockTarget, Error> {
        let command = LockTarget::augment_args(Command::new("lock"));
        let words = ["lock"].into_iter().chain(words.iter().copied());
        command
            .try_get_matches_from(words)
            .and_then(|matches| LockTarget::from_arg_matches(&matches))
    }

    #[test]
    fn on_and_server_are_mutually_exclusive() {
        assert!(matches!(parse(&[]), Ok(LockTarget::Servers(_))));
        assert!(matches!(parse(&["--server", "a:1"]), Ok(LockTarget::Servers(_))));
        assert!(matches!(parse(&["--on", "redis://a"]), Ok(LockTarget::Engine(_))));
        for flag in ["--server", "--password-file"] {
            let error = parse(&["--on", "redis://a", flag, "b"]).unwrap_err().to_string();
            assert!(error.contains(flag) && error.contains("--on"), "{error}");
        }
    }

    /// `--on "$URL"` with an unset variable took the lock on a Holdfast server instead.
    #[test]
    fn empty_engine_is_refused() {
        let error = parse(&["--on", ""]).unwrap_err().to_string();
        assert!(error.contains("--on needs the URL"), "{error}");
    }

    #[test]
    fn engine_name_ignores_tls() {
        let name = |url: &str| Engine { url: url.to_owned() }.name().to_owned();
        assert_eq!(name("rediss://a"), name("redis://a"));
        assert_eq!(name("postgresql://a"), "postgres");
        assert_eq!(name("nonsense"), "nonsense");
    }
}

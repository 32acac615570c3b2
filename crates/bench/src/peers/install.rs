//! Servers that are built or downloaded once, into the user's cache.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::process::Command;

/// `$XDG_CACHE_HOME/holdfast/peers`, or the same in `~/.cache`.
pub(super) fn cache() -> Result<PathBuf, String> {
    let named = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = named("XDG_CACHE_HOME").or_else(|| Some(named("HOME")?.join(".cache")));
    let cache = cache.ok_or("neither XDG_CACHE_HOME nor HOME is set: say where the cache is")?;
    Ok(cache.join("holdfast").join("peers"))
}

/// Creates a folder and its parents.
pub(super) fn make(folder: &Path) -> Result<(), String> {
    std::fs::create_dir_all(folder)
        .map_err(|error| format!("can't make {}: {error}", folder.display()))
}

pub(super) fn write(folder: &Path, files: &[(&str, &str)]) -> Result<(), String> {
    make(folder)?;
    for (name, text) in files {
        let file = folder.join(name);
        std::fs::write(&file, text)
            .map_err(|error| format!("can't write {}: {error}", file.display()))?;
    }
    Ok(())
}

/// Runs a tool to completion, with its output on stderr.
pub(super) async fn run(
    tool: &str,
    args: &[&str],
    folder: &Path,
    hint: &str,
) -> Result<(), String> {
    let mut command = Command::new(tool);
    command.args(args).current_dir(folder).stdin(Stdio::null()).stdout(std::io::stderr());
    let status = command.kill_on_drop(true).status().await;
    let status = status.map_err(|error| format!("{tool} does not run ({error}): {hint}"))?;
    if !status.success() {
        let folder = folder.display();
        return Err(format!("`{tool} {}` in {folder} failed: {status}", args.join(" ")));
    }
    Ok(())
}

/// Moves what was built under another name into place, so that it is never there incomplete.
pub(super) fn put(made: &Path, place: &Path) -> Result<(), String> {
    std::fs::rename(made, place).map_err(|error| format!("can't make {}: {error}", place.display()))
}

/// The folder in the cache with the jars that a pom names, downloaded if it does not exist yet.
pub(super) async fn jars(what: &str, name: &str, pom: (&str, &str)) -> Result<PathBuf, String> {
    let folder = cache()?.join(name);
    let jars = folder.join("jars");
    if !jars.is_dir() {
        eprintln!("downloading {what} into {}: a minute or two, once", folder.display());
        write(&folder, &[pom])?;
        let args = [
            "--batch-mode",
            "--no-transfer-progress",
            "dependency:copy-dependencies",
            "-DoutputDirectory=jars.new",
        ];
        let hint = "install it with `sudo apt-get install -y maven default-jre-headless`";
        run("mvn", &args, &folder, hint).await?;
        put(&folder.join("jars.new"), &jars)?;
    }
    Ok(jars)
}

//! The copy: the workspace with all mistakes in it.

use crate::CHECK;
use crate::diff::{self, Hunk};
use crate::mistakes::{self, Mistake};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The folders of the workspace's packages. The checks need only a few of these packages. But a
/// dependency is built with the features that all members of a workspace enable: with the same
/// members, the copy reuses what the tests of the original have built.
const MEMBERS: [&str; 2] = ["crates", "examples"];

/// Where the copy has its packages. Cargo distinguishes packages in one target folder by their path
/// in the workspace, so it must differ from the original.
const COPY: &str = "copy";

/// What to do about a diff that can't be applied.
const ADVICE: &str = "\
The code has changed where this mistake is made. Change the diff so that it makes the same mistake in
the code as it is now. Never drop a mistake because its diff is hard to keep: the check that it tests
may have gone blind.";

/// Files by their path in the workspace.
#[derive(Debug)]
pub(crate) struct Workspace(BTreeMap<PathBuf, Vec<u8>>);

impl Workspace {
    /// A copy of the workspace at `root`, with its mistakes and the checks that look for them.
    pub(crate) fn planted(root: &Path) -> Result<Self, String> {
        let mistakes = mistakes::read(root)?;
        let mut copy = Self(BTreeMap::new());
        for folder in MEMBERS {
            copy.take(root, Path::new(folder))?;
        }
        copy.plant(&mistakes)?;
        copy.add("crates/core/src/planted.rs", mistakes::switches(&mistakes).into_bytes());
        copy.append("crates/core/src/lib.rs", "pub mod planted;")?;
        for library in ["node", "gateway", "grpc", "zookeeper"] {
            let file = format!("crates/{library}/src/lib.rs");
            copy.append(&file, "use holdfast_core::planted;")?;
        }
        copy.append("crates/sim/src/main.rs", "use holdfast_core::planted;")?;
        // The client does not know the core: it has switches of its own.
        copy.add("crates/client/src/planted.rs", mistakes::switches(&mistakes).into_bytes());
        copy.append("crates/client/src/lib.rs", "pub mod planted;")?;

        let check = |name: &str| read(&root.join("crates/planted/checks").join(name));
        copy.add(&format!("crates/core/tests/{CHECK}/mod.rs"), check("core.rs")?);
        copy.append("crates/core/tests/model.rs", &format!("mod {CHECK};"))?;
        copy.add(&format!("crates/sim/src/{CHECK}.rs"), check("sim.rs")?);
        copy.append("crates/sim/src/main.rs", &format!("#[cfg(test)]\nmod {CHECK};"))?;

        copy.add("Cargo.lock", read(&root.join("Cargo.lock"))?);
        copy.add("Cargo.toml", manifest(&read_text(&root.join("Cargo.toml"))?)?.into_bytes());
        Ok(copy)
    }

    /// Copies the sources and manifests in a folder.
    fn take(&mut self, root: &Path, folder: &Path) -> Result<(), String> {
        for entry in entries(&root.join(folder))? {
            let path = folder.join(entry.file_name().unwrap_or_default());
            if entry.is_dir() {
                self.take(root, &path)?;
            } else if path.ends_with("Cargo.toml") || is_source(&path) {
                self.0.insert(path, read(&entry)?);
            }
        }
        Ok(())
    }

    fn add(&mut self, path: &str, bytes: Vec<u8>) {
        self.0.insert(PathBuf::from(path), bytes);
    }

    fn append(&mut self, path: &str, item: &str) -> Result<(), String> {
        let file = self.0.get_mut(Path::new(path));
        let file = file.ok_or_else(|| format!("there is no {path} to add `{item}` to"))?;
        file.extend_from_slice(format!("\n{item}\n").as_bytes());
        Ok(())
    }

    /// Applies all diffs; the error lists those that can't be applied.
    fn plant(&mut self, mistakes: &[Mistake]) -> Result<(), String> {
        let mut by_file: BTreeMap<&str, Vec<(&Mistake, &Hunk)>> = BTreeMap::new();
        for mistake in mistakes {
            for hunk in &mistake.hunks {
                by_file.entry(&hunk.file).or_default().push((mistake, hunk));
            }
        }
        let mut problems = Vec::new();
        for (file, edits) in by_file {
            let Some(bytes) = self.0.get_mut(Path::new(file)) else {
                let diffs: BTreeSet<String> = edits.iter().map(|(some, _)| some.file()).collect();
                problems.extend(diffs.iter().map(|diff| format!("{diff}: there is no {file}")));
                continue;
            };
            let text = String::from_utf8_lossy(bytes).into_owned();
            let hunks: Vec<&Hunk> = edits.iter().map(|(_, hunk)| *hunk).collect();
            match diff::apply(&text, &hunks) {
                Ok(text) => *bytes = text.into_bytes(),
                Err(wrong) => problems.extend(wrong.into_iter().map(|(number, problem)| {
                    let (mistake, hunk) = edits[number];
                    let (diff, line) = (mistake.file(), hunk.at_line);
                    format!("{diff}, line {line}: can't be applied to {file}: {problem}")
                })),
            }
        }
        if problems.is_empty() {
            Ok(())
        } else {
            Err(format!("{}\n\n{ADVICE}", problems.join("\n")))
        }
    }

    /// Writes this workspace to a folder and removes everything else there. Files that are already
    /// up to date are not touched.
    pub(crate) fn write_to(&self, folder: &Path) -> Result<(), String> {
        let files = self.0.iter().map(|(path, bytes)| (folder.join(place(path)), bytes));
        let files: BTreeMap<PathBuf, &Vec<u8>> = files.collect();
        drop_others(&folder.join(COPY), &files)?;
        for (path, bytes) in files {
            if std::fs::read(&path).is_ok_and(|there| there == *bytes) {
                continue;
            }
            let cannot = |error| format!("{} can't be written: {error}", path.display());
            std::fs::create_dir_all(path.parent().unwrap_or(folder)).map_err(cannot)?;
            std::fs::write(&path, bytes).map_err(cannot)?;
        }
        Ok(())
    }
}

fn is_source(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "rs" || extension == "proto")
}

/// Where a file of the original is in the copy.
fn place(path: &Path) -> PathBuf {
    let member = MEMBERS.iter().any(|folder| path.starts_with(folder));
    if member { Path::new(COPY).join(path) } else { path.to_owned() }
}

/// Removes files of an earlier copy that this one does not have.
fn drop_others(folder: &Path, files: &BTreeMap<PathBuf, &Vec<u8>>) -> Result<(), String> {
    if !folder.exists() {
        return Ok(());
    }
    for entry in entries(folder)? {
        if entry.is_dir() {
            drop_others(&entry, files)?;
        } else if !files.contains_key(&entry) {
            let cannot = |error| format!("{} can't be removed: {error}", entry.display());
            std::fs::remove_file(&entry).map_err(cannot)?;
        }
    }
    Ok(())
}

/// The workspace's manifest with the members of the copy: the same dependencies, lints and profiles.
fn manifest(original: &str) -> Result<String, String> {
    let rest = original.find("[workspace.package]").map(|at| &original[at..]);
    let rest = rest.ok_or("Cargo.toml has no [workspace.package]")?;
    let rest = rest.replace("path = \"crates/", &format!("path = \"{COPY}/crates/"));
    let members = MEMBERS.map(|folder| format!("{COPY}/{folder}/*"));
    Ok(format!("[workspace]\nresolver = \"3\"\nmembers = {members:?}\n\n{rest}"))
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let cannot = |error| format!("{} can't be read: {error}", folder.display());
    let entries = std::fs::read_dir(folder).map_err(cannot)?;
    entries.map(|entry| Ok(entry.map_err(cannot)?.path())).collect()
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("{} can't be read: {error}", path.display()))
}

fn read_text(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path)
        .map_err(|error| format!("{} can't be read: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fast, so that changing code near a mistake fails here at once if its diff must be updated.
    #[test]
    fn all_diffs_apply_to_the_current_code() {
        let copy = crate::root().and_then(|root| Workspace::planted(&root));
        let copy = copy.unwrap_or_else(|message| panic!("{message}"));
        let planted = &copy.0[Path::new("crates/core/src/lines/serve.rs")];
        assert!(String::from_utf8_lossy(planted).contains("crate::planted::serve_the_dead()"));
    }

    #[test]
    fn diff_that_does_not_apply_is_named_with_a_hint() {
        let hunks = diff::parse("--- crates/core/src/lib.rs\n mod gone;\n+mod other;\n").unwrap();
        let mistakes = [Mistake { folder: "core", name: "some".to_owned(), hunks }];
        let mut copy = Workspace(BTreeMap::new());
        copy.add("crates/core/src/lib.rs", b"mod state;\n".to_vec());
        let message = copy.plant(&mistakes).unwrap_err();
        let first = "crates/planted/mistakes/core/some.diff, line 1: can't be applied to \
                     crates/core/src/lib.rs: `mod gone;` is not there";
        assert_eq!(message.lines().next(), Some(first));
        assert!(message.contains("Change the diff"), "{message}");
    }

    #[test]
    fn files_are_written_only_if_they_differ() {
        let folder = std::env::temp_dir().join(format!("planted-{}", std::process::id()));
        let written = |name: &str| folder.join(COPY).join("crates").join(name);
        let mut copy = Workspace(BTreeMap::new());
        copy.add("crates/same.rs", b"same".to_vec());
        copy.add("crates/changed.rs", b"before".to_vec());
        copy.add("crates/gone.rs", b"gone".to_vec());
        copy.write_to(&folder).unwrap();
        let long_ago = std::time::SystemTime::UNIX_EPOCH;
        for name in ["same.rs", "changed.rs"] {
            let file = std::fs::File::options().write(true).open(written(name)).unwrap();
            file.set_modified(long_ago).unwrap();
        }
        copy.add("crates/changed.rs", b"after".to_vec());
        copy.0.remove(Path::new("crates/gone.rs"));
        copy.write_to(&folder).unwrap();
        let modified = |name| std::fs::metadata(written(name)).unwrap().modified().unwrap();
        assert_eq!(modified("same.rs"), long_ago);
        assert_ne!(modified("changed.rs"), long_ago);
        assert_eq!(std::fs::read(written("changed.rs")).unwrap(), b"after");
        assert!(!written("gone.rs").exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

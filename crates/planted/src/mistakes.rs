//! The mistakes in the folder `mistakes/`, and the switches that plant them.

use crate::diff::{self, Hunk};
use std::fmt::Write;
use std::path::Path;

/// The folders of `mistakes/`, each named after the crate that its mistakes are in; `tree` has those
/// in the core's znodes, which its model does not know.
pub(crate) const FOLDERS: [&str; 8] =
    ["core", "tree", "node", "gateway", "grpc", "zookeeper", "client", "sim"];

/// One mistake.
#[derive(Debug)]
pub(crate) struct Mistake {
    /// One of [`FOLDERS`].
    pub(crate) folder: &'static str,
    pub(crate) name: String,
    pub(crate) hunks: Vec<Hunk>,
}

impl Mistake {
    /// Its diff, relative to the root of the workspace.
    pub(crate) fn file(&self) -> String {
        format!("crates/planted/mistakes/{}/{}.diff", self.folder, self.name)
    }

    /// The mistake must do nothing unless it is planted.
    fn check_switch(&self) -> Result<(), String> {
        let switch = format!("crate::planted::{}()", self.name);
        let mut added = self.hunks.iter().flat_map(Hunk::added);
        if added.any(|line| line.contains(&switch)) {
            return Ok(());
        }
        Err(format!("{}: no line that it adds asks `{switch}`", self.file()))
    }
}

/// All mistakes, by folder and name.
pub(crate) fn read(root: &Path) -> Result<Vec<Mistake>, String> {
    let mut mistakes = Vec::new();
    for folder in FOLDERS {
        let path = root.join("crates/planted/mistakes").join(folder);
        let cannot = |error| format!("{} can't be read: {error}", path.display());
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&path).map_err(cannot)? {
            files.push(entry.map_err(cannot)?.path());
        }
        files.sort();
        for file in files {
            let at = |what| format!("{}: {what}", file.display());
            let name = file.file_name().and_then(|name| name.to_str()?.strip_suffix(".diff"));
            let name = name.ok_or_else(|| at("not named NAME.diff".to_owned()))?.to_owned();
            let text = std::fs::read_to_string(&file).map_err(cannot)?;
            let hunks = diff::parse(&text).map_err(at)?;
            let mistake = Mistake { folder, name, hunks };
            mistake.check_switch()?;
            mistakes.push(mistake);
        }
    }
    Ok(mistakes)
}

/// The module `planted` of the copied core: a function per mistake that returns whether it is
/// planted, and the names of all mistakes. The switches are per thread.
pub(crate) fn switches(mistakes: &[Mistake]) -> String {
    let mut text = String::from(
        "//! Which mistake is planted in this thread. Written by crates/planted.

#![allow(missing_docs)]

use std::cell::Cell;

thread_local! {
    static PLANTED: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Plants one mistake, or none.
pub fn plant(name: Option<&str>) {
    let number = |name| ALL.iter().position(|other| *other == name);
    PLANTED.set(name.map(|name| number(name).unwrap_or_else(|| panic!(\"no mistake is {name}\"))));
}
",
    );
    let mut list = |title: &str, chosen: &dyn Fn(&Mistake) -> bool| {
        let names: Vec<&str> =
            mistakes.iter().filter(|some| chosen(some)).map(|some| some.name.as_str()).collect();
        let _ = writeln!(text, "\npub const {title}: [&str; {}] = {names:#?};", names.len());
    };
    list("ALL", &|_| true);
    for folder in FOLDERS {
        list(&folder.to_uppercase(), &|mistake| mistake.folder == folder);
    }
    for (number, Mistake { name, .. }) in mistakes.iter().enumerate() {
        let _ =
            writeln!(text, "\npub fn {name}() -> bool {{\n    PLANTED.get() == Some({number})\n}}");
    }
    text
}

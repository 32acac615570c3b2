//! docs/cli.md, typed as written: every command, in order.

use crate::support::follow;

const GUIDE: &str = include_str!("../../../../docs/cli.md");

/// Would fail if a command in the guide did not work, or did something else than it says. The part
/// that needs other engines is covered by their tests (`on_engines`).
#[test]
fn guide_commands_work_as_written() {
    let (before, rest) = GUIDE.split_once("<!-- engines -->\n").expect("a part about engines");
    let (_, after) = rest.split_once("<!-- end of engines -->\n").expect("the end of that part");
    follow(&format!("{before}{after}"));
}

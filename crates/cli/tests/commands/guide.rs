//! docs/cli.md, typed as written: every command, in order.

use crate::support::follow;

const GUIDE: &str = include_str!("../../../../docs/cli.md");

/// Would fail if a command of the guide did not work, or did something else than it says.
#[test]
fn every_command_of_the_guide_works_as_written() {
    follow(GUIDE);
}

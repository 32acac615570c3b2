//! docs/operations.md, typed as written.

use crate::support::follow;

#[test]
fn every_command_of_the_guide_works_as_written() {
    follow(include_str!("../../../../docs/operations.md"));
}

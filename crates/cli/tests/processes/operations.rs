//! docs/operations.md, typed as written.

use crate::support::follow;

#[test]
fn guide_commands_work_as_written() {
    follow(include_str!("../../../../docs/operations.md"));
}

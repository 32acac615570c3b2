//! docs/security.md, typed as written.

use crate::support::follow;

#[test]
fn security_guide_commands_work_as_written() {
    follow(include_str!("../../../../docs/security.md"));
}

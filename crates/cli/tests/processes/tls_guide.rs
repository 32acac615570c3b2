//! docs/tls.md, typed as written.

use crate::support::follow;

#[test]
fn tls_guide_commands_work_as_written() {
    follow(include_str!("../../../../docs/tls.md"));
}

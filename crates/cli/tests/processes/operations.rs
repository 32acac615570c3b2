//! docs/operations.md, typed as written.

use crate::support::guide;

#[test]
fn every_command_of_the_guide_works_as_written() {
    guide::type_as_written(include_str!("../../../../docs/operations.md"));
}

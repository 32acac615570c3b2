//! Nested wrappers.

use crate::cli::Shell;

/// Would fail if nested wrappers waited in a deadlock: exactly one of the two is refused, with the
/// circle, and the other one goes on.
#[test]
fn opposite_order_is_refused_with_the_cycle() {
    let shell = Shell::with_nodes(1);
    let nest = |outer: &str, inner: &str, other: &str| {
        let script = format!(
            "echo > holds-{outer}; until [ -e holds-{other} ]; do sleep 0.05; done; \
             holdfast lock {inner} -- echo both"
        );
        shell.lock(outer, &script)
    };
    let running = [nest("left", "right", "right"), nest("right", "left", "left")];
    let printed = running.map(|wrapper| wrapper.ended());
    let (refused, served): (Vec<_>, Vec<_>) =
        printed.iter().partition(|printed| printed.code == Some(75));
    assert_eq!((refused.len(), served.len()), (1, 1), "{printed:#?}");
    assert_eq!((served[0].code, served[0].out.as_str()), (Some(0), "both\n"));
    let circle = &refused[0].err;
    assert!(circle.contains("cycle") && circle.contains("left") && circle.contains("right"));
}

/// Would fail if tokens of one cluster were sent to another.
#[test]
fn locks_of_other_servers_are_not_declared_as_claims() {
    let here = Shell::with_nodes(1);
    let elsewhere = Shell::with_nodes(1);
    let inner = format!(
        "holdfast lock b --server {} -- sh -c 'echo $HOLDFAST_HOLDING'",
        elsewhere.servers()
    );
    let printed = here.lock("a", &inner).ended();
    assert_eq!((printed.code, printed.out.as_str()), (Some(0), "1\n"), "{printed:?}");
}

//! The fenced register, watches and elections.

use crate::server::Node;
use crate::{operator, soon};
use holdfast_client::{EndReason, Error, ErrorCode, Event};
use std::time::Duration;

#[tokio::test]
async fn older_holder_is_fenced_off_by_a_newer_one() {
    let node = Node::start().await;
    let (ana, bo) = (node.client().await, node.client().await);
    let (register_a, register_b) = (ana.register("ledger"), bo.register("ledger"));
    assert_eq!(register_a.get().await.unwrap(), Default::default());

    // Ana's lock is lost, and Ana does not check.
    let old = ana.lock("ledger").acquire().await.unwrap();
    let fence = register_a.put("ana was here", &old).await.unwrap();
    assert_eq!((fence.highest_exclusive, fence.highest), (old.token(), old.token()));
    let mut operator = operator(&node).await;
    let force = holdfast_proto::v1::ForceRequest {
        name: "ledger".into(),
        token: None,
        by: "operator".into(),
        reason: "too slow".into(),
    };
    operator.force(force).await.unwrap();
    let new = bo.lock("ledger").acquire().await.unwrap();
    let read = register_b.raise(&new).await.unwrap();
    assert_eq!(read.value.as_deref(), Some(&b"ana was here"[..]));

    match register_a.put("ana again", &old).await {
        Err(Error::Refused { code, highest, .. }) => {
            assert_eq!((code, highest), (ErrorCode::Fenced, Some(new.token())));
        }
        other => panic!("{other:?}"),
    }
    assert!(register_a.raise(&old).await.is_err());
    register_b.put("bo's", &new).await.unwrap();
    assert_eq!(register_a.get().await.unwrap().value.as_deref(), Some(&b"bo's"[..]));
    node.end().await;
}

#[tokio::test]
async fn watch_reports_names_and_tokens() {
    let node = Node::start().await;
    let (ana, bo) = (node.client().await, node.client().await);
    let mut watch = ana.watch_prefix("shop/").await.unwrap();
    let mut next = async || soon(watch.next()).await.unwrap();

    ana.lock("elsewhere").acquire().await.unwrap();
    let pause = Duration::from_millis(100);
    let mut guard = bo.lock("shop/seat").label("bo").lock_delay(pause).acquire().await.unwrap();
    let token = guard.token();
    match next().await {
        Event::Granted { names, token: of, label, shared, .. } => {
            assert_eq!((names, of, shared), (vec!["shop/seat".into()], token, false));
            assert_eq!(label.as_deref(), Some(&b"bo"[..]));
        }
        other => panic!("{other:?}"),
    }
    guard.note(Some(b"half paid")).await.unwrap();
    let noted = next().await;
    assert!(
        matches!(&noted, Event::Noted { token: of, note: Some(note), .. }
            if *of == token && note == "half paid"),
        "{noted:?}"
    );
    guard.downgrade().await.unwrap();
    let event = next().await;
    assert!(matches!(event, Event::Downgraded { token: of, .. } if of == token), "{event:?}");

    std::mem::forget(guard);
    bo.close().await;
    match next().await {
        Event::Ended { token: of, how, held, note, label, .. } => {
            assert_eq!((of, how, held), (token, EndReason::Closed, true));
            assert_eq!(note.as_deref(), Some(&b"half paid"[..]));
            assert_eq!(label.as_deref(), Some(&b"bo"[..]));
        }
        other => panic!("{other:?}"),
    }
    match next().await {
        Event::Delayed { name, after: Some(after), .. } => {
            assert_eq!((name, after.token), ("shop/seat".into(), token));
        }
        other => panic!("{other:?}"),
    }
    let guard = soon(ana.lock("shop/seat").acquire()).await.unwrap();
    assert!(matches!(next().await, Event::Granted { .. }));
    guard.recovered().await.unwrap();
    match next().await {
        Event::Recovered { token: by, death: Some(death), .. } => {
            assert_eq!((by, death.token), (guard.token(), token));
        }
        other => panic!("{other:?}"),
    }
    node.end().await;
}

#[tokio::test]
async fn reconnected_watch_reports_possible_gaps() {
    let mut node = Node::start().await;
    let client = node.client().await;
    let mut watch = client.watch("seat").await.unwrap();
    node.pause().await;
    node.go_on().await;
    assert_eq!(soon(watch.next()).await, Ok(Event::Missed));
    soon(client.lock("seat").acquire()).await.unwrap();
    assert!(matches!(soon(watch.next()).await, Ok(Event::Granted { .. })));
    node.end().await;
}

#[tokio::test]
async fn next_candidate_leads_after_the_first_resigns() {
    let node = Node::start().await;
    let (ana, bo, cy) = (node.client().await, node.client().await, node.client().await);
    let election = cy.election("boss");
    let mut observer = election.observe().await.unwrap();
    assert_eq!(soon(observer.next()).await.unwrap(), None);

    let first = ana.election("boss").campaign("ana").await.unwrap();
    let leader = soon(observer.next()).await.unwrap().unwrap();
    assert_eq!((leader.token, leader.value.as_deref()), (first.token(), Some(&b"ana"[..])));
    assert_eq!(election.leader().await.unwrap(), Some(leader.clone()));

    let campaign = tokio::spawn({
        let bo = bo.clone();
        async move { bo.election("boss").campaign("bo").await.unwrap() }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!campaign.is_finished());
    first.resign().await.unwrap();
    let second = soon(campaign).await.unwrap();
    // Nobody led in between, or too briefly to be reported.
    let mut next = soon(observer.next()).await.unwrap();
    if next.is_none() {
        next = soon(observer.next()).await.unwrap();
    }
    let next = next.unwrap();
    assert_eq!((next.token, next.value.as_deref()), (second.token(), Some(&b"bo"[..])));
    assert!(next.token > leader.token, "terms rise");

    drop(second);
    assert_eq!(soon(observer.next()).await.unwrap(), None);
    node.end().await;
}

#[tokio::test]
async fn reconnected_observer_sees_the_current_leader() {
    let mut node = Node::start().await;
    let client = node.client().await;
    let election = client.election("boss");
    let first = election.campaign("ana").await.unwrap();
    let mut observer = election.observe().await.unwrap();
    let led = soon(observer.next()).await.unwrap().unwrap();
    assert_eq!(led.token, first.token());
    node.pause().await;
    node.go_on().await;
    soon(first.resign()).await.unwrap();
    let second = soon(election.campaign("bo")).await.unwrap();
    let mut leader = soon(observer.next()).await;
    while leader.as_ref().map(|leader| leader.as_ref().map(|leader| leader.token))
        != Ok(Some(second.token()))
    {
        leader = soon(observer.next()).await;
    }
    node.end().await;
}

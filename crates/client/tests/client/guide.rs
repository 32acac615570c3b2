//! The code of docs/client.md, run against a server; and a check that it is the same code.

use crate::server::Node;
use holdfast_client::{Client, Error, ErrorCode, Event, Guard, GuardEvent, Health, Token};
use std::time::Duration;

type Outcome = Result<(), Error>;

const GUIDE: &str = include_str!("../../../../docs/client.md");
const HERE: &str = include_str!("guide.rs");

/// Would fail if the guide showed code that is not run here, or if the code here changed alone.
#[test]
fn guide_shows_the_code_tested_here() {
    let flat = |text: &str| text.lines().map(str::trim).collect::<Vec<_>>().join("\n");
    let here = flat(HERE);
    let blocks: Vec<String> = GUIDE
        .split("\n```rust\n")
        .skip(1)
        .map(|rest| flat(rest.split("\n```").next().unwrap_or_default()))
        .collect();
    assert!(blocks.len() > 10, "the guide has lost its code");
    for block in blocks {
        assert!(here.contains(&block), "shown in docs/client.md, but not run here:\n{block}");
    }
}

#[tokio::test]
async fn guide_code_works() {
    let node = Node::start().await;
    let servers = [node.url.clone()];
    let client = connect(&servers).await.unwrap();
    take(&client).await.unwrap();
    wait_or_not(&client).await.unwrap();
    stop_in_time(&client).await.unwrap();
    hear(&client).await.unwrap();
    recover(&client).await.unwrap();
    leases(&client).await.unwrap();
    handover(&client).await.unwrap();
    several(&client).await.unwrap();
    circle(&client).await.unwrap();
    share(&client).await.unwrap();
    permits(&client).await.unwrap();
    reenter(&client).await.unwrap();
    elect(&client, &servers).await.unwrap();
    fence(&client).await.unwrap();
    watch(&client).await.unwrap();
    setup(&servers).await.unwrap();
    tokio::task::spawn_blocking(move || block(&servers)).await.unwrap().unwrap();
    node.end().await;
}

async fn connect(servers: &[String]) -> Result<Client, Error> {
    // For instance "http://10.0.0.1:7400", or ["10.0.0.1:7400", "10.0.0.2:7400", "10.0.0.3:7400"].
    let client = Client::connect(servers).await?;
    Ok(client)
}

async fn setup(servers: &[String]) -> Outcome {
    let client = Client::builder()
        .session_ttl(Duration::from_secs(5))
        .timeout(Duration::from_secs(20))
        .label("till 3")
        .password("open sesame")
        .connect(servers)
        .await?;
    client.close().await;
    Ok(())
}

async fn take(client: &Client) -> Outcome {
    let guard = client.lock("seat-12A").acquire().await?;
    println!("I hold it, with token {}", guard.token());
    guard.release().await?;
    Ok(())
}

async fn wait_or_not(client: &Client) -> Outcome {
    // Stand in line for at most half a minute.
    let guard = client.lock("seat-12A").wait(Duration::from_secs(30)).acquire().await?;

    // Or not at all.
    match client.lock("seat-12A").try_acquire().await? {
        Some(_) => unreachable!("it is held"),
        None => println!("somebody else has it"),
    }
    drop(guard);
    Ok(())
}

async fn book_the_seat(_token: Token) {}

async fn stop_in_time(client: &Client) -> Outcome {
    let guard = client.lock("seat-12A").acquire().await?;
    tokio::select! {
        () = book_the_seat(guard.token()) => guard.release().await?,
        how = guard.lost() => println!("stopped: the lock is lost ({how})"),
    }

    let guard = client.lock("seat-12A").acquire().await?;
    for page in 1..=3 {
        if let Health::Lost(how) = guard.health() {
            println!("stopped before page {page} ({how})");
            break;
        }
        println!("page {page}; the lock is good for {:?} more", guard.remaining());
    }
    Ok(())
}

async fn hear(client: &Client) -> Outcome {
    let guard = client.lock("seat-12A").acquire().await?;
    // Nothing happens to it here.
    let _ = tokio::time::timeout(Duration::from_millis(50), listen(&guard)).await;
    Ok(())
}

async fn listen(guard: &Guard) {
    let mut events = guard.events();
    while let Some(news) = events.next().await {
        match news {
            GuardEvent::Jeopardy => println!("no server answers: begin nothing new"),
            GuardEvent::Good => println!("all is well again"),
            GuardEvent::Revocation(asked) => println!("please let go: {:?}", asked.reason),
            GuardEvent::Lost(how) => println!("over ({how}): stop"),
        }
    }
}

async fn recover(client: &Client) -> Outcome {
    let guard = client.lock("seat-12A").note("reserved, not paid").acquire().await?;
    guard.note(Some(b"paid, not mailed")).await?;
    guard.release().await?;

    let guard = client.lock("seat-12A").acquire().await?;
    for death in guard.deaths() {
        println!("{:?} died ({}); its note: {:?}", death.label, death.how, death.note);
    }
    if guard.needs_recovery() {
        guard.recovered().await?;
    }
    Ok(())
}

async fn leases(client: &Client) -> Outcome {
    let guard = client.lock("nightly-job").ttl(Duration::from_secs(60)).acquire().await?;
    drop(guard);
    Ok(())
}

async fn handover(client: &Client) -> Outcome {
    let guard = client.lock("nightly-job").ttl(Duration::from_secs(60)).acquire().await?;
    let detached = guard.detach().await.map_err(|(_guard, error)| error)?;
    println!("{:?} is held by token {}", detached.name, detached.token);
    Ok(())
}

async fn several(client: &Client) -> Outcome {
    let both = client.locks(["account/7", "account/9"]).acquire().await?;
    drop(both);
    Ok(())
}

async fn circle(client: &Client) -> Outcome {
    let first = client.lock("account/7").acquire().await?;
    let second = client.lock("account/9").holding(&first).acquire().await?;
    drop((first, second));
    Ok(())
}

async fn share(client: &Client) -> Outcome {
    let mut guard = client.lock("price-list").shared().acquire().await?;
    guard.upgrade(Some(Duration::from_secs(5))).await?;
    println!("the only one now, with a new token: {}", guard.token());
    guard.downgrade().await?;
    guard.release().await?;
    Ok(())
}

async fn permits(client: &Client) -> Outcome {
    let one_of_three = client.semaphore("printers", 3).acquire().await?;
    one_of_three.release().await?;
    Ok(())
}

async fn reenter(client: &Client) -> Outcome {
    let outer = client.lock("ledger").reentrant().acquire().await?;
    let inner = client.lock("ledger").reentrant().acquire().await?;
    assert_eq!(inner.token(), outer.token());
    inner.release().await?; // still held
    outer.release().await?; // let go
    Ok(())
}

async fn elect(client: &Client, servers: &[String]) -> Outcome {
    let election = client.election("scheduler");
    let leadership = election.campaign("10.0.0.7:9000").await?;
    println!("elected, in term {}", leadership.token());
    leadership.resign().await?;

    let candidate = Client::connect(servers).await?;
    let leads = candidate.election("scheduler").campaign("10.0.0.8:9000").await?;
    let mut observer = election.observe().await?;
    match observer.next().await? {
        Some(leader) => println!("{:?} leads in term {}", leader.value, leader.token),
        None => println!("nobody leads"),
    }
    drop(leads);
    Ok(())
}

async fn fence(client: &Client) -> Outcome {
    let guard = client.lock("ledger").acquire().await?;
    let register = client.register("ledger");
    let before = register.raise(&guard).await?;
    println!("it was {:?}", before.value);
    match register.put("balance 40", &guard).await {
        Ok(_) => println!("written"),
        Err(Error::Refused { code: ErrorCode::Fenced, .. }) => println!("I am not the holder"),
        Err(error) => return Err(error),
    }
    Ok(())
}

async fn watch(client: &Client) -> Outcome {
    let mut watch = client.watch_prefix("shop/").await?;
    let _guard = client.lock("shop/seat-12A").acquire().await?;
    match watch.next().await? {
        Event::Granted { names, token, .. } => println!("{names:?} is held by {token}"),
        Event::Missed => println!("read the state again: events may have been missed"),
        other => println!("{other:?}"),
    }
    Ok(())
}

fn block(servers: &[String]) -> Outcome {
    use holdfast_client::blocking::Client;

    let client = Client::connect(servers)?;
    let guard = client.lock("seat-12A").wait(Duration::from_secs(30)).acquire()?;
    if guard.is_lost().is_none() {
        println!("I hold it, with token {}", guard.token());
    }
    guard.release()?;
    Ok(())
}

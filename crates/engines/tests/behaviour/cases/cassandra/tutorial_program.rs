use holdfast_locks::{Error, Guard, Locks};

/// With `url`, for example, `cassandra://127.0.0.1:9042/examples`.
async fn take_region_master(url: &str) -> Result<Guard, Error> {
    let locks = Locks::connect(url).await?;
    let lock = locks.lock("region-master").label("application-server-4");
    let guard = lock.note("moving orders 501-900").acquire().await?;
    if let Some(ending) = guard.ending().filter(|ending| ending.died) {
        println!("the previous holder died: {:?}, {:?}", ending.label, ending.note);
    }
    Ok(guard)
}

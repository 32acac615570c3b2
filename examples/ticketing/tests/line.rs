//! Whose locks protect the tickets: instances that start together, lock services that move or lose their
//! data, and instances that were stopped meanwhile. `src/line.rs` tells how it works.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use ticketing::tester::Failure;
use ticketing::tester::shop::{Client, Instance, Plan, Shop, wait_until};

fn shop(lock_type: &str) -> Shop {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_ticketing"));
    let (lock_type, lock_url, postgres_url) = (lock_type.to_owned(), None, None);
    Shop::open(Plan { program, lock_type, lock_url, postgres_url }).unwrap()
}

/// A Holdfast for others: that of another shop.
fn holdfast() -> Result<(Shop, Instance, String), Failure> {
    let mut shop = shop("native");
    let owner = shop.start(&[])?;
    let url = owner.lock_url.clone().ok_or("no LOCK_URL")?;
    Ok((shop, owner, url))
}

/// An instance that was started together with others; it is killed when this is dropped.
struct Started {
    child: Child,
    /// `None` if it was refused.
    client: Option<Client>,
}

impl Started {
    /// Stops it in order.
    fn stop(mut self) -> Result<(), Failure> {
        kill(Pid::from_raw(i32::try_from(self.child.id())?), Signal::SIGTERM)?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start_together(commands: Vec<Command>) -> Result<Vec<Started>, Failure> {
    let mut started = Vec::new();
    for mut command in commands {
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        started.push(Started { child: quiet.spawn()?, client: None });
    }
    for one in &mut started {
        // One that starts says so and goes on; one that is refused closes its output.
        let mut url = String::new();
        for line in BufReader::new(one.child.stdout.take().ok_or("no output")?).lines() {
            let line = line?;
            if let Some(found) = line.strip_prefix("Ticketing: ") {
                url = found.replace("localhost", "127.0.0.1");
            }
            if line.starts_with("Press Ctrl-C") {
                one.client = Some(Client::new(&url));
                break;
            }
        }
    }
    Ok(started)
}

fn commands(shop: &Shop, count: usize, lock_url: &str) -> Vec<Command> {
    let command = || {
        let mut command = shop.command();
        command.env("LOCK_URL", lock_url).env("RESERVE_SECONDS", "600");
        command
    };
    (0..count).map(|_| command()).collect()
}

/// Three that started together on an empty database never wrote down whose locks they used, and each
/// restart then ended all reservations. So did writing LOCK_URL in another way. And three that started
/// together with a new lock service never began a new line: the old tokens stopped every reservation.
#[test]
fn instances_that_start_together_agree_on_the_line() -> Result<(), Failure> {
    let (_first_shop, _first, first_url) = holdfast()?;
    let (_second_shop, _second, second_url) = holdfast()?;
    let target = shop("native");
    let together = start_together(commands(&target, 3, &first_url))?;
    let clients: Vec<&Client> = together.iter().filter_map(|one| one.client.as_ref()).collect();
    assert_eq!(clients.len(), 3, "all of them start");
    for ticket in 1..=10 {
        clients[ticket % 3].reserve(&ticket.to_string(), "ana")?.served()?;
    }
    clients[1].book("1", "ana")?.served()?;
    together.into_iter().try_for_each(Started::stop)?;

    let other_name = first_url.replace("127.0.0.1", "localhost");
    let again = start_together(commands(&target, 1, &other_name))?;
    let client = again[0].client.as_ref().ok_or("it does not start")?;
    client.reserve("2", "bo")?.refused(&["reserved"])?;
    client.book("2", "ana")?.served()?;
    again.into_iter().try_for_each(Started::stop)?;

    let moved = start_together(commands(&target, 3, &second_url))?;
    let clients: Vec<&Client> = moved.iter().filter_map(|one| one.client.as_ref()).collect();
    assert_eq!(clients.len(), 3, "all of them start with the new locks");
    for ticket in 3..=10 {
        clients[ticket % 3].reserve(&ticket.to_string(), "bo")?.served()?;
        clients[(ticket + 1) % 3].reserve(&ticket.to_string(), "cy")?.refused(&["reserved"])?;
    }
    clients[0].book("3", "bo")?.served()?;
    clients[0].sold_exactly(&[("1", "ana"), ("2", "ana"), ("3", "bo")])
}

/// Each took the others' look at the locks of a running instance for that instance, and was let in.
#[test]
fn instances_with_other_locks_that_start_together_are_all_refused() -> Result<(), Failure> {
    let (_first_shop, _first, first_url) = holdfast()?;
    let (_second_shop, _second, second_url) = holdfast()?;
    let target = shop("native");
    let running = start_together(commands(&target, 1, &first_url))?;
    let client = running[0].client.as_ref().ok_or("it does not start")?;
    // Through both doors, because looks of different kinds take different times.
    let port: u16 = second_url.rsplit(':').next().ok_or("no port")?.parse()?;
    let mut intruding = commands(&target, 6, &second_url);
    for command in intruding.iter_mut().step_by(2) {
        command.env("LOCK_TYPE", "ephemeral_node");
        command.env("LOCK_URL", format!("zookeeper://127.0.0.1:{}", port + 2));
    }
    let intruders = start_together(intruding)?;
    let let_in = intruders.iter().filter(|one| one.client.is_some()).count();
    assert_eq!(let_in, 0, "instances with other locks were let in");
    client.reserve("1", "ana")?.served()?;
    client.book("1", "ana")?.served()?;
    Ok(())
}

/// An instance that was stopped for longer than others wait went on with its own locks, beside one that
/// had been started with others since.
#[test]
fn stopped_instance_does_not_go_on_with_old_locks() -> Result<(), Failure> {
    let (_first_shop, _first, first_url) = holdfast()?;
    let (_second_shop, _second, second_url) = holdfast()?;
    let mut target = shop("native");
    let start = |target: &mut Shop, url: &str| {
        target.run(commands(target, 1, url).pop().ok_or("no command")?)
    };
    let stopped = start(&mut target, &first_url)?;
    stopped.client.reserve("2", "ana")?.served()?;
    stopped.pause()?;
    // It waits until the other one counts as dead.
    let running = start(&mut target, &second_url)?;
    running.client.reserve("1", "bo")?.served()?;
    stopped.resume()?;
    for _ in 0..20 {
        let refused = stopped.client.reserve("1", "ana")?;
        assert!(!refused.is_ok(), "{refused}");
        let refused = stopped.client.book("2", "ana")?;
        assert!(!refused.is_ok(), "{refused}");
        let refused = stopped.client.reserve("3", "ana")?;
        assert_eq!(refused.status, 503, "{refused}");
        thread::sleep(Duration::from_millis(200));
    }
    running.client.book("1", "bo")?.served()?;
    running.client.sold_exactly(&[("1", "bo")])
}

/// A lock service that came back without its data counted from the beginning, and every ticket that had
/// ever been reserved was "fenced" from then on, whatever was restarted and however often.
#[test]
fn shop_recovers_when_the_lock_service_has_lost_its_data() -> Result<(), Failure> {
    let mut shop = shop("native");
    let mut first = shop.start(&[("RESERVE_SECONDS", "1"), ("TOTAL_TICKETS", "3")])?;
    let second = shop.start(&[("RESERVE_SECONDS", "1")])?;
    for round in 0..4 {
        for ticket in ["1", "2", "3"] {
            wait_until("it can be reserved", || {
                Ok(second.client.reserve(ticket, &format!("client-{round}"))?.is_ok())
            })?;
        }
        thread::sleep(Duration::from_millis(1_100));
    }
    first.stop()?;
    let file = shop.database_url().trim_start_matches("sqlite:").to_owned();
    std::fs::remove_dir_all(format!("{file}.holdfast/node"))?;
    let mut again = shop.command();
    again.env("LOCK_URL", "").env("RESERVE_SECONDS", "600");
    let first = shop.run(again)?;
    for ticket in ["1", "2", "3"] {
        let mut answers = Vec::new();
        let reserved = wait_until("it can be reserved", || {
            answers.push(second.client.reserve(ticket, "ana")?.to_string());
            Ok(answers.last().is_some_and(|answer| answer.starts_with("200")))
        });
        assert!(reserved.is_ok(), "{:?}", answers.last());
        assert!(!answers.iter().any(|answer| answer.contains("fenced")), "{answers:?}");
    }
    wait_until("bo can reserve", || Ok(first.client.reserve("1", "bo")?.is_ok()))?;
    first.client.book("1", "bo")?.served()?;
    first.client.sold_exactly(&[("1", "bo")])
}

/// Reserves these tickets as `ana`, each until it is served, from now until the lock service was restarted
/// and some time more. Says which ones it got.
fn reserve_during(
    client: &Client,
    tickets: Range<u32>,
    after: Duration,
    restart: impl FnOnce() -> Result<Instance, Failure>,
) -> Result<(Vec<String>, Instance), Failure> {
    let give_up = AtomicBool::new(false);
    let (reserved, owner) = thread::scope(|scope| {
        let buyer = scope.spawn(|| {
            let mut reserved = Vec::new();
            for ticket in tickets.map(|ticket| ticket.to_string()) {
                while !client.reserve(&ticket, "ana").is_ok_and(|answer| answer.is_ok()) {
                    if give_up.load(Ordering::Relaxed) {
                        return reserved;
                    }
                    thread::sleep(Duration::from_millis(10));
                }
                reserved.push(ticket);
                thread::sleep(Duration::from_millis(100));
            }
            reserved
        });
        let owner = restart();
        let start = Instant::now();
        while !buyer.is_finished() && start.elapsed() < after {
            thread::sleep(Duration::from_millis(50));
        }
        give_up.store(true, Ordering::Relaxed);
        (buyer.join(), owner)
    });
    Ok((reserved.map_err(|_| "the buyer's thread died")?, owner?))
}

/// Starts the lock service of another shop again, on the same ports.
fn again(shop: &mut Shop) -> Result<Instance, Failure> {
    let mut command = shop.command();
    command.env("LOCK_URL", "");
    shop.run(command)
}

/// Until an instance noticed that its lock service had lost its data, it reserved tickets. Then these
/// reservations were ended, and their new locks kept everybody from the tickets, which were listed as
/// available.
#[test]
fn nothing_is_reserved_before_a_loss_of_data_is_noticed() -> Result<(), Failure> {
    let (mut owner_shop, mut owner, url) = holdfast()?;
    let port: u16 = url.rsplit(':').next().ok_or("no port")?.parse()?;
    let mut target = shop("distributed_lock");
    let mut command = target.command();
    command.env("LOCK_URL", format!("redis://127.0.0.1:{}", port + 1));
    command.env("TOTAL_TICKETS", "60").env("RESERVE_SECONDS", "600");
    let service = target.run(command)?;
    for round in 0..3 {
        let tickets = round * 20 + 1..round * 20 + 21;
        let file = owner_shop.database_url().trim_start_matches("sqlite:").to_owned();
        let lost = || {
            owner.kill();
            std::fs::remove_dir_all(format!("{file}.holdfast/node"))?;
            again(&mut owner_shop)
        };
        let limit = Duration::from_secs(60);
        let (reserved, restarted) = reserve_during(&service.client, tickets, limit, lost)?;
        owner = restarted;
        assert_eq!(reserved.len(), 20, "all of them can be reserved in the end");
        // By now the loss was noticed.
        thread::sleep(Duration::from_secs(3));
        let kept = |ticket: &&String| service.client.book(ticket, "ana").is_ok_and(|at| at.is_ok());
        // One may have been reserved before the loss.
        let kept = reserved.iter().filter(kept).count();
        assert!(kept >= 19, "{kept} of 20 reservations could be booked");
        for ticket in service.client.available()?.iter().filter(|ticket| reserved.contains(ticket))
        {
            service.client.reserve(ticket, "bo")?.served()?;
            service.client.book(ticket, "bo")?.served()?;
        }
    }
    assert_eq!(service.client.sales()?.len(), 60);
    Ok(())
}

/// The lock service was down for a while, and came back with its data. Sessions go on from there, so the
/// nodes of the instances' old sessions were gone after some seconds: with them the line's, and what the
/// service remembered of the instances. They took it for another service, and ended all reservations, also
/// those that they had made since.
#[test]
fn reservations_outlive_sessions_that_end_after_a_restart() -> Result<(), Failure> {
    let (mut owner_shop, mut owner, url) = holdfast()?;
    let port: u16 = url.rsplit(':').next().ok_or("no port")?.parse()?;
    let mut target = shop("ephemeral_node");
    let mut command = target.command();
    command.env("LOCK_URL", format!("zookeeper://127.0.0.1:{}", port + 2));
    command.env("TOTAL_TICKETS", "2000").env("RESERVE_SECONDS", "600");
    let service = target.run(command)?;
    for round in 0..2 {
        let tickets = round * 1000 + 1..round * 1000 + 1001;
        owner.kill();
        thread::sleep(Duration::from_secs(12));
        // Longer than the old sessions last.
        let after = Duration::from_secs(14);
        let restart = || again(&mut owner_shop);
        let (reserved, restarted) = reserve_during(&service.client, tickets, after, restart)?;
        owner = restarted;
        assert!(!reserved.is_empty());
        for ticket in &reserved {
            service.client.reserve(ticket, "bo")?.refused(&["reserved"])?;
            service.client.book(ticket, "ana")?.served()?;
        }
    }
    Ok(())
}

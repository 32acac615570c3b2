//! A shop for one scenario: an empty database, and instances of the service as processes of their own.

use super::Failure;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long anything may take that does happen in the end. Machines are slow at times.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// What the instances of a shop have in common.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The program `ticketing`.
    pub program: PathBuf,
    /// LOCK_TYPE.
    pub lock_type: String,
    /// LOCK_URL; `None` for a Holdfast embedded in the first instance.
    pub lock_url: Option<String>,
    /// A PostgreSQL server; `None` for SQLite.
    pub postgres_url: Option<String>,
}

/// A database, and a way to start instances on it. Both go away when it is dropped.
pub struct Shop {
    plan: Plan,
    folder: TempDir,
    database_url: String,
    started: u32,
}

impl Shop {
    /// An empty shop.
    pub fn open(plan: Plan) -> Result<Self, Failure> {
        let folder = tempfile::tempdir()?;
        let database_url = match &plan.postgres_url {
            None => format!("sqlite:{}", folder.path().join("ticketing.db").display()),
            Some(server) => {
                let name = format!("ticketing_test_{}", crate::random_hex());
                on_postgres(server, &format!("CREATE DATABASE {name}"))?;
                with_database(server, &name)
            }
        };
        Ok(Self { plan, folder, database_url, started: 0 })
    }

    /// DATABASE_URL of its instances.
    pub fn database_url(&self) -> &str {
        &self.database_url
    }

    /// A command with the environment of an instance, and nothing else of the caller's settings.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.plan.program);
        for name in [
            "TOTAL_TICKETS",
            "RESERVE_SECONDS",
            "PAYMENT_DELAY_MS",
            "PAYMENT_FAILURE_RATE",
            "LISTEN",
        ] {
            command.env_remove(name);
        }
        command
            .env("DATABASE_URL", &self.database_url)
            .env("DATA_DIR", self.folder.path())
            .env("LOCK_TYPE", &self.plan.lock_type)
            .env("LOCK_URL", self.plan.lock_url.as_deref().unwrap_or_default())
            .env("PORT", "0");
        command
    }

    /// Starts an instance. The first one brings its own Holdfast if the plan names no lock service;
    /// the others share it.
    pub fn start(&mut self, settings: &[(&str, &str)]) -> Result<Instance, Failure> {
        let mut command = self.command();
        command.envs(settings.iter().copied());
        let instance = self.run(command)?;
        if self.plan.lock_url.is_none() {
            self.plan.lock_url.clone_from(&instance.lock_url);
        }
        Ok(instance)
    }

    /// Starts an instance with a command of the caller's own.
    pub fn run(&mut self, mut command: Command) -> Result<Instance, Failure> {
        self.started += 1;
        let log = self.folder.path().join(format!("instance-{}.log", self.started));
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&log)?)
            .spawn()?;
        let stdout = child.stdout.take().ok_or("no standard output")?;
        let (mut url, mut lock_url, mut ready) = (None, None, false);
        for line in BufReader::new(stdout).lines() {
            let line = line?;
            if let Some(found) = line.strip_prefix("Ticketing: ") {
                url = Some(found.replace("localhost", "127.0.0.1"));
            }
            let found = line.split_whitespace().find_map(|word| word.strip_prefix("LOCK_URL="));
            lock_url = lock_url.or(found.map(str::to_owned));
            if line.starts_with("Press Ctrl-C") {
                ready = true;
                break;
            }
        }
        let mut instance =
            Instance { child, client: Client::new(&url.unwrap_or_default()), lock_url, log };
        if !ready {
            instance.child.wait()?;
            return Err(format!("the instance does not start: {}", instance.log().trim()).into());
        }
        Ok(instance)
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        if let Some(server) = &self.plan.postgres_url
            && let Some(name) = self.database_url.rsplit('/').next()
            && let Some(name) = name.split('?').next()
        {
            let _ = on_postgres(server, &format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"));
        }
    }
}

/// A running instance; it is killed when this is dropped.
pub struct Instance {
    child: Child,
    /// The way to its API.
    pub client: Client,
    /// What a further instance needs to share its locks.
    pub lock_url: Option<String>,
    log: PathBuf,
}

impl Instance {
    /// Ends it at once, as a crash would.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Stops it in order.
    pub fn stop(&mut self) -> Result<(), Failure> {
        self.signal(Signal::SIGTERM)?;
        self.child.wait()?;
        Ok(())
    }

    /// Stops it in the middle of whatever it does, until it is told to go on.
    pub fn pause(&self) -> Result<(), Failure> {
        self.signal(Signal::SIGSTOP)
    }

    /// Lets it go on.
    pub fn resume(&self) -> Result<(), Failure> {
        self.signal(Signal::SIGCONT)
    }

    /// What it wrote to standard error.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn signal(&self, signal: Signal) -> Result<(), Failure> {
        Ok(kill(Pid::from_raw(i32::try_from(self.child.id())?), signal)?)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.kill();
    }
}

/// An answer of the API.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The body; null if it is not JSON.
    pub body: Value,
}

impl Answer {
    /// Whether the request was served.
    pub fn is_ok(&self) -> bool {
        self.status == 200
    }

    /// The reason of a refusal; empty if there is none.
    pub fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }

    /// Fails unless the request was served.
    pub fn served(self) -> Result<Self, Failure> {
        if self.is_ok() { Ok(self) } else { Err(self.to_string().into()) }
    }

    /// Fails unless the request was refused for one of these reasons.
    pub fn refused(self, codes: &[&str]) -> Result<Self, Failure> {
        if self.status == 400 && codes.contains(&self.code()) {
            return Ok(self);
        }
        Err(format!("expected a 400 with {}, got {self}", codes.join(" or ")).into())
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.status, self.body)
    }
}

/// The way to an instance's API.
#[derive(Debug, Clone)]
pub struct Client {
    url: String,
    agent: ureq::Agent,
}

impl Client {
    /// A client of the service at this URL.
    pub fn new(url: &str) -> Self {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(TIMEOUT))
            .build();
        Self { url: url.trim_end_matches('/').to_owned(), agent: config.into() }
    }

    /// Where the service is.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// POST /reserve_ticket
    pub fn reserve(&self, ticket: &str, client: &str) -> Result<Answer, Failure> {
        self.post("reserve_ticket", ticket, client)
    }

    /// POST /book_ticket
    pub fn book(&self, ticket: &str, client: &str) -> Result<Answer, Failure> {
        self.post("book_ticket", ticket, client)
    }

    fn post(&self, path: &str, ticket: &str, client: &str) -> Result<Answer, Failure> {
        self.send(
            path,
            "application/json",
            &json!({"ticket_id": ticket, "client_id": client}).to_string(),
        )
    }

    /// POST of any body.
    pub fn send(&self, path: &str, kind: &str, body: &str) -> Result<Answer, Failure> {
        let request = self.agent.post(format!("{}/{path}", self.url)).content_type(kind);
        let mut response = request.send(body)?;
        let text = response.body_mut().read_to_string()?;
        let body = serde_json::from_str(&text).unwrap_or_default();
        Ok(Answer { status: response.status().as_u16(), body })
    }

    /// GET of any path.
    pub fn get(&self, path: &str) -> Result<Answer, Failure> {
        let mut response = self.agent.get(format!("{}/{path}", self.url)).call()?;
        let text = response.body_mut().read_to_string()?;
        let body = serde_json::from_str(&text).unwrap_or_default();
        Ok(Answer { status: response.status().as_u16(), body })
    }

    /// The ids of the tickets that can be reserved.
    pub fn available(&self) -> Result<Vec<String>, Failure> {
        let answer = self.get("available_tickets")?.served()?;
        let ids =
            answer.body["available_tickets"].as_array().ok_or("available_tickets is missing")?;
        let id = |id: &Value| id.as_str().map(str::to_owned).ok_or("an id is not a string");
        Ok(ids.iter().map(id).collect::<Result<_, _>>()?)
    }

    /// Who bought what: pairs of ticket and client.
    pub fn sales(&self) -> Result<Vec<(String, String)>, Failure> {
        let answer = self.get("sales")?.served()?;
        let sales = answer.body["sales"].as_array().ok_or("sales are missing")?;
        let field = |sale: &Value, name: &str| sale[name].as_str().unwrap_or_default().to_owned();
        Ok(sales.iter().map(|sale| (field(sale, "ticket_id"), field(sale, "client_id"))).collect())
    }

    /// How many payments are authorised, captured and voided.
    pub fn payments(&self) -> Result<[u64; 3], Failure> {
        let answer = self.get("sales")?.served()?;
        let count = |state: &str| answer.body["payments"][state].as_u64().unwrap_or_default();
        Ok(["authorised", "captured", "voided"].map(count))
    }

    /// Fails unless exactly these sales were made, each of them paid, and nothing else.
    pub fn sold_exactly(&self, expected: &[(&str, &str)]) -> Result<(), Failure> {
        let mut sales = self.sales()?;
        sales.sort();
        let mut expected: Vec<(String, String)> =
            expected.iter().map(|(ticket, client)| ((*ticket).into(), (*client).into())).collect();
        expected.sort();
        if sales != expected {
            return Err(format!("sold {sales:?}, expected {expected:?}").into());
        }
        wait_until("all payments are captured or voided", || Ok(self.payments()?[0] == 0))?;
        let captured = self.payments()?[1];
        if captured != expected.len() as u64 {
            return Err(format!("{captured} payments for {} tickets", expected.len()).into());
        }
        Ok(())
    }
}

/// Waits for something that happens in the end.
pub fn wait_until(
    what: &str,
    mut happened: impl FnMut() -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let give_up = Instant::now() + TIMEOUT;
    while !happened()? {
        if Instant::now() > give_up {
            return Err(format!("waited {}s in vain until {what}", TIMEOUT.as_secs()).into());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

fn on_postgres(url: &str, statement: &str) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
        let connection = tokio::spawn(connection);
        client.batch_execute(statement).await?;
        drop(client);
        let _ = connection.await;
        Ok(())
    })
}

/// The same server, another database.
fn with_database(url: &str, name: &str) -> String {
    let (before, options) =
        url.split_once('?').map_or((url, None), |(url, options)| (url, Some(options)));
    let authority_at = before.find("://").map_or(0, |at| at + 3);
    let end = before[authority_at..].find('/').map_or(before.len(), |at| authority_at + at);
    let options = options.map_or_else(String::new, |options| format!("?{options}"));
    format!("{}/{name}{options}", &before[..end])
}

#[cfg(test)]
mod tests {
    use super::with_database;

    #[test]
    fn own_database_is_on_the_same_server() {
        assert_eq!(with_database("postgres://a@h:1/x?k=v", "y"), "postgres://a@h:1/y?k=v");
        assert_eq!(with_database("postgres://h", "y"), "postgres://h/y");
    }
}

//! Calls that need no session: any server takes them, and they may be repeated.

use crate::error::{self, Error};
use crate::link::Setup;
use holdfast_proto::Message;
use holdfast_proto::v1::holdfast_client::HoldfastClient;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};

/// How long one server may take before the next one is asked.
const ATTEMPT: Duration = Duration::from_secs(3);

/// How long until all servers are asked again.
const ROUND_PAUSE: Duration = Duration::from_millis(50);

/// One server, to be asked.
pub(crate) type Server = HoldfastClient<Channel>;

/// The servers, each connected when it is first needed.
#[derive(Debug)]
pub(crate) struct Calls {
    servers: Vec<Channel>,
    password: Option<MetadataValue<Ascii>>,
    patience: Duration,
    /// Which one answered last.
    best: AtomicUsize,
}

impl Calls {
    pub(crate) fn new(setup: &Setup) -> Self {
        Self {
            servers: setup.servers.iter().map(Endpoint::connect_lazy).collect(),
            password: setup.password.clone(),
            patience: setup.patience,
            best: AtomicUsize::new(0),
        }
    }

    /// Asks one server after the other until one answers.
    pub(crate) async fn call<M: Message + Clone, R>(
        &self,
        message: M,
        call: impl AsyncFn(Server, Request<M>) -> Result<Response<R>, Status>,
    ) -> Result<R, Error> {
        error::check_size(message.encoded_len())?;
        let until = Instant::now() + self.patience;
        loop {
            let mut trouble = String::new();
            for _ in 0..self.servers.len() {
                let best = self.best.load(Ordering::Relaxed);
                let Some(server) = self.servers.get(best % self.servers.len()) else { break };
                let mut request = Request::new(message.clone());
                if let Some(password) = &self.password {
                    request.metadata_mut().insert("authorization", password.clone());
                }
                let server = HoldfastClient::new(server.clone());
                let attempt = (Instant::now() + ATTEMPT).min(until);
                match timeout_at(attempt, call(server, request)).await {
                    Ok(Ok(response)) => return Ok(response.into_inner()),
                    Ok(Err(status)) if !error::may_work_elsewhere(&status) => {
                        return Err(error::refused(&status));
                    }
                    Ok(Err(status)) => trouble = status.message().to_owned(),
                    Err(_) => trouble = "the server does not answer".to_owned(),
                }
                self.best.store(best.wrapping_add(1), Ordering::Relaxed);
                if Instant::now() >= until {
                    return Err(Error::Unreachable(trouble));
                }
            }
            if Instant::now() + ROUND_PAUSE >= until {
                return Err(Error::Unreachable(trouble));
            }
            sleep(ROUND_PAUSE).await;
        }
    }
}

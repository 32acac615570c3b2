//! Calls that need no session: any server can answer them, and they can be repeated.

use crate::driver::Setup;
use crate::error::{self, Error};
use crate::status::failure;
use crate::timer::{sleep, timeout_at};
use holdfast_proto::Message;
use holdfast_proto::v1::holdfast_client::HoldfastClient;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;
use tokio::time::Instant;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};

/// How long one server may take to answer.
const ATTEMPT: Duration = Duration::from_secs(3);

/// How long one server may take before the next one is asked as well.
const HEAD_START: Duration = Duration::from_millis(500);

const NO_ANSWER: &str = "the server does not answer";

/// How long to wait before all servers are asked again.
const ROUND_PAUSE: Duration = Duration::from_millis(50);

pub(crate) type Server = HoldfastClient<Channel>;

/// The servers. A connection is opened when it is first needed.
#[derive(Debug)]
pub(crate) struct Calls {
    servers: Vec<Channel>,
    authorization: Option<MetadataValue<Ascii>>,
    timeout: Duration,
    /// The server that answered last.
    best: AtomicUsize,
}

impl Calls {
    pub(crate) fn new(setup: &Setup) -> Self {
        Self {
            servers: setup.servers.iter().map(Endpoint::connect_lazy).collect(),
            authorization: setup.authorization.clone(),
            timeout: setup.timeout,
            best: AtomicUsize::new(0),
        }
    }

    /// Asks the servers until one answers, starting with the one that answered last. If a server
    /// has not answered after a head start, the next one is asked as well.
    pub(crate) async fn call<M: Message + Clone, R>(
        &self,
        message: M,
        call: impl AsyncFn(Server, Request<M>) -> Result<Response<R>, Status>,
    ) -> Result<R, Error> {
        error::check_size(message.encoded_len())?;
        let until = Instant::now() + self.timeout;
        let attempt = async |place: usize| {
            let place = place % self.servers.len();
            let server = self.servers.get(place).cloned();
            let server = server.ok_or_else(|| Status::unavailable("no server was named"));
            let attempt_ends = (Instant::now() + ATTEMPT).min(until);
            let answer = timeout_at(attempt_ends, async {
                call(HoldfastClient::new(server?), self.request(message.clone())).await
            });
            let answer = answer.await;
            (place, answer.unwrap_or_else(|_| Err(Status::unavailable(NO_ANSWER))))
        };
        loop {
            let (mut trouble, mut running) = (String::new(), Vec::new());
            let (first, mut asked, mut ask_next_at) =
                (self.best.load(Ordering::Relaxed), 0, Instant::now());
            while asked < self.servers.len() || !running.is_empty() {
                let more = asked < self.servers.len();
                if more && (running.is_empty() || Instant::now() >= ask_next_at) {
                    running.push(Box::pin(attempt(first.wrapping_add(asked))));
                    asked += 1;
                    ask_next_at = Instant::now() + HEAD_START;
                }
                let more = asked < self.servers.len();
                let look_again_at = if more { ask_next_at } else { until + ATTEMPT };
                let Ok((place, answer)) = timeout_at(look_again_at, first_of(&mut running)).await
                else {
                    continue;
                };
                match answer {
                    Ok(response) => {
                        self.best.store(place, Ordering::Relaxed);
                        return Ok(response.into_inner());
                    }
                    Err(status) => {
                        let failure = failure(&status);
                        if !failure.may_work_elsewhere() {
                            return Err(failure.refused());
                        }
                        trouble = failure.message;
                    }
                }
                ask_next_at = Instant::now();
            }
            if Instant::now() + ROUND_PAUSE >= until {
                return Err(Error::Unreachable(trouble));
            }
            sleep(ROUND_PAUSE).await;
        }
    }

    fn request<M>(&self, message: M) -> Request<M> {
        let mut request = Request::new(message);
        if let Some(authorization) = &self.authorization {
            request.metadata_mut().insert("authorization", authorization.clone());
        }
        request
    }
}

/// The output of the first future that is done, which is removed.
async fn first_of<F: Future + Unpin>(running: &mut Vec<F>) -> F::Output {
    std::future::poll_fn(|context| {
        let polled = running.iter_mut().map(|future| Pin::new(future).poll(context));
        let done = polled.enumerate().find(|(_, polled)| polled.is_ready());
        let Some((place, output)) = done else { return Poll::Pending };
        drop(running.swap_remove(place));
        output
    })
    .await
}

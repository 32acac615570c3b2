//! Calls that need no session: any server takes them.

use crate::error::Error;
use holdfast_proto::v1::holdfast_client::HoldfastClient;
use std::time::Duration;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status};

/// How long one server may take before the next one is asked.
const PATIENCE: Duration = Duration::from_secs(12);

/// One server, to be asked.
pub(crate) type Server = HoldfastClient<Channel>;

/// The servers, each connected when it is first needed.
#[derive(Debug, Clone)]
pub(crate) struct Calls {
    servers: Vec<Channel>,
    password: Option<MetadataValue<Ascii>>,
}

impl Calls {
    pub(crate) fn new(servers: &[Endpoint], password: Option<MetadataValue<Ascii>>) -> Self {
        Self { servers: servers.iter().map(Endpoint::connect_lazy).collect(), password }
    }

    /// Asks one server after the other until one answers.
    pub(crate) async fn call<M: Clone, R>(
        &self,
        message: M,
        call: impl AsyncFn(Server, Request<M>) -> Result<Response<R>, Status>,
    ) -> Result<R, Error> {
        let mut why = Error::Unreachable("no server was named".to_owned());
        for server in &self.servers {
            let mut request = Request::new(message.clone());
            request.set_timeout(PATIENCE);
            if let Some(password) = &self.password {
                request.metadata_mut().insert("authorization", password.clone());
            }
            match call(HoldfastClient::new(server.clone()), request).await {
                Ok(response) => return Ok(response.into_inner()),
                Err(status) => match status.code() {
                    Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => {
                        why = Error::Unreachable(status.message().to_owned());
                    }
                    _ => return Err(refused(&status)),
                },
            }
        }
        Err(why)
    }
}

/// The server writes `code: message (hint)`.
fn refused(status: &Status) -> Error {
    let (code, message) = status.message().split_once(": ").unwrap_or(("", status.message()));
    Error::Refused {
        code: code.to_owned(),
        message: message.to_owned(),
        hint: String::new(),
        highest: 0,
    }
}

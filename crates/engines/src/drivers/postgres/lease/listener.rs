//! The connection that receives notifications of releases.

use crate::drivers::local_queue::LocalQueues;
use crate::drivers::postgres::server::Server;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tokio_postgres::AsyncMessage;

const RETRY_PAUSE: Duration = Duration::from_millis(100);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(5);

/// How often the connection is probed: it can be cut without a sign, and then waiters would sleep
/// next to a free lock.
const PROBE_EVERY: Duration = Duration::from_secs(5);

/// How long a probe may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Stops when it is dropped, with the driver.
pub(super) struct Listener(AbortHandle);

impl Listener {
    pub(super) fn start(server: Server, channel: String, lines: Arc<LocalQueues>) -> Self {
        let listening = async move {
            let mut pause = RETRY_PAUSE;
            loop {
                if listen(&server, &channel, &lines).await {
                    pause = RETRY_PAUSE;
                }
                // In the meantime waiters rely on their holder's deadline.
                sleep(pause).await;
                pause = (pause * 2).min(RETRY_PAUSE_MAX);
            }
        };
        Self(tokio::spawn(listening).abort_handle())
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Listens until the connection is lost. Returns false if it could not even start.
async fn listen(server: &Server, channel: &str, lines: &LocalQueues) -> bool {
    let Ok((client, mut connection)) = server.open("holdfast-locks listener").await else {
        return false;
    };
    let mut started = false;
    let messages = async {
        while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notification(released) = message {
                lines.wake(released.payload());
            }
        }
    };
    let subscribe = async {
        let listen = format!("LISTEN \"{channel}\"");
        if let Ok(Ok(())) = timeout(server.timeout, client.batch_execute(&listen)).await {
            started = true;
            lines.wake_all();
            let answers = async || {
                matches!(timeout(PROBE_TIMEOUT, client.batch_execute("")).await, Ok(Ok(())))
            };
            while answers().await {
                sleep(PROBE_EVERY).await;
            }
        }
    };
    tokio::select! {
        () = messages => {}
        () = subscribe => {}
    }
    started
}

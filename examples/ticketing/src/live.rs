//! The state of all seats as the page shows it, read again and again while anybody looks.

use crate::box_office::{BoxOffice, NotServed};
use crate::domain::{State, Ticket};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

/// How long a change that another instance made may stay unseen.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Looks are at least so far apart, however much happens.
const PAUSE: Duration = Duration::from_millis(50);

/// How many sales the page shows.
const SALES_MAX: i64 = 30;

pub(crate) struct Live {
    office: Arc<BoxOffice>,
    states: watch::Sender<Option<Arc<str>>>,
    changed: Notify,
}

impl Live {
    pub(crate) fn start(office: Arc<BoxOffice>) -> Arc<Self> {
        let live =
            Arc::new(Self { office, states: watch::Sender::new(None), changed: Notify::new() });
        tokio::spawn(live.clone().keep_looking());
        live
    }

    /// Something has changed.
    pub(crate) fn look_now(&self) {
        self.changed.notify_one();
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<Arc<str>>> {
        let states = self.states.subscribe();
        self.look_now();
        states
    }

    async fn keep_looking(self: Arc<Self>) {
        let mut before = Value::Null;
        loop {
            let _ = timeout(LOOK_EVERY, self.changed.notified()).await;
            if self.states.is_closed() {
                continue;
            }
            let mut state = match self.look().await {
                Ok(state) => state,
                Err(error) => json!({ "error": error.to_string() }),
            };
            // A state that differs only in its time is no news.
            let now_ms = state["now_ms"].take();
            if state != before {
                before = state.clone();
                state["now_ms"] = now_ms;
                self.states.send_replace(Some(state.to_string().into()));
            }
            sleep(PAUSE).await;
        }
    }

    /// The state of all seats.
    pub(crate) async fn look(&self) -> Result<Value, NotServed> {
        let BoxOffice { store, seats, lock_type, instance, reserve_seconds, .. } = &*self.office;
        let all = store.tickets().await?;
        let sales = store.sales(SALES_MAX).await?;
        let tickets: Vec<Value> =
            all.tickets.iter().map(|ticket| show(ticket, all.now_ms)).collect();
        let trouble = self.office.trouble();
        let engine = seats.as_ref().map(|seats| {
            let promises = seats.promises();
            json!({
                "name": promises.engine,
                "recipe": promises.recipe,
                "token": promises.token.holds,
                "after_crash": promises.after_crash,
            })
        });
        Ok(json!({
            "instance": instance,
            "lock_type": lock_type.to_string(),
            "engine": engine,
            "reserve_seconds": reserve_seconds,
            "now_ms": all.now_ms,
            "trouble": trouble,
            "tickets": tickets,
            "sales": sales,
        }))
    }

    /// The lock under a seat: null if nobody holds it.
    pub(crate) async fn lock_of(&self, ticket: &Ticket) -> Value {
        let Some(seats) = &self.office.seats else { return Value::Null };
        match seats.inspect(ticket).await {
            Ok(lock) => json!(lock),
            Err(error) => json!({ "error": error.to_string() }),
        }
    }
}

fn show(ticket: &Ticket, now_ms: i64) -> Value {
    let mut shown = json!({
        "id": ticket.id.to_string(),
        "state": "available",
        "number": ticket.number,
        "last_ending": ticket.last_ending,
    });
    match &ticket.state {
        State::Available => {}
        State::Booked { client } => {
            shown["state"] = "booked".into();
            shown["client"] = client.as_str().into();
        }
        State::Reserved(reservation) => {
            if !reservation.is_over(now_ms) {
                shown["state"] = "reserved".into();
                shown["client"] = reservation.client.as_str().into();
            }
            shown["until_ms"] = reservation.until_ms.into();
            shown["token"] = reservation.token.into();
            shown["instance"] = reservation.instance.as_str().into();
        }
    }
    shown
}

//! The same bad request gets the same code and message over HTTP and over gRPC.
//!
//! The doors used to disagree: gRPC accepted token 0, ignored `permits` next to another mode, and
//! silently reduced page limits.

use crate::support::Node;
use holdfast_proto::v1::holdfast_client::HoldfastClient;
use holdfast_proto::v1::{self as proto, Mode};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tonic::Status;
use tonic::transport::Channel;

const SECRET: &str = "000102030405060708090a0b0c0d0e0f";
const DAY_MS: u64 = 24 * 60 * 60 * 1000;
const YEAR_MS: u64 = 365 * DAY_MS;

/// Both doors of one node.
struct Doors {
    node: Node,
    runtime: Runtime,
    grpc: HoldfastClient<Channel>,
}

impl Doors {
    fn open() -> Self {
        let node = Node::start();
        let runtime = Runtime::new().unwrap();
        let address = format!("http://127.0.0.1:{}", node.port);
        let channel = Channel::from_shared(address).unwrap();
        let channel = runtime.block_on(channel.connect()).unwrap();
        Self { node, runtime, grpc: HoldfastClient::new(channel) }
    }

    /// Sends the same request through both doors, and compares the refusals.
    fn refuse_alike<T: std::fmt::Debug>(
        &self,
        (path, body): (&str, Value),
        call: impl AsyncFnOnce(HoldfastClient<Channel>) -> Result<T, Status>,
        code: &str,
    ) {
        let http =
            if path.contains('?') { self.node.get(path) } else { self.node.post(path, &body) };
        assert_eq!(http.code(), code, "HTTP {path} {body}: {}", http.text);
        let refused = self.runtime.block_on(call(self.grpc.clone()));
        let status = refused.expect_err("gRPC refuses it too");
        let text = |field: &str| http.body[field].as_str().unwrap_or_default().to_owned();
        let expected = format!("{code}: {} ({})", text("message"), text("hint"));
        assert_eq!(status.message(), expected, "{path} {body}");
    }

    fn acquire(&self, http: Value, grpc: proto::AcquireAlone, code: &str) {
        let ask = async |mut door: HoldfastClient<Channel>| door.acquire(grpc).await;
        self.refuse_alike(("/v1/grab_lock", http), ask, code);
    }
}

fn acquire(change: impl FnOnce(&mut proto::Acquire)) -> proto::AcquireAlone {
    let mut acquire = proto::Acquire {
        names: vec!["seat".into()],
        ttl_ms: Some(5_000),
        ..proto::Acquire::default()
    };
    change(&mut acquire);
    proto::AcquireAlone { acquire: Some(acquire), request_id: None }
}

fn grab(field: &str, value: Value) -> Value {
    let mut body = json!({ "names": ["seat"], "ttl_ms": 5_000 });
    body[field] = value;
    body
}

#[test]
fn bad_acquires_are_refused_alike() {
    let doors = Doors::open();
    let bad = "bad_request";
    let long_name = "n".repeat(513);
    let long_text = "t".repeat(5_000);
    doors.acquire(grab("names", json!([""])), acquire(|a| a.names = vec!["".into()]), bad);
    doors.acquire(grab("names", json!([])), acquire(|a| a.names = Vec::new()), bad);
    let long = acquire(|a| a.names = vec![long_name.clone().into()]);
    doors.acquire(grab("names", json!([long_name])), long, bad);
    doors.acquire(grab("ttl_ms", Value::Null), acquire(|a| a.ttl_ms = None), bad);
    for ttl_ms in [0, YEAR_MS + 1] {
        doors.acquire(grab("ttl_ms", json!(ttl_ms)), acquire(|a| a.ttl_ms = Some(ttl_ms)), bad);
    }
    let wait_ms = DAY_MS + 1;
    doors.acquire(grab("wait_ms", json!(wait_ms)), acquire(|a| a.wait_ms = Some(wait_ms)), bad);
    let label = acquire(|a| a.label = Some(long_text.clone().into()));
    doors.acquire(grab("label", json!(long_text)), label, bad);
    let note = acquire(|a| a.note = Some(long_text.clone().into()));
    doors.acquire(grab("note", json!(long_text)), note, bad);
    doors.acquire(grab("mode", json!("permit")), acquire(|a| a.mode = Mode::Permit.into()), bad);
    let mut shared = grab("mode", json!("shared"));
    shared["permits"] = json!(3);
    let shared_permits = acquire(|a| (a.mode, a.permits) = (Mode::Shared.into(), 3));
    doors.acquire(shared, shared_permits, bad);
    doors.acquire(grab("holding", json!([0])), acquire(|a| a.claims = vec![0]), bad);
    doors.acquire(grab("holding", json!([77])), acquire(|a| a.claims = vec![77]), "not_held");
    let short = || "short".to_owned();
    let mut with_id = acquire(|_| {});
    with_id.request_id = Some(short().into());
    doors.acquire(grab("request_id", json!(short())), with_id, bad);
}

#[test]
fn bad_tickets_are_refused_alike() {
    let doors = Doors::open();
    let own = |name: &str, token: u64, secret: &[u8]| proto::TicketRef {
        name: name.to_owned().into(),
        token,
        secret: secret.to_vec().into(),
    };
    let body = |name: &str, token: u64, secret: &str| json!({ "name": name, "fencing_token": token, "secret": secret });
    let secret: Vec<u8> = (0..16).collect();
    for (name, token, short, code) in [
        ("seat", 0, false, "bad_request"),
        ("", 1, false, "bad_request"),
        ("seat", 1, true, "bad_request"),
        ("seat", 1, false, "not_held"),
    ] {
        let text = if short { "00" } else { SECRET };
        let sent = own(name, token, if short { &[0] } else { &secret });
        let release = sent.clone();
        let ask = async |mut door: HoldfastClient<Channel>| door.release(release).await;
        doors.refuse_alike(("/v1/release_lock", body(name, token, text)), ask, code);
        let cancel = sent.clone();
        let ask = async |mut door: HoldfastClient<Channel>| door.cancel(cancel).await;
        doors.refuse_alike(("/v1/cancel", body(name, token, text)), ask, code);
        let ask = async |mut door: HoldfastClient<Channel>| door.recovered(sent).await;
        doors.refuse_alike(("/v1/recovered", body(name, token, text)), ask, code);
    }
    let mut renew = body("seat", 1, SECRET);
    renew["ttl_ms"] = json!(0);
    let request = proto::RenewRequest { own: Some(own("seat", 1, &secret)), ttl_ms: Some(0) };
    let ask = async |mut door: HoldfastClient<Channel>| door.renew(request).await;
    doors.refuse_alike(("/v1/renew", renew), ask, "bad_request");
}

#[test]
fn bad_registers_operators_and_pages_are_refused_alike() {
    let doors = Doors::open();
    for (token, mode, code) in [
        (0, "exclusive", "bad_request"),
        (9, "permit", "bad_request"),
        (9, "shared", "never_drawn"),
    ] {
        let kind = match mode {
            "permit" => Mode::Permit,
            "shared" => Mode::Shared,
            _ => Mode::Exclusive,
        };
        let body = json!({ "key": "k", "value": "v", "fencing_token": token, "mode": mode });
        let (key, value) = ("k".into(), "v".into());
        let put = proto::PutRequest { key, value, token, mode: kind.into() };
        let ask = async |mut door: HoldfastClient<Channel>| door.put(put).await;
        doors.refuse_alike(("/v1/do_external_operation", body), ask, code);
    }
    let revoke = json!({ "name": "seat", "by": "ops", "reason": "r", "within_ms": YEAR_MS + 1 });
    let request = proto::RevokeRequest {
        name: "seat".into(),
        by: "ops".into(),
        reason: "r".into(),
        within_ms: YEAR_MS + 1,
        ..proto::RevokeRequest::default()
    };
    let ask = async |mut door: HoldfastClient<Channel>| door.revoke(request).await;
    doors.refuse_alike(("/v1/revoke", revoke), ask, "bad_request");
    let force = json!({ "name": "seat", "fencing_token": 0, "by": "ops", "reason": "r" });
    let request = proto::ForceRequest {
        name: "seat".into(),
        token: Some(0),
        by: "ops".into(),
        reason: "r".into(),
    };
    let ask = async |mut door: HoldfastClient<Channel>| door.force(request).await;
    doors.refuse_alike(("/v1/force", force), ask, "bad_request");
    let list = proto::ListRequest { limit: 1_001, ..proto::ListRequest::default() };
    let ask = async |mut door: HoldfastClient<Channel>| door.list(list).await;
    doors.refuse_alike(("/v1/locks?limit=1001", Value::Null), ask, "bad_request");
    let long = "p".repeat(513);
    let list = proto::ListRequest { prefix: long.clone().into(), ..proto::ListRequest::default() };
    let ask = async |mut door: HoldfastClient<Channel>| door.list(list).await;
    doors.refuse_alike((&format!("/v1/locks?prefix={long}"), Value::Null), ask, "bad_request");
}

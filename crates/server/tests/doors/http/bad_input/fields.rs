//! What can be wrong with a field.

use serde_json::{Value, json};

const YEAR_MS: u64 = 365 * 24 * 60 * 60 * 1000;
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// The type of a field in a body or query, which determines the wrong values to try.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Name,
    Names,
    Token,
    Tokens,
    Secret,
    Ttl,
    Wait,
    Delay,
    SessionTtl,
    Mode,
    Permits,
    /// At most this long.
    Text(usize),
    RequestId,
    Session,
    Flag,
    Address,
    Node,
    /// From here on in a query.
    Stale,
    Limit,
    Prefix,
    Id,
    /// The name of a user or a role.
    Account,
    Accounts,
    Rules,
    /// A number to begin before, in a query.
    Before,
}

impl Kind {
    pub(super) fn wrong(self) -> Vec<Value> {
        let long = |bytes: usize| json!("é".repeat(bytes / 2 + 1));
        match self {
            Self::Name => {
                vec![json!(""), json!("a".repeat(513)), long(512), json!(7), json!(["a"])]
            }
            Self::Names => {
                vec![json!([""]), json!(["a".repeat(513)]), json!([7]), json!("a"), json!([null])]
            }
            Self::Token => vec![
                json!(0),
                json!(-1),
                json!(1.5),
                json!(1e30),
                json!("x"),
                json!(""),
                json!("-1"),
                json!("99999999999999999999"),
                json!(true),
                json!([1]),
            ],
            Self::Tokens => vec![json!([0]), json!([-1]), json!(["x"]), json!(7)],
            Self::Secret => vec![
                json!(""),
                json!("00"),
                json!("0".repeat(31)),
                json!("0".repeat(33)),
                json!("g".repeat(32)),
                json!("é".repeat(16)),
                json!(7),
            ],
            Self::Ttl => vec![
                json!(0),
                json!(YEAR_MS + 1),
                json!(-1),
                json!(1.5),
                json!("15000"),
                json!(null),
                json!(1e30),
            ],
            Self::Wait => vec![json!(DAY_MS + 1), json!(-1), json!(0.5), json!("50")],
            Self::Delay => vec![json!(-1), json!(0.5), json!("50"), json!([])],
            Self::SessionTtl => vec![json!(-1), json!(1.5), json!("5000"), json!(null)],
            Self::Mode => vec![json!("x"), json!(""), json!("Exclusive"), json!(7)],
            Self::Permits => vec![json!(-1), json!(1.5), json!("3"), json!(1_u64 << 32)],
            Self::Text(max) => vec![json!("a".repeat(max + 1)), long(max), json!(7), json!(["a"])],
            Self::RequestId => vec![json!("short"), json!("a".repeat(129)), json!(7)],
            Self::Session => vec![
                json!(7),
                json!({}),
                json!({ "id": 1 }),
                json!({ "id": 0, "secret": "0".repeat(32) }),
                json!({ "id": 1, "secret": "00" }),
                json!({ "id": 1, "secret": "0".repeat(32), "more": 1 }),
            ],
            Self::Flag => vec![json!("true"), json!(1), json!([])],
            Self::Address => vec![
                json!(""),
                json!("nowhere"),
                json!(":7410"),
                json!("a:0"),
                json!("a:65536"),
                json!("a b:1"),
                json!(7),
            ],
            Self::Node => vec![json!(-1), json!(1.5), json!("x"), json!(null), json!([])],
            Self::Stale => vec![json!("1"), json!("yes"), json!("")],
            Self::Limit => vec![json!("0"), json!("1001"), json!("-1"), json!("x"), json!("1.5")],
            Self::Prefix => vec![json!("a".repeat(513))],
            Self::Id => vec![json!("0"), json!("-1"), json!("x"), json!("")],
            Self::Account => vec![
                json!(""),
                json!("a b"),
                json!("-a"),
                json!("a:b"),
                json!("a".repeat(65)),
                json!("ñ"),
                json!(7),
                json!(null),
            ],
            Self::Accounts => vec![json!("a"), json!([""]), json!(["a b"]), json!([7])],
            Self::Rules => vec![
                json!("use:"),
                json!([{}]),
                json!([{ "rights": [] }]),
                json!([{ "rights": ["fly"] }]),
                json!([{ "rights": ["use", "use", "use", "use", "use"] }]),
                json!([{ "rights": ["admin"], "prefix": "a" }]),
                json!([{ "rights": ["use"], "prefix": "a".repeat(513) }]),
                json!([{ "rights": ["use"], "more": 1 }]),
                json!(vec![json!({ "rights": ["use"] }); 65]),
            ],
            Self::Before => vec![json!("-1"), json!("x"), json!(""), json!("1.5")],
        }
    }
}

//! How often each move is made.
//!
//! Most make sense, a few are junk: the weights are chosen so that every refusal occurs, yet lines
//! grow long enough to matter.

use super::{
    AcquireMove, Changed, ClaimPick, Elapsed, FencePick, FromPick, KeyPick, ModePick, Move,
    NodeMove, NodePick, OwnerMove, Pick, ProofPick, ReadMove, RequestFault, RequestPick,
    TicketPick, TransactMove, TreeMove, Verb, When, WriteMove, WritePick,
};
use holdfast_core::{Door, Expiry, Lease, NodeKind, Wait};
use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;

pub(crate) fn moves(len: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Move>> {
    vec(a_move(), len)
}

fn a_move() -> impl Strategy<Value = Move> {
    (verb(), request(), from()).prop_map(|(verb, request, from)| Move { verb, request, from })
}

fn pick() -> impl Strategy<Value = Pick> {
    any::<u8>().prop_map(Pick)
}

fn verb() -> impl Strategy<Value = Verb> {
    prop_oneof![
        16 => (elapsed(), prop::bool::weighted(0.1))
            .prop_map(|(elapsed, next_term)| Verb::Tick { elapsed, next_term }),
        34 => acquire().prop_map(Verb::Acquire),
        23 => (own(), ticket(), proof())
            .prop_map(|(what, ticket, proof)| Verb::OwnerMove { what, ticket, proof }),
        6 => (ticket(), proof(), wait(), claims())
            .prop_map(|(ticket, proof, wait, claims)| Verb::Upgrade { ticket, proof, wait, claims }),
        7 => (pick(), prop::bool::weighted(0.1), changed())
            .prop_map(|(request, forget, changed)| Verb::Again { request, forget, changed }),
        3 => (pick(), prop::bool::weighted(0.3))
            .prop_map(|(request, unseen)| Verb::Outcome { request, unseen }),
        3 => (ticket(), prop_oneof![30 => 0..60_u64, 1 => Just(u64::MAX)], any::<bool>())
            .prop_map(|(ticket, within_ms, force)| Verb::Revoke { ticket, within_ms, force }),
        2 => ticket().prop_map(|ticket| Verb::Force { ticket }),
        22 => transact().prop_map(Verb::Transact),
        30 => tree().prop_map(Verb::Tree),
        4 => (pick(), weighted(0.7, any::<u8>()), fence(), mode())
            .prop_map(|(key, value, token, mode)| Verb::Fence { key, value, token, mode }),
        4 => (node(), weighted(0.5, 0..3_u8), session_ttl())
            .prop_map(|((node, again), label, ttl_ms)| Verb::Open { node, again, label, ttl_ms }),
        2 => (pick(), prop::bool::weighted(0.85))
            .prop_map(|(session, right)| Verb::Close { session, right }),
        2 => (pick(), prop::bool::weighted(0.7))
            .prop_map(|(session, right_term)| Verb::Expire { session, right_term }),
    ]
}

fn tree() -> impl Strategy<Value = TreeMove> {
    let right = (prop::bool::weighted(0.97), prop::bool::weighted(0.95));
    let ops = prop_oneof![
        24 => vec(node_op(), 1),
        8 => vec(node_op(), 2..4),
        2 => Just(Vec::new()),
    ];
    (pick(), right, ops).prop_map(|(session, (right, newest), ops)| TreeMove {
        session,
        right,
        newest,
        ops,
    })
}

fn node_op() -> impl Strategy<Value = NodeMove> {
    let kind = prop_oneof![
        6 => Just(NodeKind::Persistent),
        3 => Just(NodeKind::Ephemeral),
        1 => Just(NodeKind::Container),
        1 => (0..40_u64).prop_map(|ms| NodeKind::Ttl { ms }),
    ];
    let what = prop_oneof![
        10 => (kind, prop::bool::weighted(0.2))
            .prop_map(|(kind, sequential)| NodePick::Create(kind, sequential)),
        14 => (pick(), prop::bool::weighted(0.85))
            .prop_map(|(marker, ephemeral)| NodePick::Contend(marker, ephemeral)),
        10 => Just(NodePick::Delete),
        3 => Just(NodePick::Set),
        1 => Just(NodePick::Revoke),
        1 => Just(NodePick::Acl),
        1 => Just(NodePick::Check),
    ];
    (what, pick(), weighted(0.3, prop::bool::weighted(0.8)), 0..4_u8, prop::bool::weighted(0.1))
        .prop_map(|(what, path, version, data, closed)| NodeMove {
            what,
            path,
            version,
            data,
            closed,
        })
}

fn changed() -> impl Strategy<Value = Changed> {
    prop_oneof![
        6 => Just(Changed::Nothing),
        2 => Just(Changed::Reworded),
        1 => pick().prop_map(Changed::Other),
        1 => any::<u8>().prop_map(Changed::Slightly),
    ]
}

fn elapsed() -> impl Strategy<Value = Elapsed> {
    let usual = prop_oneof![
        10 => (0..30_u64).prop_map(Elapsed::Ms),
        8 => (-1..=1_i8).prop_map(Elapsed::NextDue),
        1 => (100..600_u64).prop_map(Elapsed::Ms),
    ];
    // Rarely, the end of time.
    prop_oneof![400 => usual, 1 => Just(Elapsed::Ms(u64::MAX))]
}

fn node() -> impl Strategy<Value = (Option<u8>, bool)> {
    (weighted(0.5, 0..3_u8), prop::bool::weighted(0.3))
}

fn session_ttl() -> impl Strategy<Value = u64> {
    prop_oneof![12 => Just(1_000_u64), 1 => Just(99_u64), 1 => Just(86_400_001_u64)]
}

fn own() -> impl Strategy<Value = OwnerMove> {
    prop_oneof![
        9 => Just(OwnerMove::Release),
        3 => Just(OwnerMove::Cancel),
        3 => prop_oneof![12 => 1..120_u64, 1 => Just(0), 1 => Just(u64::MAX)]
            .prop_map(|ttl_ms| OwnerMove::Renew { ttl_ms }),
        1 => Just(OwnerMove::Persist),
        2 => weighted(0.8, 0..9_u8).prop_map(OwnerMove::Note),
        2 => Just(OwnerMove::Recovered),
        3 => Just(OwnerMove::Downgrade),
    ]
}

fn acquire() -> impl Strategy<Value = AcquireMove> {
    let who = (weighted(0.75, pick()), prop::bool::weighted(0.02), prop::bool::weighted(0.85));
    let odd = prop::bool::weighted(0.05);
    let what = (names(), mode(), lease(), wait());
    let said = (weighted(0.5, 0..3_u8), weighted(0.3, 0..9_u8));
    let rest = (claims(), prop_oneof![60 => Just(0), 40 => 1..60_u64, 1 => Just(u64::MAX)], door());
    (who, what, said, rest, odd).prop_map(|(who, what, said, rest, odd)| {
        let (session, wrong, secret) = who;
        let (names, mode, lease, wait) = what;
        let (label, note) = said;
        let (claims, lock_delay_ms, door) = rest;
        AcquireMove {
            names,
            mode,
            session,
            lease,
            wait,
            label,
            note,
            secret,
            claims,
            lock_delay_ms,
            door,
            wrong,
            odd,
        }
    })
}

/// Mostly one name; sometimes several, none, or the same twice.
fn names() -> impl Strategy<Value = Vec<Pick>> {
    prop_oneof![
        24 => vec(pick(), 1),
        12 => vec(pick(), 2),
        3 => vec(pick(), 3..5),
        1 => Just(Vec::new()),
    ]
}

fn mode() -> impl Strategy<Value = ModePick> {
    prop_oneof![
        20 => any::<bool>().prop_map(|shared| ModePick::Usual { shared }),
        2 => Just(ModePick::Exclusive),
        2 => Just(ModePick::Shared),
        2 => Just(ModePick::Permit),
        1 => (0..4_u32).prop_map(ModePick::OddPermit),
    ]
}

fn lease() -> impl Strategy<Value = Lease> {
    prop_oneof![
        8 => Just(Lease::Session),
        8 => (1..150_u64).prop_map(|ttl_ms| Lease::Deadline { ttl_ms }),
        4 => (1..150_u64).prop_map(|ttl_ms| Lease::Unconfirmed { ttl_ms }),
        3 => Just(Lease::Permanent),
        1 => prop_oneof![Just(0), Just(u64::MAX)].prop_map(|ttl_ms| Lease::Deadline { ttl_ms }),
    ]
}

fn wait() -> impl Strategy<Value = Wait> {
    prop_oneof![
        60 => Just(Wait::Try),
        200 => (0..200_u64).prop_map(|ms| Wait::For { ms }),
        1 => Just(Wait::For { ms: u64::MAX }),
        80 => Just(Wait::Forever),
    ]
}

fn door() -> impl Strategy<Value = Door> {
    prop_oneof![
        4 => Just(Door::Native),
        3 => Just(Door::Redis),
        1 => Just(Door::ZooKeeper),
        1 => Just(Door::Cql),
    ]
}

fn claims() -> impl Strategy<Value = Vec<ClaimPick>> {
    let claim = prop_oneof![
        14 => pick().prop_map(ClaimPick::Held),
        1 => any::<u8>().prop_map(ClaimPick::Any),
    ];
    prop_oneof![1 => Just(Vec::new()), 1 => vec(claim, 0..4)]
}

fn ticket() -> impl Strategy<Value = TicketPick> {
    prop_oneof![
        20 => pick().prop_map(TicketPick::Fit),
        3 => pick().prop_map(TicketPick::ByName),
        3 => pick().prop_map(TicketPick::Any),
        1 => (pick(), pick()).prop_map(|(ticket, name)| TicketPick::OtherName(ticket, name)),
    ]
}

fn proof() -> impl Strategy<Value = ProofPick> {
    prop_oneof![
        20 => Just(ProofPick::Right),
        3 => Just(ProofPick::OfSession),
        2 => Just(ProofPick::Wrong),
        2 => Just(ProofPick::Label),
    ]
}

fn transact() -> impl Strategy<Value = TransactMove> {
    let door = prop_oneof![30 => Just(Door::Redis), 4 => Just(Door::Cql), 1 => Just(Door::Native)];
    let read = (pick(), when()).prop_map(|(name, when)| ReadMove { name, when });
    let writes = prop_oneof![1 => vec(write(), 0), 8 => vec(write(), 1), 8 => vec(write(), 2..5)];
    let publish = prop_oneof![4 => Just(0_u8), 1 => 1..3_u8];
    let rest = (weighted(0.15, when()), publish, prop::bool::weighted(0.03));
    (door, vec(read, 0..5), writes, rest).prop_map(|(door, reads, writes, rest)| {
        let (all, publish, odd) = rest;
        TransactMove { door, reads, all, writes, publish, odd }
    })
}

fn when() -> impl Strategy<Value = When> {
    prop_oneof![5 => Just(When::Now), 1 => pick().prop_map(When::Earlier)]
}

fn write() -> impl Strategy<Value = WriteMove> {
    let name =
        prop_oneof![3 => pick().prop_map(KeyPick::Usual), 1 => pick().prop_map(KeyPick::Any)];
    let what = prop_oneof![
        8 => (0..3_u8).prop_map(WritePick::Text),
        2 => Just(WritePick::SameText),
        3 => (0..3_u8).prop_map(WritePick::Relabel),
        3 => (0..5_u8).prop_map(WritePick::Hash),
        3 => (0..5_u8).prop_map(WritePick::List),
        2 => Just(WritePick::Expiring),
        5 => prop::bool::weighted(0.2).prop_map(|forced| WritePick::Gone { forced }),
    ];
    let expiry = prop_oneof![
        6 => Just(Expiry::Keep),
        3 => Just(Expiry::Never),
        12 => (1..120_u64).prop_map(Expiry::AfterMs),
        1 => prop_oneof![Just(0), Just(u64::MAX)].prop_map(Expiry::AfterMs),
    ];
    (name, what, expiry, prop::bool::weighted(0.25))
        .prop_map(|(name, what, expiry, fresh)| WriteMove { name, what, expiry, fresh })
}

fn fence() -> impl Strategy<Value = FencePick> {
    prop_oneof![
        6 => pick().prop_map(FencePick::Drawn),
        4 => Just(FencePick::Newest),
        1 => (0..3_u8).prop_map(FencePick::Never),
    ]
}

fn request() -> impl Strategy<Value = RequestPick> {
    prop_oneof![
        20 => Just(RequestPick::None),
        20 => (0..6_u8).prop_map(|needed| RequestPick::Usual { needed }),
        1 => (pick(), fault())
            .prop_map(|(session, fault)| RequestPick::InSession { session, fault }),
        1 => Just(RequestPick::Alone),
    ]
}

fn fault() -> impl Strategy<Value = RequestFault> {
    prop_oneof![
        Just(RequestFault::None),
        Just(RequestFault::BelowLowest),
        Just(RequestFault::WrongSecret),
    ]
}

fn from() -> impl Strategy<Value = FromPick> {
    prop_oneof![
        40 => Just(FromPick::None),
        10 => pick().prop_map(FromPick::Next),
        1 => pick().prop_map(FromPick::Again),
        1 => pick().prop_map(FromPick::Gap),
        1 => pick().prop_map(FromPick::Any),
    ]
}

//! Every bound of the core, with its reason. Beyond a bound, the answer is a refusal.
//!
//! The limits decide what is refused, so all replicas must have the same: a cluster always runs
//! with [`Limits::DEFAULT`]. Tests use small ones, to reach them.

/// The bounds that a [`State`](crate::State) enforces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Tickets in all lines together. At about 400 bytes each with its lock, 4 million stay near
    /// 1.6 GB.
    pub tickets_max: usize,
    /// Waiters in one line. A waiter costs about 250 bytes: a full line stays near 33 MB, and
    /// its last place is far beyond what anybody would wait for.
    pub waiters_per_lock_max: usize,
    /// Names that one ticket may take in one step: all are looked up, and served, together.
    pub names_per_ticket_max: usize,
    /// Tokens that a waiter may claim to keep. Wrappers nested this deep can still declare all of
    /// theirs.
    pub claims_per_ticket_max: usize,
    /// How many tickets a search for a cycle of claims may visit before it gives up and refuses the
    /// wait. Honest use visits a handful; this bounds the work of one command.
    pub claim_steps_max: usize,
    /// The longest lock-delay: an hour. Nothing lifts it early, so a typo must not block a name
    /// forever.
    pub lock_delay_ms_max: u64,
    /// Open sessions. At about 200 bytes each, a million stay near 200 MB; a new leader must also
    /// give each of them a heartbeat deadline within a second.
    pub sessions_max: usize,
    /// The shortest heartbeat TTL: below this, one slow fsync looks like a death.
    pub session_ttl_ms_min: u64,
    /// The longest heartbeat TTL: a day. Use a permanent lease for longer.
    pub session_ttl_ms_max: u64,
    /// Answers remembered per session. A client has at most this many requests in flight; with each
    /// request it says which answers it no longer needs.
    pub requests_per_session_max: usize,
    /// About how many bytes of answers are remembered per session: 1,024 of 4 KiB, or 64 of the
    /// longest register values. A session is a single record in a snapshot.
    pub session_memory_bytes_max: usize,
    /// Answers remembered for request ids without a session. At about 120 bytes each, a million
    /// stay near 120 MB: 1,700 new ones a second for the ten minutes that they are kept.
    pub requests_alone_max: usize,
    /// How long a request id without a session is kept after its ticket's end: longer than any
    /// sensible client keeps retrying.
    pub request_alone_kept_ms: u64,
    /// Deaths kept for the next holder, in all locks together; the oldest is dropped first.
    pub deaths_max: usize,
    /// How long a death is kept: a day, so that the next night's job still learns of it.
    pub death_kept_ms: u64,
    /// Events in the history. At about 120 bytes each, the ring stays near 8 MB.
    pub history_max: usize,
    /// Bytes in the history. With the longest names and labels it has room for fewer events.
    pub history_bytes_max: usize,
    /// Keys of the fenced register. A fence never forgets, so the number of keys is bounded.
    pub register_keys_max: usize,
    /// Hashes and lists. At about 300 bytes each with little in it, a million stay near 300 MB.
    pub objects_max: usize,
    /// Bytes in one hash or list. Every write carries all of it through the log, so it must be
    /// small; those of lock clients have a few hundred.
    pub object_bytes_max: usize,
    /// Fields or items of one hash or list: each costs about 50 bytes even if it is empty.
    pub object_elements_max: usize,
    /// Keys that one transaction may have read: each is looked up again.
    pub keys_read_max: usize,
    /// Keys that one transaction may write. Each may end a ticket and draw one: together no more
    /// than `steps_max`.
    pub keys_written_max: usize,
    /// Messages that one transaction may publish: each goes to every node.
    pub published_max: usize,
    /// Bytes of all texts in one transaction: it must fit into a log entry of 1 MiB.
    pub transaction_bytes_max: usize,
    /// Znodes. At about 400 bytes each with little in it, a million stay near 400 MB.
    pub nodes_max: usize,
    /// Ephemeral znodes of one session. They are deleted when it ends, some with each entry.
    pub ephemerals_per_session_max: usize,
    /// Changes to znodes in one command. Each may end a ticket and draw one: together no more than
    /// `steps_max`.
    pub node_ops_max: usize,
    /// Bytes of everything together, besides the few hundred per record that the record's own bound
    /// accounts for: names, labels, notes, reasons, values, objects; further names and claims of
    /// tickets; endings; remembered answers. Counts alone would let 4 KiB labels fill the memory.
    pub bytes_max: usize,
    /// Bytes beyond `bytes_max` for the answers to requests that leave nothing else behind: when
    /// memory is full, locks can still be released.
    pub bytes_reserve: usize,
    /// Links of a cycle that are reported; of a longer one, the first and the last half. Each has
    /// two labels and a name: together they stay below 1 MiB, as an answer must.
    pub circle_links_max: usize,
    /// How many tickets one command may serve or end. The rest is due at once, at the start of the
    /// next entries: a mass expiry or a thousand readers never stall the loop.
    pub steps_max: usize,
    /// How many holders a command by name alone may visit; beyond this, it must name a token.
    pub holders_walked_max: usize,
    /// Users. At about 200 bytes each and 100 for each token, all stay near 20 MB.
    pub users_max: usize,
    /// Roles. With 64 rules and the longest prefixes, all take 36 MB.
    pub roles_max: usize,
    /// Rules of one role: each is compared with the name on every request of its users.
    pub rules_per_role_max: usize,
    /// Roles of one user.
    pub roles_per_user_max: usize,
    /// Bearer tokens of one user.
    pub tokens_per_user_max: usize,
    /// Records of who did what.
    pub audit_max: usize,
    /// Bytes of these records: with the longest reasons there is room for fewer.
    pub audit_bytes_max: usize,
}

impl Limits {
    /// The limits of every cluster.
    pub const DEFAULT: Self = Self {
        tickets_max: 4_000_000,
        waiters_per_lock_max: 131_072,
        names_per_ticket_max: 16,
        claims_per_ticket_max: 64,
        claim_steps_max: 10_000,
        lock_delay_ms_max: 60 * 60 * 1000,
        sessions_max: 1_000_000,
        session_ttl_ms_min: 100,
        session_ttl_ms_max: 24 * 60 * 60 * 1000,
        requests_per_session_max: 1_024,
        session_memory_bytes_max: 1 << 22,
        requests_alone_max: 1_000_000,
        request_alone_kept_ms: 10 * 60 * 1000,
        deaths_max: 1_000_000,
        death_kept_ms: 24 * 60 * 60 * 1000,
        history_max: 65_536,
        history_bytes_max: 1 << 25,
        register_keys_max: 100_000,
        objects_max: 1_000_000,
        object_bytes_max: 1 << 18,
        object_elements_max: 4_096,
        keys_read_max: 1_024,
        keys_written_max: 512,
        published_max: 256,
        transaction_bytes_max: 1 << 19,
        nodes_max: 1_000_000,
        ephemerals_per_session_max: 65_536,
        node_ops_max: 512,
        bytes_max: 1 << 30,
        bytes_reserve: 1 << 27,
        circle_links_max: 64,
        steps_max: 1_024,
        holders_walked_max: 1_024,
        users_max: 10_000,
        roles_max: 1_000,
        rules_per_role_max: 64,
        roles_per_user_max: 16,
        tokens_per_user_max: 16,
        audit_max: 16_384,
        audit_bytes_max: 1 << 23,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

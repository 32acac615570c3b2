//! Every bound of the core, with its reason. Beyond a bound the answer is a refusal.
//!
//! The limits decide what is refused, so all replicas must have the same: a cluster always runs
//! with [`Limits::DEFAULT`]. Tests make small ones to reach them.

/// The bounds that a [`State`](crate::State) keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Tickets in all lines together. At about 400 bytes each with its lock, 4 million stay near
    /// 1.6 GB.
    pub tickets_max: usize,
    /// Waiters in one line. A waiter costs about 250 bytes: a full line stays near 33 MB, and
    /// its last place is far beyond what anybody would wait for.
    pub waiters_per_lock_max: usize,
    /// Names that one ticket may take in one step: every one is looked up, and served, together.
    pub names_per_ticket_max: usize,
    /// Tokens that a waiter may claim to keep. The wrapper, nested this deep, still declares all.
    pub claims_per_ticket_max: usize,
    /// How many tickets a search for a circle of claims may look at before it gives up and
    /// refuses the wait. Honest use looks at a handful; this bounds the work of one command.
    pub claim_steps_max: usize,
    /// The longest lock-delay: an hour. Nothing lifts it before its time, so a slip of the hand must
    /// not block a name for ever.
    pub lock_delay_ms_max: u64,
    /// Open sessions. At about 200 bytes each, a million stay near 200 MB; a new leader must
    /// also give each of them a heartbeat deadline within a second.
    pub sessions_max: usize,
    /// The shortest heartbeat TTL: below this, one slow fsync looks like a death.
    pub session_ttl_ms_min: u64,
    /// The longest heartbeat TTL: a day. Who needs longer wants a permanent lease.
    pub session_ttl_ms_max: u64,
    /// Answers remembered for one session. A client has this many requests in flight at most;
    /// it says with each request which answers it no longer needs.
    pub requests_per_session_max: usize,
    /// About how many bytes the answers remembered for one session may take: 1,024 of 4 KiB, or 64
    /// of the longest register values. A session stands as one record in a snapshot.
    pub session_memory_bytes_max: usize,
    /// Answers remembered for request ids without a session. At about 120 bytes each, a million
    /// stay near 120 MB: 1,700 new ones a second for the ten minutes that they are kept.
    pub requests_alone_max: usize,
    /// How long a request id without a session is kept after its ticket's end: longer than any
    /// sensible client goes on retrying.
    pub request_alone_kept_ms: u64,
    /// Deaths kept for the next holder, in all locks together; the oldest is dropped first.
    pub deaths_max: usize,
    /// How long a death is kept: a day, so that the next night's job still hears of it.
    pub death_kept_ms: u64,
    /// Events in the history. At about 120 bytes each, the ring stays near 8 MB.
    pub history_max: usize,
    /// Bytes in the history. With the longest names and labels it holds fewer events.
    pub history_bytes_max: usize,
    /// Keys of the fenced register. A fence never forgets, so what may be kept is bounded.
    pub register_keys_max: usize,
    /// Hashes and lists. At about 300 bytes each with little in it, a million stay near 300 MB.
    pub objects_max: usize,
    /// Bytes in one hash or list. Every write carries all of it through the log, so it must be
    /// small; the hashes and lists of lock clients have a few hundred.
    pub object_bytes_max: usize,
    /// Fields or items of one hash or list: each costs some 50 bytes even if it is empty.
    pub object_elements_max: usize,
    /// Keys that one transaction may have read: each is looked up again.
    pub keys_read_max: usize,
    /// Keys that one transaction may write. Each may end a ticket and draw one: all together no
    /// more than `steps_max`.
    pub keys_written_max: usize,
    /// Messages that one transaction may publish: each goes to every node.
    pub published_max: usize,
    /// Bytes of all texts in one transaction: it must fit into a log entry of 1 MiB.
    pub transaction_bytes_max: usize,
    /// Bytes of everything together, beside the few hundred for each record that its own bound
    /// counts with: names, labels, notes, reasons, values, objects; further names and claims of
    /// tickets; endings; answers remembered. Counts alone would let 4 KiB labels fill the memory.
    pub bytes_max: usize,
    /// Bytes beyond `bytes_max` for the answers to requests that take nothing themselves: when the
    /// memory is full, locks can still be released.
    pub bytes_reserve: usize,
    /// Links of a circle that are told; of a longer one, the first and the last half. Each has two
    /// labels and a name: all together stay below 1 MiB, as an answer must.
    pub circle_links_max: usize,
    /// How many tickets one command may serve or end. What is left is due at once, at the start of
    /// the next entries: a mass expiry or a thousand readers never stall the loop.
    pub steps_max: usize,
    /// How many holders a check or an order by name alone walks through; beyond it, the command
    /// must name a token.
    pub holders_walked_max: usize,
}

impl Limits {
    /// What every cluster runs with.
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
        bytes_max: 1 << 30,
        bytes_reserve: 1 << 27,
        circle_links_max: 64,
        steps_max: 1_024,
        holders_walked_max: 1_024,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

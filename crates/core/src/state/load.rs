//! Reading a snapshot: the pieces come in any order, and each record goes where it will stand.

use super::records::{Extra, Lock, Past, Ticket};
use super::snapshot::{BadSnapshot, Head, HeadV1, MAGIC, Piece, Records, TicketRecord, VERSION};
use super::{Data, State};
use crate::command::Mode;
use crate::history::{Event, History};
use crate::ids::Token;
use crate::limits::Limits;
use crate::store::{Index, Slot};
use crate::text::LockName;
use std::collections::BTreeMap;

impl State {
    /// Reads a snapshot from its pieces.
    pub fn load<P: AsRef<[u8]>>(
        pieces: impl IntoIterator<Item = P>,
        limits: Limits,
        hash_key: u64,
    ) -> Result<Self, BadSnapshot> {
        let mut pieces = pieces.into_iter().enumerate();
        let (_, head) = pieces.next().ok_or(BadSnapshot::NotASnapshot)?;
        let mut loader = Loader::new(read_head(head.as_ref())?, &limits, hash_key);
        for (piece, bytes) in pieces {
            let bytes = bytes.as_ref();
            loader.add(postcard::from_bytes(bytes).map_err(|_| BadSnapshot::Damaged { piece })?)?;
        }
        let (data, names) = loader.finish()?;
        let mut state = Self::of(data, names, limits, hash_key);
        state.find_unserved();
        Ok(state)
    }

    /// Lines in which serving had stopped at the bound of one command.
    fn find_unserved(&mut self) {
        let waiting = self.data.locks.iter().filter(|(_, lock)| lock.waiters() > 0);
        let may_serve = |slot| self.next_waiter(slot).is_some_and(|token| self.may_serve(token));
        let unserved =
            waiting.filter(|(slot, _)| may_serve(*slot)).map(|(_, lock)| lock.name.clone());
        self.index.sets.unserved = unserved.collect();
    }
}

fn read_head(bytes: &[u8]) -> Result<Head, BadSnapshot> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(BadSnapshot::NotASnapshot)?;
    let (version, rest) = rest.split_first_chunk::<2>().ok_or(BadSnapshot::NotASnapshot)?;
    let damaged = |_| BadSnapshot::Damaged { piece: 0 };
    match u16::from_le_bytes(*version) {
        1 => postcard::from_bytes(rest).map(HeadV1::now).map_err(damaged),
        VERSION => postcard::from_bytes(rest).map_err(damaged),
        version => Err(BadSnapshot::UnknownVersion(version)),
    }
}

impl HeadV1 {
    /// As it would be written now.
    fn now(self) -> Head {
        Head {
            clock: self.clock,
            counter: self.counter,
            sessions_drawn: self.sessions_drawn,
            sequence: self.sequence,
            events_numbered: self.events_numbered,
            records: self.records,
            changes: 0,
            objects: 0,
            relabelled: 0,
        }
    }
}

/// Puts the pieces together again, in whatever order they come: each record goes where it will
/// stand as soon as it is read.
struct Loader {
    expected: Records,
    seen: Records,
    data: Data,
    names: Index<Lock>,
    numbers: Vec<Token>,
    events: Vec<Event>,
    relabelled: BTreeMap<Token, u64>,
    /// Objects and labels that were announced.
    expected_more: (u64, u64),
}

impl Loader {
    fn new(head: Head, limits: &Limits, hash_key: u64) -> Self {
        let data = Data {
            clock: head.clock,
            counter: head.counter,
            sessions_drawn: head.sessions_drawn,
            sequence: head.sequence,
            changes: head.changes,
            history: History::of(Vec::new(), head.events_numbered),
            ..Data::default()
        };
        // What the head says may be damaged: room is made only for what may be.
        let tickets = usize::try_from(head.records.tickets).unwrap_or(usize::MAX);
        let tickets = tickets.min(limits.tickets_max);
        Self {
            expected: head.records,
            seen: Records::default(),
            data,
            names: Index::with_capacity(tickets, hash_key),
            numbers: Vec::with_capacity(tickets),
            events: Vec::new(),
            relabelled: BTreeMap::new(),
            expected_more: (head.objects, head.relabelled),
        }
    }

    fn add(&mut self, piece: Piece) -> Result<(), BadSnapshot> {
        let Self { seen, data, .. } = self;
        match piece {
            Piece::Pasts(pasts) => {
                count(&mut seen.pasts, &pasts);
                for (name, past) in pasts {
                    self.leave_past(name, past)?;
                }
            }
            Piece::Tickets(tickets) => {
                count(&mut seen.tickets, &tickets);
                for ticket in tickets {
                    self.stand_in_line(ticket)?;
                }
            }
            Piece::Sessions(sessions) => {
                count(&mut seen.sessions, &sessions);
                data.sessions.extend(sessions);
            }
            Piece::Alone(alone) => {
                count(&mut seen.alone, &alone);
                data.alone.extend(alone);
            }
            Piece::Register(register) => {
                count(&mut seen.register, &register);
                data.register.extend(register);
            }
            Piece::Events(events) => {
                count(&mut seen.events, &events);
                self.events.extend(events);
            }
            Piece::Objects(objects) => data.objects.extend(objects),
            Piece::Relabelled(relabelled) => self.relabelled.extend(relabelled),
        }
        Ok(())
    }

    /// The data, and where each name stands in it.
    fn finish(mut self) -> Result<(Data, Index<Lock>), BadSnapshot> {
        self.relabel()?;
        let Self { expected, seen, mut data, names, mut numbers, events, .. } = self;
        let more = (data.objects.len() as u64, self.relabelled.len() as u64);
        if seen != expected || more != self.expected_more {
            return Err(BadSnapshot::Incomplete("the number of records differs"));
        }
        numbers.sort_unstable();
        if numbers.array_windows().any(|[a, b]| a == b) {
            return Err(BadSnapshot::Incomplete("a ticket stands twice"));
        }
        check_objects(&data, &names)?;
        data.history = History::of(events, data.history.next_number);
        data.bytes = data.weight();
        Ok((data, names))
    }

    /// Tells tickets when they got another label.
    fn relabel(&mut self) -> Result<(), BadSnapshot> {
        if self.relabelled.is_empty() {
            return Ok(());
        }
        let of =
            |(slot, ticket): (Slot, &Ticket)| Some((slot, self.relabelled.get(&ticket.number)?));
        let found: Vec<(Slot, u64)> =
            self.data.tickets.iter().filter_map(of).map(|(slot, change)| (slot, *change)).collect();
        if found.len() != self.relabelled.len() {
            return Err(BadSnapshot::Incomplete("a label belongs to no ticket"));
        }
        for (slot, change) in found {
            if let Some(ticket) = self.data.tickets.get_mut(slot) {
                ticket.extra_mut().relabelled = change;
            }
        }
        Ok(())
    }

    fn lock(&mut self, name: LockName) -> Slot {
        let Self { data, names, .. } = self;
        names.get(&data.locks, &name).unwrap_or_else(|| {
            let slot = data.locks.insert(Lock::new(name));
            names.insert(&data.locks, slot);
            slot
        })
    }

    fn leave_past(&mut self, name: LockName, past: Past) -> Result<(), BadSnapshot> {
        let slot = self.lock(name);
        let lock = self.data.locks.get_mut(slot);
        match lock.and_then(|lock| lock.past.replace(Box::new(past))) {
            None => Ok(()),
            Some(_) => Err(BadSnapshot::Incomplete("a lock stands twice")),
        }
    }

    /// Adds a ticket to its locks.
    fn stand_in_line(&mut self, record: TicketRecord) -> Result<(), BadSnapshot> {
        if record.number.0 > self.data.counter {
            return Err(BadSnapshot::Incomplete("a ticket is above the counter"));
        }
        let number = record.number;
        let mut more_locks = Vec::new();
        let mut first = None;
        for name in record.names {
            let slot = self.lock(name);
            if first.is_none() {
                first = Some(slot);
            } else {
                more_locks.push(slot);
            }
            let Some(lock) = self.data.locks.get_mut(slot) else { continue };
            lock.set_head(Some(lock.head().map_or(number, |head| head.min(number))));
            lock.line_len = lock.line_len.saturating_add(1);
            if record.held {
                lock.holders = lock.holders.saturating_add(1);
                lock.last_served = lock.last_served.max(number);
                lock.exclusive |= record.mode == Mode::Exclusive;
            }
            lock.set_kind(record.mode);
        }
        let Some(lock) = first else {
            return Err(BadSnapshot::Incomplete("a ticket stands in no line"));
        };
        let extra = record.extra.map(|extra| Extra {
            note: extra.note,
            more_locks: Vec::new(),
            claims: extra.claims,
            lock_delay_ms: extra.lock_delay_ms,
            upgrades: extra.upgrades,
            revocation: extra.revocation,
            after: extra.after,
            request_key: extra.request_key,
            relabelled: 0,
        });
        let mut ticket = Ticket {
            number: record.number,
            session: record.session,
            request: record.request,
            secret: record.secret,
            label: record.label,
            lock,
            mode: record.mode,
            door: record.door,
            held: record.held,
            lease: record.lease,
            due_ms: record.due_ms,
            joined_ms: record.joined_ms,
            since_ms: record.since_ms,
            extra: extra.map(Box::new),
        };
        if !more_locks.is_empty() {
            ticket.extra_mut().more_locks = more_locks;
        }
        self.numbers.push(number);
        self.data.tickets.insert(ticket);
        Ok(())
    }
}

fn count<T>(seen: &mut u64, records: &[T]) {
    *seen = seen.saturating_add(records.len() as u64);
}

/// Each name is one object at most, and no lock beside it.
fn check_objects(data: &Data, names: &Index<Lock>) -> Result<(), BadSnapshot> {
    let mut seen: Vec<&LockName> = data.objects.iter().map(|(_, stored)| &stored.name).collect();
    seen.sort_unstable();
    if seen.array_windows().any(|[a, b]| a == b) {
        return Err(BadSnapshot::Incomplete("an object stands twice"));
    }
    let lock = |name: &LockName| data.locks.get(names.get(&data.locks, name)?);
    if seen.iter().any(|name| lock(name).is_some_and(|lock| lock.line_len > 0)) {
        return Err(BadSnapshot::Incomplete("an object stands in the place of a lock"));
    }
    if data.objects.iter().any(|(_, stored)| stored.version > data.changes) {
        return Err(BadSnapshot::Incomplete("an object is above the number of changes"));
    }
    Ok(())
}

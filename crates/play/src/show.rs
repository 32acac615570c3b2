//! How things are shown in a transcript.

use holdfast_core::{
    Answer, Counts, Effect, EndReason, Ended, Ending, Event, EventKind, Fence, Grant, Label, Lease,
    LockName, LockPage, LockView, Mode, PriorEndings, Reason, Restored, SessionView, State,
    TicketStatus, TicketView, Why, WhyLink,
};
use std::fmt::Display;

pub(crate) fn ms(ms: u64) -> String {
    for (unit_ms, unit) in [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")] {
        let whole = ms.checked_div(unit_ms).filter(|_| ms.is_multiple_of(unit_ms));
        if let Some(whole) = whole.filter(|whole| *whole > 0) {
            return format!("{whole}{unit}");
        }
    }
    format!("{ms}ms")
}

fn join<T: Display>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(" ")
}

fn mode(mode: Mode) -> String {
    match mode {
        Mode::Exclusive => String::new(),
        Mode::Shared => " shared".to_owned(),
        Mode::Permit { of } => format!(" permit(of {of})"),
    }
}

fn option<T: Display>(key: &str, value: Option<T>) -> String {
    value.map_or(String::new(), |value| format!(" {key}={value}"))
}

pub(crate) fn grant(verb: &str, grant: &Grant) -> String {
    let names = join(grant.names.as_slice());
    let waited = (grant.waited_ms > 0).then(|| ms(grant.waited_ms));
    let after = grant.after.as_deref().unwrap_or_default();
    let several = grant.names.as_slice().len() > 1;
    let after: String = after.iter().map(|after| show_after(after, several)).collect();
    let note = grant.note.as_ref().map(|note| format!("{note:?}"));
    format!(
        "{verb} {names} token={}{}{}{}{after}",
        grant.token,
        mode(grant.mode),
        option("waited", waited),
        option("note", note),
    )
}

fn show_after(after: &PriorEndings, several: bool) -> String {
    let on = if several { format!("[{}]", after.name) } else { String::new() };
    let last = after.last.as_ref().map(|last| format!(" after{on}={}", ending(last)));
    let recover = match (&after.recover, &after.last) {
        (Some(recover), Some(last)) if recover == last => format!(" needs-recovery{on}"),
        (Some(recover), _) => format!(" needs-recovery{on}={}", ending(recover)),
        (None, _) => String::new(),
    };
    last.unwrap_or_default() + &recover
}

fn ending(ending: &Ending) -> String {
    let label = ending.label.as_ref().map(|label| format!(", label={label}"));
    let note = ending.note.as_ref().map(|note| format!(", note={note:?}"));
    let forced = ending
        .forced
        .as_ref()
        .map(|forced| format!(", by={}, reason={:?}", forced.by, forced.reason));
    let all = [label, note, forced].into_iter().flatten().collect::<String>();
    format!("{}(token={}{all})", ending.how, ending.token)
}

fn because(reason: &Reason) -> String {
    if reason.as_bytes().is_empty() { String::new() } else { format!(": {reason}") }
}

pub(crate) fn ended(ended: &Ended) -> String {
    let names = join(ended.names.as_slice());
    let token = ended.token;
    let forced = ended.forced.as_ref();
    let forced = forced
        .map_or(String::new(), |forced| format!(" by {}{}", forced.by, because(&forced.reason)));
    match (ended.held, ended.how) {
        (true, EndReason::Released) => format!("released {names} token={token}"),
        (true, how) => format!("lost {names} token={token} ({how}{forced})"),
        (false, how) => format!("left the line of {names} token={token} ({how}{forced})"),
    }
}

pub(crate) fn effect(effect: &Effect) -> String {
    match effect {
        Effect::Granted(granted) => {
            format!("{}{}", grant("granted", granted), option("by", granted.label.as_ref()))
        }
        Effect::Ended(end) => format!("{}{}", ended(end), option("by", end.label.as_ref())),
        Effect::Delayed { name, until_ms, after } => {
            format!("delayed {name} until={} after={}", ms(*until_ms), ending(after))
        }
        Effect::RevocationAsked { token, name, by, reason, until_ms, force, .. } => {
            let or_else = if *force { ", or it is ended" } else { "" };
            let (until, because) = (ms(*until_ms), because(reason));
            format!(
                "asked by {by} to let go of {name} token={token} until {until}{or_else}{because}"
            )
        }
        Effect::Noted { token, names, note } => {
            let note = note.as_ref().map_or("none".to_owned(), |note| format!("{note:?}"));
            format!("note of {} token={token}: {note}", join(names.as_slice()))
        }
        Effect::Downgraded { token, names } => {
            format!("downgraded {} token={token}", join(names.as_slice()))
        }
        Effect::Recovered { name, token, death } => {
            format!("recovered {name} token={token} from {}", ending(death))
        }
        Effect::SessionEnded { session, how } => format!("session {session} {how}"),
        Effect::Relabelled { .. } | Effect::ObjectChanged { .. } | Effect::Published { .. } => {
            super::transact::effect(effect).unwrap_or_default()
        }
        Effect::NodeChanged { .. } | Effect::SessionAttached { .. } => {
            super::tree::effect(effect).unwrap_or_default()
        }
        Effect::AccessChanged(_) => "users or roles changed".to_owned(),
        Effect::Audited(record) => format!("recorded {}", record.entry.action),
    }
}

pub(crate) fn ticket_status(status: &TicketStatus, names: &[LockName]) -> String {
    match status {
        TicketStatus::Waiting { token, place, delayed_until_ms, .. } => {
            let place = place.map_or("far back".to_owned(), |place| format!("place={place}"));
            let delayed = option("delayed-until", delayed_until_ms.map(ms));
            format!("waiting {} token={token} {place}{delayed}", join(names))
        }
        TicketStatus::Held(held) => grant("holds", held),
        TicketStatus::Over { token, how } => format!("token={token} is over ({how})"),
    }
}

pub(crate) fn answer(answer: &Answer) -> String {
    match answer {
        Answer::Ticked => "time moved".to_owned(),
        Answer::SessionOpened(id) => format!("session {id} opened"),
        Answer::SessionEnded(id) => format!("session {id} ended"),
        Answer::TicketStatus(stands) => ticket_status(stands, &[]),
        Answer::Released(token) => format!("released already token={token}"),
        Answer::Cancelled(token) => format!("cancelled already token={token}"),
        Answer::Renewed { token, due_ms: Some(due_ms) } => {
            format!("renewed token={token} until {}", ms(*due_ms))
        }
        Answer::Renewed { token, due_ms: None } => format!("renewed token={token} forever"),
        Answer::Downgraded(token) => format!("downgraded token={token}"),
        Answer::Noted(token) => format!("noted token={token}"),
        Answer::Recovered(Some(death)) => format!("recovered from {}", ending(death)),
        Answer::Recovered(None) => "there was nothing to recover".to_owned(),
        Answer::RevocationAsked(1) => "asked 1 holder to let go".to_owned(),
        Answer::RevocationAsked(holders) => format!("asked {holders} holders to let go"),
        Answer::Forced(tickets) => format!("ended {tickets}"),
        Answer::Barred => "is not known (never seen, or forgotten), and is barred now".to_owned(),
        Answer::Passed(passed) => {
            format!(
                "passed the fence, highest exclusive={} of any mode={}",
                passed.highest_exclusive, passed.highest
            )
        }
        Answer::Transacted(tokens) => super::transact::applied(tokens),
        Answer::SessionAttached { .. } => "goes on with its session".to_owned(),
        Answer::Written(results) => super::tree::written(results),
        Answer::AccessChanged => "users or roles changed".to_owned(),
        Answer::TokenAdded { id } => format!("bearer token {id} added"),
        Answer::Recorded => "recorded".to_owned(),
    }
}

pub(crate) fn fence(key: &LockName, fence: &Fence) -> String {
    let value = fence.value.as_ref().map_or("nothing yet".to_owned(), |value| format!("{value:?}"));
    format!(
        "{key} is {value}, highest exclusive={} of any mode={}",
        fence.highest_exclusive, fence.highest
    )
}

fn who(label: Option<&Label>) -> String {
    label.map_or("without a label".to_owned(), Label::to_string)
}

fn ticket(ticket: &TicketView, now_ms: u64) -> String {
    let left = ticket.due_ms.map(|due_ms| ms(due_ms.saturating_sub(now_ms)));
    let stays = match (ticket.held, left, ticket.lease) {
        (true, Some(left), _) => format!("its lease ends in {left}"),
        (true, None, Lease::Permanent) => "forever".to_owned(),
        (false, Some(left), _) => format!("waits {left} more"),
        (_, None, _) => "while its session lives".to_owned(),
    };
    let note = ticket.note.as_ref().map(|note| format!(", note={note:?}"));
    let claims = (!ticket.claims.is_empty()).then(|| format!(", keeps {}", join(&ticket.claims)));
    let asked =
        ticket.revoked_until_ms.map(|until| format!(", asked to let go until {}", ms(until)));
    format!(
        "token={} {}{} for {}, {stays}{}",
        ticket.token,
        who(ticket.label.as_ref()),
        mode(ticket.mode),
        ms(ticket.for_ms),
        [note, claims, asked].into_iter().flatten().collect::<String>(),
    )
}

pub(crate) fn lock(view: Option<LockView>, name: &LockName, state: &State) -> Vec<String> {
    let Some(view) = view else { return vec![format!("{name} is free")] };
    let mut lines = vec![summary(&view)];
    for holder in &view.holders {
        lines.push(format!("  served: {}", ticket(holder, state.now_ms())));
    }
    for (waiter, place) in view.waiters.iter().zip(1..) {
        lines.push(format!("  place {place}: {}", ticket(waiter, state.now_ms())));
    }
    if let Some(last) = &view.last {
        lines.push(format!("  last ending: {}", ending(last)));
    }
    if let Some(death) = &view.needs_recovery {
        lines.push(format!("  needs recovery after {}", ending(death)));
    }
    if let Some(until_ms) = view.delayed_until_ms {
        lines.push(format!("  nobody is served until {}", ms(until_ms)));
    }
    lines
}

fn summary(view: &LockView) -> String {
    let permits = view.permits.map(|of| format!(" of {of} permits"));
    let recovery = if view.needs_recovery.is_some() { ", needs recovery" } else { "" };
    format!(
        "{}: {} served{}, {} waiting{recovery}",
        view.name,
        view.holding,
        permits.unwrap_or_default(),
        view.waiting
    )
}

pub(crate) fn page(page: &LockPage, prefix: &str, limit: usize) -> Vec<String> {
    let mut lines: Vec<String> = page.locks.iter().map(summary).collect();
    if let Some(next_after) = &page.next_after {
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix} ") };
        lines.push(format!("more: ls {prefix}after={next_after} limit={limit}"));
    }
    if lines.is_empty() {
        lines.push("no locks".to_owned());
    }
    lines
}

pub(crate) fn why(why: &Why) -> Vec<String> {
    let mut lines: Vec<String> = why.links.iter().map(why_link).collect();
    for circle in &why.circles {
        let kind = if circle.declared { "declared" } else { "possible" };
        lines.push(format!("{kind} cycle: tokens {}", join(&circle.tokens)));
    }
    if why.cut {
        lines.push("and more".to_owned());
    }
    if lines.is_empty() {
        lines.push("nobody waits".to_owned());
    }
    lines
}

fn why_link(link: &WhyLink) -> String {
    match link {
        WhyLink::Behind { waiter, label, name, front, front_label, permit } => {
            let permit = if *permit { ", one of its permits" } else { "" };
            let (waiting, serving) = (who(label.as_ref()), who(front_label.as_ref()));
            format!(
                "token={waiter} ({waiting}) waits for {name} behind token={front} ({serving}){permit}"
            )
        }
        WhyLink::Kept { token, label, waiter, declared } => {
            let kind = if *declared { "declared" } else { "possible: same session" };
            format!(
                "token={token} ({}) is kept while token={waiter} waits ({kind})",
                who(label.as_ref())
            )
        }
    }
}

pub(crate) fn history<'a>(events: impl Iterator<Item = &'a Event>) -> Vec<String> {
    let lines: Vec<String> = events.map(event).collect();
    if lines.is_empty() { vec!["nothing is known".to_owned()] } else { lines }
}

fn event(event: &Event) -> String {
    let what = match &event.what {
        EventKind::Granted => "granted".to_owned(),
        EventKind::Ended(how) => how.to_string(),
        EventKind::Broken(forced) => format!("forced by {}{}", forced.by, because(&forced.reason)),
        EventKind::RevocationAsked { by, reason } => {
            format!("asked by {by} to let go{}", because(reason))
        }
        EventKind::Downgraded => "downgraded".to_owned(),
        EventKind::Recovered { death } => format!("recovered from token={death}"),
        EventKind::Relabelled => "is what it calls itself now".to_owned(),
        EventKind::Restored => "still held when the cluster was restored".to_owned(),
    };
    format!("{} token={} {} {what}", ms(event.at_ms), event.token, who(event.label.as_ref()))
}

pub(crate) fn sessions(sessions: &[SessionView]) -> Vec<String> {
    if sessions.is_empty() {
        return vec!["no sessions".to_owned()];
    }
    let line = |session: &SessionView| {
        let kind = if session.kind.is_node() { "node session" } else { "session" };
        let (who, ttl) = (who(session.label.as_ref()), ms(session.ttl_ms));
        let tickets =
            if session.tickets.is_empty() { "none".to_owned() } else { join(&session.tickets) };
        let ended = session.ended.map_or(String::new(), |how| format!(", {how}"));
        format!("{kind} {} {who} ttl={ttl} tickets: {tickets}{ended}", session.id)
    };
    sessions.iter().map(line).collect()
}

pub(crate) fn restored(restored: &Restored) -> String {
    let Restored { sessions_ended, waits_ended, holders_ended, still_held, counter } = restored;
    format!(
        "restored: ended sessions={sessions_ended} waits={waits_ended} holders={holders_ended}, \
         still held={still_held}, counter={counter}"
    )
}

pub(crate) fn counts(counts: Counts) -> String {
    let Counts {
        locks,
        holders,
        waiters,
        sessions,
        deaths,
        register_keys,
        objects,
        nodes,
        requests_alone,
        bytes,
        counter,
    } = counts;
    let objects = if objects > 0 { format!(" objects={objects}") } else { String::new() };
    let nodes = if nodes > 0 { format!(" nodes={nodes}") } else { String::new() };
    format!(
        "locks={locks} holders={holders} waiters={waiters} sessions={sessions} deaths={deaths} \
         register-keys={register_keys}{objects}{nodes} requests-alone={requests_alone} bytes={bytes} counter={counter}"
    )
}

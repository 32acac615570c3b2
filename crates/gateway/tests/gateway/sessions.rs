//! Sessions' events, and reattaching.

use crate::bench::{Bench, SECRET, VirtualSink, acquire_in, effect, granted};
use holdfast_core::{Answer, Command, Effect, Refusal, Secret, SessionRef, TicketStatus, Token};
use holdfast_gateway::{Attached, CallOutcome, Caller, Input, SessionEvent};
use holdfast_node::Reply;

fn submit_on(bench: &mut Bench, sink: u64, number: u64, command: Command) {
    let (sink, request) = (VirtualSink(sink), None);
    bench.handle(Input::SubmitOn { caller: Caller::NODE, sink, number, request, command });
    bench.pass(5);
}

fn attach(bench: &mut Bench, sink: u64, session: SessionRef, tickets: &[Token]) -> CallOutcome {
    let (call, tickets) = (bench.next_call(), tickets.to_vec());
    let sink = VirtualSink(sink);
    bench.handle(Input::Attach { call, reply_to: call, session, tickets, sink });
    bench.pass(50);
    bench.outcome(call).unwrap()
}

fn attached(outcome: CallOutcome) -> Attached {
    match outcome {
        CallOutcome::Attached(attached) => *attached,
        other => panic!("{other:?}"),
    }
}

fn grants(events: &[SessionEvent]) -> usize {
    events.iter().filter(|event| matches!(effect(event), Some(Effect::Granted(_)))).count()
}

#[test]
fn session_receives_events_it_was_not_replied() {
    let mut bench = Bench::new();
    let (ana, bo) = (bench.open(1), bench.open(2));
    submit_on(&mut bench, 1, 7, acquire_in(ana, "a"));
    submit_on(&mut bench, 2, 8, acquire_in(bo, "a"));
    let events = bench.events_of(1);
    let [SessionEvent::Reply { number: 7, reply }] = &events[..] else { panic!("{events:?}") };
    let Reply::Answer(Ok(Answer::TicketStatus(TicketStatus::Held(held)))) = reply else {
        panic!("{reply:?}")
    };
    assert_eq!(grants(&bench.events_of(2)), 0);
    let target = holdfast_core::Target { name: crate::bench::lock("a"), token: Some(held.token) };
    let release = Command::Release { target, proof: holdfast_core::Proof::Secret(ana.secret) };
    submit_on(&mut bench, 1, 9, release);
    let events = bench.events_of(1);
    assert!(matches!(events[..], [SessionEvent::Reply { number: 9, .. }]), "{events:?}");
    assert_eq!(grants(&bench.events_of(2)), 1);
}

#[test]
fn reattaching_client_gets_its_ticket_states_and_replaces_the_old_sink() {
    let mut bench = Bench::new();
    let (ana, bo) = (bench.open(1), bench.open(2));
    let held = bench.submit(acquire_in(ana, "a"));
    let others = bench.submit(acquire_in(bo, "b"));
    bench.pass(5);
    let (held, others) = (granted(bench.outcome(held)), granted(bench.outcome(others)));
    bench.events.clear();
    let told = attached(attach(&mut bench, 3, ana, &[held.token, others.token]));
    let [TicketStatus::Held(grant)] = &told.statuses[..] else { panic!("{told:?}") };
    assert_eq!(grant.token, held.token);
    assert!(matches!(bench.events_of(1)[..], [SessionEvent::LostTrack]));
    // Events go to the new sink only; closing the older one changes nothing.
    bench.handle(Input::Close(holdfast_gateway::SinkId(1)));
    bench.submit(Command::CloseSession(ana));
    bench.pass(5);
    let ended = |event: &SessionEvent| matches!(effect(event), Some(Effect::SessionEnded { .. }));
    assert!(bench.events_of(3).iter().any(ended));
    assert!(bench.events_of(1).is_empty());
}

#[test]
fn refused_attach_keeps_the_current_sink() {
    let mut bench = Bench::new();
    let ana = bench.open(1);
    let forged = SessionRef { secret: Secret([9; 16]), ..ana };
    assert_eq!(attach(&mut bench, 2, forged, &[]), CallOutcome::NotAlive(Refusal::NotOwner));
    let id = holdfast_core::SessionId(std::num::NonZeroU64::new(999).unwrap());
    let unknown = SessionRef { id, secret: SECRET };
    let outcome = attach(&mut bench, 2, unknown, &[]);
    assert_eq!(outcome, CallOutcome::NotAlive(Refusal::NoSession(id)));
    assert!(bench.events_of(1).is_empty());
    submit_on(&mut bench, 1, 1, Command::CloseSession(ana));
    assert!(!bench.events_of(1).is_empty());
}

#[test]
fn closing_a_sink_withdraws_its_calls() {
    let mut bench = Bench::without_leader();
    let session = SessionRef {
        id: holdfast_core::SessionId(std::num::NonZeroU64::new(1).unwrap()),
        secret: SECRET,
    };
    let (sink, request) = (VirtualSink(1), None);
    let command = acquire_in(session, "a");
    bench.handle(Input::SubmitOn { caller: Caller::NODE, sink, number: 1, request, command });
    bench.pass(10);
    bench.handle(Input::Close(holdfast_gateway::SinkId(1)));
    bench.pass(200);
    let events = bench.events_of(1);
    let withdrawn = |event: &SessionEvent| {
        matches!(event, SessionEvent::Reply { number: 1, reply: Reply::Withdrawn })
    };
    assert!(events.iter().all(withdrawn) && events.len() == 1, "{events:?}");
}

#[test]
fn losing_track_notifies_sessions() {
    let mut bench = Bench::new();
    bench.open(1);
    bench.gateway.lost_track(bench.now, &bench.node);
    bench.deliver();
    assert!(matches!(bench.events_of(1)[..], [SessionEvent::LostTrack]));
}

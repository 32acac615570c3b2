//! What a client makes of what it hears.

use super::{Act, Client, Doing, Hold, LetGo, RESEND_US, Wish};
use crate::rng::Rng;
use holdfast_core::{Answer, Lease, Refusal, SessionRef, Standing};
use holdfast_node::Reply;

impl Client {
    /// A heartbeat's answer, matched with its own send.
    pub(crate) fn beat_answered(
        &mut self,
        now_us: u64,
        session: SessionRef,
        sent_us: u64,
        alive: bool,
    ) {
        if self.session != Some(session) || now_us < self.paused_until_us {
            return;
        }
        if alive {
            let until_ms = self.clock_ms(sent_us) + self.ttl_ms * 9 / 10;
            self.session_until_ms = self.session_until_ms.max(until_ms);
        } else {
            self.start_over(now_us);
        }
    }

    pub(crate) fn answered(&mut self, now_us: u64, reply: Reply, rng: &mut Rng) -> Vec<Act> {
        let doing = self.doing.clone();
        let let_go = match (&doing, &reply) {
            (Doing::Releasing(_, token), Reply::Answer(answer)) => {
                let until_ms = self.let_go_until_ms.min(self.session_until_ms);
                let in_time = self.clock_ms(now_us) < until_ms;
                Some(LetGo { token: *token, in_time, refused: answer.as_ref().err().cloned() })
            }
            _ => None,
        };
        let mut acts = self.take_answer(now_us, doing, reply, rng);
        acts.extend(let_go.map(Act::LetGo));
        acts
    }

    fn take_answer(&mut self, now_us: u64, doing: Doing, reply: Reply, rng: &mut Rng) -> Vec<Act> {
        match (doing, reply) {
            (_, Reply::Busy(_) | Reply::Unknown) => Vec::new(),
            (Doing::Opening, Reply::Answer(Ok(Answer::SessionOpened(id)))) => {
                self.session = Some(SessionRef { id, secret: self.secret() });
                self.session_until_ms = self.clock_ms(self.first_sent_us) + self.ttl_ms * 9 / 10;
                self.next_beat_us = now_us;
                self.rest(now_us, rng);
                Vec::new()
            }
            (Doing::Acquiring(wish), Reply::Answer(Ok(Answer::Standing(standing)))) => {
                self.stands(now_us, wish, standing, rng)
            }
            (
                Doing::Acquiring(_) | Doing::Releasing(..),
                Reply::Answer(Err(Refusal::NoSession(_))),
            ) => {
                self.start_over(now_us);
                Vec::new()
            }
            (Doing::Acquiring(_) | Doing::Releasing(..), Reply::Answer(_)) => {
                self.next_request += 1;
                self.finish(now_us, rng)
            }
            (Doing::Reading, Reply::Current) => self.finish(now_us, rng),
            _ => Vec::new(),
        }
    }

    fn stands(&mut self, now_us: u64, wish: Wish, standing: Standing, rng: &mut Rng) -> Vec<Act> {
        let token = standing.token();
        match standing {
            Standing::Waiting { .. } => vec![Act::Drew(token)],
            Standing::Over { .. } => {
                self.next_request += 1;
                self.finish(now_us, rng)
            }
            Standing::Held(grant) => {
                let believed_until_ms = match wish.lease {
                    Lease::Deadline { ttl_ms } => {
                        let waited_ms = grant.waited_ms * 99 / 100;
                        Some(self.clock_ms(self.first_sent_us) + waited_ms + ttl_ms * 9 / 10)
                    }
                    Lease::Session | Lease::Permanent | Lease::Unconfirmed { .. } => None,
                };
                let release_at_us = now_us + rng.range(1_000, 3_000_000);
                self.hold = Some(Hold { wish, token, believed_until_ms, release_at_us });
                self.next_request += 1;
                self.doing = Doing::Idle;
                self.idle_until_us = release_at_us;
                self.done += 1;
                vec![Act::Drew(token), Act::Finished]
            }
        }
    }

    fn finish(&mut self, now_us: u64, rng: &mut Rng) -> Vec<Act> {
        self.done += 1;
        self.rest(now_us, rng);
        vec![Act::Finished]
    }

    fn rest(&mut self, now_us: u64, rng: &mut Rng) {
        self.doing = Doing::Idle;
        self.idle_until_us = now_us + rng.range(1_000, 300_000);
    }

    /// The home node saw the ticket granted: ask how it stands.
    pub(crate) fn nudge(&mut self) {
        if matches!(self.doing, Doing::Acquiring(_)) {
            self.sent_us = self.sent_us.saturating_sub(RESEND_US);
        }
    }
}

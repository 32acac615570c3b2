//! What a client receives: frames to replies and events, and what they mean for it.

use super::Purpose;
use super::client::{Client, Context, Do, Link, Pending, Session};
use crate::checks::WatchKind;
use crate::world::WireId;
use holdfast_core::SessionId;
use holdfast_zookeeper::Code;
use holdfast_zookeeper::codec::{
    AddWatchMode, Connected, Reader, Reply, ReplyBody, Request, SetWatches, WatchEvent,
    WatchEventType, xid,
};
use std::num::NonZeroU64;

impl Client {
    pub(super) fn receive(
        &mut self,
        wire: WireId,
        bytes: &[u8],
        context: &mut Context<'_>,
    ) -> Result<(), String> {
        self.decoder.push(bytes);
        self.heard_us = context.now_us;
        while self.wire() == Some(wire) {
            let frame = self.decoder.frame().map_err(|error| format!("a reply: {error}"))?;
            let Some(frame) = frame.map(<[u8]>::to_vec) else { return Ok(()) };
            match self.link {
                Link::Connecting { since_us, .. } => {
                    self.connected(wire, since_us, &frame, context)?;
                }
                _ => self.frame(&frame, context)?,
            }
        }
        Ok(())
    }

    fn connected(
        &mut self,
        wire: WireId,
        asked_us: u64,
        frame: &[u8],
        context: &mut Context<'_>,
    ) -> Result<(), String> {
        let connected = Connected::decode(frame).map_err(|error| format!("connected: {error}"))?;
        let Some(id) = NonZeroU64::new(connected.session.cast_unsigned()).map(SessionId) else {
            let told = self.session.map_or(Ok(()), |was| context.checks.told_expired(was.id));
            context.out.push(Do::HangUp(wire));
            self.disconnected(context);
            self.begin_again(context);
            return told;
        };
        let timeout_ms = u64::try_from(connected.timeout_ms).unwrap_or(0);
        if self.session.is_none() {
            self.confirmed_us = asked_us;
            context.beats.push((id, asked_us, timeout_ms));
        }
        context.checks.connected(self.key(), id, self.connection, asked_us)?;
        self.session = Some(Session { id, password: connected.password, timeout_ms });
        self.link = Link::Open { wire };
        self.ping(wire, context);
        if self.watches.is_empty() {
            return context.checks.watches_set(self.key(), self.zxid);
        }
        let of = |kind: WatchKind| {
            let of_kind = self.watches.iter().filter(move |(_, of)| *of == kind);
            of_kind.map(|(path, _)| path.clone()).collect::<Vec<String>>()
        };
        let set = SetWatches {
            zxid: self.zxid.cast_signed(),
            data: of(WatchKind::Data),
            exist: of(WatchKind::Exist),
            child: of(WatchKind::Children),
            persistent: Some((of(WatchKind::Persistent), of(WatchKind::Recursive))),
        };
        self.send(Request::SetWatches(set), Purpose::SetWatches, context);
        Ok(())
    }

    fn frame(&mut self, frame: &[u8], context: &mut Context<'_>) -> Result<(), String> {
        let malformed = |error| format!("a reply can't be read: {error}");
        match Reader::new(frame).int().map_err(malformed)? {
            xid::NOTIFICATION => {
                let event = WatchEvent::decode(frame).map_err(malformed)?;
                self.event(&event, context)
            }
            xid::PING => {
                let reply = Reply::decode(frame, &Request::Ping).map_err(malformed)?;
                let (sent_us, session) = (self.pings.pop_front(), self.session);
                if let Some((sent_us, session)) = sent_us.zip(session) {
                    self.confirmed_us = self.confirmed_us.max(sent_us);
                    context.beats.push((session.id, sent_us, session.timeout_ms));
                }
                self.saw(&reply, context)
            }
            xid => {
                let Some(pending) = self.pending.pop_front() else {
                    return context.checks.replied(self.key(), 0, xid);
                };
                context.checks.replied(self.key(), pending.xid, xid)?;
                let reply = Reply::decode(frame, &pending.request).map_err(malformed)?;
                self.replied(pending, reply, context)
            }
        }
    }

    fn saw(&mut self, reply: &Reply, context: &mut Context<'_>) -> Result<(), String> {
        let zxid = reply.zxid.cast_unsigned();
        self.zxid = self.zxid.max(zxid);
        context.checks.saw(self.key(), zxid)
    }

    fn replied(
        &mut self,
        pending: Pending,
        reply: Reply,
        context: &mut Context<'_>,
    ) -> Result<(), String> {
        let zxid = reply.zxid.cast_unsigned();
        if pending.purpose == Purpose::SetWatches {
            self.zxid = self.zxid.max(zxid);
            return context.checks.watches_set(self.key(), zxid);
        }
        self.saw(&reply, context)?;
        self.done += 1;
        self.note_watch(&pending.request, &reply, context);
        match pending.purpose {
            Purpose::Close => {
                context.out.extend(self.wire().map(Do::HangUp));
                self.disconnected(context);
                Ok(())
            }
            Purpose::Lock => {
                let drew = self.lock.replied(&reply, context);
                context.drew.extend(drew.map(|token| (token.0, pending.floor)));
                Ok(())
            }
            Purpose::Plain => {
                if matches!(pending.request, Request::Sync { .. }) {
                    context.synced.push((zxid, pending.floor));
                }
                let key = self.key();
                self.plain.replied(key, &pending.request, &reply, context)
            }
            Purpose::SetWatches => Ok(()),
        }
    }

    /// What a reply means for the watches.
    fn note_watch(&mut self, request: &Request, reply: &Reply, context: &mut Context<'_>) {
        let (path, kind) = match (request, &reply.result) {
            (Request::Exists { path, watch: true }, Err(Code::NoNode)) => (path, WatchKind::Exist),
            (
                Request::Exists { path, watch: true } | Request::GetData { path, watch: true },
                Ok(_),
            ) => (path, WatchKind::Data),
            (Request::GetChildren { path, watch: true, .. }, Ok(_)) => (path, WatchKind::Children),
            (Request::AddWatch { path, mode }, Ok(ReplyBody::Number(0))) => match mode {
                AddWatchMode::Persistent => (path, WatchKind::Persistent),
                AddWatchMode::PersistentRecursive => (path, WatchKind::Recursive),
            },
            _ => return,
        };
        if matches!(kind, WatchKind::Data | WatchKind::Exist) {
            self.watches.remove(&(path.clone(), WatchKind::Data));
            self.watches.remove(&(path.clone(), WatchKind::Exist));
        }
        self.watches.insert((path.clone(), kind));
        context.checks.watch(self.key(), path, kind, reply.zxid.cast_unsigned());
    }

    fn event(&mut self, event: &WatchEvent, context: &mut Context<'_>) -> Result<(), String> {
        context.checks.event(self.key(), event)?;
        let path = &event.path;
        let one_shot: &[WatchKind] = match event.what {
            WatchEventType::ChildrenChanged => &[WatchKind::Children],
            WatchEventType::Deleted => &[WatchKind::Data, WatchKind::Exist, WatchKind::Children],
            WatchEventType::Created | WatchEventType::DataChanged => {
                &[WatchKind::Data, WatchKind::Exist]
            }
        };
        for kind in one_shot {
            self.watches.remove(&(path.clone(), *kind));
        }
        if self.lock.event(event) && event.what == WatchEventType::Deleted {
            return context.checks.woken(self.key(), path);
        }
        Ok(())
    }
}

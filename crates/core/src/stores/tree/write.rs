//! Makes changes once all of them are planned: if one is not possible, none is made.

use super::Tree;
use super::nodes::{Node, NodeTicket};
use super::plan::{Planner, Step, TicketPlace};
use crate::command::{Door, Lease};
use crate::effect::{Answer, Effect, EndReason, Forced};
use crate::ids::SessionId;
use crate::lines::{StepBudget, StoreAccess, TicketSpec};
use crate::refusal::Refusal;
use crate::text::{Label, LockName, NodeData, Reason};
use crate::tree::{Acl, NodeEvent, NodeKind, NodeResult, TreeCommand, TreeWrite};
use std::sync::Arc;

/// The changes of one command, in progress.
pub(super) struct PendingWrite {
    session: SessionId,
    /// The zxid shared by all changes that draw no ticket. `None` until the first of them.
    zxid: Option<u64>,
    steps: StepBudget,
}

impl PendingWrite {
    fn zxid(&mut self, lines: &mut impl StoreAccess) -> u64 {
        *self.zxid.get_or_insert_with(|| lines.next_number())
    }
}

impl Tree {
    /// `check_name` decides whether a name may be a lock now: another store may be using it.
    pub(crate) fn command(
        &mut self,
        command: TreeCommand,
        check_name: impl Fn(&LockName) -> Result<(), Refusal>,
        lines: &mut impl StoreAccess,
        effects: &mut Vec<Effect>,
    ) -> Result<Answer, Refusal> {
        match command {
            TreeCommand::Attach(session) => self.attach(&session, lines, effects),
            TreeCommand::Write(write) => self.write(write, &check_name, lines, effects),
        }
    }

    fn write(
        &mut self,
        mut write: TreeWrite,
        check_name: &dyn Fn(&LockName) -> Result<(), Refusal>,
        lines: &mut impl StoreAccess,
        effects: &mut Vec<Effect>,
    ) -> Result<Answer, Refusal> {
        lines.check_session(&write.session)?;
        self.check_attachment(write.session.id, write.attachment)?;
        let ops = std::mem::take(&mut write.ops);
        let planned = Planner::new(self, lines, check_name, &write).plan(ops);
        let planned = planned.map_err(|(op, why)| Refusal::Node { op: op as u32, why })?;
        // Each change may end a ticket and draw one; the rest of the budget is for serving waiters.
        let taken = planned.len().saturating_mul(2);
        let steps = StepBudget::new(lines.limits().steps_max.saturating_sub(taken));
        let mut writing = PendingWrite { session: write.session.id, zxid: None, steps };
        let take = |step| self.take_step(step, &mut writing, lines, effects);
        Ok(Answer::Written(planned.into_iter().map(take).collect()))
    }

    fn take_step(
        &mut self,
        step: Step,
        writing: &mut PendingWrite,
        lines: &mut impl StoreAccess,
        effects: &mut Vec<Effect>,
    ) -> NodeResult {
        match step {
            Step::Create { path, data, acl, kind } => {
                let zxid = writing.zxid(lines);
                let node = new_node(path, data, acl, kind, writing.session, zxid, lines);
                self.created(node, zxid, lines, effects)
            }
            Step::Draw { path, data, acl, kind, place } => {
                self.show_line(&place, lines, effects);
                let TicketPlace { lock, mode, .. } = place;
                let lease = match kind {
                    NodeKind::Ephemeral => Lease::Session,
                    _ => Lease::Permanent,
                };
                let label = data.as_ref().and_then(label_of);
                let spec = TicketSpec::of_session(
                    Door::ZooKeeper,
                    (kind == NodeKind::Ephemeral).then_some(writing.session),
                    label,
                    mode,
                    lease,
                );
                let Some(token) = lines.draw(lock, spec, effects) else {
                    return NodeResult::Checked;
                };
                let ticket = NodeTicket { token, foreign: false, over: false };
                let node = new_node(path, data, acl, kind, writing.session, token.0, lines);
                let node = Node { ticket: Some(ticket), ..node };
                self.created(node, token.0, lines, effects)
            }
            Step::Delete { path } => {
                let zxid = writing.zxid(lines);
                let node = self.node(&path).map(|node| (node.ticket, node.session));
                self.remove(&path, zxid, lines, effects);
                if let Some((Some(ticket), owner)) = node {
                    self.end_own(&path, ticket, owner, writing, lines, effects);
                }
                NodeResult::Deleted
            }
            Step::SetData { path, data } => {
                let zxid = writing.zxid(lines);
                self.set_data(&path, data, zxid, lines, effects);
                NodeResult::Set(self.stat_of(&path))
            }
            Step::SetAcl { path, acl } => {
                // In ZooKeeper this is a change, although no zxid of the znode shows it.
                writing.zxid(lines);
                self.change(&path, lines, |node| {
                    node.acl = acl;
                    node.aversion = node.aversion.wrapping_add(1);
                });
                NodeResult::Set(self.stat_of(&path))
            }
            Step::Revoke { path, ticket } => {
                self.ask_to_let_go(&path, ticket, writing.session, lines, effects);
                NodeResult::Set(self.stat_of(&path))
            }
            Step::Nothing => NodeResult::Checked,
        }
    }

    fn created(
        &mut self,
        node: Node,
        zxid: u64,
        lines: &mut impl StoreAccess,
        effects: &mut Vec<Effect>,
    ) -> NodeResult {
        let path = node.path.clone();
        self.add(node, zxid, lines, effects);
        let stat = self.stat_of(&path);
        NodeResult::Created { path, stat }
    }

    pub(super) fn set_data(
        &mut self,
        path: &str,
        data: Option<NodeData>,
        zxid: u64,
        lines: &mut impl StoreAccess,
        effects: &mut Vec<Effect>,
    ) {
        let (now_ms, wall_ms) = (lines.now_ms(), lines.wall_ms());
        self.change(path, lines, |node| {
            node.data = data;
            node.version = node.version.wrapping_add(1);
            (node.mzxid, node.mtime_ms) = (node.mzxid.max(zxid), wall_ms);
            if matches!(node.kind, NodeKind::Ttl { .. }) {
                node.idle_since_ms = now_ms;
            }
        });
        let path = self.node(path).map(|node| node.path.clone());
        effects.extend(path.map(|path| Effect::NodeChanged {
            path,
            what: NodeEvent::DataChanged,
            zxid,
        }));
    }

    /// Ends the ticket of a znode that was deleted. If another session deleted it, the lock was
    /// broken.
    fn end_own(
        &mut self,
        path: &str,
        ticket: NodeTicket,
        owner: Option<SessionId>,
        writing: &mut PendingWrite,
        lines: &mut impl StoreAccess,
        effects: &mut Vec<Effect>,
    ) {
        if self.joined_goes_on(path, ticket, owner, lines, effects) {
            return;
        }
        let by_owner = owner.is_none_or(|owner| owner == writing.session);
        let forced =
            if by_owner { None } else { forced_by(writing.session, "its znode was deleted") };
        let how = if forced.is_some() {
            EndReason::Forced
        } else if lines.is_held(ticket.token) {
            EndReason::Released
        } else {
            EndReason::Cancelled
        };
        lines.end_as(ticket.token, how, forced, &mut writing.steps, effects);
    }
}

fn forced_by(session: SessionId, reason: &str) -> Option<Arc<Forced>> {
    let by = session_label(session)?;
    Some(Arc::new(Forced { by, reason: Reason::parse(reason).ok()? }))
}

/// The label of a session in the history, in the form that ZooKeeper's tools use.
pub(super) fn session_label(session: SessionId) -> Option<Label> {
    Label::parse(format!("ZooKeeper session 0x{:x}", session.0)).ok()
}

/// The data that a recipe writes into its znode is the holder's label.
fn label_of(data: &NodeData) -> Option<Label> {
    Label::parse(data.as_bytes()).ok().filter(|label| !label.as_bytes().is_empty())
}

fn new_node(
    path: Arc<str>,
    data: Option<NodeData>,
    acl: Arc<[Acl]>,
    kind: NodeKind,
    session: SessionId,
    zxid: u64,
    lines: &impl StoreAccess,
) -> Node {
    Node {
        path,
        data,
        acl,
        kind,
        session: (kind == NodeKind::Ephemeral).then_some(session),
        czxid: zxid,
        mzxid: zxid,
        pzxid: zxid,
        ctime_ms: lines.wall_ms(),
        mtime_ms: lines.wall_ms(),
        version: 0,
        aversion: 0,
        creates: 0,
        idle_since_ms: lines.now_ms(),
        ticket: None,
    }
}

//! Membership changes: any node accepts the question, the leader decides.

use super::Shared;
use super::connection::{self, Credentials};
use super::handshake::{Contact, Purpose};
use crate::engine::Engine;
use crate::stream::Stream;
use holdfast_gateway::SubmitError;
use holdfast_node::{Change, Cluster, Member, Node, NodeId, NotChanged};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// How long to look for a leader that answers a question.
const TIMEOUT: Duration = Duration::from_secs(15);

/// The delay between two attempts.
const RETRY: Duration = Duration::from_millis(100);

/// Why the leader refuses a change: the remaining voters could not commit.
pub(crate) const NO_MAJORITY: &str = "no majority of the voters";

/// Why no change can be made at all.
pub(crate) const NOT_COMMITTABLE: &str = "the members can't be changed";

/// How long voters that a change depends on may take to answer.
const ANSWERS_WITHIN: Duration = Duration::from_millis(1_500);

/// How long a change may take to commit, given that a majority was reachable when it was proposed.
const CHANGED_WITHIN: Duration = Duration::from_secs(10);

/// How long another node may take to become the leader.
const TRANSFERRED_WITHIN: Duration = Duration::from_secs(2);

/// How many voters are asked, one after the other, to take over.
const SUCCESSORS_MAX: usize = 2;

/// A learner is promoted only if it lags by at most this many entries, because the cluster may have
/// to wait for it.
const LAG_MAX: u64 = 1_000;

/// A membership question, sent to the leader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberRequest {
    /// Adds a member without a vote; the reply is its id.
    Add {
        /// Its peer address.
        address: String,
    },
    /// Gives a learner its vote.
    Promote(NodeId),
    /// Removes a member permanently.
    Remove(NodeId),
    /// Transfers leadership to another voter.
    Transfer(NodeId),
    /// Removes a member permanently, even if no majority of the remaining voters answers.
    RemoveByForce(NodeId),
}

#[derive(Debug, Serialize, Deserialize)]
enum LeaderReply {
    /// The id of the member in question.
    Done(NodeId),
    /// Try again, perhaps at that node.
    NotHere(Option<Contact>),
    Refused(String),
    /// The change was proposed, and may take effect later.
    Unknown(String),
}

/// Why the members were not changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotDone {
    /// The reason as text, with what to do.
    pub why: String,
    /// Whether it is certain that this question will never take effect.
    pub certain: bool,
}

impl NotDone {
    fn definite(why: String) -> Self {
        Self { why, certain: true }
    }

    fn uncertain(why: String) -> Self {
        Self { why, certain: false }
    }
}

/// The result of handing over leadership.
enum HandOver {
    Done,
    /// This node is the only voter.
    OnlyVoter,
    /// None of these voters took over.
    NobodyTook(Vec<NodeId>),
}

/// A handle for asking membership questions, on any node.
#[derive(Clone)]
pub struct Membership {
    engine: Engine,
    shared: Arc<Shared>,
}

impl Membership {
    pub(crate) fn new(engine: Engine, shared: Arc<Shared>) -> Self {
        Self { engine, shared }
    }

    /// A node's addresses, as far as this node knows.
    pub fn contact_of(&self, node: NodeId) -> Option<Contact> {
        self.shared.contact_of(node)
    }

    /// Whether a member has a vote, according to this node; `None` if it is not a member.
    pub(crate) async fn votes(&self, id: NodeId) -> Result<Option<bool>, String> {
        let votes = move |node: &Node| node.cluster().members().get(&id).map(|m| m.votes);
        self.engine.peek(votes).await.map_err(stopped)
    }

    /// Asks the leader, whichever node that is.
    pub async fn ask(&self, question: MemberRequest) -> Result<NodeId, NotDone> {
        let until = Instant::now() + TIMEOUT;
        let mut last = NotDone::definite(format!(
            "{NOT_COMMITTABLE}: there is no leader, because no majority of the voters answers"
        ));
        while Instant::now() < until {
            match self.ask_once(&question).await {
                Ok(LeaderReply::Done(node)) => return Ok(node),
                Ok(LeaderReply::Refused(why)) => return Err(NotDone { why, ..last }),
                Ok(LeaderReply::Unknown(why)) => return Err(NotDone::uncertain(why)),
                Ok(LeaderReply::NotHere(_)) => {}
                Err(NotDone { why, certain }) => {
                    last = NotDone { why, certain: last.certain && certain };
                }
            }
            sleep(RETRY).await;
        }
        Err(last)
    }

    async fn ask_once(&self, question: &MemberRequest) -> Result<LeaderReply, NotDone> {
        let leader = self.engine.peek(|node| node.leader()).await;
        let leader = leader.map_err(|trouble| NotDone::definite(stopped(trouble)))?;
        let Some(leader) = leader else { return Ok(LeaderReply::NotHere(None)) };
        if leader == self.shared.me.node {
            return self.decide(question).await.map_err(NotDone::uncertain);
        }
        let dialed = self.shared.dial(leader, Purpose::Members).await;
        let (stream, _) = dialed.map_err(|error| NotDone::definite(error.to_string()))?;
        put(stream, question).await.map_err(NotDone::uncertain)
    }

    /// The leader's reply.
    async fn decide(&self, question: &MemberRequest) -> Result<LeaderReply, String> {
        // The reply to an earlier copy of this question may have been lost.
        let asked = question.clone();
        let done = self.engine.peek(move |node| done_before(&asked, node.cluster()));
        if let Some(about) = done.await.map_err(stopped)? {
            return Ok(LeaderReply::Done(about));
        }
        let about = match question {
            MemberRequest::Add { .. } => {
                self.engine.peek(|node| node.cluster().next_id()).await.map_err(stopped)?
            }
            MemberRequest::Promote(node)
            | MemberRequest::Remove(node)
            | MemberRequest::RemoveByForce(node)
            | MemberRequest::Transfer(node) => *node,
        };
        let change = match question {
            MemberRequest::Add { address } => {
                Change::AddLearner { node: about, address: address.clone() }
            }
            MemberRequest::Promote(_) => {
                if let Some(why) = self.too_far_behind(about).await? {
                    return Ok(LeaderReply::Refused(why));
                }
                Change::Promote(about)
            }
            MemberRequest::Remove(_) | MemberRequest::RemoveByForce(_)
                if about == self.shared.me.node =>
            {
                return self.step_aside().await;
            }
            MemberRequest::Remove(_) | MemberRequest::RemoveByForce(_) => Change::Remove(about),
            MemberRequest::Transfer(_) => return self.transfer(about).await,
        };
        if let Some(reply) = self.no_majority_answers().await? {
            return Ok(reply);
        }
        let force = matches!(question, MemberRequest::RemoveByForce(_));
        let until = Instant::now() + ANSWERS_WITHIN;
        let changed = loop {
            let changed = timeout(CHANGED_WITHIN, self.engine.change(change.clone(), force)).await;
            let Ok(changed) = changed else { return Ok(LeaderReply::Unknown(unfinished(about))) };
            let changed = changed.map_err(stopped)?;
            let silent =
                matches!(changed, Err(NotChanged::NoMajority(_) | NotChanged::NotCommittable(_)));
            if !silent || Instant::now() >= until {
                break changed;
            }
            sleep(RETRY).await;
        };
        Ok(match changed {
            Ok(()) => LeaderReply::Done(about),
            // Someone else got that id meanwhile: try again with the next one.
            Err(NotChanged::Refused(_)) if matches!(question, MemberRequest::Add { .. }) => {
                LeaderReply::NotHere(None)
            }
            Err(NotChanged::Refused(why)) => LeaderReply::Refused(format!("node {about}: {why}")),
            Err(NotChanged::NoMajority(silent)) => {
                LeaderReply::Refused(no_majority(about, &silent))
            }
            Err(NotChanged::NotCommittable(silent)) => {
                LeaderReply::Refused(not_committable(&silent))
            }
            Err(NotChanged::NotLeader | NotChanged::NotNow | NotChanged::Lost) => {
                LeaderReply::NotHere(None)
            }
        })
    }

    /// Checks that a majority of the voters is answering right now, since they must commit a
    /// change. Otherwise it would wait in the log and take effect whenever they are back.
    async fn no_majority_answers(&self) -> Result<Option<LeaderReply>, String> {
        if let Ok(Ok(())) = timeout(ANSWERS_WITHIN, self.engine.read(|_| ())).await {
            return Ok(None);
        }
        let look = |node: &Node| {
            let voters = node.cluster().members().iter().filter(|(_, member)| member.votes);
            let voters: Vec<NodeId> = voters.map(|(id, _)| *id).collect();
            let count = voters.len();
            let silent: Vec<NodeId> = voters.into_iter().filter(|id| !node.answers(*id)).collect();
            (node.is_leader() && silent.len() * 2 >= count).then_some(silent)
        };
        let silent = self.engine.peek(look).await.map_err(stopped)?;
        // If they do answer, the read was slow, or another node leads: the next attempt will tell.
        let reply = silent.map(|silent| LeaderReply::Refused(not_committable(&silent)));
        Ok(Some(reply.unwrap_or(LeaderReply::NotHere(None))))
    }

    /// Why a learner must not vote yet: with its vote counted, the majority may depend on it.
    async fn too_far_behind(&self, learner: NodeId) -> Result<Option<String>, String> {
        let entries = move |node: &Node| {
            let progress = node.progress();
            let of = |id| progress.iter().find(|(who, _)| *who == id).map(|(_, index)| *index);
            let member = node.cluster().members().get(&learner);
            // Without a recorded folder, a node that lost it could come back under its id and vote
            // again.
            let has_said_birth = member.is_none_or(|member| member.votes || member.birth != 0);
            of(node.id()).zip(of(learner).map(|has| if has_said_birth { has } else { 0 }))
        };
        Ok(match self.engine.peek(entries).await.map_err(stopped)? {
            // A leader starts from 0, until it has learned what a member has.
            Some((_, 0)) => Some(format!("node {learner} has never connected: is it running?")),
            Some((last, has)) if last.saturating_sub(has) > LAG_MAX => {
                let lag = last - has;
                Some(format!(
                    "node {learner} still lacks {lag} entries: wait until it has caught up"
                ))
            }
            _ => None,
        })
    }

    async fn transfer(&self, to: NodeId) -> Result<LeaderReply, String> {
        match self.votes(to).await? {
            None => return Ok(LeaderReply::Refused(format!("node {to} is not a member"))),
            Some(false) => {
                return Ok(LeaderReply::Refused(format!(
                    "node {to} has no vote: promote it first"
                )));
            }
            Some(true) => {}
        }
        self.engine.transfer(to);
        let until = Instant::now() + TRANSFERRED_WITHIN;
        while Instant::now() < until {
            if self.engine.peek(|node| node.leader()).await.map_err(stopped)? == Some(to) {
                return Ok(LeaderReply::Done(to));
            }
            sleep(Duration::from_millis(5)).await;
        }
        Ok(LeaderReply::NotHere(None))
    }

    /// A leader that is to be removed hands over leadership, so that its successor removes it.
    async fn step_aside(&self) -> Result<LeaderReply, String> {
        let me = self.shared.me.node;
        Ok(match self.try_hand_over().await? {
            HandOver::Done => LeaderReply::NotHere(None),
            HandOver::OnlyVoter => LeaderReply::Refused(
                "the last voter can't be removed: add another node first".to_owned(),
            ),
            HandOver::NobodyTook(voters) => LeaderReply::Refused(format!(
                "node {me} leads, and can't be removed before another voter leads: {} did not take \
                 over within {} s. Start the voters that do not answer, then try again",
                nodes(&voters),
                TRANSFERRED_WITHIN.as_secs()
            )),
        })
    }

    /// Hands leadership to another voter, if this node leads and one of them takes it.
    pub(crate) async fn hand_over(&self) {
        // A stopping node can't do more: the others will elect a leader themselves.
        let _ = self.try_hand_over().await;
    }

    /// Tries the voters that answer, the most up-to-date first. A new leader may not have received
    /// any answers yet: then it tries the most up-to-date of all.
    async fn try_hand_over(&self) -> Result<HandOver, String> {
        let successors = |node: &Node| {
            let votes = |id: &NodeId| node.cluster().members().get(id).is_some_and(|m| m.votes);
            let others =
                node.progress().into_iter().filter(|(id, _)| *id != node.id() && votes(id));
            let mut others: Vec<(bool, u64, NodeId)> =
                others.map(|(id, index)| (node.answers(id), index, id)).collect();
            others.sort_unstable_by(|a, b| b.cmp(a));
            node.is_leader().then_some(others)
        };
        let Some(others) = self.engine.peek(successors).await.map_err(stopped)? else {
            return Ok(HandOver::Done);
        };
        if others.is_empty() {
            return Ok(HandOver::OnlyVoter);
        }
        let answering = others.iter().filter(|(answers, _, _)| *answers).count();
        for (_, _, to) in others.iter().take(answering.clamp(1, SUCCESSORS_MAX)) {
            if matches!(self.transfer(*to).await?, LeaderReply::Done(_)) {
                return Ok(HandOver::Done);
            }
        }
        Ok(HandOver::NobodyTook(others.into_iter().map(|(_, _, id)| id).collect()))
    }
}

/// The member in question, if the same question has already been carried out. A new member that
/// never connected may ask again under the same address: a second id would never get a node.
fn done_before(question: &MemberRequest, cluster: &Cluster) -> Option<NodeId> {
    match question {
        MemberRequest::Add { address } => {
            let unheard = |member: &Member| !member.votes && member.birth == 0;
            let same = |member: &Member| member.address == *address && unheard(member);
            cluster.members().iter().find(|(_, member)| same(member)).map(|(id, _)| *id)
        }
        MemberRequest::Remove(id) | MemberRequest::RemoveByForce(id) => {
            cluster.removed().contains(id).then_some(*id)
        }
        MemberRequest::Promote(_) | MemberRequest::Transfer(_) => None,
    }
}

fn no_majority(about: NodeId, silent: &[NodeId]) -> String {
    let do_not = if silent.len() == 1 { "does" } else { "do" };
    let silent = nodes(silent);
    format!("node {about}: there would be {NO_MAJORITY}, because {silent} {do_not} not answer")
}

fn not_committable(silent: &[NodeId]) -> String {
    let do_not = if silent.len() == 1 { "does" } else { "do" };
    let silent = nodes(silent);
    format!(
        "{NOT_COMMITTABLE}: a majority of the voters must agree, and {silent} {do_not} not answer"
    )
}

fn unfinished(about: NodeId) -> String {
    format!(
        "node {about}: the change was proposed, and no majority of the voters has confirmed it yet; \
         it takes effect when one does"
    )
}

/// Formats ids as in `nodes 1, 2`.
fn nodes(ids: &[NodeId]) -> String {
    let reply = if ids.len() == 1 { "node" } else { "nodes" };
    let ids: Vec<String> = ids.iter().map(NodeId::to_string).collect();
    format!("{reply} {}", ids.join(", "))
}

fn stopped(trouble: SubmitError) -> String {
    match trouble {
        SubmitError::QueueFull => "this node is busy: try again".to_owned(),
        _ => "this node is stopping: ask another".to_owned(),
    }
}

/// Answers another node's question; refers it to the leader if that is not this node.
pub(super) async fn answer(mut stream: Stream, membership: &Membership) -> Result<(), String> {
    let question = timeout(TIMEOUT, connection::read::<MemberRequest>(&mut stream)).await;
    let question = question.map_err(|_| "it sent no request".to_owned())??;
    let engine = &membership.engine;
    let leads = engine.peek(|node| (node.is_leader(), node.leader())).await.map_err(stopped)?;
    let reply = match leads {
        (true, _) => membership.decide(&question).await.unwrap_or_else(LeaderReply::Refused),
        (false, leader) => {
            LeaderReply::NotHere(leader.and_then(|leader| membership.shared.contact_of(leader)))
        }
    };
    connection::write(&mut stream, &reply).await
}

async fn put(mut stream: Stream, question: &MemberRequest) -> Result<LeaderReply, String> {
    let answered = timeout(TIMEOUT, async {
        connection::write(&mut stream, question).await?;
        connection::read(&mut stream).await
    });
    answered.await.unwrap_or_else(|_| Err("the leader does not answer".to_owned()))
}

/// Asks the members from outside the cluster: for a node that is not a member yet, or not running.
pub(crate) async fn join(
    addresses: &[String],
    credentials: &Credentials,
    question: MemberRequest,
) -> Result<NodeId, String> {
    let until = Instant::now() + TIMEOUT;
    let mut candidates = addresses.to_vec();
    let mut why = "no address of a member was given".to_owned();
    while Instant::now() < until {
        for address in candidates.clone() {
            let reply =
                match connection::dial(&address, credentials, None, None, Purpose::Members).await {
                    Ok((stream, _)) => put(stream, &question).await,
                    Err(refused) => Err(refused.to_string()),
                };
            match reply {
                Ok(LeaderReply::Done(node)) => return Ok(node),
                Ok(LeaderReply::Refused(why)) => return Err(why),
                Ok(LeaderReply::NotHere(Some(leader))) if !candidates.contains(&leader.peer) => {
                    candidates.push(leader.peer);
                }
                Ok(LeaderReply::Unknown(unknown)) => why = unknown,
                Ok(LeaderReply::NotHere(_)) => why = format!("{address}: there is no leader now"),
                Err(error) => why = error,
            }
        }
        sleep(RETRY).await;
    }
    Err(why)
}

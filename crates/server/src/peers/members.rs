//! Changing the members: any node takes the question, the leader decides.

use super::Shared;
use super::connection;
use super::hello::{Contact, Purpose};
use crate::engine::Engine;
use crate::key::ClusterKey;
use holdfast_gateway::SubmitError;
use holdfast_node::{Change, Cluster, Member, Node, NodeId, NotChanged};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

/// How long a question may look for a leader that answers it.
const PATIENCE: Duration = Duration::from_secs(15);

/// How long between two tries.
const RETRY: Duration = Duration::from_millis(100);

/// What a change would lead to that the leader refuses.
pub(crate) const NO_MAJORITY: &str = "no majority of the voters";

/// Why no change at all can be made.
pub(crate) const NOT_COMMITTABLE: &str = "the members can't be changed";

/// Voters that a change needs may be a little slow to answer.
const ANSWERS_WITHIN: Duration = Duration::from_millis(1_500);

/// How long a change may take that a majority was there for when it was proposed.
const CHANGED_WITHIN: Duration = Duration::from_secs(10);

/// How long another node may take to become the leader.
const TRANSFERRED_WITHIN: Duration = Duration::from_secs(2);

/// Voters that are asked one after the other to take over.
const SUCCESSORS_MAX: usize = 2;

/// A learner is promoted when it lacks no more entries than this: the cluster would wait for it.
const LAG_MAX: u64 = 1_000;

/// What the members are asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// A new member that follows without a vote; the answer is its id.
    Add {
        /// Where its peers reach it.
        address: String,
    },
    /// A learner gets its vote.
    Promote(NodeId),
    /// A member goes, for good.
    Remove(NodeId),
    /// Another voter is to lead.
    Transfer(NodeId),
    /// A member goes, for good, also if no majority of those that are left answers.
    RemoveByForce(NodeId),
}

#[derive(Debug, Serialize, Deserialize)]
enum Word {
    /// The id of the member that it was about.
    Done(NodeId),
    /// Try again, perhaps there.
    NotHere(Option<Contact>),
    Refused(String),
    /// It was proposed, and may take effect later.
    Unknown(String),
}

/// Why the members were not changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotDone {
    /// In words, with what to do.
    pub why: String,
    /// Whether it is certain that they never will be because of this question.
    pub certain: bool,
}

impl NotDone {
    fn certainly(why: String) -> Self {
        Self { why, certain: true }
    }

    fn perhaps(why: String) -> Self {
        Self { why, certain: false }
    }
}

/// Whether another node leads now.
enum HandOver {
    Done,
    /// This node is the only voter.
    OnlyVoter,
    /// None of these voters took over.
    NobodyTook(Vec<NodeId>),
}

/// The members, to be asked from anywhere.
#[derive(Clone)]
pub struct Membership {
    engine: Engine,
    shared: Arc<Shared>,
}

impl Membership {
    pub(crate) fn new(engine: Engine, shared: Arc<Shared>) -> Self {
        Self { engine, shared }
    }

    /// Where a node can be reached, as far as this one knows.
    pub fn contact_of(&self, node: NodeId) -> Option<Contact> {
        self.shared.contact_of(node)
    }

    /// Whether a member has a vote; none if it is no member. As this node knows it.
    pub(crate) async fn votes(&self, id: NodeId) -> Result<Option<bool>, String> {
        let votes = move |node: &Node| node.cluster().members().get(&id).map(|m| m.votes);
        self.engine.peek(votes).await.map_err(stopped)
    }

    /// Asks the leader, wherever it is.
    pub async fn ask(&self, question: Question) -> Result<NodeId, NotDone> {
        let until = Instant::now() + PATIENCE;
        let mut last = NotDone::certainly(format!(
            "{NOT_COMMITTABLE}: there is no leader, because no majority of the voters answers"
        ));
        while Instant::now() < until {
            match self.ask_once(&question).await {
                Ok(Word::Done(node)) => return Ok(node),
                Ok(Word::Refused(why)) => return Err(NotDone { why, ..last }),
                Ok(Word::Unknown(why)) => return Err(NotDone::perhaps(why)),
                Ok(Word::NotHere(_)) => {}
                Err(NotDone { why, certain }) => {
                    last = NotDone { why, certain: last.certain && certain };
                }
            }
            sleep(RETRY).await;
        }
        Err(last)
    }

    async fn ask_once(&self, question: &Question) -> Result<Word, NotDone> {
        let leader = self.engine.peek(|node| node.leader()).await;
        let leader = leader.map_err(|trouble| NotDone::certainly(stopped(trouble)))?;
        let Some(leader) = leader else { return Ok(Word::NotHere(None)) };
        if leader == self.shared.me.node {
            return self.decide(question).await.map_err(NotDone::perhaps);
        }
        let dialed = self.shared.dial(leader, Purpose::Members).await;
        let (stream, _) = dialed.map_err(|error| NotDone::certainly(error.to_string()))?;
        put(stream, question).await.map_err(NotDone::perhaps)
    }

    /// What a leader says.
    async fn decide(&self, question: &Question) -> Result<Word, String> {
        // The answer to the same question may have been lost.
        let asked = question.clone();
        let done = self.engine.peek(move |node| done_before(&asked, node.cluster()));
        if let Some(about) = done.await.map_err(stopped)? {
            return Ok(Word::Done(about));
        }
        let about = match question {
            Question::Add { .. } => {
                self.engine.peek(|node| node.cluster().next_id()).await.map_err(stopped)?
            }
            Question::Promote(node)
            | Question::Remove(node)
            | Question::RemoveByForce(node)
            | Question::Transfer(node) => *node,
        };
        let change = match question {
            Question::Add { address } => {
                Change::AddLearner { node: about, address: address.clone() }
            }
            Question::Promote(_) => {
                if let Some(why) = self.too_far_behind(about).await? {
                    return Ok(Word::Refused(why));
                }
                Change::Promote(about)
            }
            Question::Remove(_) | Question::RemoveByForce(_) if about == self.shared.me.node => {
                return self.step_aside().await;
            }
            Question::Remove(_) | Question::RemoveByForce(_) => Change::Remove(about),
            Question::Transfer(_) => return self.transfer(about).await,
        };
        if let Some(word) = self.no_majority_answers().await? {
            return Ok(word);
        }
        let force = matches!(question, Question::RemoveByForce(_));
        let until = Instant::now() + ANSWERS_WITHIN;
        let changed = loop {
            let changed = timeout(CHANGED_WITHIN, self.engine.change(change.clone(), force)).await;
            let Ok(changed) = changed else { return Ok(Word::Unknown(unfinished(about))) };
            let changed = changed.map_err(stopped)?;
            let silent =
                matches!(changed, Err(NotChanged::NoMajority(_) | NotChanged::NotCommittable(_)));
            if !silent || Instant::now() >= until {
                break changed;
            }
            sleep(RETRY).await;
        };
        Ok(match changed {
            Ok(()) => Word::Done(about),
            // Somebody else was given that id meanwhile: there is another one.
            Err(NotChanged::Refused(_)) if matches!(question, Question::Add { .. }) => {
                Word::NotHere(None)
            }
            Err(NotChanged::Refused(why)) => Word::Refused(format!("node {about}: {why}")),
            Err(NotChanged::NoMajority(silent)) => Word::Refused(no_majority(about, &silent)),
            Err(NotChanged::NotCommittable(silent)) => Word::Refused(not_committable(&silent)),
            Err(NotChanged::NotLeader | NotChanged::NotNow | NotChanged::Lost) => {
                Word::NotHere(None)
            }
        })
    }

    /// Whether a majority of the voters answers right now: they must commit a change. Otherwise it
    /// would wait in the log, and take effect whenever they are back.
    async fn no_majority_answers(&self) -> Result<Option<Word>, String> {
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
        // If they do answer, it was slow, or another node leads: the next try will tell.
        let word = silent.map(|silent| Word::Refused(not_committable(&silent)));
        Ok(Some(word.unwrap_or(Word::NotHere(None))))
    }

    /// Why a learner must not vote yet: with its vote, the majority may need it.
    async fn too_far_behind(&self, learner: NodeId) -> Result<Option<String>, String> {
        let entries = move |node: &Node| {
            let progress = node.progress();
            let of = |id| progress.iter().find(|(who, _)| *who == id).map(|(_, index)| *index);
            let member = node.cluster().members().get(&learner);
            // Without it, one that lost its folder could come back under its id and vote again.
            let has_said_birth = member.is_none_or(|member| member.votes || member.birth != 0);
            of(node.id()).zip(of(learner).map(|has| if has_said_birth { has } else { 0 }))
        };
        Ok(match self.engine.peek(entries).await.map_err(stopped)? {
            // A leader counts from 0 until it has heard of what a member has.
            Some((_, 0)) => Some(format!("node {learner} has not been heard of: is it running?")),
            Some((last, has)) if last.saturating_sub(has) > LAG_MAX => {
                let lag = last - has;
                Some(format!(
                    "node {learner} still lacks {lag} entries: wait until it has caught up"
                ))
            }
            _ => None,
        })
    }

    async fn transfer(&self, to: NodeId) -> Result<Word, String> {
        match self.votes(to).await? {
            None => return Ok(Word::Refused(format!("node {to} is no member"))),
            Some(false) => {
                return Ok(Word::Refused(format!("node {to} has no vote: promote it first")));
            }
            Some(true) => {}
        }
        self.engine.transfer(to);
        let until = Instant::now() + TRANSFERRED_WITHIN;
        while Instant::now() < until {
            if self.engine.peek(|node| node.leader()).await.map_err(stopped)? == Some(to) {
                return Ok(Word::Done(to));
            }
            sleep(Duration::from_millis(5)).await;
        }
        Ok(Word::NotHere(None))
    }

    /// A leader that is to be removed lets another one do it.
    async fn step_aside(&self) -> Result<Word, String> {
        let me = self.shared.me.node;
        Ok(match self.try_hand_over().await? {
            HandOver::Done => Word::NotHere(None),
            HandOver::OnlyVoter => {
                Word::Refused("the last voter can't be removed: add another node first".to_owned())
            }
            HandOver::NobodyTook(voters) => Word::Refused(format!(
                "node {me} leads, and can't be removed before another voter leads: {} did not take \
                 over within {} s. Start the voters that do not answer, then try again",
                nodes(&voters),
                TRANSFERRED_WITHIN.as_secs()
            )),
        })
    }

    /// Hands leadership to another voter, if this node has it and one takes it.
    pub(crate) async fn hand_over(&self) {
        // A node that stops can't do more about it: the others elect a leader by themselves.
        let _ = self.try_hand_over().await;
    }

    /// Tries the voters that answer, the one that is furthest first. A new leader may not have
    /// heard of any yet: then it tries the furthest.
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
            if matches!(self.transfer(*to).await?, Word::Done(_)) {
                return Ok(HandOver::Done);
            }
        }
        Ok(HandOver::NobodyTook(others.into_iter().map(|(_, _, id)| id).collect()))
    }
}

/// Whom a question is about that has been answered before. A new member that has never been heard of
/// asks again under its address: a second id would stay without a node for good.
fn done_before(question: &Question, cluster: &Cluster) -> Option<NodeId> {
    match question {
        Question::Add { address } => {
            let unheard = |member: &Member| !member.votes && member.birth == 0;
            let same = |member: &Member| member.address == *address && unheard(member);
            cluster.members().iter().find(|(_, member)| same(member)).map(|(id, _)| *id)
        }
        Question::Remove(id) | Question::RemoveByForce(id) => {
            cluster.removed().contains(id).then_some(*id)
        }
        Question::Promote(_) | Question::Transfer(_) => None,
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

/// As in `nodes 1, 2`.
fn nodes(ids: &[NodeId]) -> String {
    let word = if ids.len() == 1 { "node" } else { "nodes" };
    let ids: Vec<String> = ids.iter().map(NodeId::to_string).collect();
    format!("{word} {}", ids.join(", "))
}

fn stopped(trouble: SubmitError) -> String {
    match trouble {
        SubmitError::QueueFull => "this node is busy: try again".to_owned(),
        _ => "this node is stopping: ask another".to_owned(),
    }
}

/// Answers another node's question, if this one leads.
pub(super) async fn answer(mut stream: TcpStream, membership: &Membership) -> Result<(), String> {
    let question = timeout(PATIENCE, connection::read::<Question>(&mut stream)).await;
    let question = question.map_err(|_| "it asked nothing".to_owned())??;
    let engine = &membership.engine;
    let leads = engine.peek(|node| (node.is_leader(), node.leader())).await.map_err(stopped)?;
    let word = match leads {
        (true, _) => membership.decide(&question).await.unwrap_or_else(Word::Refused),
        (false, leader) => {
            Word::NotHere(leader.and_then(|leader| membership.shared.contact_of(leader)))
        }
    };
    connection::write(&mut stream, &word).await
}

async fn put(mut stream: TcpStream, question: &Question) -> Result<Word, String> {
    let answered = timeout(PATIENCE, async {
        connection::write(&mut stream, question).await?;
        connection::read(&mut stream).await
    });
    answered.await.unwrap_or_else(|_| Err("the leader does not answer".to_owned()))
}

/// Asks the members from outside: one that is not yet a member, or not running.
pub(crate) async fn join(
    addresses: &[String],
    key: &ClusterKey,
    question: Question,
) -> Result<NodeId, String> {
    let until = Instant::now() + PATIENCE;
    let mut candidates = addresses.to_vec();
    let mut why = "no address of a member was given".to_owned();
    while Instant::now() < until {
        for address in candidates.clone() {
            let word = match connection::dial(&address, key, None, None, Purpose::Members).await {
                Ok((stream, _)) => put(stream, &question).await,
                Err(refused) => Err(refused.to_string()),
            };
            match word {
                Ok(Word::Done(node)) => return Ok(node),
                Ok(Word::Refused(why)) => return Err(why),
                Ok(Word::NotHere(Some(leader))) if !candidates.contains(&leader.peer) => {
                    candidates.push(leader.peer);
                }
                Ok(Word::Unknown(unknown)) => why = unknown,
                Ok(Word::NotHere(_)) => why = format!("{address}: there is no leader now"),
                Err(error) => why = error,
            }
        }
        sleep(RETRY).await;
    }
    Err(why)
}

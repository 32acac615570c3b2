//! The cluster itself: members, status, metrics and backups.

use super::body::JsonBody;
use crate::backup;
use crate::doors::Context;
use crate::doors::http::translate::error_response::HttpError;
use crate::doors::http::translate::fields::WholeNumber;
use crate::metrics::GaugeInputs;
use crate::peers::{MemberRequest, NO_MAJORITY, NOT_COMMITTABLE, NotDone};
use axum::Json;
use axum::body::Body;
use axum::http::header;
use axum::response::IntoResponse;
use holdfast_core::AuditAction;
use holdfast_gateway::{ApiError, Code, SubmitError, audit_entry, request};
use holdfast_node::{Node, NodeId};
use serde::Deserialize;
use serde_json::{Value, json};

/// The cluster's status as this node sees it.
pub(crate) async fn status(context: Context) -> Result<Json<Value>, HttpError> {
    let look = |node: &Node| {
        let members: Vec<(NodeId, bool, String)> = node
            .cluster()
            .members()
            .iter()
            .map(|(id, member)| (*id, member.votes, member.address.clone()))
            .collect();
        // Only a leader knows the progress of the others.
        let progress = if node.is_leader() { node.progress() } else { Vec::new() };
        let applied = node.applied().index;
        let leader = (node.leader(), node.term());
        (leader, node.disk_is_full(), members, progress, applied, node.state().counts())
    };
    let ((leader, term), disk_full, members, progress, applied, counts) =
        context.engine.peek(look).await?;
    let nodes: Vec<Value> = members
        .into_iter()
        .map(|(id, votes, peer)| {
            let role = match (Some(id) == leader, votes) {
                (true, _) => "leader",
                (false, true) => "follower",
                (false, false) => "learner",
            };
            let known = progress.iter().find(|(who, _)| *who == id).map(|(_, index)| *index);
            let http = context.membership.contact_of(id).map(|contact| contact.http);
            json!({
                "id": id,
                "role": role,
                "http": http.filter(|http| !http.is_empty()),
                "peer": peer_address(&context, id, peer),
                "applied": if id == context.id { Some(applied) } else { known },
            })
        })
        .collect();
    Ok(Json(json!({
        "node": context.id,
        "leader": leader,
        "term": term,
        "applied": applied,
        "disk_full": disk_full,
        "nodes": nodes,
        "locks": counts.locks,
        "holders": counts.holders,
        "waiters": counts.waiters,
        "sessions": counts.sessions,
    })))
}

pub(crate) async fn list(context: Context) -> Result<Json<Value>, HttpError> {
    let look = |node: &Node| {
        let members = node.cluster().members().iter();
        members.map(|(id, member)| (*id, member.address.clone(), member.votes)).collect::<Vec<_>>()
    };
    let members = context.engine.read(look).await?.into_iter().map(|(id, joined_at, votes)| {
        json!({ "id": id, "address": peer_address(&context, id, joined_at), "votes": votes })
    });
    Ok(Json(json!({ "members": members.collect::<Vec<_>>() })))
}

/// A node's peer address: it may have moved since it joined.
fn peer_address(context: &Context, id: NodeId, joined_at: String) -> String {
    let known = context.membership.contact_of(id).map(|contact| contact.peer);
    known.filter(|peer| !peer.is_empty()).unwrap_or(joined_at)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Address {
    address: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodeBody {
    node: WholeNumber,
}

pub(crate) async fn add(
    context: Context,
    JsonBody(sent): JsonBody<Address>,
) -> Result<Json<Value>, HttpError> {
    decide(&context, MemberRequest::Add { address: request::address(sent.address)? }).await
}

pub(crate) async fn promote(
    context: Context,
    JsonBody(which): JsonBody<NodeBody>,
) -> Result<Json<Value>, HttpError> {
    decide(&context, MemberRequest::Promote(NodeId(which.node.0))).await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Removal {
    node: WholeNumber,
    force: Option<bool>,
}

pub(crate) async fn remove(
    context: Context,
    JsonBody(removal): JsonBody<Removal>,
) -> Result<Json<Value>, HttpError> {
    let node = NodeId(removal.node.0);
    let force = removal.force.unwrap_or_default();
    decide(
        &context,
        if force { MemberRequest::RemoveByForce(node) } else { MemberRequest::Remove(node) },
    )
    .await
}

pub(crate) async fn transfer(
    context: Context,
    JsonBody(which): JsonBody<NodeBody>,
) -> Result<Json<Value>, HttpError> {
    decide(&context, MemberRequest::Transfer(NodeId(which.node.0))).await
}

async fn decide(context: &Context, question: MemberRequest) -> Result<Json<Value>, HttpError> {
    context.engine.require_admin().await?;
    let (node, what) = match &question {
        MemberRequest::Add { address } => (String::new(), format!("add, at {address}")),
        MemberRequest::Promote(node) => (node.to_string(), "promote".to_owned()),
        MemberRequest::Remove(node) => (node.to_string(), "remove".to_owned()),
        MemberRequest::RemoveByForce(node) => (node.to_string(), "remove, with force".to_owned()),
        MemberRequest::Transfer(node) => (node.to_string(), "transfer leadership".to_owned()),
    };
    if let Some(entry) = audit_entry(AuditAction::MembersChanged, node.as_bytes(), &what) {
        context.engine.record(context.engine.caller(), entry);
    }
    match context.membership.ask(question).await {
        Ok(node) => Ok(Json(json!({ "node": node }))),
        // The change may have been proposed, or made with the reply lost.
        Err(NotDone { certain: false, .. }) => Err(SubmitError::Unknown.into()),
        Err(NotDone { why, .. }) => {
            let hint = if why.contains(NO_MAJORITY) && !why.contains(NOT_COMMITTABLE) {
                "start the nodes that do not answer first; to remove one all the same, send force"
            } else if why.contains(NOT_COMMITTABLE) {
                "start the voters that do not answer; if a majority is lost for good, restore a \
                 backup into a new cluster"
            } else {
                "look at GET /v1/members"
            };
            Err(ApiError::new(Code::NotChanged, why, hint).into())
        }
    }
}

/// Streams a consistent copy of everything while the cluster keeps running.
pub(crate) async fn backup(context: Context) -> Result<impl IntoResponse, HttpError> {
    context.engine.require_admin().await?;
    let copy = context.engine.read(backup::StateCopy::of).await?;
    if let Some(entry) = audit_entry(AuditAction::BackupTaken, b"", "") {
        context.engine.record(context.engine.caller(), entry);
    }
    let name = format!("attachment; filename=\"holdfast-{}.backup\"", copy.index());
    let head = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_DISPOSITION, name),
    ];
    Ok((head, Body::from_stream(copy.stream())))
}

/// The node's metrics in Prometheus' text format.
pub(crate) async fn metrics(context: Context) -> Result<impl IntoResponse, HttpError> {
    let now = context.engine.peek(GaugeInputs::of).await?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], context.metrics.text(&now)))
}

/// Liveness: the process is running and its loop responds.
pub(crate) async fn healthz(context: Context) -> Result<Json<Value>, HttpError> {
    context.engine.peek(|_| ()).await?;
    Ok(Json(json!({ "alive": true })))
}

/// Readiness: there is a leader, confirmed by a majority, and the disk has room.
pub(crate) async fn readyz(context: Context) -> Result<Json<Value>, HttpError> {
    if context.engine.peek(Node::disk_is_full).await? {
        return Err(SubmitError::DiskFull.into());
    }
    context.engine.read(|_| ()).await?;
    Ok(Json(json!({ "ready": true })))
}

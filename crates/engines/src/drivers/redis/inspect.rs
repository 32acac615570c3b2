//! Who holds a lock: the value that a majority of the servers has.

use super::quorum::{Answers, Quorum, count, fault};
use super::server::Server;
use crate::driver::label_of;
use crate::error::Error;
use crate::locks::Inspection;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) async fn inspect(quorum: &Arc<Quorum>, name: &str) -> Result<Option<Inspection>, Error> {
    let limit = quorum.limit();
    let call = |server: Arc<Server>| {
        let name = name.to_owned();
        async move { server.look(&name, limit).await }
    };
    let answers: Answers<Option<Option<String>>> = quorum.ask(call, |_| false).await;
    let known = count(&answers, |_| true);
    if known < quorum.majority() {
        return Err(fault(&answers).error);
    }
    let mut votes: BTreeMap<Option<String>, usize> = BTreeMap::new();
    for value in answers.into_iter().filter_map(|answer| answer?.ok()?) {
        *votes.entry(value).or_default() += 1;
    }
    // Servers that did not answer may have the same value.
    let silent = quorum.servers().len() - known;
    let winner = votes.into_iter().max_by_key(|(_, votes)| *votes);
    let winner = winner.filter(|(_, votes)| votes + silent >= quorum.majority());
    Ok(winner.map(|(owner, _)| Inspection {
        holder: owner.as_deref().map(label_of),
        token: None,
        line: None,
    }))
}

//! Answers `COMMAND` from the table.

use super::server::Describe;
use super::table::{KeyPlaces, Spec, all, find};
use crate::error::Error;
use crate::resp::Reply;

pub(crate) fn describe(what: &Describe) -> Result<Reply, Error> {
    Ok(match what {
        Describe::All => Reply::Array(all().map(info).collect()),
        Describe::Count => Reply::count(all().count()),
        Describe::List => Reply::bulks(all().map(|spec| spec.name)),
        Describe::Info(names) if names.is_empty() => Reply::Array(all().map(info).collect()),
        Describe::Info(names) => {
            Reply::Array(names.iter().map(|name| find(name).map_or(Reply::Null, info)).collect())
        }
        Describe::Docs(names) if names.is_empty() => Reply::Map(all().map(docs).collect()),
        Describe::Docs(names) => {
            Reply::Map(names.iter().filter_map(|name| find(name)).map(docs).collect())
        }
        Describe::GetKeys(request) => {
            let spec = request.first().and_then(|name| find(name));
            let spec = spec.ok_or(Error::fixed("ERR Invalid command specified"))?;
            if !spec.takes(request.len()) {
                return Err(Error::fixed("ERR Invalid number of arguments specified for command"));
            }
            if spec.places == KeyPlaces::None {
                return Err(Error::fixed("ERR The command has no key arguments"));
            }
            Reply::bulks(spec.keys(request))
        }
    })
}

fn info(spec: &Spec) -> Reply {
    let (first, last, step) = match spec.places {
        KeyPlaces::Range(first, last, step) => (first.into(), last.into(), step),
        KeyPlaces::None | KeyPlaces::Counted => (0, 0, 0),
    };
    Reply::Array(vec![
        Reply::bulk(spec.name),
        Reply::Integer(spec.arity.into()),
        Reply::Set(spec.flags.split(' ').map(Reply::status).collect()),
        Reply::Integer(first),
        Reply::Integer(last),
        Reply::count(step),
        Reply::Set(categories(spec).into_iter().map(Reply::status).collect()),
        Reply::Set(Vec::new()),
        Reply::Set(key_specs(spec)),
        Reply::Set(Vec::new()),
    ])
}

fn categories(spec: &Spec) -> Vec<String> {
    let mut categories = Vec::new();
    for (flag, category) in
        [("write", "@write"), ("readonly", "@read"), ("admin", "@admin"), ("blocking", "@blocking")]
    {
        if spec.is(flag) {
            categories.push(category.to_owned());
        }
    }
    categories.push(match spec.group {
        "generic" | "server" if spec.is("write") || spec.is("readonly") => "@keyspace".to_owned(),
        "transactions" => "@transaction".to_owned(),
        group => format!("@{group}"),
    });
    categories.push(if spec.is("fast") { "@fast" } else { "@slow" }.to_owned());
    categories
}

fn key_specs(spec: &Spec) -> Vec<Reply> {
    let pair = |name: &str, value: Reply| (Reply::bulk(name), value);
    let search = |index| {
        let spec = Reply::Map(vec![pair("index", Reply::Integer(index))]);
        Reply::Map(vec![pair("type", Reply::bulk("index")), pair("spec", spec)])
    };
    let (begin, kind, find) = match spec.places {
        KeyPlaces::None => return Vec::new(),
        KeyPlaces::Range(first, last, step) => {
            let last = if last > 0 { last - first } else { last };
            let range = vec![
                pair("lastkey", Reply::Integer(last.into())),
                pair("keystep", Reply::count(step)),
                pair("limit", Reply::Integer(0)),
            ];
            (search(first.into()), "range", range)
        }
        KeyPlaces::Counted => {
            let counted = vec![
                pair("keynumidx", Reply::Integer(0)),
                pair("firstkey", Reply::Integer(1)),
                pair("keystep", Reply::Integer(1)),
            ];
            (search(2), "keynum", counted)
        }
    };
    let flags = if spec.is("readonly") { ["RO", "access"] } else { ["RW", "update"] };
    vec![Reply::Map(vec![
        pair("flags", Reply::Set(flags.into_iter().map(Reply::status).collect())),
        pair("begin_search", begin),
        pair(
            "find_keys",
            Reply::Map(vec![pair("type", Reply::bulk(kind)), pair("spec", Reply::Map(find))]),
        ),
    ])]
}

fn docs(spec: &Spec) -> (Reply, Reply) {
    let pair = |name: &str, value: &str| (Reply::bulk(name), Reply::bulk(value));
    let docs = vec![pair("summary", spec.summary), pair("group", spec.group)];
    (Reply::bulk(spec.name), Reply::Map(docs))
}

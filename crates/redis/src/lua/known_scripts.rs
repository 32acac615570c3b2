//! Well-known scripts that every lock client has: compare and delete, compare and extend.
//!
//! A script is recognised if it has the same tokens as one of the scripts below. It then runs
//! without Lua, with the same reply; where that is not certain, Lua runs after all.

use super::normal;
use std::collections::HashMap;
use std::sync::LazyLock;

/// What a known script does with `KEYS[1]`, if its value is `ARGV[1]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KnownScript {
    /// Deletes it and replies 1; 0 if the value differs.
    Delete {
        /// The reply if the key does not exist.
        absent: i64,
    },
    /// Sets its expiry to `ARGV[2]` and replies 1; otherwise 0.
    Extend {
        /// 1 for milliseconds, 1000 for seconds.
        unit_ms: i64,
    },
    /// Replies its time to live; otherwise -3.
    Ttl,
}

const GET_EQ: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then";

static KNOWN: LazyLock<HashMap<Vec<String>, KnownScript>> = LazyLock::new(|| {
    let delete = KnownScript::Delete { absent: 0 };
    let extend = KnownScript::Extend { unit_ms: 1 };
    let texts = [
        // The one in Redis's documentation: Redlock in most languages, older bsm/redislock.
        (format!("{GET_EQ} return redis.call('del', KEYS[1]) else return 0 end"), delete),
        (format!("{GET_EQ} return redis.call('unlink', KEYS[1]) else return 0 end"), delete),
        (format!("{GET_EQ} return redis.call('del', KEYS[1]) end return 0"), delete),
        (
            format!("{GET_EQ} return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end"),
            extend,
        ),
        (format!("{GET_EQ} return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0"), extend),
        (
            format!("{GET_EQ} return redis.call('expire', KEYS[1], ARGV[2]) else return 0 end"),
            KnownScript::Extend { unit_ms: 1000 },
        ),
        (
            format!("{GET_EQ} return redis.call('pttl', KEYS[1]) else return -3 end"),
            KnownScript::Ttl,
        ),
        // redsync.
        (
            "local val = redis.call('GET', KEYS[1]) if val == ARGV[1] then \
             return redis.call('DEL', KEYS[1]) elseif val == false then return -1 \
             else return 0 end"
                .to_owned(),
            KnownScript::Delete { absent: -1 },
        ),
        // redis-py: release and reacquire.
        (
            "local token = redis.call('get', KEYS[1]) \
             if not token or token ~= ARGV[1] then return 0 end \
             redis.call('del', KEYS[1]) return 1"
                .to_owned(),
            delete,
        ),
        (
            "local token = redis.call('get', KEYS[1]) \
             if not token or token ~= ARGV[1] then return 0 end \
             redis.call('pexpire', KEYS[1], ARGV[2]) return 1"
                .to_owned(),
            extend,
        ),
    ];
    let words =
        |(text, known): (String, KnownScript)| Some((normal::words(text.as_bytes())?, known));
    texts.into_iter().filter_map(words).collect()
});

/// Recognises a known script.
pub(super) fn recognise(text: &[u8]) -> Option<KnownScript> {
    KNOWN.get(&normal::words(text)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formatting_and_variable_names_do_not_matter() {
        let delete = Some(KnownScript::Delete { absent: 0 });
        let texts = [
            "if redis.call(\"get\",KEYS[1]) == ARGV[1] then\n    return redis.call(\"del\",KEYS[1])\nelse\n    return 0\nend",
            "-- release\nif redis.call('GET', KEYS[1])==ARGV[1] then return redis.call('DEL', KEYS[1]); else return 0; end",
            "\n        local t = redis.call('get', KEYS[1])\n        if not t or t ~= ARGV[1] then\n            return 0\n        end\n        redis.call('del', KEYS[1])\n        return 1\n    ",
        ];
        for text in texts {
            assert_eq!(recognise(text.as_bytes()), delete, "{text}");
        }
    }

    #[test]
    fn similar_scripts_are_not_recognised() {
        let texts = [
            "if redis.call('get', KEYS[1]) == ARGV[2] then return redis.call('del', KEYS[1]) else return 0 end",
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[2]) else return 0 end",
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 1 end",
            "if redis.call('get', KEYS[1]) ~= ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end",
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0",
            "return 1",
            "--[[ x ]] return 1",
            "",
        ];
        for text in texts {
            assert_eq!(recognise(text.as_bytes()), None, "{text}");
        }
    }
}

//! Holdfast as real processes: what a person who runs it would see.
//!
//! No test but one asserts a time: what should happen, happens within [`support::TIMEOUT`].

#[path = "../../../server/tests/doors/redis/resp.rs"]
mod resp;
mod support;
#[path = "../../../server/tests/doors/zookeeper/client.rs"]
mod zookeeper_client;

mod client_attach;
mod client_away;
mod client_leader;
mod client_load;
mod client_lost_answer;
mod client_proxy;
mod client_stopped;
mod client_thousand;
mod damage;
mod disk_full;
mod docs_http;
mod first_members;
mod five_nodes;
mod forgetful_network;
mod given_up;
mod graceful;
mod killed_node;
mod late_grants;
mod leader_kills;
mod members;
mod moved_ports;
mod old_news;
mod operations;
mod packaging;
mod readme;
mod redis_door;
mod redis_recorded;
mod restore;
mod security_guide;
mod settings;
mod stopped_leader;
mod strangers;
mod sync_error;
mod thousand_clients;
mod tls;
mod tls_guide;
mod twins;
mod zookeeper_door;

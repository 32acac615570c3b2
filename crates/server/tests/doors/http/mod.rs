//! HTTP and gRPC.

mod bad_input;
mod calls;
mod described;
mod election;
mod measured;
mod names;
mod origins;
mod passwords;
mod requests;
mod same_answers;
mod secrets;
mod slow;
mod streams;
mod waits;

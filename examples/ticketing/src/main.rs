//! A ticket shop that sells no seat twice: `cargo run --release -p ticketing`, then
//! <http://localhost:6005>. The library beside it says how it works.

fn main() -> std::process::ExitCode {
    ticketing::run()
}

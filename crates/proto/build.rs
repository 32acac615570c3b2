//! Compiles the protocol with protox, which is written in Rust: no protoc is needed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = "proto/holdfast/v1/holdfast.proto";
    println!("cargo:rerun-if-changed={file}");
    let files = protox::compile([file], ["proto"])?;
    tonic_prost_build::configure().bytes(".").compile_fds(files)?;
    Ok(())
}

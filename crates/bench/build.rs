//! Compiles the bit of etcd's protocol that is used with protox: no protoc is needed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = ["proto/etcd.proto", "proto/etcd_lock.proto"];
    for file in files {
        println!("cargo:rerun-if-changed={file}");
    }
    let files = protox::compile(files, ["proto"])?;
    tonic_prost_build::configure().build_server(false).compile_fds(files)?;
    Ok(())
}

//! Compiles the part of etcd's protocol that the driver uses with protox: no protoc is needed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    #[cfg(feature = "etcd")]
    {
        println!("cargo:rerun-if-changed=proto/etcd.proto");
        let files = protox::compile(["proto/etcd.proto"], ["proto"])?;
        tonic_prost_build::configure().build_server(false).compile_fds(files)?;
    }
    Ok(())
}

//! The load tool of Valkey over RDMA.
fn main() {
    let a = valkey_rdma_benches::args::Args::from_command_line(std::env::args_os());
    if let Err(valkey_rdma_benches::args::Instead::Print(p)) = &a {
        println!("{p}");
    }
    println!("{a:?}");
}

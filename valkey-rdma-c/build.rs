//! The name under which programs find the library.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        // The number changes when programs must be compiled again.
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libvalkey_rdma.so.0");
        // `dlclose` would unmap the code of the background thread.
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}

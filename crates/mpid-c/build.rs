//! Has `libmpid.so` stay loaded once it is: the C library calls it when the process ends (`src/ends.rs`),
//! also if it was closed before.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}

//! Keeps `libmpid.so` loaded after `dlclose`: the C library calls its exit hook (`src/exit.rs`) when the
//! process ends.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}

//! Names this build: the crate's version and a digest of the sources that decide what goes over the wire.
//!
//! Ranks of different builds must not work together. Two builds of the same sources are the same build,
//! wherever and whenever they were made, so the name is made from file contents and from nothing else.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

fn main() {
    let here = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let mut hasher = DefaultHasher::new();
    let lock = here.join("../../Cargo.lock");
    println!("cargo::rerun-if-changed={}", lock.display());
    fs::read(&lock).unwrap_or_default().hash(&mut hasher);
    for source in ["src", "../interconnect/src", "../mpi/src"] {
        let folder = here.join(source);
        println!("cargo::rerun-if-changed={}", folder.display());
        digest(&folder, &mut hasher);
    }
    let version = std::env::var("CARGO_PKG_VERSION").expect("cargo sets it");
    println!("cargo::rustc-env=HARRIER_BUILD={version}+{:016x}", hasher.finish());
}

fn digest(folder: &Path, hasher: &mut DefaultHasher) {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            digest(&path, hasher);
        } else {
            path.file_name().hash(hasher);
            fs::read(&path).unwrap_or_default().hash(hasher);
        }
    }
}

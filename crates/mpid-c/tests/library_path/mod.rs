//! Path of the library under test.

use std::path::PathBuf;

/// The newest `libmpid.so` beside the running test: cargo puts it in `deps` for tests, and one level up for
/// builds.
pub fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    let candidates = test.ancestors().skip(1).take(2).map(|folder| folder.join("libmpid.so"));
    let candidates = candidates.filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path))).max();
    candidates.expect("cargo build -p harrier-mpid-c makes libmpid.so").1
}

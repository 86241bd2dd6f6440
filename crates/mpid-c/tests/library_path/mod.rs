//! Where the library under test is.

use std::path::PathBuf;

/// The newest `libmpid.so` beside the running test: cargo leaves it in `deps` for tests, and one level up for
/// who builds it.
pub fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    let built = test.ancestors().skip(1).take(2).map(|folder| folder.join("libmpid.so"));
    let built = built.filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path))).max();
    built.expect("cargo build -p harrier-mpid-c makes libmpid.so").1
}

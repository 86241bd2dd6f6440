//! Path of the binary under test.

use std::env;
use std::path::PathBuf;

/// The path of `harrier`: the variable `HARRIER_BINARY`, or the binary built with the running test.
///
/// Errors: there is none; the message says how to get one.
pub fn harrier() -> Result<PathBuf, String> {
    if let Some(path) = env::var_os("HARRIER_BINARY") {
        return Ok(path.into());
    }
    // Tests are in target/<profile>/deps, the binary one level up.
    let test = env::current_exe().map_err(|e| e.to_string())?;
    test.ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join("harrier"))
        .find(|path| path.is_file())
        .ok_or_else(|| {
            "the binary harrier is not built: run cargo build --release -p harrier, or set HARRIER_BINARY"
                .to_owned()
        })
}

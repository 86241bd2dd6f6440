//! The Python interpreter that has the packages of the tests' checkers.

use std::path::Path;

/// `HARRIER_PYTHON`, or the one that `scripts/pages.sh` installed, or the system's.
pub fn python() -> String {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.harrier/pages/python/bin/python3");
    match std::env::var("HARRIER_PYTHON") {
        Ok(python) => python,
        Err(_) if own.exists() => own.to_string_lossy().into_owned(),
        Err(_) => "python3".to_string(),
    }
}

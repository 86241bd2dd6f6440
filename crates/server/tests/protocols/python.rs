//! Where the Python is that has the packages which tests check with.

use std::path::Path;

/// That of `HARRIER_PYTHON`, or the one that `scripts/pages.sh` has made, or the system's.
pub fn python() -> String {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.harrier/pages/python/bin/python3");
    match std::env::var("HARRIER_PYTHON") {
        Ok(python) => python,
        Err(_) if own.exists() => own.to_string_lossy().into_owned(),
        Err(_) => "python3".to_string(),
    }
}

//! Runs `browser.py`, which checks the monitoring pages in a real browser. It is skipped, with a message,
//! only if no browser is installed.

use std::path::Path;
use std::process::Command;

use crate::python::python;

/// Exit status of `browser.py` without a browser.
const NO_BROWSER: i32 = 77;

#[test]
fn monitoring_pages_work_in_a_browser() {
    let test = std::env::current_exe().unwrap();
    let example = test.ancestors().nth(2).unwrap().join("examples/pages");
    assert!(
        example.exists(),
        "{} is not built: cargo test builds it, unless it is told a test",
        example.display()
    );
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/protocols/browser.py");
    let pictures = std::env::temp_dir().join(format!("harrier-pages-{}", uuid::Uuid::new_v4()));
    let python = python();
    let output = match Command::new(&python).arg(script).arg(example).arg(&pictures).output() {
        Ok(output) => output,
        Err(error) => {
            return eprintln!("SKIPPED: no browser saw the pages, for {python} does not start: {error}");
        }
    };
    let output_text = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(NO_BROWSER) {
        return eprint!("{output_text}");
    }
    assert!(output.status.success(), "{output_text}\npictures are in {}", pictures.display());
    std::fs::remove_dir_all(&pictures).unwrap();
}

//! Builds and runs the project's checks in four tiers: `check`, `test`, `test-all` and `soak`; `make` calls
//! it.
//!
//! ```text
//! cargo build ─┐
//!              ├─► programs ─► units ─► lanes ─► one log and one row of the table for each ─► N passed, N failed
//! install.sh ──┘   cargo.rs    units.rs lanes.rs run.rs                            report.rs
//! ```
//!
//! A unit is a test program, or a module or a single test of one; several run in parallel. Units that passed
//! with byte-identical inputs are not run again by `check` and `test` (`passed.rs`).

mod cargo;
mod lanes;
mod load;
mod passed;
mod report;
mod run;
mod servers;
mod soak;
mod tiers;
mod turns;
mod units;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: xtask check|test|test-all [OPTIONS] [NAME…]
       xtask soak PART [--again]        without PART: which parts there are

NAME        run only the units with this in their names
--list      print the units of the tier and do not run them
--again     run what has passed before, too
--lanes N   units beside each other [default: the machine's cores and one more, and up to three times
            as many as cores while processors are idle; $HARRIER_TEST_LANES]
";

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the checkout").to_path_buf();
    match Arguments::parse(std::env::args().skip(1)).map(|arguments| start(&root, &arguments)) {
        Ok(Ok(true)) => ExitCode::SUCCESS,
        Ok(Ok(false)) => ExitCode::FAILURE,
        Ok(Err(message)) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
        Err(message) => {
            eprint!("xtask: {message}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// Returns whether everything passed.
fn start(root: &Path, arguments: &Arguments) -> Result<bool, String> {
    let folder = root.join(".harrier");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    match arguments.tier.as_str() {
        "check" => tiers::run(root, tiers::Tier::Check, arguments),
        "test" => tiers::run(root, tiers::Tier::Test, arguments),
        "test-all" => tiers::run(root, tiers::Tier::All, arguments),
        _ => soak::run(root, arguments),
    }
}

/// Command line arguments.
#[derive(Debug, PartialEq)]
pub struct Arguments {
    tier: String,
    /// Substrings of unit names, or the part of `soak`.
    names: Vec<String>,
    list: bool,
    again: bool,
    lanes: Option<usize>,
}

impl Arguments {
    fn parse(words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut arguments =
            Self { tier: String::new(), names: vec![], list: false, again: false, lanes: None };
        let mut words = words.peekable();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--list" => arguments.list = true,
                "--again" => arguments.again = true,
                "--lanes" => {
                    let number =
                        words.next().and_then(|number| number.parse().ok()).filter(|lanes| *lanes > 0);
                    arguments.lanes = Some(number.ok_or("--lanes wants a number of at least 1")?);
                }
                _ if word.starts_with('-') => return Err(format!("unknown option {word}")),
                _ if arguments.tier.is_empty() => arguments.tier = word,
                _ => arguments.names.push(word),
            }
        }
        match arguments.tier.as_str() {
            "check" | "test" | "test-all" | "soak" => Ok(arguments),
            "" => Err("which tier?".to_owned()),
            other => Err(format!("unknown tier {other}")),
        }
    }
}

/// Folder of results shared by checkouts; `None` if there is no writable home folder.
fn cache_folder() -> Option<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let base = base.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
    let folder = base.join("harrier");
    std::fs::create_dir_all(&folder).ok()?;
    Some(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Arguments, String> {
        Arguments::parse(text.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn arguments_are_read() {
        let arguments = parse("test slt --lanes 4 --again crashes").unwrap();
        assert_eq!(arguments.names, ["slt", "crashes"]);
        assert_eq!((arguments.lanes, arguments.again, arguments.list), (Some(4), true, false));
    }

    #[test]
    fn wrong_arguments_are_refused() {
        for text in ["", "tests", "test --lanes", "test --lanes 0", "test --lanes x", "check --quick"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    /// Tests `steadily` of the scripts with a command that ends before its progress reporter has started. The
    /// script's traps are those of `make demo`.
    #[test]
    fn what_tells_of_a_command_ends_with_it() {
        let script = "trap 'exit 130' INT TERM; n=0; while [ $n -lt 100 ]; do steadily x true; n=$((n + 1)); done; echo $n";
        let common = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/common.sh");
        let output = std::process::Command::new("sh")
            .args([
                "-c",
                &format!(". {common}; {script}"),
                concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/x.sh"),
            ])
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "100\n", "{output:?}");
    }
}

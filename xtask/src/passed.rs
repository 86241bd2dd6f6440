//! Cache of passed tests: a unit whose program, products and data are byte-identical is not run again.
//!
//! The digest of a unit covers its program, the binaries, examples and libraries of all packages that its own
//! uses, every file of the checkout that is not compiled (data, scripts, Python, C), the versions of
//! installed software, and variables that begin with `HARRIER_`. Failures are not recorded. Without `b2sum`,
//! or without a writable home folder, nothing is.
//!
//! Memory bound: records older than [`DAYS_KEPT`] days are removed.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use crate::cargo::{Built, Closures};
use crate::run::{Outcome, State};
use crate::units::Unit;

/// Maximum age of a record.
const DAYS_KEPT: u64 = 14;

/// System packages whose version may affect tests, as patterns of `dpkg-query`.
const SYSTEM_PACKAGES: [&str; 12] = [
    "openmpi*",
    "libopenmpi*",
    "mpich*",
    "libmpich*",
    "postgresql*",
    "slapd",
    "slurm*",
    "chromium*",
    "prometheus",
    "unixodbc",
    "odbc-postgresql",
    "libc6",
];

/// Units that read more than they depend on, such as the sources.
const NEVER_REMEMBERED: [&str; 1] = ["testkit::layers"];

/// Programs whose tests read documentation pages, unlike all others, and the paths of these.
const READS_PAGES: [(&str, &[&str]); 1] = [("docs", &["README.md", "docs/tutorials", "docs/how-to"])];

/// The records of this machine.
pub struct PassedCache {
    folder: PathBuf,
}

impl PassedCache {
    /// `None`: there is no place for records.
    pub fn open(cache: Option<&Path>) -> Option<Self> {
        let folder = cache?.join("passed");
        fs::create_dir_all(&folder).ok()?;
        let passed = Self { folder };
        passed.remove_old();
        Some(passed)
    }

    fn remove_old(&self) {
        let age_max = Duration::from_secs(DAYS_KEPT * 24 * 3600);
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let written = entry.metadata().and_then(|metadata| metadata.modified());
            let age = written.ok().and_then(|written| SystemTime::now().duration_since(written).ok());
            if age.is_some_and(|age| age > age_max) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// The recorded outcome for a digest.
    pub fn get(&self, digest: &str) -> Option<Outcome> {
        let text = fs::read_to_string(self.folder.join(digest)).ok()?;
        let mut fields = text.trim_end().split('\t');
        let name = fields.next()?.to_owned();
        let seconds = fields.next()?.parse().ok()?;
        let cpu_seconds = fields.next()?.parse().ok()?;
        let passed = fields.next()?.parse().ok()?;
        let ignored = fields.next()?.parse().ok()?;
        let state = State::Remembered;
        let skipped = Default::default();
        Some(Outcome {
            name,
            state,
            seconds,
            cpu_seconds,
            passed,
            failed: 0,
            ignored,
            skipped,
            log: PathBuf::new(),
        })
    }

    /// Records an outcome that passed and skipped nothing.
    pub fn record(&self, digest: &str, outcome: &Outcome) {
        if outcome.state != State::Passed || !outcome.skipped.is_empty() {
            return;
        }
        let Outcome { name, seconds, cpu_seconds, passed, ignored, .. } = outcome;
        // Without a record, the unit runs again.
        let _ = fs::write(
            self.folder.join(digest),
            format!("{name}\t{seconds:.1}\t{cpu_seconds:.1}\t{passed}\t{ignored}\n"),
        );
    }
}

/// The digests of units, by name.
///
/// Errors: a file cannot be read, or there is no digest program.
pub fn digests(
    root: &Path,
    built: &Built,
    closures: &Closures,
    units: &[Unit],
) -> Result<BTreeMap<String, String>, String> {
    let mut files: Vec<PathBuf> = built.products.values().flatten().cloned().collect();
    files.extend(units.iter().map(|unit| unit.program.executable.clone()));
    files.sort();
    files.dedup();
    let of_files = digests_of_files(root, &files)?;
    let surroundings = surroundings(root)?;
    let nothing = Vec::new();
    let mut digests = BTreeMap::new();
    for unit in units.iter().filter(|unit| !NEVER_REMEMBERED.contains(&unit.name.as_str())) {
        let mut text = format!("{}\n{}\n{surroundings}\n", unit.name, of_files[&unit.program.executable]);
        if !unit.program.is_unit_tests {
            let used = closures.get(&unit.program.package);
            // The test kit finds the binary by path, without a dependency.
            let uses_binary = used.is_some_and(|used| used.contains("testkit"));
            let packages =
                used.into_iter().flatten().map(String::as_str).chain(uses_binary.then_some("harrier"));
            for file in packages.flat_map(|package| built.products.get(package).unwrap_or(&nothing)) {
                text.push_str(&format!(
                    "{} {}\n",
                    of_files[file],
                    file.file_name().unwrap_or_default().display()
                ));
            }
        }
        text.extend(unit.tests.iter().map(|test| format!("{test}\n")));
        for (_, pages) in READS_PAGES.iter().filter(|(target, _)| *target == unit.program.target) {
            text += &digest_of_sources(root, &unit.name, pages)?;
        }
        digests.insert(unit.name.clone(), digest_of_text(&text)?);
    }
    Ok(digests)
}

/// The digest of a command's sources: all files of the checkout below these paths.
///
/// Errors: as of [`digests`].
pub fn digest_of_sources(root: &Path, name: &str, paths: &[&str]) -> Result<String, String> {
    let files: Vec<PathBuf> = checkout_files(root)?
        .into_iter()
        .filter(|file| paths.iter().any(|path| file.starts_with(path)))
        .collect();
    digest_of_text(&format!("{name}\n{}{}", list(&digests_of_files(root, &files)?), versions(root)))
}

/// Digest of everything else that tests may read, shared by all of them.
fn surroundings(root: &Path) -> Result<String, String> {
    let is_compiled = |file: &Path| {
        let ends = ["rs", "md", "lock"];
        file.extension().is_some_and(|extension| ends.contains(&extension.to_string_lossy().as_ref()))
    };
    // The PostgreSQL suite compares counts with its own page.
    let files: Vec<PathBuf> = checkout_files(root)?
        .into_iter()
        .filter(|file| !is_compiled(file) || file.starts_with("tests"))
        .collect();
    let mut variables: Vec<String> = std::env::vars()
        .filter(|(name, _)| {
            name.starts_with("HARRIER_") && name != "HARRIER_TEST_LANES" && name != "HARRIER_TURN"
        })
        .map(|(name, value)| format!("{name}={value}\n"))
        .collect();
    variables.sort();
    let files = list(&digests_of_files(root, &files)?);
    digest_of_text(&format!("{files}{}{}", variables.concat(), versions(root)))
}

/// The files of the checkout, relative to it: tracked and untracked by git, without deleted and ignored ones.
fn checkout_files(root: &Path) -> Result<Vec<PathBuf>, String> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("git: {error}"))?;
    if !output.status.success() {
        return Err(format!("git ls-files: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut files: Vec<PathBuf> =
        text.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from).collect();
    files.retain(|file| root.join(file).is_file());
    files.sort();
    files.dedup();
    Ok(files)
}

/// Versions of the compiler, of system packages and of software that the scripts installed.
fn versions(root: &Path) -> String {
    let said = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).stderr(Stdio::null()).output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
    };
    let mut text =
        said("rustc", &["--version"]) + &said("uname", &["-rm"]) + &said("python3", &["--version"]);
    let query = ["-W", "-f", "${Package} ${Version}\n"];
    text += &said("dpkg-query", &[&query[..], &SYSTEM_PACKAGES[..]].concat());
    let mut folders = vec![root.join(".harrier")];
    let mut stamps = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir()
                && folders.len() < 1000
                && path.components().count() <= root.components().count() + 3
            {
                folders.push(path);
            } else if entry.file_name() == ".version" {
                stamps.push(format!("{}\n", fs::read_to_string(&path).unwrap_or_default()));
            }
        }
    }
    stamps.sort();
    text + &stamps.concat()
}

fn list(digests: &BTreeMap<PathBuf, String>) -> String {
    digests.iter().map(|(file, digest)| format!("{digest} {}\n", file.display())).collect()
}

fn digests_of_files(root: &Path, files: &[PathBuf]) -> Result<BTreeMap<PathBuf, String>, String> {
    let mut digests = BTreeMap::new();
    for some in files.chunks(500) {
        let output = Command::new("b2sum")
            .args(["--length=160", "--zero", "--"])
            .args(some)
            .current_dir(root)
            .output()
            .map_err(|error| format!("b2sum: {error}"))?;
        if !output.status.success() {
            return Err(format!("b2sum: {}", String::from_utf8_lossy(&output.stderr).trim()));
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines = text.split('\0').filter_map(|line| line.split_once("  "));
        digests.extend(lines.map(|(digest, file)| (PathBuf::from(file), digest.to_owned())));
    }
    match files.iter().find(|file| !digests.contains_key(*file)) {
        Some(file) => Err(format!("b2sum says nothing of {}", file.display())),
        None => Ok(digests),
    }
}

fn digest_of_text(text: &str) -> Result<String, String> {
    let error = |error: std::io::Error| format!("b2sum: {error}");
    let mut child = Command::new("b2sum")
        .arg("--length=160")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(error)?;
    child.stdin.take().expect("piped").write_all(text.as_bytes()).map_err(error)?;
    let output = child.wait_with_output().map_err(error)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_whitespace().next().map(str::to_owned).ok_or_else(|| "b2sum says nothing".to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::cargo::Program;

    fn outcome(state: State, skipped: &[&str]) -> Outcome {
        Outcome {
            name: "x".to_owned(),
            state,
            seconds: 2.0,
            cpu_seconds: 1.0,
            passed: 3,
            failed: 0,
            ignored: 1,
            skipped: skipped.iter().map(|why| (*why).to_owned()).collect(),
            log: PathBuf::new(),
        }
    }

    #[test]
    fn only_what_passed_whole_is_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let passed = PassedCache::open(Some(folder.path())).unwrap();
        passed.record("a", &outcome(State::Failed, &[]));
        passed.record("b", &outcome(State::Passed, &["no MPI"]));
        passed.record("c", &outcome(State::Passed, &[]));
        assert_eq!(passed.get("a"), None);
        assert_eq!(passed.get("b"), None);
        let found = passed.get("c").unwrap();
        assert_eq!((found.state, found.passed, found.ignored), (State::Remembered, 3, 1));
    }

    /// A checkout with one program, one product of a package it uses, one of another, and a data file.
    struct Checkout {
        folder: tempfile::TempDir,
        built: Built,
        closures: Closures,
    }

    impl Checkout {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path = |name: &str| folder.path().join(name);
            fs::create_dir(path("target")).unwrap();
            for name in ["target/test", "target/used", "target/other", "data.csv", "lib.rs"] {
                fs::write(path(name), name).unwrap();
            }
            fs::write(path(".gitignore"), "target\n").unwrap();
            let git = Command::new("git").args(["init", "--quiet"]).current_dir(folder.path()).status();
            assert!(git.unwrap().success());
            let program = Program {
                package: "a".to_owned(),
                target: "t".to_owned(),
                is_unit_tests: false,
                executable: path("target/test"),
                folder: folder.path().to_path_buf(),
            };
            let products = [("b", "target/used"), ("c", "target/other")];
            let products = products.map(|(package, file)| (package.to_owned(), vec![path(file)]));
            let built = Built { programs: vec![program], products: BTreeMap::from(products) };
            let closure = BTreeSet::from(["a", "b"].map(str::to_owned));
            Self { folder, built, closures: BTreeMap::from([("a".to_owned(), closure)]) }
        }

        fn digest(&self) -> String {
            let unit = Unit {
                name: "a::t".to_owned(),
                program: self.built.programs[0].clone(),
                tests: vec![],
                is_empty: false,
            };
            digests(self.folder.path(), &self.built, &self.closures, &[unit]).unwrap()["a::t"].clone()
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.folder.path().join(name), text).unwrap();
        }
    }

    #[test]
    fn pages_are_in_the_digest_of_who_reads_them() {
        let mut checkout = Checkout::new();
        checkout.write("README.md", "a page");
        let before = checkout.digest();
        checkout.write("README.md", "another one");
        assert_eq!(checkout.digest(), before);
        checkout.built.programs[0].target = "docs".to_owned();
        let before = checkout.digest();
        checkout.write("README.md", "a third one");
        assert_ne!(checkout.digest(), before);
    }

    #[test]
    fn whatever_a_program_uses_is_in_its_digest() {
        let checkout = Checkout::new();
        let before = checkout.digest();
        assert_eq!(checkout.digest(), before);
        for name in ["target/test", "target/used", "data.csv", "a new file"] {
            checkout.write(name, "changed");
            assert_ne!(checkout.digest(), before, "{name}");
            checkout.write(name, name);
        }
        fs::remove_file(checkout.folder.path().join("a new file")).unwrap();
        assert_eq!(checkout.digest(), before);
        for name in ["target/other", "lib.rs"] {
            checkout.write(name, "changed");
            assert_eq!(checkout.digest(), before, "{name} is nothing to it");
        }
    }
}

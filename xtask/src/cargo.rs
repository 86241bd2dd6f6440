//! Cargo builds of the tests: their programs, and the products that they start.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// Does not change other crates: its dependencies are built for them anyway.
const FEATURES: &str = "harrier-mpid/arrow";

/// Compilation profile of the workspace's crates; dependencies are the same for both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// The installed program's.
    Release,
    /// Without optimizing the crates named in `.cargo/tests.toml`, which takes a third of the time.
    Tests,
}

impl Profile {
    /// The file of the profile, relative to the checkout, unless it is the workspace's own. Scripts that call
    /// cargo find it in [`CONFIG_VARIABLE`].
    pub fn config(self) -> Option<&'static str> {
        match self {
            Self::Release => None,
            Self::Tests => Some(".cargo/tests.toml"),
        }
    }
}

/// Environment variable for scripts: the file for `cargo --config`.
pub const CONFIG_VARIABLE: &str = "HARRIER_CARGO_CONFIG";

/// A test program.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    /// Name of the package, without the common prefix.
    pub package: String,
    pub target: String,
    /// Unit tests beside the sources, in `src`.
    pub is_unit_tests: bool,
    pub executable: PathBuf,
    /// The package's folder, in which cargo runs its tests.
    pub folder: PathBuf,
}

/// All build products.
#[derive(Debug, Default)]
pub struct Built {
    pub programs: Vec<Program>,
    /// Binaries, examples and shared libraries, by package.
    pub products: BTreeMap<String, Vec<PathBuf>>,
}

/// The packages of the workspace, by name without prefix, with their transitive workspace dependencies.
pub type Closures = BTreeMap<String, BTreeSet<String>>;

/// Builds tests, binaries and examples of the whole workspace. Compiler messages go to stderr.
///
/// Errors: the build has failed.
pub fn build_tests(root: &Path, profile: Profile) -> Result<Built, String> {
    let mut command = command(root);
    if let Some(config) = profile.config() {
        command.args(["--config", config]);
    }
    let mut child = command
        .args(["test", "--release", "--workspace", "--features", FEATURES, "--no-run", "--timings"])
        .arg("--message-format=json-render-diagnostics")
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cargo: {error}"))?;
    let mut built = Built::default();
    for line in BufReader::new(child.stdout.take().expect("piped")).lines() {
        let line = line.map_err(|error| format!("cargo: {error}"))?;
        if let Ok(message) = serde_json::from_str::<Value>(&line) {
            built.add(&message);
        }
    }
    let status = child.wait().map_err(|error| format!("cargo: {error}"))?;
    if !status.success() {
        return Err("the build has failed".to_owned());
    }
    built.programs.sort_by(|a, b| (&a.package, &a.target).cmp(&(&b.package, &b.target)));
    Ok(built)
}

impl Built {
    /// Adds the program of one cargo message.
    fn add(&mut self, message: &Value) {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        if message["reason"] != "compiler-artifact" {
            return;
        }
        let (Some(manifest), Some(target)) =
            (text(&message["manifest_path"]), text(&message["target"]["name"]))
        else {
            return;
        };
        let folder = Path::new(&manifest).parent().expect("it is in a folder").to_path_buf();
        let package = short_name(&package_name(&message["package_id"], &folder));
        let kinds: Vec<String> =
            message["target"]["kind"].as_array().into_iter().flatten().filter_map(text).collect();
        match text(&message["executable"]).map(PathBuf::from) {
            Some(executable) if message["profile"]["test"] == true => {
                let is_unit_tests = !kinds.iter().any(|kind| kind == "test");
                self.programs.push(Program { package, target, is_unit_tests, executable, folder });
            }
            Some(executable) if kinds.iter().any(|kind| kind == "bin" || kind == "example") => {
                self.products.entry(package).or_default().push(executable);
            }
            _ => {
                let files = message["filenames"].as_array().into_iter().flatten().filter_map(text);
                let libraries =
                    files.filter(|file| kinds.iter().any(|kind| kind == "cdylib") && file.ends_with(".so"));
                let libraries: Vec<PathBuf> = libraries.map(PathBuf::from).collect();
                if !libraries.is_empty() {
                    self.products.entry(package).or_default().extend(libraries);
                }
            }
        }
    }
}

/// The package of `path+file:///…/crates/mpi#harrier-mpi@0.1.0`; the name is omitted if it equals the
/// folder's.
fn package_name(id: &Value, folder: &Path) -> String {
    let id = id.as_str().unwrap_or_default();
    let (_, fragment) = id.rsplit_once('#').unwrap_or_default();
    match fragment.split_once('@') {
        Some((name, _)) => name.to_owned(),
        None => folder.file_name().unwrap_or_default().to_string_lossy().into_owned(),
    }
}

fn short_name(package: &str) -> String {
    package.strip_prefix("harrier-").unwrap_or(package).to_owned()
}

/// Dependencies between the packages of the workspace.
///
/// Errors: `cargo metadata` fails.
pub fn closures(root: &Path) -> Result<Closures, String> {
    let output = command(root)
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .output()
        .map_err(|error| format!("cargo: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let metadata: Value =
        serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))?;
    Ok(closures_of(&metadata))
}

fn closures_of(metadata: &Value) -> Closures {
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let name = |value: &Value| short_name(value["name"].as_str().unwrap_or_default());
    let names: BTreeSet<String> = packages.iter().map(name).collect();
    let direct: Closures = packages
        .iter()
        .map(|package| {
            let used = package["dependencies"].as_array().into_iter().flatten().map(name);
            (name(package), used.filter(|used| names.contains(used)).collect())
        })
        .collect();
    let closure = |of: &String| {
        let (mut found, mut open) = (BTreeSet::from([of.clone()]), vec![of.clone()]);
        while let Some(package) = open.pop() {
            open.extend(direct[&package].iter().filter(|used| found.insert((*used).clone())).cloned());
        }
        found
    };
    names.iter().map(|of| (of.clone(), closure(of))).collect()
}

/// Copies the newest report of `cargo build --timings` into `folder`, and returns its path.
pub fn keep_timings(root: &Path, folder: &Path) -> Option<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let path = folder.join("build-timings.html");
    std::fs::copy(target.join("cargo-timings/cargo-timing.html"), &path).ok()?;
    Some(path)
}

/// A cargo command in the checkout, without the variables that the outer cargo sets for its children.
pub fn command(root: &Path) -> Command {
    let mut command = Command::new("cargo");
    command.current_dir(root);
    clear_package_variables(&mut command);
    command
}

/// Removes the variables of the outer cargo: build scripts would see them as a change.
pub fn clear_package_variables(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        let is_package =
            ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"].iter().any(|start| name.starts_with(start));
        if is_package || name == "LD_LIBRARY_PATH" {
            command.env_remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn programs_and_products_are_told_by_messages() {
        let artifact = |package: &str, kind: &str, name: &str, test: bool, file: &str| {
            let executable = if kind == "cdylib" { Value::Null } else { json!(file) };
            json!({"reason": "compiler-artifact", "package_id": format!("path+file:///c/crates/{package}"),
                "manifest_path": "/c/crates/x/Cargo.toml", "target": {"name": name, "kind": [kind]},
                "profile": {"test": test}, "filenames": [file], "executable": executable})
        };
        let mut built = Built::default();
        for message in [
            artifact("mpi#harrier-mpi@0.1.0", "lib", "harrier_mpi", true, "/t/mpi-1"),
            artifact("x#0.1.0", "test", "sql", true, "/t/sql-1"),
            artifact("x#0.1.0", "bin", "x", false, "/t/x"),
            artifact("mpid-c#harrier-mpid-c@0.1.0", "cdylib", "mpid", false, "/t/libmpid.so"),
            json!({"reason": "build-finished", "success": true}),
        ] {
            built.add(&message);
        }
        let programs: Vec<_> =
            built.programs.iter().map(|p| (p.package.as_str(), p.target.as_str(), p.is_unit_tests)).collect();
        assert_eq!(programs, [("mpi", "harrier_mpi", true), ("x", "sql", false)]);
        assert_eq!(built.products["x"], [PathBuf::from("/t/x")]);
        assert_eq!(built.products["mpid-c"], [PathBuf::from("/t/libmpid.so")]);
    }

    #[test]
    fn what_is_used_indirectly_is_used() {
        let package = |name: &str, used: &[&str]| {
            let used: Vec<Value> = used.iter().map(|name| json!({"name": name})).collect();
            json!({"name": name, "dependencies": used})
        };
        let closures = closures_of(&json!({"packages": [
            package("harrier", &["harrier-exec", "serde"]),
            package("harrier-exec", &["harrier-mpi", "tokio"]),
            package("harrier-mpi", &[]),
        ]}));
        let all = BTreeSet::from(["harrier", "exec", "mpi"].map(str::to_owned));
        assert_eq!(closures["harrier"], all);
        assert_eq!(closures["mpi"], BTreeSet::from(["mpi".to_owned()]));
    }
}

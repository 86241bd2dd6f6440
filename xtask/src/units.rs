//! Test units: a test program, or a module or a single test of one, run as one process.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::cargo::Program;

/// Packages and programs split by module, and modules and programs split by test, so that lanes are filled
/// evenly.
const SPLIT: [(&str, Split); 10] = [
    ("harrier", Split::Modules),
    ("engine", Split::Modules),
    ("interconnect", Split::Modules),
    ("mpid", Split::Modules),
    ("server", Split::Modules),
    ("sql::slt", Split::Tests),
    ("warehouse::crashes", Split::Tests),
    ("stores::warehouses", Split::Tests),
    ("engine::in_process::faults", Split::Tests),
    ("committer::store_folders", Split::Tests),
];

/// Units that run exclusively, with the reason.
const ALONE: [(&str, &str); 0] = [];

/// How a program is split.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Split {
    /// Each top-level module is a unit.
    Modules,
    /// Each test is a unit.
    Tests,
}

/// Tests run by one process.
#[derive(Debug, Clone, PartialEq)]
pub struct Unit {
    /// Name for people: `sql::slt::three_ranks`, `warehouse::maintenance_concurrency`,
    /// `interconnect::simulated::sim`, `exec (unit tests)`.
    pub name: String,
    pub program: Program,
    /// The names of its tests, unless it is the whole program.
    pub tests: Vec<String>,
    /// All of its tests are behind `#[ignore]`, or it has none.
    pub is_empty: bool,
}

impl Unit {
    /// Whether it must run exclusively.
    pub fn is_alone(&self) -> bool {
        ALONE.iter().any(|(name, _)| self.name == *name)
    }
}

/// Splits programs into units.
///
/// Errors: a program does not list its tests.
pub fn of_programs(programs: &[Program]) -> Result<Vec<Unit>, String> {
    let mut units = Vec::new();
    for program in programs {
        let tests = list_tests(program)?;
        units.extend(of_program(program, &tests));
    }
    Ok(units)
}

fn of_program(program: &Program, tests: &[String]) -> Vec<Unit> {
    let name = program_name(program);
    let unit =
        |name: String, tests: Vec<String>| Unit { name, program: program.clone(), tests, is_empty: false };
    if program.is_unit_tests || tests.is_empty() {
        return vec![Unit { name, program: program.clone(), tests: vec![], is_empty: tests.is_empty() }];
    }
    let modules = match split_of(&name).or_else(|| split_of(&program.package)) {
        None => return vec![unit(name, vec![])],
        Some(split) => split_tests(&name, tests, split),
    };
    let mut units = Vec::new();
    for (module, tests) in modules {
        let parts = match split_of(&module) {
            Some(Split::Tests) => split_tests(&name, &tests, Split::Tests),
            _ => BTreeMap::from([(module, tests)]),
        };
        units.extend(parts.into_iter().map(|(name, tests)| unit(name, tests)));
    }
    units
}

fn split_of(name: &str) -> Option<Split> {
    SPLIT.iter().find(|(of, _)| *of == name).map(|(_, split)| *split)
}

/// Groups tests by the name of their unit.
fn split_tests(program: &str, tests: &[String], split: Split) -> BTreeMap<String, Vec<String>> {
    let mut parts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for test in tests {
        let module = test.split_once("::").map_or("", |(module, _)| module);
        let name = match split {
            Split::Tests => format!("{program}::{test}"),
            Split::Modules if module.is_empty() => program.to_owned(),
            Split::Modules => format!("{program}::{module}"),
        };
        parts.entry(name).or_default().push(test.clone());
    }
    parts
}

/// The programs of the package `harrier` are known by their own names alone.
fn program_name(program: &Program) -> String {
    match program.is_unit_tests {
        true => format!("{} (unit tests)", program.package),
        false if program.package == "harrier" => program.target.clone(),
        false => format!("{}::{}", program.package, program.target),
    }
}

fn list_tests(program: &Program) -> Result<Vec<String>, String> {
    let of = |error: String| format!("{}: {error}", program.executable.display());
    let output = Command::new(&program.executable)
        .args(["--list", "--format", "terse"])
        .current_dir(&program.folder)
        .output()
        .map_err(|error| of(error.to_string()))?;
    if !output.status.success() {
        return Err(of(format!("cannot list its tests: {}", String::from_utf8_lossy(&output.stderr))));
    }
    Ok(tests_in(&String::from_utf8_lossy(&output.stdout)))
}

fn tests_in(list: &str) -> Vec<String> {
    list.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}

/// Seconds of units in an earlier run, by name; from a table that [`crate::report`] wrote.
pub fn earlier_seconds(table: &Path) -> BTreeMap<String, f64> {
    let text = std::fs::read_to_string(table).unwrap_or_default();
    let row = |line: &str| {
        let mut fields = line.split('\t');
        let (name, seconds) = (fields.next()?, fields.next()?);
        Some((name.to_owned(), seconds.parse().ok()?))
    };
    text.lines().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(package: &str, target: &str, is_unit_tests: bool) -> Program {
        Program {
            package: package.to_owned(),
            target: target.to_owned(),
            is_unit_tests,
            executable: "/t/x".into(),
            folder: "/c".into(),
        }
    }

    fn names(program: &Program, tests: &[&str]) -> Vec<String> {
        let tests: Vec<String> = tests.iter().map(|test| (*test).to_owned()).collect();
        of_program(program, &tests).into_iter().map(|unit| unit.name).collect()
    }

    #[test]
    fn large_programs_are_cut_by_module_and_the_longest_modules_by_test() {
        let tests = ["cli::a", "cli::b", "slt::embedded", "slt::three_ranks"];
        let units = ["sql::cli", "sql::slt::embedded", "sql::slt::three_ranks"];
        assert_eq!(names(&program("harrier", "sql", false), &tests), units);
        let tests = ["contract::a", "contract::b", "faults::a", "faults::b"];
        let units = [
            "engine::in_process::contract",
            "engine::in_process::faults::a",
            "engine::in_process::faults::b",
        ];
        assert_eq!(names(&program("engine", "in_process", false), &tests), units);
        assert_eq!(
            names(&program("committer", "store_folders", false), &["a"]),
            ["committer::store_folders::a"]
        );
    }

    #[test]
    fn other_programs_are_units() {
        assert_eq!(names(&program("mpi", "runtimes", false), &["a", "b::c"]), ["mpi::runtimes"]);
        assert_eq!(names(&program("exec", "harrier_exec", true), &["a::b", "c::d"]), ["exec (unit tests)"]);
    }

    #[test]
    fn units_of_a_program_have_all_of_its_tests() {
        let tests: Vec<String> = ["cli::a", "slt::b", "slt::c", "d"].map(str::to_owned).to_vec();
        let mut found: Vec<String> = of_program(&program("harrier", "sql", false), &tests)
            .into_iter()
            .flat_map(|unit| unit.tests)
            .collect();
        found.sort();
        assert_eq!(found, ["cli::a", "d", "slt::b", "slt::c"]);
    }

    #[test]
    fn lists_are_read() {
        assert_eq!(tests_in("a::b: test\nc: benchmark\nd: test\n"), ["a::b", "d"]);
    }
}

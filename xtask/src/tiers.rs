//! Test tiers: what each builds, runs and leaves out.
//!
//! | tier | units | units that passed before | turns | profile |
//! |---|---|---|---|---|
//! | `check` | those of [`IN_CHECK`], all unit tests, the lints | not run again | – | tests |
//! | `test` | all | not run again; with `CI=true` those of `check` are | a quarter, and recent changes | tests |
//! | `test-all` | all, the lints | run again | all | release |

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::Arguments;
use crate::cargo::{self, Program};
use crate::lanes::{self, Lanes};
use crate::passed::{self, PassedCache};
use crate::report::{self, LeftOut, Report};
use crate::run::{self, Job, Outcome, State, Work};
use crate::servers::Servers;
use crate::turns::{self, Turn};
use crate::units::{self, Unit};

/// Units, programs and modules that `check` runs besides all unit tests: simulations and contracts,
/// the SQL suite on one process, and the command line.
const IN_CHECK: [&str; 12] = [
    "testkit::layers",
    "engine::in_process::contract",
    "interconnect::simulated",
    "mpid::jobs",
    "pgcatalog::queries",
    "catalog::catalog",
    "sql::cli",
    "sql::copy",
    "sql::slt::embedded",
    "sql::slt::warehouse",
    "sql::slt::three_ranks_in_one_process",
    "sql::slt::nine_files_on_three_ranks",
];

/// Units contained in others: `test` and `test-all` leave them out.
const CONTAINED: [(&str, &str); 1] = [("sql::slt::nine_files_on_three_ranks", "sql::slt::three_ranks")];

/// Test tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    Check,
    Test,
    All,
}

impl Tier {
    /// A release is tested with the profile of the installed program.
    fn profile(self) -> cargo::Profile {
        match self {
            Self::Check | Self::Test => cargo::Profile::Tests,
            Self::All => cargo::Profile::Release,
        }
    }
}

/// Runs a tier. Returns whether everything passed.
///
/// Errors: the build has failed, or the names of units are inconsistent.
pub fn run(root: &Path, tier: Tier, arguments: &Arguments) -> Result<bool, String> {
    let folder = root.join(".harrier");
    let cache = crate::cache_folder();
    let report = Report::new();
    let logs = report::new_logs(&folder)?;
    let mut outcomes = Vec::new();

    let format = Job::command("format", &["cargo", "fmt", "--all", "--check"]);
    let installed_times = folder.join("install-times.tsv").display().to_string();
    let mut installers = vec!["scripts/install.sh", "--times", &installed_times];
    if tier == Tier::Check {
        installers.push("mpi");
    }
    report.step("building the tests, and installing what they need beside that");
    let (built, installed) = std::thread::scope(|scope| {
        let build = scope.spawn(|| build(root, &folder, tier.profile(), &report));
        let first = [format, Job::command("install", &installers)];
        let done: Vec<Outcome> = first.iter().map(|job| run_job(root, &logs, job, &report)).collect();
        (build.join().expect("it does not panic"), done)
    });
    outcomes.extend(installed);
    outcomes.extend(installed_parts(&installed_times));
    let (built, build) = built?;
    outcomes.push(build);

    let units = units::of_programs(&built.programs)?;
    turns::check(units.iter().map(|unit| unit.name.as_str()))?;
    let turn = Turn::choose(root, cache.as_deref())?;
    let mut left_out = LeftOut::default();
    let recent = if tier == Tier::Test { turns::recent_files(root) } else { Vec::new() };
    let Chosen { units: chosen, in_part } =
        choose(units, tier, turn, &arguments.names, &recent, &mut left_out);
    let mut jobs: Vec<Job> = chosen.iter().cloned().map(Job::tests).collect();
    let steps: Vec<(Job, &[&str])> = steps(tier, &built.programs)
        .into_iter()
        .filter(|(job, _)| is_named(&job.name, &arguments.names))
        .collect();
    let gangs = format!("{}:{}", folder.join("test-gangs").display(), lanes_of(arguments)?.always.max(3) - 1);
    for job in &mut jobs {
        job.environment.push(("HARRIER_TEST_GANGS".to_owned(), gangs.clone()));
        if job.name == "mpid-c::python" {
            job.after = Some("wheel".to_owned());
        }
        if in_part.contains(&job.name) {
            job.environment.push(("HARRIER_SLT".to_owned(), recent.join(",")));
        }
    }
    if arguments.list {
        steps.iter().map(|(job, _)| job).chain(&jobs).for_each(|job| println!("{}", job.name));
        return Ok(true);
    }

    let closures = cargo::closures(root)?;
    let records = PassedCache::open(cache.as_deref());
    let mut digests = match passed::digests(root, &built, &closures, &chosen) {
        Ok(digests) => digests,
        Err(message) => {
            report.step(&format!("nothing is remembered: {message}"));
            BTreeMap::new()
        }
    };
    // A partial run proves nothing about the whole unit.
    digests.retain(|name, _| !in_part.contains(name));
    for (step, sources) in steps {
        if !sources.is_empty()
            && let Ok(digest) = passed::digest_of_sources(root, &step.name, sources)
        {
            digests.insert(step.name.clone(), digest);
        }
        jobs.push(step);
    }
    let is_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
    let is_again = |name: &str| arguments.again || tier == Tier::All || (is_ci && is_in_check(name));
    jobs.retain(|job| {
        let record = digests
            .get(&job.name)
            .filter(|_| !is_again(&job.name))
            .and_then(|digest| records.as_ref()?.get(digest));
        let is_new = record.is_none();
        outcomes.extend(record.map(|record| Outcome { name: job.name.clone(), ..record }));
        is_new
    });

    let servers = servers_for(&jobs, &built, &closures, &logs, &report);
    let config = tier.profile().config().map(|file| (cargo::CONFIG_VARIABLE.to_owned(), file.to_owned()));
    for job in &mut jobs {
        job.environment.extend(config.clone());
        job.environment.extend(servers.iter().flat_map(|servers| servers.variables.clone()));
    }
    let table = folder.join("test-times.tsv");
    let mut earlier = units::earlier_seconds(&root.join("docs/test-times.tsv"));
    if let Some(cache) = &cache {
        earlier.extend(units::earlier_seconds(&cache.join("test-times.tsv")));
    }
    earlier.extend(units::earlier_seconds(&table));
    let lanes = lanes_of(arguments)?;
    report.step(&format!("running {} jobs in {} lanes, turn {}", jobs.len(), lanes.always, turn.number()));
    let run = lanes::run_all(root, &logs, jobs, lanes, &earlier, &report);
    for outcome in &run {
        if let (Some(records), Some(digest)) = (&records, digests.get(&outcome.name)) {
            records.record(digest, outcome);
        }
    }
    outcomes.extend(run);
    report::write_table(&table, &outcomes)?;
    if let Some(cache) = &cache {
        // Without it, only the order of jobs is lost.
        let _ = std::fs::copy(&table, cache.join("test-times.tsv"));
        if tier != Tier::Check && arguments.names.is_empty() {
            turn.remember(cache);
        }
    }
    Ok(report::conclude(&report, &outcomes, &left_out, &table))
}

/// Starts shared servers if any program needs them; if that fails, each starts its own.
fn servers_for(
    jobs: &[Job],
    built: &cargo::Built,
    closures: &cargo::Closures,
    logs: &Path,
    report: &Report,
) -> Option<Servers> {
    let wants = |job: &Job| match &job.work {
        Work::Tests(unit) if !unit.program.is_unit_tests => {
            closures.get(&unit.program.package).is_some_and(|used| used.contains("servers"))
        }
        _ => false,
    };
    jobs.iter().find(|job| wants(job))?;
    let keeper = built.products.get("servers")?.iter().find(|path| path.ends_with("examples/servers"))?;
    report.step("starting the servers that all programs share");
    Servers::start(keeper, &logs.join("servers.log")).map_err(|message| report.step(&message)).ok()
}

fn run_job(root: &Path, logs: &Path, job: &Job, report: &Report) -> Outcome {
    let outcome = run::run(root, logs, job);
    report.print_outcome(&outcome);
    outcome
}

/// Outcomes recorded by `scripts/install.sh` for each installed part: name, seconds, and result.
fn installed_parts(table: &str) -> Vec<Outcome> {
    let row = |line: &str| {
        let mut fields = line.split('\t');
        let name = format!("install: {}", fields.next()?);
        let seconds = fields.next()?.parse().ok()?;
        let result = fields.next()?;
        let state = if result.starts_with("ok") { State::Passed } else { State::Skipped };
        let skipped = Some(result.to_owned()).filter(|_| state == State::Skipped).into_iter().collect();
        let log = Default::default();
        Some(Outcome {
            name,
            state,
            seconds,
            cpu_seconds: 0.0,
            passed: 0,
            failed: 0,
            ignored: 0,
            skipped,
            log,
        })
    };
    std::fs::read_to_string(table).unwrap_or_default().lines().filter_map(row).collect()
}

/// Builds the tests, and reports the duration.
fn build(
    root: &Path,
    folder: &Path,
    profile: cargo::Profile,
    report: &Report,
) -> Result<(cargo::Built, Outcome), String> {
    let started = std::time::Instant::now();
    let built = cargo::build_tests(root, profile)?;
    cargo::keep_timings(root, folder);
    let outcome = Outcome {
        name: "build".to_owned(),
        state: State::Passed,
        seconds: started.elapsed().as_secs_f64(),
        cpu_seconds: 0.0,
        passed: 0,
        failed: 0,
        ignored: 0,
        skipped: Default::default(),
        log: folder.join("build-timings.html"),
    };
    report.print_outcome(&outcome);
    Ok((built, outcome))
}

/// Units chosen for a tier.
struct Chosen {
    units: Vec<Unit>,
    /// Names of units that run only recently changed files of the suite.
    in_part: BTreeSet<String>,
}

/// Chooses the units of a tier; records the reason for leaving out the others. `recent` are recently changed
/// files of the suite.
fn choose(
    mut units: Vec<Unit>,
    tier: Tier,
    turn: Turn,
    names: &[String],
    recent: &[String],
    left_out: &mut LeftOut,
) -> Chosen {
    let mut in_part = BTreeSet::new();
    let is_chosen = |unit: &Unit| {
        if unit.is_empty || !is_named(&unit.name, names) {
            return false;
        }
        if !names.is_empty() {
            return true;
        }
        if tier == Tier::Check {
            return unit.program.is_unit_tests || is_in_check(&unit.name);
        }
        if let Some((_, by)) = CONTAINED.iter().find(|(name, _)| *name == unit.name) {
            left_out.add(&format!("because {by} runs the same"), &unit.name);
            return false;
        }
        if tier == Tier::Test && !turn.runs(&unit.name) {
            if !recent.is_empty() {
                let reason = "because configurations of the SQL suite take turns, all files but those that changed lately";
                left_out.add(&format!("{reason} ({})", recent.join(", ")), &unit.name);
                in_part.insert(unit.name.clone());
                return true;
            }
            left_out.add("because configurations of the SQL suite take turns", &unit.name);
            return false;
        }
        true
    };
    units.retain(is_chosen);
    Chosen { units, in_part }
}

fn is_in_check(name: &str) -> bool {
    let is_within =
        |of: &str| name.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
    name.ends_with(" (unit tests)") || IN_CHECK.iter().any(|of| is_within(of))
}

/// Whether a name contains one of the requested substrings, or none were requested.
fn is_named(name: &str, names: &[String]) -> bool {
    names.is_empty() || names.iter().any(|part| name.contains(part.as_str()))
}

/// Sources of the site and of its spelling check.
const SITE_SOURCES: &[&str] = &[
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.toml",
    "README.md",
    "SECURITY.md",
    "crates",
    "docs",
    "python",
    "scripts",
    "xtask",
];

/// Additional steps besides the test programs, with their sources; a step without sources always runs.
fn steps(tier: Tier, programs: &[Program]) -> Vec<(Job, &'static [&'static str])> {
    let lint: (Job, &[&str]) =
        (Job::command("lint", &["scripts/lint.sh"]), &["crates", "xtask", "Cargo.toml", "Cargo.lock"]);
    if tier == Tier::Check {
        return vec![lint];
    }
    let mut valgrind = Job::command("valgrind", &["checks/valgrind/run.sh"]).after("handshake");
    valgrind.skip_status = Some(77);
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_owned());
    let checks = format!("{target}/checks");
    // Outside of the workspace, so that the model checker's dependencies do not change the features of shared
    // ones.
    let manifest = "checks/handshake/Cargo.toml";
    let handshake = Job::command(
        "handshake",
        &["cargo", "test", "--quiet", "--manifest-path", manifest, "--target-dir", &checks],
    );
    let mut site = Job::command("site", &["scripts/docs.sh"]);
    site.skip_status = Some(77);
    let mut steps: Vec<(Job, &[&str])> = vec![
        (site, SITE_SOURCES),
        (Job::command("wheel", &["scripts/wheel.sh"]), &[]),
        (handshake, &["checks/handshake", "crates/interconnect"]),
        (valgrind, &["checks/valgrind", "crates/mpi"]),
        (Job::command("documentation", &["scripts/doctests.sh"]).after("wheel"), &["crates", "Cargo.lock"]),
    ];
    if tier == Tier::All {
        steps.push(lint);
    }
    if programs.is_empty() {
        steps.clear();
    }
    steps
}

fn lanes_of(arguments: &Arguments) -> Result<Lanes, String> {
    let exactly = |lanes| Lanes { always: lanes, most: lanes };
    if let Some(lanes) = arguments.lanes {
        return Ok(exactly(lanes));
    }
    if let Ok(text) = std::env::var("HARRIER_TEST_LANES") {
        let lanes = text.parse().ok().filter(|lanes| *lanes > 0);
        return lanes.map(exactly).ok_or_else(|| format!("HARRIER_TEST_LANES={text} is no number of lanes"));
    }
    let cores = std::thread::available_parallelism().map_or(2, |cores| cores.get());
    Ok(Lanes { always: cores + 1, most: 3 * cores })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(name: &str) -> Unit {
        let program = Program {
            package: "p".to_owned(),
            target: "t".to_owned(),
            is_unit_tests: name.ends_with("(unit tests)"),
            executable: "/t/x".into(),
            folder: "/c".into(),
        };
        Unit { name: name.to_owned(), program, tests: vec![], is_empty: name == "empty" }
    }

    fn chosen(tier: Tier, names: &[&str]) -> (Vec<String>, LeftOut) {
        let (units, _, left_out) = chosen_after_changes(tier, names, &[]);
        (units, left_out)
    }

    /// Names of units run, names of units run partially, and units left out.
    fn chosen_after_changes(
        tier: Tier,
        names: &[&str],
        recent: &[&str],
    ) -> (Vec<String>, BTreeSet<String>, LeftOut) {
        let all = [
            "exec (unit tests)",
            "testkit::layers",
            "warehouse::maintenance_concurrency",
            "sql::slt::three_ranks",
            "sql::slt::nine_files_on_three_ranks",
            "sql::slt::two_ranks",
            "sql::slt::seven_ranks",
            "empty",
        ];
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut left_out = LeftOut::default();
        // Turn 0 includes two ranks.
        let turn = Turn::for_tests(0);
        let recent: Vec<String> = recent.iter().map(|file| (*file).to_owned()).collect();
        let chosen = choose(all.map(unit).to_vec(), tier, turn, &names, &recent, &mut left_out);
        (chosen.units.into_iter().map(|unit| unit.name).collect(), chosen.in_part, left_out)
    }

    #[test]
    fn a_check_has_unit_tests_and_what_is_quick() {
        let (names, _) = chosen(Tier::Check, &[]);
        assert_eq!(names, ["exec (unit tests)", "testkit::layers", "sql::slt::nine_files_on_three_ranks"]);
    }

    #[test]
    fn what_a_submission_leaves_out_is_told() {
        let (names, left_out) = chosen(Tier::Test, &[]);
        let run = [
            "exec (unit tests)",
            "testkit::layers",
            "warehouse::maintenance_concurrency",
            "sql::slt::three_ranks",
            "sql::slt::two_ranks",
        ];
        assert_eq!(names, run);
        assert_eq!(left_out.by_reason.values().flatten().count(), 2);
    }

    #[test]
    fn files_that_changed_run_whoever_has_the_turn() {
        let (names, in_part, left_out) = chosen_after_changes(Tier::Test, &[], &["new.slt"]);
        assert!(names.iter().any(|name| name == "sql::slt::seven_ranks"));
        assert_eq!(in_part, BTreeSet::from(["sql::slt::seven_ranks".to_owned()]));
        assert!(left_out.by_reason.keys().any(|reason| reason.contains("new.slt")));
    }

    #[test]
    fn everything_leaves_out_only_what_is_contained() {
        let (names, left_out) = chosen(Tier::All, &[]);
        assert!(names.iter().any(|name| name == "sql::slt::seven_ranks"));
        assert_eq!(left_out.by_reason.values().flatten().count(), 1);
    }

    #[test]
    fn whoever_names_a_unit_gets_it() {
        assert_eq!(
            chosen(Tier::Test, &["seven", "concurrency"]).0,
            ["warehouse::maintenance_concurrency", "sql::slt::seven_ranks"]
        );
    }
}

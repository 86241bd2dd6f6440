//! `soak`: long searches for bugs, in resumable parts of at most an hour.
//!
//! A part is a list of items, each a test unit with variables of its own, or a command. Finished items are
//! recorded in `.harrier/soak/PART.tsv`; the next run starts with the first item that is not there. Seeds
//! follow from a number that is drawn when a part begins and stands in the first line, so that failures can
//! be reproduced.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::Arguments;
use crate::cargo;
use crate::report::Report;
use crate::run::{self, Job, State};
use crate::units::{self, Unit};

/// No item starts after this time; started ones continue.
const SECONDS_MAX: u64 = 50 * 60;

/// Timeout of a single item.
const ITEM_SECONDS_MAX: u64 = 3600;

/// The parts, with their purpose.
const PARTS: [(&str, &str); 11] = [
    (
        "chaos",
        "half an hour in which everything around a served warehouse is killed, stopped, cut off or filled",
    ),
    ("deaths", "two hundred deaths of ranks, spares, coordinators and launchers"),
    ("crashes", "a crash at every step of a transaction, upon disks, S3, HDFS and PostgreSQL"),
    ("faults", "a fault of each kind at every frame of a statement, in calm weather and in rough"),
    ("fuzz", "frames that a rank, and messages that a server does not bear, by what they reach"),
    ("tpch", "the 22 queries at scale 10 on ranks, beside one process"),
    ("seeds", "a thousand random seeds of queries, histories, networks and changes"),
    ("differential", "twenty thousand random statements beside PostgreSQL, on one process and on ranks"),
    (
        "stores",
        "random statements over stores whose requests are struck by faults; histories of sweeps, of turns with DuckDB, of prepared statements beside ALTER",
    ),
    (
        "launchers",
        "every launcher of MPI that can be had: statements once, tasks that differ, ranks that do not come",
    ),
    ("clients", "clients that take long to install: Go, Java's tools, Ruby, PHP, PostgreSQL's own programs"),
];

/// One item of a part.
struct Item {
    name: String,
    what: What,
    environment: Vec<(&'static str, String)>,
}

enum What {
    /// The units with this name prefix.
    Units(&'static str),
    Command(Vec<&'static str>),
}

/// Runs a part. Returns whether it found no failure so far.
///
/// Errors: there is no such part, the build has failed, or a unit is missing.
pub fn run(root: &Path, arguments: &Arguments) -> Result<bool, String> {
    let [part] = arguments.names.as_slice() else {
        for (part, what) in PARTS {
            println!("{part:<10} {what}");
        }
        return Err("which part? make soak PART=… takes one of these".to_owned());
    };
    if !PARTS.iter().any(|(name, _)| name == part) {
        return Err(format!("there is no part {part}; there are {}", PARTS.map(|(name, _)| name).join(", ")));
    }
    let started = Instant::now();
    let report = Report::new();
    let folder = root.join(".harrier/soak");
    let logs = folder.join(part);
    fs::create_dir_all(&logs).map_err(|error| format!("{}: {error}", logs.display()))?;
    let mut progress = Progress::open(&folder.join(format!("{part}.tsv")), arguments.again)?;
    let items = items(part, progress.seed);

    report.step(&format!("building for {part}"));
    let install = Job::command("install", &["scripts/install.sh"]);
    report.print_outcome(&run::run(root, &logs, &install));
    let units = units::of_programs(&cargo::build_tests(root, cargo::Profile::Release)?.programs)?;
    let mut found = progress.failed.clone();
    for item in &items {
        if progress.ended.contains(&item.name) {
            continue;
        }
        if started.elapsed().as_secs() > SECONDS_MAX {
            break;
        }
        let mut failed = Vec::new();
        for mut job in jobs(item, &units)? {
            job.seconds_max = ITEM_SECONDS_MAX;
            job.name = format!("{} {}", item.name, job.name);
            let outcome = run::run(root, &logs, &job);
            report.print_outcome(&outcome);
            if outcome.state == State::Failed {
                failed.push(outcome.log.display().to_string());
            }
        }
        progress.add(item, &failed)?;
        found.extend(failed);
    }
    let left = items.iter().filter(|item| !progress.ended.contains(&item.name)).count();
    println!("\n{part}: {} of {} items done; seed {}", items.len() - left, items.len(), progress.seed);
    if left > 0 {
        println!("make soak PART={part} goes on with the other {left}");
    } else {
        println!("make soak PART={part} AGAIN=1 begins anew with other seeds");
    }
    match found.as_slice() {
        [] => println!("nothing was found"),
        logs => println!("{} items failed; their logs: {}", logs.len(), logs.join(" ")),
    }
    Ok(found.is_empty())
}

fn items(part: &str, seed: u64) -> Vec<Item> {
    let item =
        |name: String, what: What, environment: Vec<(&'static str, String)>| Item { name, what, environment };
    let seeded = |start: &'static str, variable: &'static str, count: u64, more: &[(&'static str, &str)]| {
        let one = |number: u64| {
            let mut environment = vec![(variable, ((seed + number * 1000) % 1_000_000_007).to_string())];
            environment.extend(more.iter().map(|(name, value)| (*name, (*value).to_owned())));
            item(format!("{start} {number}"), What::Units(start), environment)
        };
        (0..count).map(one).collect::<Vec<_>>()
    };
    match part {
        "chaos" => seeded(
            "cluster::chaos",
            "HARRIER_SEED",
            1,
            &[("HARRIER_CHAOS_SECONDS", "1800"), ("HARRIER_CHAOS_HANG_SECONDS", "20")],
        ),
        "deaths" => seeded("ranks::random_rank_kills", "HARRIER_SEED", 10, &[("HARRIER_ROUNDS", "20")]),
        "crashes" => {
            vec![item(
                "crashes".to_owned(),
                What::Units("warehouse::crashes"),
                vec![("HARRIER_CRASH_EVERY", "1".to_owned())],
            )]
        }
        "faults" => {
            let units = [
                "engine::in_process::faults::gather",
                "engine::in_process::faults::insert",
                "engine::in_process::faults::redistribute_and_broadcast",
            ];
            let every = || vec![("HARRIER_FAULT_STEP", "1".to_owned())];
            units.map(|unit| item(unit.to_owned(), What::Units(unit), every())).into()
        }
        "fuzz" => {
            let targets = ["frames", "thrift"];
            let command = |target| What::Command(vec!["checks/fuzz/run.sh", "1200", target]);
            targets.map(|target| item(target.to_owned(), command(target), vec![])).into()
        }
        "tpch" => {
            let data = ".harrier/data/tpch-sf10";
            let generate = vec!["scripts/harrier.sh", "generate", "tpch", "--scale", "10", "--out", data];
            let bench =
                ["scripts/harrier.sh", "bench", "tpch", "--scale", "10", "--runs", "1", "--data", data];
            let ways = [
                "--config",
                "embedded:threads=2",
                "--config",
                "mpi:ranks=2,threads=1",
                "--config",
                "mpi:ranks=4,threads=1",
            ];
            vec![
                item("data".to_owned(), What::Command(generate), vec![]),
                item("queries".to_owned(), What::Command([&bench[..], &ways[..]].concat()), vec![]),
            ]
        }
        "clients" => {
            let command = What::Command(vec!["scripts/more-clients.sh", "--run"]);
            vec![item("clients".to_owned(), command, vec![])]
        }
        "launchers" => {
            let command = What::Command(vec!["scripts/launchers.sh"]);
            vec![item("launchers".to_owned(), command, vec![])]
        }
        "stores" => {
            let statements =
                seeded("stores::fault_injection", "HARRIER_SEED", 20, &[("HARRIER_STATEMENTS", "250")]);
            let moto = [("HARRIER_TEST_S3_SERVER", "moto"), ("HARRIER_STATEMENTS", "250")];
            let mut others = seeded("stores::fault_injection", "HARRIER_SEED", 10, &moto);
            for other in &mut others {
                other.name += " of moto";
            }
            let sweeps = seeded("warehouse::garbage_collection", "HARRIER_SEED", 50, &[]);
            let turns = seeded("warehouse::ducklake", "HARRIER_SEED", 25, &[]);
            let prepared = seeded("serve::prepared_after_ddl", "HARRIER_SEED", 50, &[]);
            [statements, others, sweeps, turns, prepared].into_iter().flatten().collect()
        }
        "differential" => seeded("serve::differential", "HARRIER_SEED", 40, &[("HARRIER_STATEMENTS", "500")]),
        _ => {
            // A thousand in all: 20 queries have 20 seeds.
            let queries = seeded("testkit::random_queries", "HARRIER_SEED", 30, &[("HARRIER_QUERIES", "20")]);
            let networks = seeded("interconnect::", "HARRIER_SEED", 100, &[]);
            let catalogs = seeded("catalog::catalog", "HARRIER_CATALOG_SEED", 100, &[]);
            let histories = seeded("serve::isolation_histories", "HARRIER_SEED", 100, &[]);
            let estimates = seeded("sql::estimates", "HARRIER_SEED", 100, &[]);
            let files = seeded("sql::damaged_files", "HARRIER_SEED", 40, &[("HARRIER_MUTATIONS", "50")]);
            [queries, networks, catalogs, histories, estimates, files].into_iter().flatten().collect()
        }
    }
}

fn jobs(item: &Item, units: &[Unit]) -> Result<Vec<Job>, String> {
    let with_variables = |mut job: Job| {
        job.environment
            .extend(item.environment.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        job.skip_status = Some(77);
        job
    };
    let jobs: Vec<Job> = match &item.what {
        What::Command(words) => vec![Job::command("", words)],
        What::Units(start) => {
            units.iter().filter(|unit| unit.name.starts_with(start)).cloned().map(Job::tests).collect()
        }
    };
    match jobs.is_empty() {
        true => Err(format!("xtask/src/soak.rs names units that are not there: {}", item.name)),
        false => Ok(jobs.into_iter().map(with_variables).collect()),
    }
}

/// Progress of a part.
struct Progress {
    file: std::path::PathBuf,
    seed: u64,
    ended: BTreeSet<String>,
    /// Logs of failures.
    failed: Vec<String>,
}

impl Progress {
    fn open(file: &Path, is_new: bool) -> Result<Self, String> {
        if is_new {
            let _ = fs::remove_file(file);
        }
        let text = fs::read_to_string(file).unwrap_or_default();
        let mut lines = text.lines();
        let drawn = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(1, |now| now.as_micros() as u64 % 1_000_000_007);
        let known = lines.next().and_then(|line| line.strip_prefix("seed\t")?.parse().ok());
        let mut progress = Self {
            file: file.to_path_buf(),
            seed: known.unwrap_or(drawn),
            ended: BTreeSet::new(),
            failed: vec![],
        };
        for line in lines {
            let mut fields = line.split('\t');
            progress.ended.extend(fields.next().map(str::to_owned));
            progress.failed.extend(fields.map(str::to_owned));
        }
        progress.write(if known.is_some() { text } else { format!("seed\t{}\n", progress.seed) })?;
        Ok(progress)
    }

    /// Records a finished item, with the logs of failures.
    fn add(&mut self, item: &Item, failed: &[String]) -> Result<(), String> {
        let text = fs::read_to_string(&self.file).unwrap_or_default();
        let fields: Vec<&str> =
            std::iter::once(item.name.as_str()).chain(failed.iter().map(String::as_str)).collect();
        self.ended.insert(item.name.clone());
        self.failed.extend_from_slice(failed);
        self.write(format!("{text}{}\n", fields.join("\t")))
    }

    fn write(&self, text: String) -> Result<(), String> {
        fs::write(&self.file, text).map_err(|error| format!("{}: {error}", self.file.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_has_items_of_different_names() {
        for (part, _) in PARTS {
            let names: Vec<String> = items(part, 7).into_iter().map(|item| item.name).collect();
            let different: BTreeSet<&String> = names.iter().collect();
            assert!(!names.is_empty() && different.len() == names.len(), "{part}: {names:?}");
        }
    }

    #[test]
    fn a_part_goes_on_where_it_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("seeds.tsv");
        let mut progress = Progress::open(&file, false).unwrap();
        let (items, seed) = (items("seeds", progress.seed), progress.seed);
        progress.add(&items[0], &[]).unwrap();
        progress.add(&items[1], &["a.log".to_owned()]).unwrap();
        let again = Progress::open(&file, false).unwrap();
        assert_eq!((again.seed, again.ended.len()), (seed, 2));
        assert_eq!(again.failed, ["a.log"]);
        assert!(Progress::open(&file, true).unwrap().ended.is_empty());
    }
}

//! Fault injection between statements and an object store: random faults in every phase of a request: before
//! the server receives it, within its body, after execution, within the response; slow and reordered
//! requests, and objects that are replaced meanwhile.
//!
//! The oracle runs the same statements in one process on a local folder. A query returns the same answer or
//! an error of the store. After a write the contents are equal; after an error they are unchanged, unless the
//! outcome is reported as unknown: then either. In the end no object and no upload is left.
//!
//! A seed is one statement with its faults: `HARRIER_SEED` is the first one, `HARRIER_STATEMENTS` the number
//! of seeds.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};

use harrier_launch::Launcher;
use harrier_servers::{Fault, Request, Rule};
use harrier_testkit::session::{Answer, Configuration, Failure, Session};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use tempfile::TempDir;

use crate::warehouses::{Bucket, run};

/// Seeds of `make test`, in one process and on ranks; the soak runs thousands.
const STATEMENTS: u64 = 100;
/// One in this number of requests fails.
const ONE_IN: u64 = 3;

/// SQLSTATEs of a store's failure. Rows of two versions that were detected are 40001.
const OF_STORES: [&str; 4] = ["58030", "08006", "40001", OUTCOME_UNKNOWN];
/// The statement may have taken effect.
const OUTCOME_UNKNOWN: &str = "08007";
const UNDEFINED_FILE: &str = "58P01";
const DIVISION_BY_ZERO: &str = "22012";

/// Files of COPY, one per format.
const FILES: [&str; 6] = ["a.parquet", "b.csv", "c.json", "d.arrow", "e.orc", "f.avro"];
const EXTERNAL: [(&str, &str); 2] = [("ep", "PARQUET"), ("ec", "CSV")];
const KEPT: [(&str, &str); 2] = [("w", ""), ("p", "PARTITION BY (k)")];

/// Part size of multipart uploads: the minimum of S3.
const SETTINGS: [&str; 2] = [
    "SET datafusion.execution.objectstore_writer_buffer_size = 5242880",
    "SET datafusion.optimizer.repartition_file_min_size = 10000",
];

/// Name of the file or table that a statement uses.
type Subject = &'static str;

fn subjects() -> impl Iterator<Item = Subject> {
    FILES.into_iter().chain(EXTERNAL.map(|(name, _)| name)).chain(KEPT.map(|(name, _)| name))
}

fn is_file(subject: Subject) -> bool {
    FILES.contains(&subject)
}

/// Query that distinguishes the contents of a subject; `{at}` is the folder of files.
fn probe(subject: Subject) -> String {
    let from = if is_file(subject) { format!("'{{at}}/{subject}'") } else { subject.to_string() };
    format!("SELECT k, count(*), sum(id), min(t), max(t) FROM {from} GROUP BY k ORDER BY k")
}

/// Rows as text, or an SQLSTATE.
type Outcome = Result<Vec<Vec<Option<String>>>, String>;

fn outcome_of(answer: Result<Answer, Failure>) -> Result<Outcome, Failure> {
    match answer {
        Ok(answer) => Ok(Ok(answer.into_rows().rows)),
        Err(failure) if failure.sqlstate == UNDEFINED_FILE => Ok(Err(failure.sqlstate)),
        Err(failure) => Err(failure),
    }
}

/// A session and its folder of files.
struct Place {
    session: Session,
    at: String,
}

impl Place {
    fn start(configuration: &Configuration, at: String) -> Self {
        let mut session = Session::start(configuration).unwrap();
        for setting in SETTINGS {
            run(&mut session, setting);
        }
        Self { session, at }
    }

    fn run(&mut self, sql: &str) -> Result<Answer, Failure> {
        self.session.run(&sql.replace("{at}", &self.at))
    }

    fn probe(&mut self, subject: Subject) -> Outcome {
        outcome_of(self.run(&probe(subject))).unwrap_or_else(|failure| panic!("{failure} of {subject}"))
    }

    fn make_tables(&mut self) {
        for (name, format) in EXTERNAL {
            let sql = format!(
                "CREATE EXTERNAL TABLE {name} (id BIGINT, t TEXT, k BIGINT) STORED AS {format} \
                 PARTITIONED BY (k) LOCATION '{{at}}/{name}/'"
            );
            self.run(&sql).unwrap();
        }
        for (name, more) in KEPT {
            self.run(&format!("CREATE TABLE {name} (id BIGINT, t TEXT, k BIGINT) {more}")).unwrap();
        }
    }
}

/// Statements about one subject.
#[derive(Debug)]
struct Step {
    subject: Subject,
    statements: Vec<String>,
    is_query: bool,
    /// Expected SQLSTATE, with any store.
    fails: Option<&'static str>,
    /// Object that another client writes during the read.
    replaced_by: Option<String>,
}

struct Draw(StdRng);

impl Draw {
    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        *all.choose(&mut self.0).unwrap()
    }

    /// A query of rows with ids from a number on.
    fn rows(&mut self, is_failing: bool) -> String {
        let first = self.0.random_range(0..1000);
        // Some files are multipart uploads, some rows are inlined in the catalog.
        let (count, width) = self.one_of(&[(3, 1), (400, 1), (3000, 2), (60_000, 4)]);
        let partitions = self.one_of(&[1, 2, 5]);
        let k = match is_failing {
            false => format!("v % {partitions}"),
            true => format!("10 / (v - {})", first + count),
        };
        format!(
            "SELECT v AS id, repeat(md5(v::text), {width}) AS t, {k} AS k \
             FROM generate_series({first}, {}) AS g(v)",
            first + count
        )
    }

    fn step(&mut self) -> Step {
        let subject = self.one_of(&subjects().collect::<Vec<_>>());
        let mut step = Step { subject, statements: vec![], is_query: false, fails: None, replaced_by: None };
        if self.0.random_bool(0.3) {
            step.is_query = true;
            step.statements.push(match (is_file(subject), self.0.random_range(0..3)) {
                (true, 0) => format!("SELECT count(*), sum(id) FROM '{{at}}/{}*'", &subject[..1]),
                (_, 0) => format!("SELECT count(*), sum(id) FROM {subject} WHERE k = 1"),
                (true, 1) => {
                    step.replaced_by = Some(format!("COPY ({}) TO '{{at}}/{subject}'", self.rows(false)));
                    probe(subject)
                }
                _ => probe(subject),
            });
            return step;
        }
        let is_failing = self.0.random_bool(0.15);
        step.fails = is_failing.then_some(DIVISION_BY_ZERO);
        let rows = self.rows(is_failing);
        let pivot = self.0.random_range(0..1000);
        step.statements = match subject {
            file if is_file(file) => vec![format!("COPY ({rows}) TO '{{at}}/{file}'")],
            table if EXTERNAL.iter().any(|(name, _)| *name == table) => {
                vec![format!("INSERT {} {table} {rows}", self.one_of(&["INTO", "OVERWRITE"]))]
            }
            table => {
                let insert = format!("INSERT INTO {table} {rows}");
                match (is_failing, self.0.random_range(0..10)) {
                    (true, _) | (_, 0 | 1) => vec![insert],
                    (_, 2) => vec![format!("INSERT OVERWRITE {table} {rows}")],
                    (_, 3) => vec![format!("UPDATE {table} SET t = 'u{pivot}' WHERE id > {pivot}")],
                    (_, 4) => vec![format!("DELETE FROM {table} WHERE id % 7 = {}", pivot % 7)],
                    (_, 5) => vec![format!(
                        "MERGE INTO {table} USING (SELECT DISTINCT id FROM ({rows}) AS r WHERE id < 300) AS s \
                         ON {table}.id = s.id WHEN MATCHED THEN UPDATE SET t = 'm{pivot}' \
                         WHEN NOT MATCHED THEN INSERT (id, t, k) VALUES (s.id, 'new', 1)"
                    )],
                    (_, 6) => vec![format!("OPTIMIZE {table}")],
                    (_, 7) => vec!["CALL expire_snapshots('0 seconds')".to_string(), "VACUUM".to_string()],
                    (_, 8) => vec![format!("TRUNCATE {table}")],
                    _ => {
                        let end = self.one_of(&["COMMIT", "ROLLBACK"]).to_string();
                        let delete = format!("DELETE FROM {table} WHERE id > {pivot}");
                        vec!["BEGIN".to_string(), delete, insert, end]
                    }
                }
            }
        };
        step
    }
}

/// Store, oracle and counters.
struct Trial<'a> {
    bucket: &'a Bucket,
    store: Place,
    mirror: Place,
    /// Writes to the store directly, without the proxy.
    other: Arc<Mutex<Session>>,
    known: BTreeMap<Subject, Outcome>,
    struck: usize,
    refused: usize,
    /// Uploads that started although the response was lost.
    unheard: usize,
}

impl Trial<'_> {
    /// Errors: a description of the violation.
    fn step(&mut self, seed: u64) -> Result<(), String> {
        let step = Draw(StdRng::seed_from_u64(seed)).step();
        let other = step.replaced_by.clone().filter(|_| self.known[step.subject].is_ok());
        if let Some(sql) = &other {
            let (sql, other) = (sql.replace("{at}", &self.store.at), Arc::clone(&self.other));
            let at = usize::try_from(seed % 4).unwrap();
            let rule = Rule::new(Fault::Cut).of("GET").on(step.subject).after(at);
            // Its effect is checked by the contents afterwards.
            self.bucket.proxy.before(rule, move || drop(other.lock().unwrap().run(&sql)));
        }
        self.bucket.proxy.disturb(seed, ONE_IN);
        let answer = self.run_all(&step);
        let struck = self.bucket.proxy.clear();
        self.struck += struck.len();
        self.unheard +=
            struck.iter().filter(|(request, fault)| starts_unknown_upload(request, *fault)).count();
        let verdict = match step.is_query {
            true => self.check_query(&step, answer, other.as_deref()),
            false => self.check_write(&step, answer),
        };
        verdict.map_err(|wrong| {
            let short: Vec<String> = step.statements.iter().map(|sql| sql.chars().take(300).collect()).collect();
            format!("seed {seed}: {wrong}\n  statements: {short:#?}\n  replaced by: {other:?}\n  faults: {struck:#?}")
        })
    }

    /// The last answer, or the first failure and whether the last statement failed.
    fn run_all(&mut self, step: &Step) -> Result<Answer, (Failure, bool)> {
        let (last, before) = step.statements.split_last().unwrap();
        for sql in before {
            if let Err(failure) = self.store.run(sql) {
                if before[0] == "BEGIN" {
                    let _ = self.store.run("ROLLBACK");
                }
                return Err((failure, false));
            }
        }
        self.store.run(last).map_err(|failure| (failure, true))
    }

    fn refuse(&mut self, failure: &Failure) -> Result<(), String> {
        self.refused += 1;
        match OF_STORES.contains(&failure.sqlstate.as_str()) {
            true => Ok(()),
            false => Err(format!("{failure} is no error of a store")),
        }
    }

    fn check_query(
        &mut self,
        step: &Step,
        answer: Result<Answer, (Failure, bool)>,
        other: Option<&str>,
    ) -> Result<(), String> {
        let sql = &step.statements[0];
        let mut right = vec![outcome_of(self.mirror.run(sql)).unwrap()];
        if let Some(other) = other {
            // The other client's object may be written or not; after this it is.
            self.mirror.run(other).unwrap();
            right.push(outcome_of(self.mirror.run(sql)).unwrap());
            run(&mut self.other.lock().unwrap(), &other.replace("{at}", &self.store.at));
            self.known.insert(step.subject, self.mirror.probe(step.subject));
        }
        match outcome_of(answer.map_err(|(failure, _)| failure)) {
            Ok(outcome) if right.contains(&outcome) => Ok(()),
            Ok(outcome) => Err(format!("{outcome:?} is none of {right:?}")),
            Err(failure) => self.refuse(&failure),
        }
    }

    fn check_write(&mut self, step: &Step, answer: Result<Answer, (Failure, bool)>) -> Result<(), String> {
        let contents = self.store.probe(step.subject);
        let before = &self.known[step.subject];
        match answer {
            Ok(_) => {
                if let Some(state) = step.fails {
                    return Err(format!("it should have failed with {state}"));
                }
                self.after(step, &contents)
            }
            Err((failure, is_last)) => {
                let is_as_before = contents == *before;
                if step.fails.is_none_or(|state| state != failure.sqlstate) {
                    self.refuse(&failure)?;
                }
                match is_as_before {
                    true => Ok(()),
                    false if is_last && failure.sqlstate == OUTCOME_UNKNOWN => self.after(step, &contents),
                    false => Err(format!("after {failure} there is {contents:?}")),
                }
            }
        }
    }

    /// The statement took effect: runs it on the oracle, too.
    fn after(&mut self, step: &Step, contents: &Outcome) -> Result<(), String> {
        for sql in &step.statements {
            self.mirror.run(sql).map_err(|failure| format!("the mirror says {failure}"))?;
        }
        let right = self.mirror.probe(step.subject);
        let is_right = *contents == right;
        let wrong = format!("there is {contents:?} instead of {right:?}");
        self.known.insert(step.subject, right);
        if is_right { Ok(()) } else { Err(wrong) }
    }
}

fn check(configuration: &Configuration, bucket: &Bucket) {
    let count = std::env::var("HARRIER_STATEMENTS").map_or(STATEMENTS, |count| count.parse().unwrap());
    let first = harrier_launch::seed();
    let folder = TempDir::new().unwrap();
    let files = folder.path().join("files");
    std::fs::create_dir(&files).unwrap();
    let mirror = Configuration::embedded().with_warehouse(folder.path().join("mirror"));
    let mut other = Configuration::embedded();
    other.environment.extend(crate::failed_copies::environment(&bucket.server.endpoint()));
    let mut trial = Trial {
        bucket,
        store: Place::start(configuration, format!("s3://{}/files", bucket.name)),
        mirror: Place::start(&mirror, files.display().to_string()),
        other: Arc::new(Mutex::new(Session::start(&other).unwrap())),
        known: BTreeMap::new(),
        struck: 0,
        refused: 0,
        unheard: 0,
    };
    trial.store.make_tables();
    trial.mirror.make_tables();
    for subject in subjects() {
        let empty = trial.mirror.probe(subject);
        trial.known.insert(subject, empty);
    }
    for seed in first..first + count {
        trial.step(seed).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
    let (struck, refused) = (trial.struck, trial.refused);
    eprintln!(
        "{count} statements from seed {first} on: {struck} requests were struck, {refused} statements failed"
    );
    assert!(struck as u64 > count, "too few faults for {count} statements: {struck}");
    assert!(refused as u64 <= count / 4, "of {count} statements {refused} failed");
    assert_no_leftovers(&mut trial, &files);
}

/// Asserts that all rows are there, and that nothing is left after the tables are dropped.
fn assert_no_leftovers(trial: &mut Trial<'_>, files: &Path) {
    for subject in subjects() {
        assert_eq!(trial.store.probe(subject), trial.known[subject], "{subject}");
    }
    for (name, _) in KEPT {
        let answer = trial.store.run(&format!("CHECK TABLE {name}")).unwrap();
        assert!(answer.into_rows().rows.is_empty(), "CHECK TABLE {name}");
    }
    for (name, _) in EXTERNAL.into_iter().chain(KEPT) {
        trial.store.run(&format!("DROP TABLE {name}")).unwrap();
        trial.mirror.run(&format!("DROP TABLE {name}")).unwrap();
    }
    for sql in ["CALL expire_snapshots('0 seconds')", "SET harrier.vacuum_age_seconds = 0", "VACUUM"] {
        trial.store.run(sql).unwrap();
    }
    // Files of COPY stay, and files of external tables belong to their owner. Of each table's writer locks
    // the last one stays, so that its number is never reused; an empty journal stays for a day, which fences
    // requests of a holder whose lock was taken over.
    let folder = trial.bucket.server.folder(&trial.bucket.name);
    let is_void = |name: &str| {
        name.contains("/.harrier-")
            && name.contains("/journal-")
            && std::fs::metadata(folder.join(name)).map_or(true, |file| file.len() == 0)
    };
    let is_row = |name: &str| EXTERNAL.iter().any(|(table, _)| name.starts_with(&format!("files/{table}/")));
    let is_lock = |name: &str| name.contains("/.harrier-") && name.contains("/lock-");
    let objects = trial.bucket.server.objects(&trial.bucket.name).into_iter();
    let (locks, leftovers): (Vec<String>, Vec<String>) =
        objects.filter(|name| !is_row(name) && !is_void(name)).partition(|name| is_lock(name));
    let folder_of = |name: &String| name.rsplit_once('/').map(|(folder, _)| folder.to_string());
    let locked: BTreeSet<String> = locks.iter().filter_map(folder_of).collect();
    assert_eq!(locks.len(), locked.len(), "{locks:?}");
    let mut right: Vec<String> = FILES
        .into_iter()
        .filter(|name| files.join(name).exists())
        .map(|name| format!("files/{name}"))
        .chain(["lake/_harrier_warehouse".to_string()])
        .collect();
    right.sort();
    assert_eq!(leftovers, right);
    // Uploads with a lost response are known to the store alone; VACUUM has removed those below the data
    // folder.
    let uploads = trial.bucket.server.uploads(&trial.bucket.name);
    assert!(uploads <= trial.unheard, "{uploads} uploads are left, {} were begun unheard", trial.unheard);
}

/// Whether a request has started a COPY upload of which the client cannot know.
fn starts_unknown_upload(request: &Request, fault: Fault) -> bool {
    let is_heard = matches!(fault, Fault::Cut | Fault::Status(_) | Fault::Delay(_) | Fault::Late(_));
    request.kind == "POST"
        && request.path.contains("/files/")
        && request.path.contains("?uploads")
        && !is_heard
}

#[test]
fn fault_injection_in_one_process() {
    let Some(bucket) = Bucket::new() else { return };
    check(&with_short_retries(bucket.configuration()), &bucket);
}

#[test]
fn fault_injection_on_three_ranks() {
    let Some(bucket) = Bucket::new() else { return };
    if harrier_launch::mpi_skipped() {
        eprintln!("skipped: needs MPI, and HARRIER_SKIP_MPI is set");
        return;
    }
    let _turn = harrier_launch::gang_slot();
    let words = Launcher::open_mpi(3).words().unwrap_or_else(|reason| panic!("{reason}"));
    let ranks = with_short_retries(bucket.configuration())
        .with_name("3-ranks")
        .launched_by(words)
        .with_setting("harrier.distribute_bytes_min", "0");
    check(&ranks, &bucket);
}

/// Shortens the retry delays.
fn with_short_retries(mut configuration: Configuration) -> Configuration {
    configuration.environment.push(("HARRIER_STORE_REQUEST_SECONDS".into(), "2".into()));
    configuration
}

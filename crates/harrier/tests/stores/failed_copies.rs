//! A COPY … TO that does not come to its end: what was at its place is what it was, byte by byte, and nothing
//! new is there, neither a file nor an upload. On a disk and on S3, embedded and on three ranks, in each
//! format, whatever it is that goes wrong.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use harrier_launch::Launcher;
use harrier_servers::{ACCESS_KEY, Fault, Proxy, REGION, Rule, S3, SECRET_KEY};
use harrier_testkit::session::{Configuration, Session};
use tempfile::TempDir;

use crate::test_server::{PATIENCE, Served};

const DIVISION_BY_ZERO: &str = "22012";
const BAD_NUMBER: &str = "22P02";

/// Of a file that a sink writes in one piece, and of one that it writes in several, with [`PIECE`].
const FEW: u32 = 1_000;
const MANY: u32 = 60_000;
/// Bytes of the pieces, the fewest that S3 takes.
const PIECE: &str = "SET datafusion.execution.objectstore_writer_buffer_size = 5242880";

/// Names of files and what is said about their format.
const FORMATS: [(&str, &str); 9] = [
    ("x.parquet", "(COMPRESSION none)"),
    ("x.csv", ""),
    ("x.csv.gz", "(FORMAT csv, COMPRESSION gzip)"),
    ("x.json", ""),
    ("x.json.zst", "(FORMAT json, COMPRESSION zstd)"),
    ("x.arrow", ""),
    ("x.orc", ""),
    ("x.avro", ""),
    ("x.txt", ""),
];

/// Rows of which the last one fails.
fn failing(rows: u32) -> String {
    format!(
        "SELECT v, 10 / (v - {rows}) AS a, repeat(md5(v::text), 4) AS b FROM generate_series(1, {rows}) AS g(v)"
    )
}

/// A place for files, and how to look at what is there.
enum Place {
    Disk(TempDir),
    Bucket(&'static S3, String),
}

impl Place {
    fn disk() -> Self {
        Self::Disk(tempfile::tempdir().unwrap())
    }

    fn bucket() -> Option<Self> {
        let server = S3::shared()?;
        Some(Self::Bucket(server, server.new_bucket()))
    }

    fn url(&self, name: &str) -> String {
        match self {
            Self::Disk(folder) => folder.path().join(name).display().to_string(),
            Self::Bucket(_, bucket) => format!("s3://{bucket}/{name}"),
        }
    }

    /// All files, whatever their names, with what is in them.
    fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let mut files = BTreeMap::new();
        match self {
            Self::Disk(folder) => read_below(folder.path(), &mut files),
            Self::Bucket(server, bucket) => {
                let folder = server.folder(bucket);
                let objects = server.objects(bucket).into_iter();
                files.extend(objects.map(|name| (name.clone(), fs::read(folder.join(name)).unwrap())));
            }
        }
        files
    }

    /// Uploads that were not completed.
    fn uploads(&self) -> usize {
        match self {
            Self::Disk(_) => 0,
            Self::Bucket(server, bucket) => server.uploads(bucket),
        }
    }

    fn environment(&self) -> Vec<(String, String)> {
        match self {
            Self::Disk(_) => vec![],
            Self::Bucket(server, _) => environment(&server.endpoint()),
        }
    }
}

pub(crate) fn environment(endpoint: &str) -> Vec<(String, String)> {
    let variables = [
        ("AWS_ACCESS_KEY_ID", ACCESS_KEY),
        ("AWS_SECRET_ACCESS_KEY", SECRET_KEY),
        ("AWS_REGION", REGION),
        ("AWS_ENDPOINT_URL", endpoint),
        ("AWS_ALLOW_HTTP", "true"),
    ];
    variables.map(|(name, value)| (name.to_string(), value.to_string())).to_vec()
}

fn read_below(folder: &Path, files: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => read_below(&path, files),
            false => drop(files.insert(path.display().to_string(), fs::read(&path).unwrap())),
        }
    }
}

fn run(session: &mut Session, sql: &str) {
    session.run(sql).unwrap_or_else(|error| panic!("{error} of {sql}"));
}

/// The statement fails with `sqlstate`, and the place is as before.
fn nothing_comes_of(place: &Place, session: &mut Session, sql: &str, sqlstate: &str) {
    let before = place.files();
    let failure = session.run(sql).expect_err(sql);
    assert_eq!(failure.sqlstate, sqlstate, "{failure} of {sql}");
    let after = place.files();
    assert_eq!(after.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>(), "{sql}");
    assert!(after == before, "a file was changed by {sql}");
    assert_eq!(place.uploads(), 0, "{sql}");
}

fn check_formats(place: &Place, configuration: &Configuration) {
    let mut configuration = configuration.clone();
    configuration.environment.extend(place.environment());
    let source = tempfile::tempdir().unwrap();
    let lines = |more: &str| (0..20_000).map(|v| format!("{v},row {v}\n")).collect::<String>() + more;
    fs::write(source.path().join("a.csv"), format!("id,t\n{}", lines(""))).unwrap();
    fs::write(source.path().join("b.csv"), format!("id,t\n{}", lines("no number,x\n"))).unwrap();
    let mut session = Session::start(&configuration).unwrap();
    let session = &mut session;
    run(
        session,
        &format!(
            "CREATE EXTERNAL TABLE source (id BIGINT, t TEXT) STORED AS CSV LOCATION '{}/' OPTIONS ('format.has_header' 'true')",
            source.path().display()
        ),
    );
    // A file of S3 is held in memory where a sink writes it in one piece, and as an upload where it does in
    // several.
    for rows in [FEW, MANY] {
        for (name, options) in FORMATS {
            let url = place.url(name);
            let fails = format!("COPY ({}) TO '{url}' {options}", failing(rows));
            nothing_comes_of(place, session, &fails, DIVISION_BY_ZERO);
            run(session, &format!("COPY (SELECT 1 AS a) TO '{url}' {options}"));
            nothing_comes_of(place, session, &fails, DIVISION_BY_ZERO);
            nothing_comes_of(
                place,
                session,
                &format!("COPY (SELECT * FROM source) TO '{url}' {options}"),
                BAD_NUMBER,
            );
            // EXPLAIN knows COPY without options only.
            if name == "x.csv" {
                nothing_comes_of(place, session, &format!("EXPLAIN ANALYZE {fails}"), DIVISION_BY_ZERO);
            }
            // What comes to its end is there, and takes the place of what was.
            let good = failing(rows).replace(&format!("(v - {rows})"), "(v + 1)");
            run(session, &format!("COPY ({good}) TO '{url}' {options}"));
            assert!(place.files().values().map(Vec::len).max() > Some(1000), "{url}");
            run(session, &format!("COPY (SELECT 1 AS a) TO '{url}' {options}"));
            assert_eq!(place.uploads(), 0);
        }
        // Several files, of several table partitions.
        for format in ["PARQUET", "CSV", "JSON", "ORC"] {
            let folder = place.url(&format!("parts-{format}/"));
            let rows = failing(rows).replace("SELECT v,", "SELECT v, (v % 5)::text AS k,");
            let fails = format!("COPY ({rows}) TO '{folder}' STORED AS {format} PARTITIONED BY (k)");
            nothing_comes_of(place, session, &fails, DIVISION_BY_ZERO);
            let fails = format!("COPY ({rows}) TO '{folder}' STORED AS {format}");
            nothing_comes_of(place, session, &fails, DIVISION_BY_ZERO);
        }
        run(session, PIECE);
    }
    // Of what the last statements have written, each row is there.
    let folder = place.url("good/");
    let good = format!("SELECT v, (v % 5)::text AS k FROM generate_series(1, {MANY}) AS g(v)");
    run(session, &format!("COPY ({good}) TO '{folder}' STORED AS PARQUET PARTITIONED BY (k)"));
    let answer = session.run(&format!("SELECT count(*), sum(v) FROM '{folder}'")).unwrap().into_rows().rows;
    let sum = u64::from(MANY) * u64::from(MANY + 1) / 2;
    assert_eq!(answer[0], [Some(MANY.to_string()), Some(sum.to_string())]);
}

fn three_ranks() -> Option<Configuration> {
    if harrier_launch::mpi_skipped() {
        eprintln!("skipped: needs MPI, and HARRIER_SKIP_MPI is set");
        return None;
    }
    Some(
        Configuration::on_ranks("3-ranks", &Launcher::open_mpi(3))
            .unwrap_or_else(|reason| panic!("{reason}")),
    )
}

#[test]
fn on_a_disk() {
    check_formats(&Place::disk(), &Configuration::embedded());
}

#[test]
fn on_a_disk_by_three_ranks() {
    let Some(ranks) = three_ranks() else { return };
    let _turn = harrier_launch::gang_slot();
    check_formats(&Place::disk(), &ranks);
}

#[test]
fn on_s3() {
    let Some(place) = Place::bucket() else { return };
    check_formats(&place, &Configuration::embedded());
}

#[test]
fn on_s3_by_three_ranks() {
    let Some(place) = Place::bucket() else { return };
    let Some(ranks) = three_ranks() else { return };
    let _turn = harrier_launch::gang_slot();
    check_formats(&place, &ranks);
}

/// One of several files cannot be shown: then none is.
#[test]
fn a_file_that_s3_refuses_at_the_end() {
    let Some(server) = S3::shared() else { return };
    let place = Place::Bucket(server, server.new_bucket());
    let proxy = Proxy::start(server.address());
    let mut configuration = Configuration::embedded();
    configuration.environment.extend(environment(&proxy.endpoint()));
    let mut session = Session::start(&configuration).unwrap();
    let rows = "SELECT v, v % 7 AS k FROM generate_series(1, 1000) AS g(v)";
    let copy = format!("COPY ({rows}) TO '{}' STORED AS PARQUET PARTITIONED BY (k)", place.url("parts/"));
    proxy.add(Rule::new(Fault::Status(403)).of("PUT").after(3));
    let failure = session.run(&copy).expect_err("a put that is refused");
    assert_eq!(failure.sqlstate, "42501", "{failure}");
    assert_eq!(place.files().len(), 0);
    proxy.clear();
    run(&mut session, &copy);
    assert_eq!(place.files().len(), 7);
}

/// Ends `harrier sql` while it copies, and looks at what it leaves.
fn check_cancel(place: &Place, existing: bool) {
    let url = place.url("x.csv");
    let mut configuration = Configuration::embedded();
    configuration.environment.extend(place.environment());
    if existing {
        let mut session = Session::start(&configuration).unwrap();
        run(&mut session, &format!("COPY (SELECT 1 AS a) TO '{url}'"));
    }
    let before = place.files();
    let mut child = configuration
        .command()
        .unwrap()
        .args(["-c", PIECE, "-c"])
        .arg(format!(
            "COPY (SELECT a.value, md5(a.value::text) FROM generate_series(1, 100000) a, generate_series(1, 1000000) b) TO '{url}'"
        ))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // It writes once something of it is there that nobody sees as its file.
    let deadline = Instant::now() + PATIENCE;
    while place.files().len() + place.uploads() == before.len() {
        assert!(child.try_wait().unwrap().is_none(), "the copy ended by itself");
        assert!(Instant::now() < deadline, "the copy does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    crate::test_server::signal(child.id(), "INT");
    assert!(!child.wait().unwrap().success());
    assert!(place.files() == before, "{:?}", place.files().keys());
    assert_eq!(place.uploads(), 0);
}

#[test]
fn canceled_on_a_disk() {
    for existing in [false, true] {
        check_cancel(&Place::disk(), existing);
    }
}

#[test]
fn canceled_on_s3() {
    for existing in [false, true] {
        let Some(place) = Place::bucket() else { return };
        check_cancel(&place, existing);
    }
}

/// A server whose ranks write, and one without any.
#[test]
fn by_a_server() {
    let Some(bucket) = Place::bucket() else { return };
    let mut ways: Vec<&[&str]> = vec![&["--launcher", "none"]];
    if !harrier_launch::mpi_skipped() {
        ways.push(&["--ranks", "2", "--threads", "1", "--set", "harrier.distribute_bytes_min=1"]);
    }
    for (number, arguments) in ways.into_iter().enumerate() {
        let _turn = harrier_launch::gang_slot();
        let disk = Place::disk();
        let variables = bucket.environment();
        let variables: Vec<(&str, &str)> =
            variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let served = Served::start_with(tempfile::tempdir().unwrap(), arguments, &variables);
        if arguments.contains(&"--ranks") {
            served.wait_for_ranks(2);
        }
        let mut client = served.client();
        client.query(PIECE).unwrap();
        for place in [&disk, &bucket] {
            for name in ["x.parquet", "x.csv", "x.json"] {
                let url = place.url(&format!("{number}-{name}"));
                client.query(&format!("COPY (SELECT 1 AS a) TO '{url}'")).unwrap();
                let before = place.files();
                for rows in [FEW, MANY] {
                    let fails = format!("COPY ({}) TO '{url}'", failing(rows));
                    assert_eq!(client.fails(&fails), DIVISION_BY_ZERO, "{fails}");
                    assert!(place.files() == before, "{fails}");
                    assert_eq!(place.uploads(), 0, "{fails}");
                }
            }
        }
    }
}

/// A file on HDFS is beside its place until it is shown.
#[test]
fn on_hdfs() {
    let Some((_alone, server)) = crate::hdfs() else { return };
    let mut session = Session::start(&Configuration::embedded()).unwrap();
    let session = &mut session;
    let folder = format!("{}/failed-copies-{}", server.url(), harrier_servers::process_name());
    let files = || server.files(&format!("/failed-copies-{}", harrier_servers::process_name()));
    for rows in [FEW, MANY] {
        for (name, options) in FORMATS {
            let url = format!("{folder}/{rows}/{name}");
            let before = files();
            let fails = format!("COPY ({}) TO '{url}' {options}", failing(rows));
            let failure = session.run(&fails).expect_err(&fails);
            assert_eq!(failure.sqlstate, DIVISION_BY_ZERO, "{failure} of {fails}");
            assert_eq!(files(), before, "{fails}");
            run(session, &format!("COPY (SELECT 1 AS a) TO '{url}' {options}"));
            let before = files();
            assert!(before.iter().any(|file| file.ends_with(&format!("{rows}/{name}"))), "{before:?}");
            let failure = session.run(&fails).expect_err(&fails);
            assert_eq!(failure.sqlstate, DIVISION_BY_ZERO, "{failure} of {fails}");
            assert_eq!(files(), before, "{fails}");
            if matches!(name, "x.parquet" | "x.csv" | "x.json" | "x.orc") {
                let count = session.run(&format!("SELECT count(*) FROM '{url}'")).unwrap().into_rows().rows;
                assert_eq!(count[0][0].as_deref(), Some("1"), "{url}");
            }
        }
        run(session, PIECE);
    }
}

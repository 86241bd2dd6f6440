//! Failed COPY … TO: the previous file is unchanged, byte for byte, and no new file or upload is left. On a
//! disk and on S3, embedded and on three ranks, in each format, for every kind of failure.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use harrier_launch::Launcher;
use harrier_servers::{ACCESS_KEY, Fault, Proxy, REGION, Rule, S3, SECRET_KEY};
use harrier_testkit::session::{Configuration, Session};
use tempfile::TempDir;

use crate::test_server::{Client, PATIENCE, TestServer};

const DIVISION_BY_ZERO: &str = "22012";
const BAD_NUMBER: &str = "22P02";

/// Rows of a file that a sink writes in one piece, and of one in several pieces, with [`PIECE`].
const FEW: u32 = 1_000;
const MANY: u32 = 60_000;
/// Size of a piece: the minimum of S3.
const PIECE: &str = "SET datafusion.execution.objectstore_writer_buffer_size = 5242880";

/// File names and their format options.
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

/// A query whose last row fails.
fn failing(rows: u32) -> String {
    format!(
        "SELECT v, 10 / (v - {rows}) AS a, repeat(md5(v::text), 4) AS b FROM generate_series(1, {rows}) AS g(v)"
    )
}

/// A destination for files, and how to inspect it.
enum Place {
    Disk(TempDir),
    Bucket(&'static S3, String),
}

impl Place {
    fn disk() -> Self {
        Self::Disk(tempfile::tempdir().unwrap())
    }

    fn bucket() -> Option<Self> {
        let server = S3::shared_instance()?;
        Some(Self::Bucket(server, server.new_bucket()))
    }

    fn url(&self, name: &str) -> String {
        match self {
            Self::Disk(folder) => folder.path().join(name).display().to_string(),
            Self::Bucket(_, bucket) => format!("s3://{bucket}/{name}"),
        }
    }

    /// All files with their contents.
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

    /// Number of incomplete multipart uploads.
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

/// Asserts that the statement fails with `sqlstate`, and that the destination is unchanged.
fn assert_fails_without_effect(place: &Place, session: &mut Session, sql: &str, sqlstate: &str) {
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
    // On S3, a sink that writes one piece holds the file in memory, and one that writes several uses an
    // upload.
    for rows in [FEW, MANY] {
        for (name, options) in FORMATS {
            let url = place.url(name);
            let fails = format!("COPY ({}) TO '{url}' {options}", failing(rows));
            assert_fails_without_effect(place, session, &fails, DIVISION_BY_ZERO);
            run(session, &format!("COPY (SELECT 1 AS a) TO '{url}' {options}"));
            assert_fails_without_effect(place, session, &fails, DIVISION_BY_ZERO);
            assert_fails_without_effect(
                place,
                session,
                &format!("COPY (SELECT * FROM source) TO '{url}' {options}"),
                BAD_NUMBER,
            );
            let explained = format!("EXPLAIN ANALYZE {fails}");
            assert_fails_without_effect(place, session, &explained, DIVISION_BY_ZERO);
            // A successful COPY replaces the previous file.
            let good = failing(rows).replace(&format!("(v - {rows})"), "(v + 1)");
            run(session, &format!("COPY ({good}) TO '{url}' {options}"));
            assert!(place.files().values().map(Vec::len).max() > Some(1000), "{url}");
            run(session, &format!("COPY (SELECT 1 AS a) TO '{url}' {options}"));
            assert_eq!(place.uploads(), 0);
        }
        // Several files of several table partitions.
        for format in ["PARQUET", "CSV", "JSON", "ORC"] {
            let folder = place.url(&format!("parts-{format}/"));
            let rows = failing(rows).replace("SELECT v,", "SELECT v, (v % 5)::text AS k,");
            let fails = format!("COPY ({rows}) TO '{folder}' STORED AS {format} PARTITIONED BY (k)");
            assert_fails_without_effect(place, session, &fails, DIVISION_BY_ZERO);
            let fails = format!("COPY ({rows}) TO '{folder}' STORED AS {format}");
            assert_fails_without_effect(place, session, &fails, DIVISION_BY_ZERO);
            // Rows that ranks read.
            for keys in ["", "PARTITIONED BY (k)"] {
                let rows = "SELECT id, (id % 5)::text AS k FROM source";
                let fails = format!("COPY ({rows}) TO '{folder}' STORED AS {format} {keys}");
                assert_fails_without_effect(place, session, &fails, BAD_NUMBER);
            }
        }
        run(session, PIECE);
    }
    // All rows of the last statements are there.
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
fn failed_copy_on_a_disk() {
    check_formats(&Place::disk(), &Configuration::embedded());
}

#[test]
fn failed_copy_on_a_disk_by_three_ranks() {
    let Some(ranks) = three_ranks() else { return };
    let _turn = harrier_launch::gang_slot();
    check_formats(&Place::disk(), &ranks);
}

#[test]
fn failed_copy_on_s3() {
    let Some(place) = Place::bucket() else { return };
    check_formats(&place, &Configuration::embedded());
}

#[test]
fn failed_copy_on_s3_by_three_ranks() {
    let Some(place) = Place::bucket() else { return };
    let Some(ranks) = three_ranks() else { return };
    let _turn = harrier_launch::gang_slot();
    check_formats(&place, &ranks);
}

/// One of several files cannot be published: then none is.
#[test]
fn failed_upload_completion_on_s3() {
    let Some(server) = S3::shared_instance() else { return };
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

/// Cancels `harrier sql` during a COPY, and checks what is left.
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
    // Writing has started once a temporary file exists.
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
fn canceled_copy_on_a_disk() {
    for existing in [false, true] {
        check_cancel(&Place::disk(), existing);
    }
}

#[test]
fn canceled_copy_on_s3() {
    for existing in [false, true] {
        let Some(place) = Place::bucket() else { return };
        check_cancel(&place, existing);
    }
}

/// A server whose ranks write, and one without ranks.
#[test]
fn failed_copy_by_a_server() {
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
        let test_server = TestServer::start_with(tempfile::tempdir().unwrap(), arguments, &variables);
        if arguments.contains(&"--ranks") {
            test_server.wait_for_ranks(2);
        }
        let mut client = test_server.client();
        client.query(PIECE).unwrap();
        check_folders_of_a_server(&mut client, &disk, arguments.contains(&"--ranks"));
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

/// Its ranks write the files of a folder, of each format.
fn check_folders_of_a_server(client: &mut Client, disk: &Place, has_ranks: bool) {
    client
        .query("CREATE TABLE IF NOT EXISTS w AS SELECT v, v % 3 AS k FROM generate_series(1, 60000) AS g(v)")
        .unwrap();
    for options in
        ["WITH (FORMAT csv)", "WITH (FORMAT json)", "STORED AS PARQUET", "STORED AS ORC PARTITIONED BY (k)"]
    {
        let before = disk.files();
        let url = disk.url(&format!("folder-{}/", before.len()));
        let copy = format!("COPY w TO '{url}' {options}");
        let plan: Vec<String> =
            client.query(&format!("EXPLAIN {copy}")).unwrap().into_iter().flatten().flatten().collect();
        let is_on_ranks = plan.iter().any(|line| line.contains("StagedFilesExec"));
        assert_eq!(is_on_ranks, has_ranks, "{copy}: {plan:#?}");
        let fails = format!("COPY (SELECT v, k, 1 / (v - 59999) AS q FROM w) TO '{url}' {options}");
        assert_eq!(client.fails(&fails), DIVISION_BY_ZERO, "{fails}");
        assert!(disk.files() == before && !Path::new(&url).exists(), "{fails}");
        client.query(&copy).unwrap();
        let sums = format!("SELECT count(*)::text || ' ' || sum(v) FROM '{url}'");
        assert_eq!(client.one(&sums).as_deref(), Ok("60000 1800030000"), "{copy}");
    }
}

/// On HDFS, a file is staged beside its destination until it is published.
#[test]
fn failed_copy_on_hdfs() {
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

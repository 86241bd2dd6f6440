//! Backups on S3 and HDFS, of warehouses that are on these stores themselves or have their catalog in
//! PostgreSQL.

use std::path::Path;
use std::process::{Command, Stdio};

use harrier_servers::{ACCESS_KEY, Postgres, REGION, S3, SECRET_KEY};
use harrier_testkit::session::{Configuration, Session};

use crate::hdfs;
use crate::warehouses::{one, run};

const SUM: &str = "SELECT count(*) || ' ' || sum(v) FROM t";

/// Output and exit status of a process.
#[derive(Debug)]
struct ProcessOutput {
    status: Option<i32>,
    stdout: String,
    stderr: String,
}

fn harrier(environment: &[(String, String)], args: &[&str]) -> ProcessOutput {
    let mut command = Command::new(env!("CARGO_BIN_EXE_harrier"));
    let output = command.args(args).envs(environment.iter().cloned()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let process_output = ProcessOutput {
        status: output.status.code(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    };
    assert!(
        !process_output.stdout.contains(SECRET_KEY) && !process_output.stderr.contains(SECRET_KEY),
        "{process_output:?}"
    );
    process_output
}

#[track_caller]
fn assert_success(process_output: ProcessOutput) -> String {
    assert_eq!(process_output.status, Some(0), "{process_output:?}");
    process_output.stdout
}

fn of_s3(server: &S3) -> Vec<(String, String)> {
    let endpoint = server.endpoint();
    let environment = [
        ("AWS_ACCESS_KEY_ID", ACCESS_KEY),
        ("AWS_SECRET_ACCESS_KEY", SECRET_KEY),
        ("AWS_REGION", REGION),
        ("AWS_ENDPOINT_URL", endpoint.as_str()),
        ("AWS_ALLOW_HTTP", "true"),
    ];
    environment.map(|(name, value)| (name.to_string(), value.to_string())).to_vec()
}

/// Session with options that locate a warehouse; the first one locates its catalog.
fn session(place: &[&str], environment: &[(String, String)]) -> Session {
    let [kind, catalog, data @ ..] = place else { panic!("{place:?}") };
    let configuration = match *kind {
        "--warehouse" => Configuration::embedded().with_warehouse(catalog),
        _ => Configuration::embedded().with_catalog(*catalog),
    };
    let mut configuration = configuration.with_arguments(data.iter().copied());
    configuration.environment.extend(environment.iter().cloned());
    Session::start(&configuration).unwrap()
}

/// Creates two tables with files, one of them a multipart upload, and inlined rows.
fn fill(session: &mut Session) {
    run(session, "CREATE TABLE t (k TEXT, v BIGINT) PARTITION BY (k)");
    run(session, "INSERT INTO t SELECT 'a b/' || v % 3, v FROM generate_series(1, 1000) AS g(v)");
    run(session, "INSERT INTO t VALUES ('kept', 5000)");
    run(session, "DELETE FROM t WHERE v % 7 = 0");
    run(
        session,
        "CREATE TABLE large AS SELECT v, sha256(v::text) AS h FROM generate_series(1, 600000) AS g(v)",
    );
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn backup_and_restore_on_s3() {
    let Some(server) = S3::shared_instance() else { return };
    let (environment, folder) = (of_s3(server), tempfile::tempdir().unwrap());
    let (lake, target, other) = (server.new_bucket(), server.new_bucket(), server.new_bucket());
    let own = folder.path().join("own");
    let (data, to) = (format!("s3://{lake}/lake/"), format!("s3://{target}/backups/of lake"));
    let place = ["--warehouse", text(&own), "--data", data.as_str()];
    let mut first = session(&place, &environment);
    fill(&mut first);
    let backup = || harrier(&environment, &[&["backup"], &place[..2], &[to.as_str()]].concat());
    let backup_output = assert_success(backup());
    let files = server.objects(&lake).len() - 1;
    assert!(
        backup_output.contains(&format!(" {files} files ("))
            && backup_output.contains(" 0 files (0B) there already"),
        "{backup_output}"
    );
    let names = server.objects(&target);
    assert!(names.iter().all(|name| name.starts_with("backups/of lake/")), "{names:?}");
    assert_eq!(names.len(), files + 3, "files, catalog, manifest, and whose they are: {names:?}");
    assert_eq!(server.uploads(&target), 0);
    let largest = std::fs::metadata(
        server.folder(&target).join(names.iter().find(|name| name.contains("/large/")).unwrap()),
    );
    assert!(largest.unwrap().len() > 8 << 20, "it is uploaded in parts");

    run(&mut first, "INSERT INTO t SELECT 'new', v FROM generate_series(2001, 2100) AS g(v)");
    let later = assert_success(backup());
    assert!(later.contains(&format!("{files} files (")) && later.contains(": 1 file ("), "{later}");
    assert!(assert_success(harrier(&environment, &["backup", "--check", &to])).contains(" 0 wrong"));

    // Restores to other objects, and to a folder.
    let (moved, local) = (folder.path().join("moved"), folder.path().join("local"));
    let data = format!("s3://{other}/");
    let to_s3 = ["--warehouse", text(&moved), "--data", data.as_str()];
    assert_success(harrier(&environment, &[&["restore", to.as_str()], &to_s3[..]].concat()));
    assert_success(harrier(&environment, &["restore", &to, "--warehouse", text(&local)]));
    let expected = one(&mut first, SUM);
    for place in [&to_s3[..], &["--warehouse", text(&local)]] {
        let mut restored = session(place, &environment);
        assert_eq!(one(&mut restored, SUM), expected);
        assert_eq!(one(&mut restored, "SELECT count(*) FROM large"), "600000");
        run(&mut restored, "INSERT INTO t SELECT 'more', v FROM generate_series(1, 100) AS g(v)");
        run(&mut restored, "SET harrier.vacuum_age_seconds = 0");
        run(&mut restored, "OPTIMIZE t");
        run(&mut restored, "CALL expire_snapshots('0 seconds')");
        run(&mut restored, "VACUUM");
    }
    assert_eq!(one(&mut first, SUM), expected);
    let again = harrier(
        &environment,
        &[&["restore", to.as_str()], &["--warehouse", text(&folder.path().join("x"))], &to_s3[2..]].concat(),
    );
    assert!(again.stderr.starts_with("ERROR 55000: "), "{again:?}");

    // The data folder may be the root of a bucket.
    let inside = format!("s3://{other}/backups");
    let refusal = harrier(&environment, &["backup", place[0], place[1], &inside]);
    assert!(
        refusal.stderr.starts_with("ERROR 55000: ") && refusal.stderr.contains("data folder"),
        "{refusal:?}"
    );

    // A process dies while it holds the lock: the next one takes the lock over, unless the holder could be on
    // another host.
    let killed_target = kill_while_locked(server, &target, &environment, &["backup", place[0], place[1]]);
    let to_killed = ["backup", place[0], place[1], killed_target.as_str()];
    assert_success(harrier(&environment, &to_killed));
    assert!(
        assert_success(harrier(&environment, &["backup", "--check", &killed_target])).contains(" 0 wrong")
    );
    let killed_target = kill_while_locked(server, &target, &environment, &["backup", place[0], place[1]]);
    let lock = format!("{}/lock", killed_target.strip_prefix(&format!("s3://{target}/")).unwrap());
    server.put_object(&target, &lock, b"another-host pid:[1] 1 77\n");
    let locked_output = harrier(&environment, &["backup", place[0], place[1], &killed_target]);
    assert!(
        locked_output.stderr.starts_with("ERROR 55006: ") && locked_output.stderr.contains(&lock),
        "{locked_output:?}"
    );

    // Damaged objects.
    let file = names.iter().find(|name| name.contains("/large/")).unwrap();
    std::fs::remove_file(server.folder(&target).join(file)).unwrap();
    server.put_object(&target, file, b"short");
    let check_output = harrier(&environment, &["backup", "--check", &to]);
    assert_eq!(check_output.status, Some(3), "{check_output:?}");
    assert!(
        check_output.stdout.contains(&format!("s3://{target}/{file}\" has 5 bytes")),
        "{}",
        check_output.stdout
    );
    let broken = folder.path().join("broken");
    let restored = harrier(&environment, &["restore", &to, "--warehouse", text(&broken)]);
    assert!(
        restored.stderr.starts_with("ERROR XX001: ") && restored.stderr.contains(file.as_str()),
        "{restored:?}"
    );
    // The next backup copies the object again, because its length differs.
    let backup_output = assert_success(backup());
    assert!(backup_output.contains(": 1 file ("), "{backup_output}");
    assert_success(harrier(&environment, &["restore", &to, "--warehouse", text(&broken)]));
    assert_eq!(one(&mut session(&["--warehouse", text(&broken)], &environment), SUM), expected);
}

/// Starts backups at new places until one is killed while it holds the lock; returns that place.
fn kill_while_locked(server: &S3, bucket: &str, environment: &[(String, String)], args: &[&str]) -> String {
    for number in 0..50 {
        let place = format!("killed-{number}");
        let lock = server.folder(bucket).join(&place).join("lock");
        if lock.parent().unwrap().exists() {
            continue;
        }
        let to = format!("s3://{bucket}/{place}");
        let mut command = Command::new(env!("CARGO_BIN_EXE_harrier"));
        command.args(args).arg(&to).envs(environment.iter().cloned()).stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        while !lock.exists() && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        if lock.exists() {
            return to;
        }
    }
    panic!("no backup was killed while it had the lock");
}

#[test]
fn restore_between_postgres_and_folder_catalogs() {
    let Some(server) = Postgres::shared_instance() else { return };
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("own");
    let url = server.url(&server.new_database()).replace("harrier@", "harrier:hush-hush@");
    let place = ["--catalog", url.as_str(), "--data", text(&own)];
    let mut first = session(&place, &[]);
    fill(&mut first);
    run(
        &mut first,
        "CREATE TABLE s (a INT GENERATED BY DEFAULT AS IDENTITY, b UUID, c BYTEA, d INTERVAL, e DOUBLE PRECISION)",
    );
    run(
        &mut first,
        "INSERT INTO s (b, c, d, e) VALUES ('0192f1c8-7a3b-7c4d-8e5f-1a2b3c4d5e6f', '\\x00ff', interval '1 day', 'NaN')",
    );
    run(&mut first, "CREATE ROLE reader");
    let target = folder.path().join("backups");
    let expected =
        [one(&mut first, SUM), one(&mut first, "SELECT concat_ws(' ', a, b, encode(c, 'hex'), d, e) FROM s")];
    let backup_output = assert_success(harrier(&[], &[&["backup"], &place[..2], &[text(&target)]].concat()));
    let id = backup_output.split([' ', '\n']).nth(1).unwrap();
    let manifest = std::fs::read_to_string(target.join(format!("backups/{id}.json"))).unwrap();
    assert!(!manifest.contains("hush") && manifest.contains("postgres:"), "{manifest}");

    // Into a folder; from there into another database; and into another database directly.
    let (as_folder, back) = (folder.path().join("folder"), folder.path().join("backups of folder"));
    assert_success(harrier(&[], &["restore", text(&target), "--warehouse", text(&as_folder)]));
    assert_success(harrier(&[], &["backup", "--warehouse", text(&as_folder), text(&back)]));
    let urls = [server.url(&server.new_database()), server.url(&server.new_database())];
    let datas = [folder.path().join("data 1"), folder.path().join("data 2")];
    let places = [0, 1].map(|at| ["--catalog", urls[at].as_str(), "--data", text(&datas[at])]);
    assert_success(harrier(&[], &[&["restore", text(&back)], &places[0][..]].concat()));
    assert_success(harrier(&[], &[&["restore", text(&target)], &places[1][..]].concat()));
    for place in [&["--warehouse", text(&as_folder)][..], &places[0], &places[1], &place] {
        let mut session = session(place, &[]);
        assert_eq!(
            [
                one(&mut session, SUM),
                one(&mut session, "SELECT concat_ws(' ', a, b, encode(c, 'hex'), d, e) FROM s")
            ],
            expected,
            "{place:?}"
        );
        run(&mut session, "INSERT INTO s (e) VALUES (1)");
        assert_eq!(one(&mut session, "SELECT max(a) FROM s"), "2", "{place:?}");
        run(&mut session, "INSERT INTO t SELECT 'more', v FROM generate_series(1, 100) AS g(v)");
        run(&mut session, "SET harrier.vacuum_age_seconds = 0");
        run(&mut session, "VACUUM");
        assert_eq!(session.run("CREATE ROLE reader").unwrap_err().sqlstate, "42710");
    }
    // The database already has a catalog; and without a data folder there is no restore.
    let new = folder.path().join("new");
    let twice = harrier(&[], &["restore", text(&target), "--catalog", &urls[0], "--data", text(&new)]);
    assert!(twice.stderr.starts_with("ERROR 42P07: "), "{twice:?}");
    let nowhere = harrier(&[], &["restore", text(&target), "--catalog", &server.url(&server.new_database())]);
    assert!(nowhere.stderr.starts_with("ERROR 22023: "), "{nowhere:?}");
}

#[test]
fn backup_and_restore_on_hdfs() {
    let Some((_alone, server)) = hdfs() else { return };
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("own");
    let mut first = session(&["--warehouse", text(&own)], &[]);
    run(&mut first, "CREATE TABLE t (k TEXT, v BIGINT) PARTITION BY (k)");
    run(&mut first, "INSERT INTO t SELECT 'a b/' || v % 3, v FROM generate_series(1, 1000) AS g(v)");
    let to = format!("{}/backups-{}", server.url(), harrier_servers::process_name());
    for copied in ["there already\n", " 0 files (0B) copied"] {
        let backup_output =
            assert_success(harrier(&[], &["backup", "--warehouse", text(&own), &to, "--keep", "1"]));
        assert!(backup_output.contains(copied), "{backup_output}");
    }
    assert!(assert_success(harrier(&[], &["backup", "--check", &to])).contains(" 0 wrong"));
    let restored = folder.path().join("restored");
    assert_success(harrier(&[], &["restore", &to, "--warehouse", text(&restored)]));
    assert_eq!(one(&mut session(&["--warehouse", text(&restored)], &[]), SUM), one(&mut first, SUM));
}

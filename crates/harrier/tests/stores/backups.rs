//! Backups on S3 and HDFS, of warehouses that are there themselves, and of catalogs in PostgreSQL.

use std::path::Path;
use std::process::{Command, Stdio};

use harrier_servers::{ACCESS_KEY, Postgres, REGION, S3, SECRET_KEY};
use harrier_testkit::session::{Configuration, Session};

use crate::hdfs;
use crate::warehouses::{one, run};

const SUM: &str = "SELECT count(*) || ' ' || sum(v) FROM t";

/// What a process was told, and said.
#[derive(Debug)]
struct Said {
    status: Option<i32>,
    stdout: String,
    stderr: String,
}

fn harrier(environment: &[(String, String)], args: &[&str]) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_harrier"));
    let output = command.args(args).envs(environment.iter().cloned()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let said =
        Said { status: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) };
    assert!(!said.stdout.contains(SECRET_KEY) && !said.stderr.contains(SECRET_KEY), "{said:?}");
    said
}

#[track_caller]
fn done(said: Said) -> String {
    assert_eq!(said.status, Some(0), "{said:?}");
    said.stdout
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

/// Of the options that say where a warehouse is, the first of which says where its catalog is.
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

/// Two tables with files, of which one is of several parts of an upload, and inlined rows.
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
fn a_warehouse_on_s3_is_backed_up_there_and_restored_there() {
    let Some(server) = S3::shared() else { return };
    let (environment, folder) = (of_s3(server), tempfile::tempdir().unwrap());
    let (lake, target, other) = (server.new_bucket(), server.new_bucket(), server.new_bucket());
    let own = folder.path().join("own");
    let (data, to) = (format!("s3://{lake}/lake/"), format!("s3://{target}/backups/of lake"));
    let place = ["--warehouse", text(&own), "--data", data.as_str()];
    let mut first = session(&place, &environment);
    fill(&mut first);
    let backup = || harrier(&environment, &[&["backup"], &place[..2], &[to.as_str()]].concat());
    let made = done(backup());
    let files = server.objects(&lake).len() - 1;
    assert!(
        made.contains(&format!(" {files} files (")) && made.contains(" 0 files (0B) there already"),
        "{made}"
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
    let later = done(backup());
    assert!(later.contains(&format!("{files} files (")) && later.contains(": 1 file ("), "{later}");
    assert!(done(harrier(&environment, &["backup", "--check", &to])).contains(" 0 wrong"));

    // To other objects, and to a folder.
    let (moved, local) = (folder.path().join("moved"), folder.path().join("local"));
    let data = format!("s3://{other}/");
    let to_s3 = ["--warehouse", text(&moved), "--data", data.as_str()];
    done(harrier(&environment, &[&["restore", to.as_str()], &to_s3[..]].concat()));
    done(harrier(&environment, &["restore", &to, "--warehouse", text(&local)]));
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

    // The root of a bucket is a warehouse's data folder, too.
    let inside = format!("s3://{other}/backups");
    let refused = harrier(&environment, &["backup", place[0], place[1], &inside]);
    assert!(
        refused.stderr.starts_with("ERROR 55000: ") && refused.stderr.contains("data folder"),
        "{refused:?}"
    );

    // A process dies with the lock in its hands: the next one takes it, unless it has to be one of another
    // host.
    let killed = killed_with_lock(server, &target, &environment, &["backup", place[0], place[1]]);
    let to_killed = ["backup", place[0], place[1], killed.as_str()];
    done(harrier(&environment, &to_killed));
    assert!(done(harrier(&environment, &["backup", "--check", &killed])).contains(" 0 wrong"));
    let killed = killed_with_lock(server, &target, &environment, &["backup", place[0], place[1]]);
    let lock = format!("{}/lock", killed.strip_prefix(&format!("s3://{target}/")).unwrap());
    server.put_object(&target, &lock, b"another-host pid:[1] 1 77\n");
    let locked = harrier(&environment, &["backup", place[0], place[1], &killed]);
    assert!(locked.stderr.starts_with("ERROR 55006: ") && locked.stderr.contains(&lock), "{locked:?}");

    // Objects that are not what they were.
    let file = names.iter().find(|name| name.contains("/large/")).unwrap();
    std::fs::remove_file(server.folder(&target).join(file)).unwrap();
    server.put_object(&target, file, b"short");
    let checked = harrier(&environment, &["backup", "--check", &to]);
    assert_eq!(checked.status, Some(3), "{checked:?}");
    assert!(checked.stdout.contains(&format!("s3://{target}/{file}\" has 5 bytes")), "{}", checked.stdout);
    let broken = folder.path().join("broken");
    let restored = harrier(&environment, &["restore", &to, "--warehouse", text(&broken)]);
    assert!(
        restored.stderr.starts_with("ERROR XX001: ") && restored.stderr.contains(file.as_str()),
        "{restored:?}"
    );
    // The next backup has it again, as its length is another one.
    let made = done(backup());
    assert!(made.contains(": 1 file ("), "{made}");
    done(harrier(&environment, &["restore", &to, "--warehouse", text(&broken)]));
    assert_eq!(one(&mut session(&["--warehouse", text(&broken)], &environment), SUM), expected);
}

/// Begins backups into places of their own until one was killed while it held the lock; that place.
fn killed_with_lock(server: &S3, bucket: &str, environment: &[(String, String)], args: &[&str]) -> String {
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
fn a_catalog_in_postgres_is_restored_into_a_folder_and_back() {
    let Some(server) = Postgres::shared() else { return };
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
    let made = done(harrier(&[], &[&["backup"], &place[..2], &[text(&target)]].concat()));
    let id = made.split([' ', '\n']).nth(1).unwrap();
    let manifest = std::fs::read_to_string(target.join(format!("backups/{id}.json"))).unwrap();
    assert!(!manifest.contains("hush") && manifest.contains("postgres:"), "{manifest}");

    // Into a folder; from there into another database; and into another one at once.
    let (as_folder, back) = (folder.path().join("folder"), folder.path().join("backups of folder"));
    done(harrier(&[], &["restore", text(&target), "--warehouse", text(&as_folder)]));
    done(harrier(&[], &["backup", "--warehouse", text(&as_folder), text(&back)]));
    let urls = [server.url(&server.new_database()), server.url(&server.new_database())];
    let datas = [folder.path().join("data 1"), folder.path().join("data 2")];
    let places = [0, 1].map(|at| ["--catalog", urls[at].as_str(), "--data", text(&datas[at])]);
    done(harrier(&[], &[&["restore", text(&back)], &places[0][..]].concat()));
    done(harrier(&[], &[&["restore", text(&target)], &places[1][..]].concat()));
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
    // There is one in the database already; and without a place for files there is none.
    let new = folder.path().join("new");
    let twice = harrier(&[], &["restore", text(&target), "--catalog", &urls[0], "--data", text(&new)]);
    assert!(twice.stderr.starts_with("ERROR 42P07: "), "{twice:?}");
    let nowhere = harrier(&[], &["restore", text(&target), "--catalog", &server.url(&server.new_database())]);
    assert!(nowhere.stderr.starts_with("ERROR 22023: "), "{nowhere:?}");
}

#[test]
fn backups_lie_on_hdfs() {
    let Some((_alone, server)) = hdfs() else { return };
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("own");
    let mut first = session(&["--warehouse", text(&own)], &[]);
    run(&mut first, "CREATE TABLE t (k TEXT, v BIGINT) PARTITION BY (k)");
    run(&mut first, "INSERT INTO t SELECT 'a b/' || v % 3, v FROM generate_series(1, 1000) AS g(v)");
    let to = format!("{}/backups-{}", server.url(), harrier_servers::process_name());
    for copied in ["there already\n", " 0 files (0B) copied"] {
        let made = done(harrier(&[], &["backup", "--warehouse", text(&own), &to, "--keep", "1"]));
        assert!(made.contains(copied), "{made}");
    }
    assert!(done(harrier(&[], &["backup", "--check", &to])).contains(" 0 wrong"));
    let restored = folder.path().join("restored");
    done(harrier(&[], &["restore", &to, "--warehouse", text(&restored)]));
    assert_eq!(one(&mut session(&["--warehouse", text(&restored)], &[]), SUM), one(&mut first, SUM));
}

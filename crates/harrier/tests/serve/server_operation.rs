//! Operation of a server: `harrier ctl` and the SQL functions behind it, configuration reload, failing disks,
//! systemd, and the audit log.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::test_server::{Client, PATIENCE, TestServer, page, signal};

const BINARY: &str = env!("CARGO_BIN_EXE_harrier");

const ALONE: &[&str] = &["--launcher", "none"];

fn ctl(test_server: &TestServer, arguments: &[&str]) -> Output {
    Command::new(BINARY)
        .args(["ctl", "--host", "127.0.0.1", "--port", &test_server.port.to_string()])
        .args(arguments)
        .env_remove("PGHOST")
        .env_remove("PGPASSWORD")
        .output()
        .unwrap()
}

/// Output of a successful call.
#[track_caller]
fn ctl_output(test_server: &TestServer, arguments: &[&str]) -> String {
    let output = ctl(test_server, arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}\n{}", test_server.log());
    String::from_utf8(output.stdout).unwrap()
}

/// Exit status and standard error.
fn ctl_failure(test_server: &TestServer, arguments: &[&str]) -> (Option<i32>, String) {
    let output = ctl(test_server, arguments);
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn drained_server_accepts_operators_only() {
    let test_server = TestServer::start(ALONE);
    let (mut idle, mut busy) = (test_server.client(), test_server.client());
    idle.query("SELECT 1").unwrap();
    busy.query("CREATE TABLE t (a int)").unwrap();
    busy.query("BEGIN; INSERT INTO t VALUES (1)").unwrap();
    assert_eq!(page(&test_server.pages, "/readyz", false).0, 200);
    ctl_output(&test_server, &["drain"]);
    assert_eq!(idle.answer().unwrap_err().0, "57P01", "who does nothing is sent away");
    let (state, message) = Client::connect(test_server.port, &[]).err().unwrap();
    assert_eq!((state.as_str(), message.as_str()), ("57P03", "the server is being drained"));
    assert_eq!(page(&test_server.pages, "/readyz", false).0, 503);
    let sessions = ctl_output(&test_server, &["sessions", "--format", "csv"]);
    assert!(sessions.contains("idle in transaction"), "{sessions}");
    // A transaction runs to its end, and its session ends with it.
    busy.query("INSERT INTO t VALUES (2)").unwrap();
    busy.query("COMMIT").unwrap();
    assert_eq!(busy.answer().unwrap_err().0, "57P01");
    ctl_output(&test_server, &["drain", "--wait"]);
    let mut operator = Client::connect(test_server.port, &[("options", "-c harrier.operator=on")]).unwrap();
    assert_eq!(operator.one("SELECT count(*) FROM t").as_deref(), Ok("2"));
    assert_eq!(operator.one("SELECT harrier_resume()").as_deref(), Ok("t"));
    assert_eq!(test_server.client().one("SELECT 1").as_deref(), Ok("1"));
    let (status, message) = ctl_failure(&test_server, &["resume"]);
    assert_eq!((status, message.as_str()), (Some(1), "ERROR 55000: the server was not being drained\n"));
    // The operator who drains the server is not disconnected by it.
    let mut client = test_server.client();
    assert_eq!(client.one("SELECT harrier_drain()").as_deref(), Ok("t"));
    assert_eq!(client.one("SELECT harrier_resume()").as_deref(), Ok("t"));
}

#[test]
fn sessions_and_statements_are_listed_and_canceled() {
    let test_server = TestServer::start(ALONE);
    let mut client = test_server.client();
    client.query("SET application_name = 'nightly'").unwrap();
    let pid = client.process.to_string();
    client.ask("SELECT count(*) FROM generate_series(1, 10000000000000) s(x) WHERE x % 2 = 3");
    wait_until("the statement runs", || {
        ctl_output(&test_server, &["statements", "--format", "csv"]).contains(",running,")
    });
    let sessions_json = ctl_output(&test_server, &["sessions", "--format", "json"]);
    assert!(sessions_json.contains("\"application_name\":\"nightly\""), "{sessions_json}");
    assert!(sessions_json.contains(&format!("\"pid\":{pid}")), "numbers are no texts: {sessions_json}");
    ctl_output(&test_server, &["cancel", &pid]);
    assert_eq!(client.answer().unwrap_err().0, "57014");
    ctl_output(&test_server, &["terminate", &pid]);
    assert_eq!(client.answer().unwrap_err().0, "57P01");
    wait_until("it has gone", || {
        !ctl_output(&test_server, &["sessions", "--format", "csv"]).contains("nightly")
    });
    let (status, message) = ctl_failure(&test_server, &["terminate", &pid]);
    assert_eq!((status, message), (Some(1), format!("ERROR 55000: there is no session {pid}\n")));
    let queues = ctl_output(&test_server, &["queues"]);
    assert!(queues.contains("default"), "{queues}");
    let disks = ctl_output(&test_server, &["disks", "--format", "csv"]);
    let temporary = test_server.folder.path().join("tmp");
    assert!(disks.contains(&format!("{},up,", temporary.display())), "{disks}");
    // Without rows, the header is still printed.
    assert!(ctl_output(&test_server, &["ranks", "--format", "csv"]).starts_with("rank,host,pid,state,"));
    for order in [&["rank-down", "1"][..], &["move-rank", "1", "elsewhere"]] {
        let (status, message) = ctl_failure(&test_server, order);
        assert_eq!(status, Some(1));
        assert!(message.starts_with("ERROR 55000: there are no ranks"), "{message}");
    }
    let nobody =
        Command::new(BINARY).args(["ctl", "ranks", "--host", "127.0.0.1", "--port", "1"]).output().unwrap();
    assert_eq!(nobody.status.code(), Some(3), "{nobody:?}");
}

#[test]
fn ranks_are_marked_down_and_restarted() {
    if std::env::var_os("HARRIER_SKIP_MPI").is_some_and(|value| value == "1") {
        return eprintln!("skipped: needs MPI, and HARRIER_SKIP_MPI is set");
    }
    let gang = ["--ranks", "2", "--spares", "1", "--threads", "1", "--set", "harrier.distribute_bytes_min=1"];
    let test_server = TestServer::start(&gang);
    let mut client = test_server.client();
    client.query("CREATE TABLE t AS SELECT x FROM generate_series(1, 10000) s(x)").unwrap();
    let states = "SELECT string_agg(state, ' ' ORDER BY rank) FROM sys.ranks";
    test_server.wait_for(states, "working working spare");
    // Ranks report their spill folders, and so does the server.
    test_server.wait_for("SELECT count(*) FROM sys.disks WHERE state = 'up' AND free_bytes > 0", "3");
    let sum = |client: &mut Client| client.one("SELECT sum(x) FROM t");
    ctl_output(&test_server, &["rank-down", "1"]);
    assert_eq!(test_server.client().one(states).as_deref(), Ok("working down working"));
    assert_eq!(
        test_server.client().one("SELECT reason FROM sys.ranks WHERE rank = 1").as_deref(),
        Ok("marked down")
    );
    assert_eq!(sum(&mut client).as_deref(), Ok("50005000"));
    // It has no running statement to lose.
    let pids = test_server.ranks();
    signal(pids[1], "KILL");
    assert_eq!(sum(&mut client).as_deref(), Ok("50005000"));
    test_server.wait_for("SELECT count(*) FROM sys.ranks WHERE rank = 1 AND reason <> 'marked down'", "1");
    let (status, message) = ctl_failure(&test_server, &["rank-up", "1"]);
    assert!(status == Some(1) && message.starts_with("ERROR 55000: rank 1 is lost"), "{message}");
    assert!(
        ctl_failure(&test_server, &["rank-down", "0"])
            .1
            .starts_with("ERROR 55000: rank 0 hands out the work")
    );
    assert!(ctl_failure(&test_server, &["rank-down", "3"]).1.starts_with("ERROR 22023: there is no rank 3"));
    assert!(
        ctl_failure(&test_server, &["move-rank", "3", "here"])
            .1
            .starts_with("ERROR 22023: there is no rank 3")
    );
    assert!(
        ctl_failure(&test_server, &["move-rank", "1", "here"])
            .1
            .starts_with("ERROR 55000: ranks can be moved between")
    );
    // A rank stays marked down after a restart of the gang.
    let before = test_server.client().one("SELECT max(gang) FROM sys.ranks").unwrap();
    ctl_output(&test_server, &["restart-gang", "--wait"]);
    test_server.wait_for(states, "working down working");
    assert_ne!(test_server.client().one("SELECT max(gang) FROM sys.ranks"), Ok(before));
    assert!(test_server.ranks().iter().all(|pid| !pids.contains(pid)));
    ctl_output(&test_server, &["rank-up", "1"]);
    test_server.wait_for(states, "working working spare");
    assert_eq!(sum(&mut client).as_deref(), Ok("50005000"));
    let ran =
        "SELECT on_gang FROM sys.statements WHERE text = 'SELECT sum(x) FROM t' ORDER BY id DESC LIMIT 1";
    assert_eq!(test_server.client().one(ran).as_deref(), Ok("t"));
}

#[test]
fn configuration_reload() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("harrier.toml");
    let write = |text: &str| fs::write(&path, text).unwrap();
    write("[gang]\nstatements_max = 3\n[server]\nmax_connections = 50");
    let test_server = TestServer::start(&["--launcher", "none", "--config", path.to_str().unwrap()]);
    let limit = "SELECT active_statements FROM sys.queues WHERE name = 'default'";
    test_server.wait_for(limit, "3");
    write(
        "[gang]\nstatements_max = 7\n[server]\nmax_connections = 1\nhttp_names = [\"a.example\"]\n[settings]\nharrier.interconnect = \"grpc\"",
    );
    signal(test_server.pid(), "HUP");
    // With one session at most, it is the one that asks.
    let deadline = Instant::now() + PATIENCE;
    loop {
        // The previous session may not have ended yet.
        if let Ok(mut client) = Client::connect(test_server.port, &[])
            && client.one(limit).as_deref() == Ok("7")
        {
            assert_eq!(Client::connect(test_server.port, &[]).err().unwrap().0, "53300");
            break;
        }
        assert!(Instant::now() < deadline, "{}", test_server.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    wait_until("it is told what needs a restart", || {
        test_server.log().contains("server.http_names, settings")
    });
    // An invalid configuration changes nothing.
    write("[gang]\nstatements_max = 0");
    let mistake = "ERROR F0000: the configuration stays as it is: ";
    wait_until("the mistake is told", || {
        let (status, report) = ctl_failure(&test_server, &["reload"]);
        status == Some(1)
            && report.starts_with(mistake)
            && report.contains("gang.statements_max: 0 is not allowed")
    });
    assert!(test_server.log().contains("gang.statements_max: 0 is not allowed"), "{}", test_server.log());
    write("[gang]\nstatements_max = 7\n[server]\nhttp_names = [\"b.example\"]");
    wait_until("the session has gone", || {
        let (status, report) = ctl_failure(&test_server, &["reload"]);
        status == Some(0) && report == "a restart is needed for server.http_names\n"
    });
    write("[gang]\nstatements_max = 9");
    wait_until("there is room", || ctl(&test_server, &["reload"]).status.success());
    test_server.wait_for(limit, "9");
}

/// Without a user name, the caller is the user of the operating system, also after roles exist.
#[test]
fn local_users_are_identified() {
    let test_server = TestServer::start(ALONE);
    test_server.client().query("CREATE ROLE ann LOGIN").unwrap();
    let output = Command::new(BINARY)
        .args(["ctl", "--host", "127.0.0.1", "--port", &test_server.port.to_string(), "queues"])
        .env_clear()
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("default"), "{output:?}");
}

/// The monitoring password survives a restart, so that scrapers of /metrics need no new one.
#[test]
fn monitoring_password_file() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let (password, config) = (folder.path().join("password"), folder.path().join("harrier.toml"));
    fs::write(&password, "it is long enough\n").unwrap();
    fs::set_permissions(&password, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&config, "[server]\nhttp_password_file = \"password\"").unwrap();
    let test_server = TestServer::start(&[ALONE, &["--config", config.to_str().unwrap()]].concat());
    let place = test_server.pages.strip_prefix("http://").unwrap().split('/').next().unwrap();
    let with = |password: &str| page(&format!("http://harrier:{password}@{place}/"), "/metrics", true).0;
    assert_eq!(with("it is long enough"), 200);
    assert_eq!(with("another"), 401);
    assert!(!test_server.log().contains("long enough"), "{}", test_server.log());
    // A password file that others can read is refused.
    fs::set_permissions(&password, fs::Permissions::from_mode(0o644)).unwrap();
    let output = Command::new(BINARY)
        .args(["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--launcher", "none", "--config"])
        .arg(&config)
        .current_dir(folder.path())
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && report.contains("others can read"), "{report}");
}

#[test]
fn start_fails_without_a_writable_warehouse() {
    let output = Command::new(BINARY)
        .args(["serve", "--listen", "127.0.0.1:0", "--http", "off", "--launcher", "none"])
        .args(["--warehouse", "/proc/nowhere"])
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&output.stderr);
    assert!(report.contains("ERROR 58030: cannot make the folder \"/proc/nowhere\""), "{report}");
    assert_eq!(output.status.code(), Some(3), "{report}");
}

/// Upgrade: ranks that are lost after the binary was replaced restart with the build of the server.
#[test]
fn binary_replacement_while_running() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("harrier");
    fs::copy(BINARY, &program).unwrap();
    let arguments = ["--ranks", "2", "--threads", "1"];
    let program = program.to_str().unwrap();
    let test_server = TestServer::start_program(&[program], tempfile::tempdir().unwrap(), &arguments, &[]);
    test_server.wait_for_ranks(2);
    fs::remove_file(program).unwrap();
    fs::write(program, "another").unwrap();
    let generation = "SELECT max(gang) FROM sys.ranks";
    let first = test_server.client().one(generation).unwrap();
    ctl_output(&test_server, &["restart-gang", "--wait"]);
    test_server.wait_for_ranks(2);
    assert_ne!(test_server.client().one(generation).unwrap(), first);
}

#[test]
fn open_file_limit_is_raised() {
    const CONNECTIONS: usize = 1100;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("harrier.toml");
    fs::write(&path, "[server]\nmax_connections = 1200").unwrap();
    let limit = |pid: &str| -> (u64, u64) {
        let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
        let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        (numbers[0], numbers[1])
    };
    let (own, most) = limit("self");
    if own < 2 * CONNECTIONS as u64 || most < 2 * CONNECTIONS as u64 {
        return eprintln!("skipped: only {own} files may be open here, {most} at most");
    }
    let lowered = ["sh", "-c", "ulimit -Sn 256 && exec \"$0\" \"$@\"", BINARY];
    let arguments = [ALONE, &["--config", path.to_str().unwrap()]].concat();
    let test_server = TestServer::start_program(&lowered, tempfile::tempdir().unwrap(), &arguments, &[]);
    assert_eq!(limit(&test_server.pid().to_string()), (most, most));
    let mut clients: Vec<Client> = (0..CONNECTIONS).map(|_| test_server.client()).collect();
    for client in clients.iter_mut().step_by(100) {
        assert_eq!(client.one("SELECT 1").as_deref(), Ok("1"));
    }
    let count = clients[0].one("SELECT count(*) FROM sys.sessions");
    assert_eq!(count, Ok(CONNECTIONS.to_string()));
}

/// A small tmpfs, unmounted on drop.
struct Small(tempfile::TempDir);

impl Small {
    /// `None` where mounting is not permitted.
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=2m", "harrier-test"])
            .arg(folder.path())
            .output()
            .is_ok_and(|output| output.status.success());
        mounted.then_some(Self(folder))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).output();
    }
}

/// A statement that spills.
const SORT: &str = "SELECT max(r) FROM (SELECT row_number() OVER (ORDER BY s, v) AS r FROM \
                    (SELECT value AS v, repeat(value::varchar, 4) AS s FROM generate_series(1, 2000000)))";

fn state_of(test_server: &TestServer, folder: &Path) -> String {
    let sql = format!("SELECT state FROM sys.disks WHERE folder = '{}' AND rank IS NULL", folder.display());
    test_server.client().one(&sql).unwrap()
}

#[test]
fn failed_spill_disk_is_not_reused() {
    let (failing_disk, good) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let arguments = [
        "--launcher",
        "none",
        "--memory",
        "64MiB",
        "--spill-dir",
        failing_disk.path().to_str().unwrap(),
        "--spill-dir",
        good.path().to_str().unwrap(),
    ];
    let test_server = TestServer::start(&arguments);
    assert_eq!(test_server.client().one(SORT).as_deref(), Ok("2000000"), "{}", test_server.log());
    assert_eq!(state_of(&test_server, failing_disk.path()), "up");
    // Makes the disk fail.
    for entry in fs::read_dir(failing_disk.path()).unwrap() {
        fs::remove_dir_all(entry.unwrap().path()).unwrap();
    }
    assert_eq!(test_server.client().one(SORT).as_deref(), Ok("2000000"), "{}", test_server.log());
    assert_eq!(state_of(&test_server, failing_disk.path()), "down");
    assert_eq!(state_of(&test_server, good.path()), "up");
    let mut client = test_server.client();
    let reason = format!("SELECT reason FROM sys.disks WHERE folder = '{}'", failing_disk.path().display());
    assert!(client.one(&reason).unwrap().contains("No such file"));
    assert!(test_server.log().contains("has failed and is not used again"), "{}", test_server.log());
    for entry in fs::read_dir(good.path()).unwrap() {
        fs::remove_dir_all(entry.unwrap().path()).unwrap();
    }
    let state = client.fails(SORT);
    assert!(state == "58P01" || state == "58030", "{state}");
    assert_eq!(client.one("SELECT 1").as_deref(), Ok("1"), "the server lives");
}

#[test]
fn full_spill_disk_is_skipped_until_it_has_space() {
    let Some(small) = Small::mount() else {
        return eprintln!("skipped: no file system can be mounted here");
    };
    let good = tempfile::tempdir().unwrap();
    let arguments = [
        "--launcher",
        "none",
        "--memory",
        "64MiB",
        "--spill-dir",
        small.0.path().to_str().unwrap(),
        "--spill-dir",
        good.path().to_str().unwrap(),
    ];
    let test_server = TestServer::start(&arguments);
    assert_eq!(test_server.client().one(SORT).as_deref(), Ok("2000000"), "{}", test_server.log());
    assert!(test_server.log().contains("a disk for temporary files is full"), "{}", test_server.log());
    // There is free space again: the next statement uses the disk.
    assert_eq!(test_server.client().one(SORT).as_deref(), Ok("2000000"));
    assert!(test_server.log().contains("has room again"), "{}", test_server.log());
    // Without another disk the statement fails with the reason.
    drop(test_server);
    let test_server = TestServer::start(&[
        "--launcher",
        "none",
        "--memory",
        "64MiB",
        "--spill-dir",
        small.0.path().to_str().unwrap(),
    ]);
    assert_eq!(test_server.client().fails(SORT), "53100");
    assert_eq!(test_server.client().one("SELECT 1").as_deref(), Ok("1"));
}

#[test]
fn systemd_notifications() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut server = Command::new(BINARY)
        .args(["serve", "--listen", "127.0.0.1:0", "--http", "off", "--launcher", "none", "--warehouse"])
        .arg(folder.path().join("warehouse"))
        .env("NOTIFY_SOCKET", &path)
        .env("TMPDIR", folder.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let report = || {
        let mut bytes = [0; 256];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    };
    assert_eq!(report(), "READY=1\nSTATUS=serves");
    signal(server.id(), "HUP");
    let reloading = report();
    let since = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
    assert!(since.parse::<u64>().unwrap() > 0);
    assert_eq!(report(), "READY=1\nSTATUS=serves");
    signal(server.id(), "TERM");
    assert!(report().starts_with("STOPPING=1"));
    assert_eq!(server.wait().unwrap().code(), Some(0));
}

#[test]
fn the_doctor_explains_a_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("harrier.toml");
    let doctor = |text: &str| {
        fs::write(&path, text).unwrap();
        let output = Command::new(BINARY).arg("doctor").arg("--config").arg(&path).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (_, report) = doctor("[gang]\nspares = 2\n[settings]\ns3.secret_access_key = \"hunter2\"");
    assert!(report.contains("gang.spares      2\n"), "{report}");
    assert!(report.contains("Ranks that wait to replace one that is lost"), "{report}");
    assert!(report.contains("settings.s3.secret_access_key") && !report.contains("hunter2"), "{report}");
    assert!(!report.contains("gang.ranks"), "only what is not as it would be anyway: {report}");
    let (status, report) = doctor("[server]\naudit_log = \"no/where/audit.log\"");
    assert_eq!(status, Some(3));
    assert!(report.contains("WRONG: server.audit_log: "), "{report}");
    let (status, report) = doctor("[gang]\nrank = 2");
    assert_eq!(status, Some(3));
    assert!(report.contains("line 2: gang.rank: there is no such key (did you mean ranks?)"), "{report}");
}

/// Settings that would be refused at server start or at every login are reported earlier.
#[test]
fn invalid_session_settings_are_refused_at_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("harrier.toml");
    let run = |command: &mut Command, text: &str| {
        fs::write(&path, text).unwrap();
        let output = command.arg("--config").arg(&path).output().unwrap();
        (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let settings = [
        ("harrier.distribute_bytes_min", "lots", "22023"),
        ("harrier.statement_memory", "1XB", "22023"),
        ("harrier.nosuch", "1", "42704"),
        ("datafusion.execution.batch_size", "many", "22023"),
        ("timezone", "Nowhere/City", "22023"),
        ("statement_timeout", "soon", "22023"),
        ("nosuch", "1", "42704"),
    ];
    let mut all = "[settings]\n".to_string();
    for (name, value, sqlstate) in settings {
        let line = format!("{name} = \"{value}\"\n");
        all += &line;
        let mut server = Command::new(BINARY);
        server.args(["serve", "--listen", "127.0.0.1:0", "--http", "off", "--warehouse"]);
        server.arg(folder.path().join("warehouse"));
        let (status, report) = run(&mut server, &format!("[settings]\n{line}"));
        assert_eq!(status, Some(2), "{line}: {report}");
        assert!(report.contains(&format!("settings.{name}: ERROR {sqlstate}")), "{line}: {report}");
    }
    let (status, report) = run(Command::new(BINARY).arg("doctor"), &all);
    assert_eq!(status, Some(3), "{report}");
    for (name, _, sqlstate) in settings {
        assert!(report.contains(&format!("WRONG: settings.{name}: ERROR {sqlstate}")), "{name}: {report}");
    }
}

#[test]
fn authentication_rules_without_logins_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("harrier.toml");
    fs::write(&path, "[server]\nhba_file = \"hba\"\n").unwrap();
    for (rules, lets_in) in [
        ("hostssl all all all scram-sha-256\n", false),
        ("local all all peer\nhostssl all all all scram-sha-256\n", true),
        ("host all all 127.0.0.1/32 peer\n", true),
        ("host all all 127.0.0.1/32 scram-sha-256\n", false),
    ] {
        fs::write(folder.path().join("hba"), rules).unwrap();
        let output = Command::new(BINARY).arg("doctor").arg("--config").arg(&path).output().unwrap();
        let report = String::from_utf8(output.stdout).unwrap();
        assert_eq!(report.contains("nobody comes in"), !lets_in, "{rules}: {report}");
    }
}

#[test]
fn audit_log_records_statements_and_logins() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("harrier.toml");
    let log = folder.path().join("audit.log");
    let rules = "host all somebody 127.0.0.1/32 reject\nhost all all 127.0.0.1/32 trust\n";
    fs::write(folder.path().join("hba.conf"), rules).unwrap();
    let write = |log: &str| {
        let text =
            format!("[server]\nhba_file = \"hba.conf\"\naudit_log = \"{log}\"\naudit_statements = \"all\"\n");
        fs::write(&path, text).unwrap();
    };
    write("audit.log");
    let test_server = TestServer::start(&["--launcher", "none", "--config", path.to_str().unwrap()]);
    let mut client = Client::connect(test_server.port, &[("application_name", "etl")]).unwrap();
    client.query("CREATE TABLE t AS SELECT x FROM generate_series(1, 5) s(x)").unwrap();
    assert_eq!(client.query("SELECT * FROM t").unwrap().len(), 5);
    client.fails("SELECT 'x' AS password, 1/0");
    client.fails("ALTER ROLE nobody PASSWORD 'hunter2'");
    assert_eq!(Client::connect(test_server.port, &[("user", "somebody")]).err().unwrap().0, "28000");
    drop(client);
    let lines = || -> Vec<serde_json::Value> {
        let text = fs::read_to_string(&log).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    wait_until("the session has ended", || lines().iter().any(|line| line["event"] == "disconnect"));
    let lines_now = lines();
    let of = |text: &str| {
        let entry = lines_now
            .iter()
            .find(|line| line["statement"].as_str().is_some_and(|entry| entry.contains(text)));
        entry.unwrap_or_else(|| panic!("{text} is not in {lines_now:?}")).clone()
    };
    let select = of("SELECT * FROM t");
    assert_eq!((&select["rows"], &select["sqlstate"]), (&5.into(), &"00000".into()), "{select}");
    assert_eq!((&select["application"], &select["database"]), (&"etl".into(), &"warehouse".into()));
    assert!(
        select["duration_ms"].as_f64().unwrap() > 0.0
            && select["client"].as_str().unwrap().starts_with("127.0.0.1:")
    );
    assert_eq!(of("1/0")["sqlstate"], "22012");
    assert!(!fs::read_to_string(&log).unwrap().contains("hunter2"));
    let refused = lines_now.iter().find(|line| line["event"] == "authentication failed").unwrap();
    assert_eq!((&refused["role"], &refused["sqlstate"]), (&"somebody".into(), &"28000".into()));
    // Rotates the log as logrotate does.
    fs::rename(&log, folder.path().join("audit.log.1")).unwrap();
    signal(test_server.pid(), "HUP");
    wait_until("there is a new one", || log.exists());
    test_server.client().query("SELECT 'after'").unwrap();
    wait_until("it is used", || fs::read_to_string(&log).unwrap().contains("SELECT 'after'"));
    // A statement that cannot be logged is not executed.
    write("/dev/full");
    let mut client = test_server.client();
    signal(test_server.pid(), "HUP");
    wait_until("the log is full", || client.query("SELECT 1").is_err());
    assert_eq!(client.fails("SELECT 1"), "58030");
    assert_eq!(Client::connect(test_server.port, &[]).err().unwrap().0, "58030");
    write("audit.log");
    signal(test_server.pid(), "HUP");
    wait_until("it is written again", || client.query("SELECT 2").is_ok());
}

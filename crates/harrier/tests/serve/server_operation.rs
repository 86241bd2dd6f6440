//! A server is operated: `harrier ctl` and the functions of SQL behind it, a configuration that is read
//! again, disks that fail, the audit log.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::test_server::{Client, PATIENCE, Served, page, signal};

const BINARY: &str = env!("CARGO_BIN_EXE_harrier");

const ALONE: &[&str] = &["--launcher", "none"];

fn ctl(served: &Served, arguments: &[&str]) -> Output {
    Command::new(BINARY)
        .args(["ctl", "--host", "127.0.0.1", "--port", &served.port.to_string()])
        .args(arguments)
        .env_remove("PGHOST")
        .env_remove("PGPASSWORD")
        .output()
        .unwrap()
}

/// What it prints when all goes well.
#[track_caller]
fn told(served: &Served, arguments: &[&str]) -> String {
    let output = ctl(served, arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}\n{}", served.log());
    String::from_utf8(output.stdout).unwrap()
}

/// The exit status and what is said to standard error.
fn refused(served: &Served, arguments: &[&str]) -> (Option<i32>, String) {
    let output = ctl(served, arguments);
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
fn a_drained_server_lets_in_operators_only() {
    let served = Served::start(ALONE);
    let (mut idle, mut busy) = (served.client(), served.client());
    idle.query("SELECT 1").unwrap();
    busy.query("CREATE TABLE t (a int)").unwrap();
    busy.query("BEGIN; INSERT INTO t VALUES (1)").unwrap();
    assert_eq!(page(&served.pages, "/readyz", false).0, 200);
    told(&served, &["drain"]);
    assert_eq!(idle.answer().unwrap_err().0, "57P01", "who does nothing is sent away");
    let (state, message) = Client::connect(served.port, &[]).err().unwrap();
    assert_eq!((state.as_str(), message.as_str()), ("57P03", "the server is being drained"));
    assert_eq!(page(&served.pages, "/readyz", false).0, 503);
    let sessions = told(&served, &["sessions", "--format", "csv"]);
    assert!(sessions.contains("idle in transaction"), "{sessions}");
    // A transaction goes on to its end, and its session ends with it.
    busy.query("INSERT INTO t VALUES (2)").unwrap();
    busy.query("COMMIT").unwrap();
    assert_eq!(busy.answer().unwrap_err().0, "57P01");
    told(&served, &["drain", "--wait"]);
    let mut operator = Client::connect(served.port, &[("options", "-c harrier.operator=on")]).unwrap();
    assert_eq!(operator.one("SELECT count(*) FROM t").as_deref(), Ok("2"));
    assert_eq!(operator.one("SELECT harrier_resume()").as_deref(), Ok("t"));
    assert_eq!(served.client().one("SELECT 1").as_deref(), Ok("1"));
    let (status, message) = refused(&served, &["resume"]);
    assert_eq!((status, message.as_str()), (Some(1), "ERROR 55000: the server was not being drained\n"));
    // Who drains a server by hand is not shut out by it.
    let mut client = served.client();
    assert_eq!(client.one("SELECT harrier_drain()").as_deref(), Ok("t"));
    assert_eq!(client.one("SELECT harrier_resume()").as_deref(), Ok("t"));
}

#[test]
fn what_runs_is_listed_and_ended() {
    let served = Served::start(ALONE);
    let mut client = served.client();
    client.query("SET application_name = 'nightly'").unwrap();
    let pid = client.process.to_string();
    client.ask("SELECT count(*) FROM generate_series(1, 10000000000000) s(x) WHERE x % 2 = 3");
    wait_until("the statement runs", || {
        told(&served, &["statements", "--format", "csv"]).contains(",running,")
    });
    let listed = told(&served, &["sessions", "--format", "json"]);
    assert!(listed.contains("\"application_name\":\"nightly\""), "{listed}");
    assert!(listed.contains(&format!("\"pid\":{pid}")), "numbers are no texts: {listed}");
    told(&served, &["cancel", &pid]);
    assert_eq!(client.answer().unwrap_err().0, "57014");
    told(&served, &["terminate", &pid]);
    assert_eq!(client.answer().unwrap_err().0, "57P01");
    wait_until("it has gone", || !told(&served, &["sessions", "--format", "csv"]).contains("nightly"));
    let (status, message) = refused(&served, &["terminate", &pid]);
    assert_eq!((status, message), (Some(1), format!("ERROR 55000: there is no session {pid}\n")));
    let queues = told(&served, &["queues"]);
    assert!(queues.contains("default"), "{queues}");
    let disks = told(&served, &["disks", "--format", "csv"]);
    let temporary = served.folder.path().join("tmp");
    assert!(disks.contains(&format!("{},up,", temporary.display())), "{disks}");
    // Without rows there are the columns all the same.
    assert!(told(&served, &["ranks", "--format", "csv"]).starts_with("rank,host,pid,state,"));
    for order in [&["rank-down", "1"][..], &["move-rank", "1", "elsewhere"]] {
        let (status, message) = refused(&served, order);
        assert_eq!(status, Some(1));
        assert!(message.starts_with("ERROR 55000: there are no ranks"), "{message}");
    }
    let nobody =
        Command::new(BINARY).args(["ctl", "ranks", "--host", "127.0.0.1", "--port", "1"]).output().unwrap();
    assert_eq!(nobody.status.code(), Some(3), "{nobody:?}");
}

#[test]
fn ranks_are_marked_down_and_up_and_started_again() {
    if std::env::var_os("HARRIER_SKIP_MPI").is_some_and(|value| value == "1") {
        return eprintln!("skipped: needs MPI, and HARRIER_SKIP_MPI is set");
    }
    let gang = ["--ranks", "2", "--spares", "1", "--threads", "1", "--set", "harrier.distribute_bytes_min=1"];
    let served = Served::start(&gang);
    let mut client = served.client();
    client.query("CREATE TABLE t AS SELECT x FROM generate_series(1, 10000) s(x)").unwrap();
    let states = "SELECT string_agg(state, ' ' ORDER BY rank) FROM sys.ranks";
    served.wait_for(states, "working working spare");
    // Those that work tell where they spill to; so does the server.
    served.wait_for("SELECT count(*) FROM sys.disks WHERE state = 'up' AND free_bytes > 0", "3");
    let sum = |client: &mut Client| client.one("SELECT sum(x) FROM t");
    told(&served, &["rank-down", "1"]);
    served.wait_for(states, "working down working");
    assert_eq!(
        served.client().one("SELECT reason FROM sys.ranks WHERE rank = 1").as_deref(),
        Ok("marked down")
    );
    assert_eq!(sum(&mut client).as_deref(), Ok("50005000"));
    // It has nothing to lose.
    let pids = served.ranks();
    signal(pids[1], "KILL");
    assert_eq!(sum(&mut client).as_deref(), Ok("50005000"));
    served.wait_for("SELECT count(*) FROM sys.ranks WHERE rank = 1 AND reason <> 'marked down'", "1");
    let (status, message) = refused(&served, &["rank-up", "1"]);
    assert!(status == Some(1) && message.starts_with("ERROR 55000: rank 1 is lost"), "{message}");
    assert!(refused(&served, &["rank-down", "0"]).1.starts_with("ERROR 55000: rank 0 hands out the work"));
    assert!(refused(&served, &["rank-down", "3"]).1.starts_with("ERROR 22023: there is no rank 3"));
    assert!(refused(&served, &["move-rank", "3", "here"]).1.starts_with("ERROR 22023: there is no rank 3"));
    assert!(
        refused(&served, &["move-rank", "1", "here"])
            .1
            .starts_with("ERROR 55000: ranks can be moved between")
    );
    // A rank stays marked down when all are started again.
    let before = served.client().one("SELECT max(gang) FROM sys.ranks").unwrap();
    told(&served, &["restart-gang", "--wait"]);
    served.wait_for(states, "working down working");
    assert_ne!(served.client().one("SELECT max(gang) FROM sys.ranks"), Ok(before));
    assert!(served.ranks().iter().all(|pid| !pids.contains(pid)));
    told(&served, &["rank-up", "1"]);
    served.wait_for(states, "working working spare");
    assert_eq!(sum(&mut client).as_deref(), Ok("50005000"));
    let ran =
        "SELECT on_gang FROM sys.statements WHERE text = 'SELECT sum(x) FROM t' ORDER BY id DESC LIMIT 1";
    assert_eq!(served.client().one(ran).as_deref(), Ok("t"));
}

#[test]
fn a_configuration_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("harrier.toml");
    let write = |text: &str| fs::write(&path, text).unwrap();
    write("[gang]\nstatements_max = 3\n[server]\nmax_connections = 50");
    let served = Served::start(&["--launcher", "none", "--config", path.to_str().unwrap()]);
    let limit = "SELECT active_statements FROM sys.queues WHERE name = 'default'";
    served.wait_for(limit, "3");
    write(
        "[gang]\nstatements_max = 7\n[server]\nmax_connections = 1\nhttp_names = [\"a.example\"]\n[settings]\nharrier.interconnect = \"grpc\"",
    );
    signal(served.pid(), "HUP");
    // With one session at most, the one that asks is it.
    let deadline = Instant::now() + PATIENCE;
    loop {
        // The last one may not have gone yet.
        if let Ok(mut client) = Client::connect(served.port, &[])
            && client.one(limit).as_deref() == Ok("7")
        {
            assert_eq!(Client::connect(served.port, &[]).err().unwrap().0, "53300");
            break;
        }
        assert!(Instant::now() < deadline, "{}", served.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    wait_until("it is told what needs a restart", || served.log().contains("server.http_names, settings"));
    // What is wrong changes nothing.
    write("[gang]\nstatements_max = 0");
    let mistake = "ERROR F0000: the configuration stays as it is: ";
    wait_until("the mistake is told", || {
        let (status, told) = refused(&served, &["reload"]);
        status == Some(1)
            && told.starts_with(mistake)
            && told.contains("gang.statements_max: 0 is not allowed")
    });
    assert!(served.log().contains("gang.statements_max: 0 is not allowed"), "{}", served.log());
    write("[gang]\nstatements_max = 7\n[server]\nhttp_names = [\"b.example\"]");
    wait_until("the session has gone", || {
        let (status, told) = refused(&served, &["reload"]);
        status == Some(0) && told == "a restart is needed for server.http_names\n"
    });
    write("[gang]\nstatements_max = 9");
    wait_until("there is room", || ctl(&served, &["reload"]).status.success());
    served.wait_for(limit, "9");
}

/// Nobody says who calls: it is the operating system's user, also once there are roles.
#[test]
fn the_user_that_calls_is_known() {
    let served = Served::start(ALONE);
    served.client().query("CREATE ROLE ann LOGIN").unwrap();
    let output = Command::new(BINARY)
        .args(["ctl", "--host", "127.0.0.1", "--port", &served.port.to_string(), "queues"])
        .env_clear()
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("default"), "{output:?}");
}

/// The password of the pages is the same after a restart, so that what reads /metrics need not be told anew.
#[test]
fn the_password_of_the_pages_may_be_in_a_file() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let (password, config) = (folder.path().join("password"), folder.path().join("harrier.toml"));
    fs::write(&password, "it is long enough\n").unwrap();
    fs::set_permissions(&password, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&config, "[server]\nhttp_password_file = \"password\"").unwrap();
    let served = Served::start(&[ALONE, &["--config", config.to_str().unwrap()]].concat());
    let place = served.pages.strip_prefix("http://").unwrap().split('/').next().unwrap();
    let with = |password: &str| page(&format!("http://harrier:{password}@{place}/"), "/metrics", true).0;
    assert_eq!(with("it is long enough"), 200);
    assert_eq!(with("another"), 401);
    assert!(!served.log().contains("long enough"), "{}", served.log());
    // One that others can read is none.
    fs::set_permissions(&password, fs::Permissions::from_mode(0o644)).unwrap();
    let output = Command::new(BINARY)
        .args(["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--launcher", "none", "--config"])
        .arg(&config)
        .current_dir(folder.path())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && told.contains("others can read"), "{told}");
}

#[test]
fn a_warehouse_that_cannot_be_made_is_told_at_once() {
    let output = Command::new(BINARY)
        .args(["serve", "--listen", "127.0.0.1:0", "--http", "off", "--launcher", "none"])
        .args(["--warehouse", "/proc/nowhere"])
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("ERROR 58030: cannot make the folder \"/proc/nowhere\""), "{told}");
    assert_eq!(output.status.code(), Some(3), "{told}");
}

/// As an upgrade does it: ranks that are lost afterwards are started again, of the build that the server is.
#[test]
fn the_program_may_be_replaced_while_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("harrier");
    fs::copy(BINARY, &program).unwrap();
    let arguments = ["--ranks", "2", "--threads", "1"];
    let program = program.to_str().unwrap();
    let served = Served::start_program(&[program], tempfile::tempdir().unwrap(), &arguments, &[]);
    served.wait_for_ranks(2);
    fs::remove_file(program).unwrap();
    fs::write(program, "another").unwrap();
    let generation = "SELECT max(gang) FROM sys.ranks";
    let first = served.client().one(generation).unwrap();
    told(&served, &["restart-gang", "--wait"]);
    served.wait_for_ranks(2);
    assert_ne!(served.client().one(generation).unwrap(), first);
}

#[test]
fn a_low_limit_of_open_files_is_raised() {
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
    let served = Served::start_program(&lowered, tempfile::tempdir().unwrap(), &arguments, &[]);
    assert_eq!(limit(&served.pid().to_string()), (most, most));
    let mut clients: Vec<Client> = (0..CONNECTIONS).map(|_| served.client()).collect();
    for client in clients.iter_mut().step_by(100) {
        assert_eq!(client.one("SELECT 1").as_deref(), Ok("1"));
    }
    let count = clients[0].one("SELECT count(*) FROM sys.sessions");
    assert_eq!(count, Ok(CONNECTIONS.to_string()));
}

/// A file system of little room, for as long as this lives.
struct Small(tempfile::TempDir);

impl Small {
    /// `None` where none can be mounted.
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

/// Spills.
const SORT: &str = "SELECT max(r) FROM (SELECT row_number() OVER (ORDER BY s, v) AS r FROM \
                    (SELECT value AS v, repeat(value::varchar, 4) AS s FROM generate_series(1, 2000000)))";

fn state_of(served: &Served, folder: &Path) -> String {
    let sql = format!("SELECT state FROM sys.disks WHERE folder = '{}' AND rank IS NULL", folder.display());
    served.client().one(&sql).unwrap()
}

#[test]
fn a_disk_that_fails_is_not_used_again() {
    let (lost, good) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let arguments = [
        "--launcher",
        "none",
        "--memory",
        "64MiB",
        "--spill-dir",
        lost.path().to_str().unwrap(),
        "--spill-dir",
        good.path().to_str().unwrap(),
    ];
    let served = Served::start(&arguments);
    assert_eq!(served.client().one(SORT).as_deref(), Ok("2000000"), "{}", served.log());
    assert_eq!(state_of(&served, lost.path()), "up");
    // As if the disk was pulled out.
    for entry in fs::read_dir(lost.path()).unwrap() {
        fs::remove_dir_all(entry.unwrap().path()).unwrap();
    }
    assert_eq!(served.client().one(SORT).as_deref(), Ok("2000000"), "{}", served.log());
    assert_eq!(state_of(&served, lost.path()), "down");
    assert_eq!(state_of(&served, good.path()), "up");
    let mut client = served.client();
    let reason = format!("SELECT reason FROM sys.disks WHERE folder = '{}'", lost.path().display());
    assert!(client.one(&reason).unwrap().contains("No such file"));
    assert!(served.log().contains("has failed and is not used again"), "{}", served.log());
    for entry in fs::read_dir(good.path()).unwrap() {
        fs::remove_dir_all(entry.unwrap().path()).unwrap();
    }
    let state = client.fails(SORT);
    assert!(state == "58P01" || state == "58030", "{state}");
    assert_eq!(client.one("SELECT 1").as_deref(), Ok("1"), "the server lives");
}

#[test]
fn a_full_disk_is_left_to_others_until_it_has_room() {
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
    let served = Served::start(&arguments);
    assert_eq!(served.client().one(SORT).as_deref(), Ok("2000000"), "{}", served.log());
    assert!(served.log().contains("a disk for temporary files is full"), "{}", served.log());
    // What filled it has gone: the next statement uses it again.
    assert_eq!(served.client().one(SORT).as_deref(), Ok("2000000"));
    assert!(served.log().contains("has room again"), "{}", served.log());
    // Without another one the statement fails, and says why.
    drop(served);
    let served = Served::start(&[
        "--launcher",
        "none",
        "--memory",
        "64MiB",
        "--spill-dir",
        small.0.path().to_str().unwrap(),
    ]);
    assert_eq!(served.client().fails(SORT), "53100");
    assert_eq!(served.client().one("SELECT 1").as_deref(), Ok("1"));
}

#[test]
fn systemd_is_told_how_the_server_is() {
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
    let told = || {
        let mut bytes = [0; 256];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    };
    assert_eq!(told(), "READY=1\nSTATUS=serves");
    signal(server.id(), "HUP");
    let reloading = told();
    let since = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
    assert!(since.parse::<u64>().unwrap() > 0);
    assert_eq!(told(), "READY=1\nSTATUS=serves");
    signal(server.id(), "TERM");
    assert!(told().starts_with("STOPPING=1"));
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
    let (_, told) = doctor("[gang]\nspares = 2\n[settings]\ns3.secret_access_key = \"hunter2\"");
    assert!(told.contains("gang.spares      2\n"), "{told}");
    assert!(told.contains("Ranks that wait to replace one that is lost"), "{told}");
    assert!(told.contains("settings.s3.secret_access_key") && !told.contains("hunter2"), "{told}");
    assert!(!told.contains("gang.ranks"), "only what is not as it would be anyway: {told}");
    let (status, told) = doctor("[server]\naudit_log = \"no/where/audit.log\"");
    assert_eq!(status, Some(3));
    assert!(told.contains("WRONG: server.audit_log: "), "{told}");
    let (status, told) = doctor("[gang]\nrank = 2");
    assert_eq!(status, Some(3));
    assert!(told.contains("line 2: gang.rank: there is no such key (did you mean ranks?)"), "{told}");
}

/// What a server would refuse when it starts, or every client when it comes, is told before.
#[test]
fn settings_that_no_session_would_take_are_refused() {
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
        let (status, told) = run(&mut server, &format!("[settings]\n{line}"));
        assert_eq!(status, Some(2), "{line}: {told}");
        assert!(told.contains(&format!("settings.{name}: ERROR {sqlstate}")), "{line}: {told}");
    }
    let (status, told) = run(Command::new(BINARY).arg("doctor"), &all);
    assert_eq!(status, Some(3), "{told}");
    for (name, _, sqlstate) in settings {
        assert!(told.contains(&format!("WRONG: settings.{name}: ERROR {sqlstate}")), "{name}: {told}");
    }
}

#[test]
fn rules_that_let_nobody_in_are_told() {
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
        let told = String::from_utf8(output.stdout).unwrap();
        assert_eq!(told.contains("nobody comes in"), !lets_in, "{rules}: {told}");
    }
}

#[test]
fn what_happens_is_in_the_audit_log() {
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
    let served = Served::start(&["--launcher", "none", "--config", path.to_str().unwrap()]);
    let mut client = Client::connect(served.port, &[("application_name", "etl")]).unwrap();
    client.query("CREATE TABLE t AS SELECT x FROM generate_series(1, 5) s(x)").unwrap();
    assert_eq!(client.query("SELECT * FROM t").unwrap().len(), 5);
    client.fails("SELECT 'x' AS password, 1/0");
    client.fails("ALTER ROLE nobody PASSWORD 'hunter2'");
    assert_eq!(Client::connect(served.port, &[("user", "somebody")]).err().unwrap().0, "28000");
    drop(client);
    let lines = || -> Vec<serde_json::Value> {
        let text = fs::read_to_string(&log).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    wait_until("the session has ended", || lines().iter().any(|line| line["event"] == "disconnect"));
    let lines_now = lines();
    let of = |text: &str| {
        let found = lines_now
            .iter()
            .find(|line| line["statement"].as_str().is_some_and(|found| found.contains(text)));
        found.unwrap_or_else(|| panic!("{text} is not in {lines_now:?}")).clone()
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
    // As logrotate does it.
    fs::rename(&log, folder.path().join("audit.log.1")).unwrap();
    signal(served.pid(), "HUP");
    wait_until("there is a new one", || log.exists());
    served.client().query("SELECT 'after'").unwrap();
    wait_until("it is used", || fs::read_to_string(&log).unwrap().contains("SELECT 'after'"));
    // What cannot be written does not happen.
    write("/dev/full");
    let mut client = served.client();
    signal(served.pid(), "HUP");
    wait_until("the log is full", || client.query("SELECT 1").is_err());
    assert_eq!(client.fails("SELECT 1"), "58030");
    assert_eq!(Client::connect(served.port, &[]).err().unwrap().0, "58030");
    write("audit.log");
    signal(served.pid(), "HUP");
    wait_until("it is written again", || client.query("SELECT 2").is_ok());
}

//! High availability: of two servers of one warehouse one is the standby, which takes over when the other is
//! lost, with all committed data.
//!
//! Needs PostgreSQL (`scripts/postgres.sh`); where it cannot be had the tests say so and pass.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use harrier_servers::Postgres;

const BINARY: &str = env!("CARGO_BIN_EXE_harrier");

/// Timeout of every wait.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server process.
struct Node {
    child: Child,
    port: u16,
    log_lines: Arc<Mutex<Vec<String>>>,
    log: std::path::PathBuf,
}

impl Node {
    fn start(number: usize, port: u16, catalog: &str, folder: &Path) -> Self {
        let own = folder.join(format!("node{number}"));
        fs::create_dir_all(own.join("tmp")).unwrap();
        let log = own.join("log");
        let mut child = Command::new(BINARY)
            .args(["serve", "--standby", "--lease", "2s", "--launcher", "none", "--http", "off"])
            .args(["--listen", &format!("127.0.0.1:{port}"), "--catalog", catalog, "--data"])
            .arg(folder.join("data"))
            .env("TMPDIR", own.join("tmp"))
            .env("HARRIER_LOG", "info")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(fs::OpenOptions::new().create(true).append(true).open(&log).unwrap())
            .spawn()
            .unwrap();
        let log_lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let (lines, hears) = (BufReader::new(child.stdout.take().unwrap()).lines(), Arc::clone(&log_lines));
        std::thread::spawn(move || {
            lines.map_while(Result::ok).for_each(|line| hears.lock().unwrap().push(line))
        });
        Self { child, port, log_lines, log }
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until the log has `times` lines that begin with `beginning`.
    #[track_caller]
    fn wait_for_log(&self, beginning: &str, times: usize) {
        let deadline = Instant::now() + PATIENCE;
        let count =
            || self.log_lines.lock().unwrap().iter().filter(|line| line.starts_with(beginning)).count();
        while count() < times {
            assert!(
                Instant::now() < deadline,
                "{:?} and not {beginning}\n{}",
                self.log_lines.lock(),
                self.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").arg(format!("-{name}")).arg(pid).status().unwrap().success());
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs psql with all servers in its connection string.
fn psql(ports: &[u16], session: &str, sql: &str) -> Output {
    let hosts = vec!["127.0.0.1"; ports.len()].join(",");
    let ports = ports.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
    let place = format!(
        "host={hosts} port={ports} dbname=warehouse connect_timeout=5 target_session_attrs={session}"
    );
    Command::new("psql")
        .args(["-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", &place, "-c", sql])
        .output()
        .unwrap()
}

#[track_caller]
fn answer(ports: &[u16], sql: &str) -> String {
    let output = psql(ports, "any", sql);
    assert!(output.status.success(), "{sql}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_string()
}

/// Time until a server answers.
fn time_to_answer(ports: &[u16], sql: &str, expected: &str) -> Duration {
    let started = Instant::now();
    loop {
        let output = psql(ports, "read-write", sql);
        if output.status.success() {
            assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), expected);
            return started.elapsed();
        }
        assert!(started.elapsed() < PATIENCE, "{output:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A warehouse with its catalog in a new database, and ports for two servers.
fn place() -> Option<(String, tempfile::TempDir, [u16; 2])> {
    let postgres = Postgres::shared_instance()?;
    if !Command::new("psql").arg("--version").output().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: there is no psql");
        return None;
    }
    let database = postgres.new_database();
    let ports = [free_port(), free_port()];
    Some((postgres.url(&database), tempfile::tempdir().unwrap(), ports))
}

#[test]
fn standby_takes_over_after_a_kill() {
    let Some((catalog, folder, ports)) = place() else { return };
    let first = Node::start(0, ports[0], &catalog, folder.path());
    first.wait_for_log("ready: ", 1);
    let second = Node::start(1, ports[1], &catalog, folder.path());
    second.wait_for_log("standby: waits to take over", 1);
    let refused = psql(&ports[1..], "any", "SELECT 1");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("the server is a standby"), "{refused:?}");
    // libpq tries the next host, wherever the standby is in the list.
    let backwards = [ports[1], ports[0]];
    answer(&backwards, "CREATE TABLE t (a int)");
    for value in 1..=20 {
        answer(&backwards, &format!("INSERT INTO t VALUES ({value})"));
    }
    first.signal("KILL");
    let took = time_to_answer(&ports, "SELECT count(*), sum(a) FROM t", "20|210");
    println!("the standby answered {took:.1?} after the server was killed");
    assert!(took < Duration::from_secs(20), "{took:?}");
    second.wait_for_log("ready: ", 1);
    answer(&ports, "INSERT INTO t VALUES (21)");
    // The old server restarts as the standby.
    drop(first);
    let first = Node::start(0, ports[0], &catalog, folder.path());
    first.wait_for_log("standby: waits to take over", 1);
    assert_eq!(answer(&ports, "SELECT count(*) FROM t"), "21");
    // A server that is shut down hands over immediately.
    second.signal("TERM");
    let took = time_to_answer(&ports, "SELECT count(*) FROM t", "21");
    println!("the next one answered {took:.1?} after the server was asked to end");
    first.wait_for_log("ready: ", 1);
    answer(&ports, "INSERT INTO t VALUES (22)");
}

#[test]
fn fenced_server_cannot_commit() {
    let Some((catalog, folder, ports)) = place() else { return };
    let first = Node::start(0, ports[0], &catalog, folder.path());
    first.wait_for_log("ready: ", 1);
    answer(&ports, "CREATE TABLE t (a int)");
    let second = Node::start(1, ports[1], &catalog, folder.path());
    second.wait_for_log("standby: ", 1);
    // A transaction is open when the first server is stopped, and continues with it.
    let place = format!("host=127.0.0.1 port={} dbname=warehouse", first.port);
    let mut open = Command::new("psql")
        .args(["-X", "-v", "ON_ERROR_STOP=1", "-d", &place])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = open.stdin.take().unwrap();
    use std::io::Write;
    writeln!(input, "BEGIN; INSERT INTO t VALUES (1); SELECT 'begun';").unwrap();
    let mut out = BufReader::new(open.stdout.take().unwrap()).lines();
    assert!(out.by_ref().map_while(Result::ok).any(|line| line.contains("begun")));
    first.signal("STOP");
    second.wait_for_log("ready: ", 1);
    answer(&ports[1..], "INSERT INTO t VALUES (2)");
    // COMMIT waits in its socket, and is read first when the process continues.
    writeln!(input, "COMMIT;").unwrap();
    drop(input);
    first.signal("CONT");
    let client_output = open.wait_with_output().unwrap();
    assert!(!client_output.status.success(), "{client_output:?}");
    first.wait_for_log("standby: ", 1);
    assert_eq!(answer(&ports, "SELECT string_agg(a::text, ' ') FROM t"), "2");
    let refused = psql(&ports[..1], "any", "SELECT 1");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("the server is a standby"), "{refused:?}");
}

/// A free port at this moment.
fn free_port() -> u16 {
    std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

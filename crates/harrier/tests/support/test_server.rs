//! A running `harrier serve`, and a PostgreSQL client with full control of protocol messages.
#![allow(dead_code)] // Each test program uses its own part.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_harrier");

/// Timeout of every wait.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct TestServer {
    child: Child,
    pub port: u16,
    /// Port of Flight SQL; 0 if disabled.
    pub flight: u16,
    pub hive: u16,
    /// URL of the monitoring pages, with the password.
    pub pages: String,
    pub folder: TempDir,
    /// Environment marker of all processes of the server.
    mark: String,
}

impl TestServer {
    /// Starts a server with a new warehouse; `arguments` follow those that every test has.
    pub fn start(arguments: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), arguments)
    }

    pub fn start_in(folder: TempDir, arguments: &[&str]) -> Self {
        Self::start_with(folder, arguments, &[])
    }

    /// `environment`: variables set for the server.
    pub fn start_with(folder: TempDir, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        Self::start_program(&[BINARY], folder, arguments, environment)
    }

    /// `program`: command that starts the server and execs it, with its first arguments.
    pub fn start_program(
        program: &[&str],
        folder: TempDir,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Self {
        let mark = format!("served-{}-{}", std::process::id(), folder.path().display());
        fs::create_dir_all(folder.path().join("tmp")).unwrap();
        let log = fs::OpenOptions::new().create(true).append(true).open(folder.path().join("log")).unwrap();
        let mut child = Command::new(program[0])
            .args(&program[1..])
            .arg("serve")
            .args(["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--warehouse"])
            .arg(folder.path().join("warehouse"))
            .args(arguments)
            .env("TMPDIR", folder.path().join("tmp"))
            .env("HARRIER_TEST_MARK", &mark)
            .env("HARRIER_LOG", "info")
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (mut port, mut flight, mut hive, mut pages) = (None, 0, 0, None);
        while port.is_none() || pages.is_none() {
            let Some(Ok(line)) = lines.next() else {
                let _ = child.wait();
                panic!(
                    "the server did not start: {}",
                    fs::read_to_string(folder.path().join("log")).unwrap()
                );
            };
            if let Some(rest) = line.strip_prefix("ready: psql -h 127.0.0.1 -p ") {
                port = rest.split(' ').next().unwrap().parse().ok();
            } else if let Some(url) = line.strip_prefix("Arrow Flight SQL: ") {
                flight = url.rsplit(':').next().unwrap().parse().unwrap();
            } else if let Some(url) = line.strip_prefix("Hive: jdbc:hive2://127.0.0.1:") {
                hive = url.split('/').next().unwrap().parse().unwrap();
            } else if let Some(url) = line.strip_prefix("pages: ") {
                pages = Some(url.to_string());
            }
        }
        Self { child, port: port.unwrap(), flight, hive, pages: pages.unwrap(), folder, mark }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    pub fn client(&self) -> Client {
        Client::connect(self.port, &[]).unwrap()
    }

    /// Repeats the query until the answer is as expected.
    pub fn wait_for(&self, sql: &str, expected: &str) {
        let deadline = Instant::now() + PATIENCE;
        let mut client = self.client();
        loop {
            let answer = client.one(sql);
            if answer.as_deref() == Ok(expected) {
                return;
            }
            assert!(Instant::now() < deadline, "{sql}: {answer:?}, not {expected}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Process ids of the ranks, by rank number.
    pub fn ranks(&self) -> Vec<u32> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let rows = self.client().query("SELECT pid FROM sys.ranks ORDER BY rank").unwrap();
            if !rows.is_empty() {
                return rows.iter().map(|row| row[0].as_ref().unwrap().parse().unwrap()).collect();
            }
            assert!(Instant::now() < deadline, "there are no ranks\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until `count` ranks work.
    pub fn wait_for_ranks(&self, count: usize) {
        self.wait_for("SELECT count(*) FROM sys.ranks WHERE state = 'working'", &count.to_string());
    }

    /// Process ids of the server's other processes.
    pub fn others(&self) -> Vec<u32> {
        let mark = format!("HARRIER_TEST_MARK={}", self.mark);
        let is_marked = |pid: &u32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
        };
        let processes = fs::read_dir("/proc").unwrap();
        let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        pids.filter(|pid| *pid != self.pid()).filter(is_marked).collect()
    }

    /// Sends SIGTERM and waits; returns the exit status.
    pub fn stop(&mut self) -> Option<i32> {
        signal(self.pid(), "TERM");
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "the server does not end\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Private memory in bytes.
    pub fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    }

    /// Waits until only the server's own process is left.
    pub fn wait_for_no_others(&self) {
        let deadline = Instant::now() + PATIENCE;
        while !self.others().is_empty() {
            assert!(Instant::now() < deadline, "processes are left: {:?}", self.others());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        for pid in self.others() {
            signal(pid, "KILL");
        }
    }
}

pub fn signal(pid: u32, name: &str) {
    let _ = Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).stderr(Stdio::null()).status();
}

/// Outcome of a statement: rows as text, or SQLSTATE and message.
pub type Answer = Result<Vec<Vec<Option<String>>>, (String, String)>;

/// A connection that uses the simple query protocol.
pub struct Client {
    pub stream: TcpStream,
    pub process: i32,
    pub secret: i32,
    pub parameters: BTreeMap<String, String>,
    /// Transaction status: I, T or E.
    pub state: u8,
    /// Command tag of the last statement, as `UPDATE 3`.
    pub tag: String,
}

impl Client {
    /// Errors: SQLSTATE and message of the refusal.
    pub fn connect(port: u16, settings: &[(&str, &str)]) -> Result<Self, (String, String)> {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        let user = std::env::var("USER").unwrap_or_else(|_| "root".to_string());
        let mut body = 196_608_i32.to_be_bytes().to_vec();
        for (name, value) in [("user", user.as_str()), ("database", "warehouse")].iter().chain(settings) {
            body.extend([name.as_bytes(), b"\0", value.as_bytes(), b"\0"].concat());
        }
        body.push(0);
        stream.write_all(&(body.len() as i32 + 4).to_be_bytes()).unwrap();
        stream.write_all(&body).unwrap();
        let (parameters, tag) = (BTreeMap::new(), String::new());
        let mut client = Self { stream, process: 0, secret: 0, parameters, state: b'?', tag };
        client.answer().map(|_| client)
    }

    pub fn send(&mut self, kind: u8, body: &[u8]) {
        let mut bytes = vec![kind];
        bytes.extend((body.len() as i32 + 4).to_be_bytes());
        bytes.extend(body);
        self.stream.write_all(&bytes).unwrap();
    }

    /// Next message; `None` if the server has closed the connection.
    pub fn message(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut head = [0; 5];
        self.stream.read_exact(&mut head).ok()?;
        let length = i32::from_be_bytes(head[1..].try_into().unwrap()) as usize - 4;
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).ok()?;
        Some((head[0], body))
    }

    /// Reads until ReadyForQuery or the end of the connection.
    pub fn answer(&mut self) -> Answer {
        let mut rows = Vec::new();
        let mut failure = None;
        loop {
            let Some((kind, body)) = self.message() else {
                return Err(failure.unwrap_or(("08006".to_string(), "the server has gone".to_string())));
            };
            match kind {
                b'K' => {
                    self.process = i32::from_be_bytes(body[..4].try_into().unwrap());
                    self.secret = i32::from_be_bytes(body[4..8].try_into().unwrap());
                }
                b'S' => {
                    let parts: Vec<String> = body
                        .split(|byte| *byte == 0)
                        .map(|part| String::from_utf8_lossy(part).into())
                        .collect();
                    self.parameters.insert(parts[0].clone(), parts[1].clone());
                }
                b'C' => self.tag = String::from_utf8_lossy(body.strip_suffix(b"\0").unwrap_or(&body)).into(),
                b'D' => rows.push(row(&body)),
                b'E' => {
                    let field = |code: u8| {
                        let fields = body.split(|byte| *byte == 0);
                        let code_field = fields.into_iter().find(|field| field.first() == Some(&code));
                        code_field
                            .map(|field| String::from_utf8_lossy(&field[1..]).to_string())
                            .unwrap_or_default()
                    };
                    failure = Some((field(b'C'), field(b'M')));
                }
                b'Z' => {
                    self.state = body[0];
                    return failure.map_or(Ok(rows), Err);
                }
                _ => {}
            }
        }
    }

    pub fn ask(&mut self, sql: &str) {
        self.send(b'Q', &[sql.as_bytes(), b"\0"].concat());
    }

    pub fn query(&mut self, sql: &str) -> Answer {
        self.ask(sql);
        self.answer()
    }

    /// First value of the first row.
    pub fn one(&mut self, sql: &str) -> Result<String, String> {
        match self.query(sql) {
            Ok(rows) => Ok(rows.first().and_then(|row| row[0].clone()).unwrap_or_default()),
            Err((state, message)) => Err(format!("{state} {message}")),
        }
    }

    /// SQLSTATE of a statement that must fail.
    pub fn fails(&mut self, sql: &str) -> String {
        self.query(sql).expect_err(sql).0
    }
}

fn row(body: &[u8]) -> Vec<Option<String>> {
    let mut rest = &body[2..];
    let mut values = Vec::new();
    while !rest.is_empty() {
        let length = i32::from_be_bytes(rest[..4].try_into().unwrap());
        rest = &rest[4..];
        values.push(usize::try_from(length).ok().map(|length| {
            let (value, after) = rest.split_at(length);
            rest = after;
            String::from_utf8_lossy(value).to_string()
        }));
    }
    values
}

/// Fetches a page of the server; returns status and body.
pub fn page(url: &str, path: &str, with_password: bool) -> (u16, String) {
    let (_, rest) = url.split_once("://").unwrap();
    let (login, host) = rest.trim_end_matches('/').split_once('@').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let login = match with_password {
        true => format!("Authorization: Basic {}\r\n", base64(login.as_bytes())),
        false => String::new(),
    };
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\n{login}Connection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_string()).unwrap_or_default())
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let number = group.iter().fold(0_u32, |number, byte| number << 8 | u32::from(*byte))
            << (8 * (3 - group.len()));
        for at in 0..4 {
            match at <= group.len() {
                true => text.push(DIGITS[(number >> (18 - 6 * at)) as usize & 63].into()),
                false => text.push('='),
            }
        }
    }
    text
}

//! Helpers for authentication tests: psql, Flight SQL clients, rules (`hba.conf`) and TLS certificates.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::test_server::{Client, PATIENCE, TestServer, signal};

/// Whether the client logged in, and its output.
pub type LoginResult = (bool, String);

fn login_result(output: Output) -> LoginResult {
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).trim().to_string())
}

/// Runs psql as a role with a password and selects `current_user`; `options` are libpq's.
pub fn psql(test_server: &TestServer, role: &str, password: &str, options: &str) -> LoginResult {
    // Escapes the value for a libpq connection string.
    let quoted = role.replace('\\', "\\\\").replace('\'', "\\'");
    let connection = format!(
        "host=127.0.0.1 port={} dbname=warehouse connect_timeout=40 user='{quoted}' {options}",
        test_server.port
    );
    let output = Command::new("psql")
        .args(["-X", "-w", "-A", "-t", "-c", "SELECT current_user", &connection])
        .env("PGPASSWORD", password)
        .env("HOME", "/nonexistent")
        .env_remove("PGSSLMODE")
        .output()
        .unwrap_or_else(|error| panic!("psql: {error}; scripts/postgres.sh installs it"));
    login_result(output)
}

/// Runs `tests/clients/flight_login.py` with the clients' Python; `None`, with a message, if it is not
/// installed.
pub fn flight(arguments: &[&str]) -> Option<LoginResult> {
    python("flight_login.py", arguments)
}

/// Runs a script of `tests/clients` with its installed drivers. `None`: servers and clients are skipped.
pub fn python(script: &str, arguments: &[&str]) -> Option<LoginResult> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = harrier_servers::clients_python()?;
    let output = Command::new(python)
        .arg(root.join("tests/clients").join(script))
        .args(arguments)
        .env_remove("http_proxy")
        .env_remove("https_proxy")
        .output()
        .unwrap();
    Some(login_result(output))
}

/// The server's authentication rules, which it reloads when they change.
pub struct Rules {
    folder: PathBuf,
}

impl Rules {
    /// Writes `hba.conf` and a configuration that names it into a folder. Also returns the path of the
    /// configuration.
    pub fn write(folder: &Path, rules: &str, server: &str) -> (Self, String) {
        fs::write(folder.join("hba.conf"), rules).unwrap();
        let config = folder.join("harrier.toml");
        fs::write(&config, format!("[server]\nhba_file = \"hba.conf\"\n{server}")).unwrap();
        (Self { folder: folder.to_path_buf() }, config.display().to_string())
    }

    /// Replaces the rules and waits until the server has reloaded them.
    pub fn set(&self, test_server: &TestServer, rules: &str) {
        let reload_count = || test_server.log().matches("the configuration was read again").count();
        let before = reload_count();
        fs::write(self.folder.join("hba.conf"), rules).unwrap();
        signal(test_server.pid(), "HUP");
        let start = std::time::Instant::now();
        while reload_count() == before {
            assert!(start.elapsed() < PATIENCE, "the rules were not taken over: {}", test_server.log());
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

/// User of the operating system that runs the tests and the server.
pub fn own_user() -> String {
    let output = Command::new("id").arg("-un").output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().to_string()
}

/// Connects as that user.
pub fn admin(test_server: &TestServer) -> Client {
    Client::connect(test_server.port, &[("user", &own_user())]).unwrap()
}

/// Creates a certificate authority, a server certificate for 127.0.0.1, and a client certificate for each
/// role, as `NAME.crt` and `NAME.key`.
pub fn certificates(folder: &Path, roles: &[&str]) {
    let openssl = |arguments: &str| {
        let output =
            Command::new("openssl").args(arguments.split_whitespace()).current_dir(folder).output().unwrap();
        assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    openssl(&format!(
        "req -x509 {key} -keyout ca.key -out ca.crt -days 2 -subj /CN=ca -addext basicConstraints=critical,CA:TRUE"
    ));
    fs::write(folder.join("names"), "subjectAltName=IP:127.0.0.1").unwrap();
    for name in [&["server"], roles].concat() {
        openssl(&format!("req {key} -keyout {name}.key -out {name}.csr -subj /CN={name}"));
        openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -sha256 -days 2 -extfile names -out {name}.crt"
        ));
    }
}

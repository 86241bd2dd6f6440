//! How tests come into a server whose rules ask them for something: psql, clients of Flight SQL,
//! certificates.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::test_server::{Client, PATIENCE, Served, signal};

/// Whether it worked, and what was said.
pub type Said = (bool, String);

fn said(output: Output) -> Said {
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).trim().to_string())
}

/// Asks psql who it is, as a role with a password; `options` are libpq's.
pub fn psql(served: &Served, role: &str, password: &str, options: &str) -> Said {
    // As libpq reads a value with whatever is in it.
    let quoted = role.replace('\\', "\\\\").replace('\'', "\\'");
    let connection = format!(
        "host=127.0.0.1 port={} dbname=warehouse connect_timeout=40 user='{quoted}' {options}",
        served.port
    );
    let output = Command::new("psql")
        .args(["-X", "-w", "-A", "-t", "-c", "SELECT current_user", &connection])
        .env("PGPASSWORD", password)
        .env("HOME", "/nonexistent")
        .env_remove("PGSSLMODE")
        .output()
        .unwrap_or_else(|error| panic!("psql: {error}; scripts/postgres.sh installs it"));
    said(output)
}

/// Runs `tests/clients/flight_login.py` with the clients' Python; `None`, said loudly, where there is none.
pub fn flight(arguments: &[&str]) -> Option<Said> {
    python("flight_login.py", arguments)
}

/// Runs a script of `tests/clients` with the drivers that are installed for it. `None`: tests leave servers
/// out.
pub fn python(script: &str, arguments: &[&str]) -> Option<Said> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = harrier_servers::clients_python()?;
    let output = Command::new(python)
        .arg(root.join("tests/clients").join(script))
        .args(arguments)
        .env_remove("http_proxy")
        .env_remove("https_proxy")
        .output()
        .unwrap();
    Some(said(output))
}

/// The rules of a server, which it reads again whenever they change.
pub struct Rules {
    folder: PathBuf,
}

impl Rules {
    /// Writes `hba.conf` and a configuration with it into a folder. Returns the path of the configuration,
    /// too.
    pub fn write(folder: &Path, rules: &str, server: &str) -> (Self, String) {
        fs::write(folder.join("hba.conf"), rules).unwrap();
        let config = folder.join("harrier.toml");
        fs::write(&config, format!("[server]\nhba_file = \"hba.conf\"\n{server}")).unwrap();
        (Self { folder: folder.to_path_buf() }, config.display().to_string())
    }

    /// Has the server take other rules.
    pub fn set(&self, served: &Served, rules: &str) {
        let taken = || served.log().matches("the configuration was read again").count();
        let before = taken();
        fs::write(self.folder.join("hba.conf"), rules).unwrap();
        signal(served.pid(), "HUP");
        let begun = std::time::Instant::now();
        while taken() == before {
            assert!(begun.elapsed() < PATIENCE, "the rules were not taken over: {}", served.log());
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

/// The user of the operating system that runs the tests, and the server.
pub fn own_user() -> String {
    let output = Command::new("id").arg("-un").output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().to_string()
}

/// A client as that user.
pub fn admin(served: &Served) -> Client {
    Client::connect(served.port, &[("user", &own_user())]).unwrap()
}

/// An authority, a server's certificate for 127.0.0.1, and one of each of these roles, as `NAME.crt` and
/// `NAME.key`.
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

//! A PostgreSQL server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::keeper::{Keeper, Place};

/// Environment variable that names a server shared by a whole test run.
const VARIABLE: &str = "HARRIER_TEST_POSTGRES";

/// Starts a server as a user other than root. `$1` is the folder, `$2` the folder of its programs, `$3` the
/// port.
const KEEPER: &str = r#"
folder=$1 bin=$2 port=$3
as() { if [ "$(id -u)" -eq 0 ]; then runuser -u postgres -- "$@"; else "$@"; fi }
chmod 755 "$folder"
if [ "$(id -u)" -eq 0 ]; then mkdir "$folder/pg"; chown postgres "$folder/pg"; else mkdir "$folder/pg"; fi
cd "$folder/pg"
start() {
    as "$bin/pg_ctl" -D data -w -s -l server.log -o "-p $port -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off -c max_connections=200" start
}
stop() { as "$bin/pg_ctl" -D data -w -s -m immediate stop; }
as "$bin/initdb" -D data -A trust -U harrier --encoding=UTF8 --locale=C >log 2>&1 || { cat log; exit 1; }
start || { cat server.log; exit 1; }
echo up
while read -r word; do
    case $word in
        stop) stop ;;
        start) start ;;
    esac
    echo done
done
stop
cd / && rm -rf "$folder"
"#;

/// A running server.
pub struct Postgres {
    place: Place,
    port: u16,
    bin: PathBuf,
    databases: AtomicU64,
}

impl Postgres {
    /// The instance shared by the tests of this process, or by the whole test run where [`VARIABLE`] names
    /// it. `None`, with a loud message, if it cannot be installed.
    pub fn shared_instance() -> Option<&'static Self> {
        static SHARED: OnceLock<Result<Postgres, String>> = OnceLock::new();
        if crate::skip_requested() {
            return None;
        }
        match SHARED.get_or_init(|| {
            crate::install("postgres.sh").map(|bin| Self::of_run(&bin).unwrap_or_else(|| Self::start(bin)))
        }) {
            Ok(server) => Some(server),
            Err(missing) => {
                crate::absent(missing);
                None
            }
        }
    }

    /// Starts a private instance, for tests that kill servers or change what all databases share.
    pub fn start_dedicated() -> Option<Self> {
        crate::installation("postgres.sh").map(Self::start)
    }

    fn of_run(bin: &Path) -> Option<Self> {
        let (place, [port]) = Place::from_variable(VARIABLE)?;
        Some(Self { place, port, bin: bin.to_path_buf(), databases: AtomicU64::new(0) })
    }

    /// The variable, and its value, by which other processes share this instance.
    pub fn variable(&self) -> (&'static str, String) {
        (VARIABLE, self.place.variable(&[self.port]))
    }

    fn start(bin: PathBuf) -> Self {
        for _ in 0..5 {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let port = crate::free_port();
            // Another process may take the port meanwhile.
            match Keeper::start(KEEPER, folder, &[&bin.display().to_string(), &port.to_string()], &[]) {
                Ok(keeper) => {
                    return Self { place: Place::new(keeper), port, bin, databases: AtomicU64::new(0) };
                }
                Err(said) => eprintln!("PostgreSQL did not start: {said}"),
            }
        }
        panic!("PostgreSQL does not start");
    }

    /// Its port on the loopback interface.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The folder of its programs, such as psql and pg_dump.
    pub fn programs(&self) -> &Path {
        &self.bin
    }

    /// Process id of the postmaster; `None` while there is none.
    pub fn pid(&self) -> Option<u32> {
        let text = fs::read_to_string(self.place.folder().join("pg/data/postmaster.pid")).ok()?;
        text.lines().next()?.trim().parse().ok()
    }

    /// Whether a process listens on its port.
    pub fn listens(&self) -> bool {
        crate::listens(self.port)
    }

    /// Whether it accepts clients.
    pub fn answers(&self) -> bool {
        self.run_psql("postgres", "SELECT 1").status.success()
    }

    /// Runs one statement; returns its rows, columns separated by `|`.
    ///
    /// Panics: the statement fails.
    pub fn psql(&self, database: &str, sql: &str) -> String {
        let output = self.run_psql(database, sql);
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_string()
    }

    fn run_psql(&self, database: &str, sql: &str) -> Output {
        Command::new(self.bin.join("psql"))
            .args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-U", "harrier", "-d", database])
            .args(["-v", "ON_ERROR_STOP=1", "-A", "-t", "-q", "-c", sql])
            .output()
            .expect("psql runs")
    }

    /// Creates a database and returns its name.
    pub fn new_database(&self) -> String {
        let number = self.databases.fetch_add(1, Ordering::Relaxed);
        let name = format!("lake{}_{number}", crate::process_name());
        self.psql("postgres", &format!("CREATE DATABASE {name}"));
        name
    }

    /// The connection URL of a database.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://harrier@127.0.0.1:{}/{database}", self.port)
    }

    /// Kills the server at once, as a crash would.
    pub fn stop(&self) {
        self.place.send("stop");
    }

    /// Restarts the server.
    pub fn restart(&self) {
        self.place.send("start");
    }
}

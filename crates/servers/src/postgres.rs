//! A PostgreSQL server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::keeper::{Keeper, Place};

/// Says where a server is that a whole run of the tests shares.
const VARIABLE: &str = "HARRIER_TEST_POSTGRES";

/// Starts a server as another user than root. `$1` is the folder, `$2` the one with the programs, `$3` the
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
    /// The one that the tests of this process share, which is that of the whole run where [`VARIABLE`] names
    /// it; `None`, said loudly, where it cannot be installed.
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Result<Postgres, String>> = OnceLock::new();
        if crate::skipped() {
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

    /// One of its own, for what ends servers, or changes what all databases share.
    pub fn own() -> Option<Self> {
        crate::installed("postgres.sh").map(Self::start)
    }

    fn of_run(bin: &Path) -> Option<Self> {
        let (place, [port]) = Place::shared(VARIABLE)?;
        Some(Self { place, port, bin: bin.to_path_buf(), databases: AtomicU64::new(0) })
    }

    /// The variable by which other processes share it, and its value.
    pub fn variable(&self) -> (&'static str, String) {
        (VARIABLE, self.place.variable(&[self.port]))
    }

    fn start(bin: PathBuf) -> Self {
        for _ in 0..5 {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let port = crate::free_port();
            // The port may be taken by somebody else meanwhile.
            match Keeper::start(KEEPER, folder, &[&bin.display().to_string(), &port.to_string()], &[]) {
                Ok(keeper) => {
                    return Self { place: Place::own(keeper), port, bin, databases: AtomicU64::new(0) };
                }
                Err(said) => eprintln!("PostgreSQL did not start: {said}"),
            }
        }
        panic!("PostgreSQL does not start");
    }

    /// Where it listens on the loopback interface.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The folder of its programs, such as psql and pg_dump.
    pub fn programs(&self) -> &Path {
        &self.bin
    }

    /// The server's first process, without which the others end; `None` while there is none.
    pub fn pid(&self) -> Option<u32> {
        let text = fs::read_to_string(self.place.folder().join("pg/data/postmaster.pid")).ok()?;
        text.lines().next()?.trim().parse().ok()
    }

    /// Whether somebody listens on its port.
    pub fn listens(&self) -> bool {
        crate::listens(self.port)
    }

    /// Whether it lets clients in.
    pub fn answers(&self) -> bool {
        self.asked("postgres", "SELECT 1").status.success()
    }

    /// Runs one statement; returns its rows, columns separated by `|`.
    ///
    /// Panics: it fails.
    pub fn psql(&self, database: &str, sql: &str) -> String {
        let output = self.asked(database, sql);
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_string()
    }

    fn asked(&self, database: &str, sql: &str) -> Output {
        Command::new(self.bin.join("psql"))
            .args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-U", "harrier", "-d", database])
            .args(["-v", "ON_ERROR_STOP=1", "-A", "-t", "-q", "-c", sql])
            .output()
            .expect("psql runs")
    }

    /// Makes a database and returns its name.
    pub fn new_database(&self) -> String {
        let number = self.databases.fetch_add(1, Ordering::Relaxed);
        let name = format!("lake{}_{number}", crate::process_name());
        self.psql("postgres", &format!("CREATE DATABASE {name}"));
        name
    }

    /// The address of a database, as clients want it.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://harrier@127.0.0.1:{}/{database}", self.port)
    }

    /// Ends the server at once, as a crash would.
    pub fn stop(&self) {
        self.place.tell("stop");
    }

    /// Starts it again.
    pub fn restart(&self) {
        self.place.tell("start");
    }
}

//! An S3 server: versitygw over a folder whose subfolders are buckets, or [`moto`] with
//! `HARRIER_TEST_S3_SERVER=moto`.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::keeper::{Keeper, Place};

mod moto;

/// The only user of the test server.
pub const ACCESS_KEY: &str = "HARRIERTESTKEY";
pub const SECRET_KEY: &str = "harrier/test+secret";
pub const REGION: &str = "us-east-1";

/// Environment variable that names a server shared by a whole test run.
const VARIABLE: &str = "HARRIER_TEST_S3";

/// Environment variable that selects the server program.
const SERVER: &str = "HARRIER_TEST_S3_SERVER";

/// Startup timeout.
const START_MAX: Duration = Duration::from_secs(60);

/// `$1` is the folder, `$2` the program, `$3` the port.
const KEEPER: &str = r#"
folder=$1 program=$2 port=$3
mkdir -p "$folder/data" "$folder/versions"
start() {
    "$program" --port "127.0.0.1:$port" --quiet posix "$folder/data" >>"$folder/log" 2>&1 & server=$!
    echo "$server" >"$folder/pid"
}
stop() { kill -9 "$server" 2>/dev/null; wait "$server" 2>/dev/null; }
start
sleep 0.2
kill -0 "$server" 2>/dev/null || { cat "$folder/log"; rm -rf "$folder"; exit 1; }
echo up
while read -r word; do
    case $word in
        stop) stop ;;
        start) start ;;
    esac
    echo done
done
stop
rm -rf "$folder"
"#;

/// A running server.
pub struct S3 {
    place: Place,
    address: SocketAddr,
    buckets: AtomicU64,
    is_moto: bool,
}

impl S3 {
    /// The instance shared by the tests of this process, or by the whole test run where [`VARIABLE`] names
    /// it. `None`, with a loud message, if it cannot be installed.
    pub fn shared_instance() -> Option<&'static Self> {
        static SHARED: OnceLock<Result<S3, String>> = OnceLock::new();
        if crate::skip_requested() {
            return None;
        }
        match SHARED.get_or_init(|| match std::env::var_os(SERVER).is_some_and(|name| name == "moto") {
            true => crate::install("moto.sh").map(|program| Self::start(&program, moto::KEEPER)),
            false => Self::of_run()
                .map_or_else(|| crate::install("s3.sh").map(|program| Self::start(&program, KEEPER)), Ok),
        }) {
            Ok(server) => Some(server),
            Err(missing) => {
                crate::absent(missing);
                None
            }
        }
    }

    /// Starts a private instance, for tests that kill servers.
    pub fn start_dedicated() -> Option<Self> {
        crate::installation("s3.sh").map(|program| Self::start(&program, KEEPER))
    }

    fn of_run() -> Option<Self> {
        let (place, [port]) = Place::from_variable(VARIABLE)?;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        Some(Self { place, address, buckets: AtomicU64::new(0), is_moto: false })
    }

    /// The variable, and its value, by which other processes share this instance.
    pub fn variable(&self) -> (&'static str, String) {
        (VARIABLE, self.place.variable(&[self.address.port()]))
    }

    fn start(program: &Path, script: &str) -> Self {
        let program = program.display().to_string();
        let environment = [("ROOT_ACCESS_KEY", ACCESS_KEY), ("ROOT_SECRET_KEY", SECRET_KEY)];
        for _ in 0..5 {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let port = crate::free_port();
            // Another process may take the port meanwhile.
            match Keeper::start(script, folder, &[&program, &port.to_string()], &environment) {
                Ok(keeper) => {
                    let address = SocketAddr::from(([127, 0, 0, 1], port));
                    let is_moto = script == moto::KEEPER;
                    let (place, buckets) = (Place::new(keeper), AtomicU64::new(0));
                    let server = Self { place, address, buckets, is_moto };
                    server.wait_until_it_listens();
                    return server;
                }
                Err(said) => eprintln!("S3 did not start: {said}"),
            }
        }
        panic!("S3 does not start");
    }

    fn wait_until_it_listens(&self) {
        let started = Instant::now();
        while TcpStream::connect(self.address).is_err() {
            assert!(started.elapsed() < START_MAX, "S3 does not listen on {}", self.address);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its address as a URL.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Creates a bucket and returns its name.
    pub fn new_bucket(&self) -> String {
        let number = self.buckets.fetch_add(1, Ordering::Relaxed);
        let name = format!("bucket{}-{number}", crate::process_name());
        if self.is_moto {
            moto::make_bucket(self.address, &name);
            return name;
        }
        std::fs::create_dir(self.place.folder().join("data").join(&name)).expect("a folder for a bucket");
        name
    }

    /// The sorted names of all objects in a bucket, from the disk. Excludes incomplete uploads.
    pub fn objects(&self, bucket: &str) -> Vec<String> {
        if self.is_moto {
            return moto::objects(self.address, bucket);
        }
        let root = self.place.folder().join("data").join(bucket);
        let mut found = Vec::new();
        let mut folders = vec![root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
                let path = entry.path();
                // The server's folder for parts of uploads.
                if entry.file_name().to_string_lossy().starts_with(".sgwtmp") {
                    continue;
                }
                match path.is_dir() {
                    true => folders.push(path),
                    false => {
                        let name = path.strip_prefix(&root).expect("it is below its folder");
                        found.push(name.to_string_lossy().into_owned());
                    }
                }
            }
        }
        found.sort();
        found
    }

    /// The folder in which the server stores a bucket's objects as files.
    pub fn folder(&self, bucket: &str) -> PathBuf {
        self.place.folder().join("data").join(bucket)
    }

    /// Number of multipart uploads neither completed nor aborted.
    pub fn uploads(&self, bucket: &str) -> usize {
        if self.is_moto {
            return moto::uploads(self.address, bucket);
        }
        let names = |folder: PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten();
        let objects = names(self.folder(bucket).join(".sgwtmp/multipart"));
        objects.map(|object| names(object.path()).filter(|upload| upload.path().is_dir()).count()).sum()
    }

    /// Puts an object into a bucket without a request, as another client would.
    pub fn put_object(&self, bucket: &str, name: &str, bytes: &[u8]) {
        let path = self.place.folder().join("data").join(bucket).join(name);
        std::fs::write(path, bytes).expect("an object");
    }

    /// Its process id, which may have exited; `None` before the first start.
    pub fn pid(&self) -> Option<u32> {
        crate::written_pid(&self.place.folder().join("pid"))
    }

    /// Whether a process listens on its port.
    pub fn listens(&self) -> bool {
        crate::listens(self.address.port())
    }

    /// Whether it answers.
    pub fn answers(&self) -> bool {
        crate::answers_http(self.address.port())
    }

    /// Kills the server; its data stays.
    pub fn stop(&self) {
        self.place.send("stop");
    }

    /// Restarts the server unless it runs, and waits until it answers.
    pub fn restart(&self) {
        let started = Instant::now();
        while !self.answers() {
            assert!(started.elapsed() < START_MAX, "S3 does not come back on {}", self.address);
            // Another process may hold its port for a moment; then the server exits again.
            if !self.pid().is_some_and(crate::runs) {
                self.place.send("start");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

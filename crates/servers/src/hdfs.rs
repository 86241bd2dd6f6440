//! HDFS: a NameNode and a DataNode, as two Java programs; and a name service of two NameNodes ([`HdfsPair`]).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::keeper::{Keeper, Place};

mod pair;

pub use pair::HdfsPair;

/// Environment variable that names a server shared by a whole test run.
const VARIABLE: &str = "HARRIER_TEST_HDFS";

/// Server names in the keeper's commands.
const NAMENODE: &str = "namenode";
const DATANODE: &str = "datanode";

/// Startup takes half a minute on a busy machine.
const START_MAX: Duration = Duration::from_secs(180);

/// `$1` is the folder, `$2` the folder of jars and web pages. Java's heap is small because the data is small.
const KEEPER: &str = r#"
folder=$1 jars=$2
run() {
    exec java -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 --add-opens=java.base/java.lang=ALL-UNNAMED \
        --add-opens=java.base/java.nio=ALL-UNNAMED -cp "$folder/conf:$jars/web:$jars/lib/*" "$@"
}
start_namenode() {
    (run org.apache.hadoop.hdfs.server.namenode.NameNode) >>"$folder/namenode.log" 2>&1 & namenode=$!
    echo "$namenode" >"$folder/namenode.pid"
}
start_datanode() {
    (run org.apache.hadoop.hdfs.server.datanode.DataNode) >>"$folder/datanode.log" 2>&1 & datanode=$!
    echo "$datanode" >"$folder/datanode.pid"
}
end() { kill -9 "$1" 2>/dev/null; wait "$1" 2>/dev/null; }
(run org.apache.hadoop.hdfs.server.namenode.NameNode -format -force -nonInteractive) >"$folder/format.log" 2>&1 ||
    { tail -20 "$folder/format.log"; rm -rf "$folder"; exit 1; }
start_namenode
start_datanode
echo up
while read -r word; do
    case $word in
        stop-namenode) end "$namenode" ;;
        start-namenode) start_namenode ;;
        stop-datanode) end "$datanode" ;;
        start-datanode) start_datanode ;;
    esac
    echo done
done
end "$datanode"
end "$namenode"
rm -rf "$folder"
"#;

/// A running HDFS.
pub struct Hdfs {
    place: Place,
    port: u16,
    http_port: u16,
    datanode_port: u16,
}

impl Hdfs {
    /// The instance shared by the tests of this process, or by the whole test run where [`VARIABLE`] names
    /// it. `None`, with a loud message, if it cannot be installed. Starting it takes 10 to 30 seconds.
    pub fn shared_instance() -> Option<&'static Self> {
        static SHARED: OnceLock<Result<Hdfs, String>> = OnceLock::new();
        if crate::skip_requested() {
            return None;
        }
        match SHARED.get_or_init(|| {
            Self::of_run().map_or_else(|| crate::install("hdfs.sh").map(|jars| Self::start(&jars)), Ok)
        }) {
            Ok(server) => Some(server),
            Err(missing) => {
                crate::absent(missing);
                None
            }
        }
    }

    /// Starts a private instance, for tests that kill servers or count requests.
    pub fn start_dedicated() -> Option<Self> {
        crate::installation("hdfs.sh").map(|jars| Self::start(&jars))
    }

    fn of_run() -> Option<Self> {
        let (place, [port, http_port, datanode_port]) = Place::from_variable(VARIABLE)?;
        Some(Self { place, port, http_port, datanode_port })
    }

    /// The variable, and its value, by which other processes share this instance.
    pub fn variable(&self) -> (&'static str, String) {
        (VARIABLE, self.place.variable(&[self.port, self.http_port, self.datanode_port]))
    }

    fn start(jars: &Path) -> Self {
        for _ in 0..3 {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let [port, http_port, datanode_port] = [(); 3].map(|()| crate::free_port());
            write_configuration(folder.path(), port, http_port, datanode_port);
            match Keeper::start(KEEPER, folder, &[&jars.display().to_string()], &[]) {
                Ok(keeper) => {
                    let server = Self { place: Place::new(keeper), port, http_port, datanode_port };
                    if server.waited_until_it_works() {
                        return server;
                    }
                    eprintln!("HDFS did not start: {}", server.last_words());
                }
                Err(said) => eprintln!("HDFS did not start: {said}"),
            }
        }
        panic!("HDFS does not start");
    }

    /// Waits until the running servers work; returns false on timeout. A server whose port is taken exits.
    fn waited_until_it_works(&self) -> bool {
        let started = Instant::now();
        while started.elapsed() < START_MAX {
            if self.works() {
                return true;
            }
            if !self.is_up() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        false
    }

    /// Whether the NameNode has left safe mode and has a DataNode that answers.
    pub fn works(&self) -> bool {
        let state = self.http("/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState");
        let info = self.http("/jmx?qry=Hadoop:service=NameNode,name=NameNodeInfo");
        let (Some(state), Some(info)) = (state, info) else { return false };
        state.contains("\"NumLiveDataNodes\" : 1")
            && info.contains("\"Safemode\" : \"\"")
            && info_port(&info).is_some_and(crate::answers_http)
    }

    fn runs(&self, server: &str) -> bool {
        self.pid(server).is_some_and(crate::runs)
    }

    fn pid(&self, server: &str) -> Option<u32> {
        crate::written_pid(&self.place.folder().join(format!("{server}.pid")))
    }

    fn last_words(&self) -> String {
        ["namenode.log", "datanode.log"]
            .iter()
            .map(|name| {
                let text = fs::read_to_string(self.place.folder().join(name)).unwrap_or_default();
                text.lines().rev().take(10).collect::<Vec<_>>().join("\n")
            })
            .collect()
    }

    /// The file system's root, `hdfs://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("hdfs://127.0.0.1:{}", self.port)
    }

    /// The folder with the configuration files for Hadoop's own programs.
    pub fn configuration(&self) -> PathBuf {
        self.place.folder().join("conf")
    }

    /// Counts the NameNode's operations so far on paths with this prefix, by their name in its audit log:
    /// `create`, `rename`, `listStatus`, `open`, …
    pub fn calls(&self, path: &str) -> BTreeMap<String, u64> {
        let source = format!("src={path}");
        let text = fs::read_to_string(self.place.folder().join("audit.log")).unwrap_or_default();
        let mut calls = BTreeMap::new();
        for line in text.lines() {
            let Some((_, rest)) = line.split_once("cmd=") else { continue };
            if !line.contains(&source) {
                continue;
            }
            let call = rest.split_whitespace().next().unwrap_or_default();
            *calls.entry(call.to_string()).or_default() += 1;
        }
        calls
    }

    /// The client ports of the NameNode and the DataNode.
    pub fn ports(&self) -> [u16; 2] {
        [self.port, self.datanode_port]
    }

    /// Process id of the NameNode, which may have exited.
    pub fn namenode_pid(&self) -> Option<u32> {
        self.pid(NAMENODE)
    }

    /// Process id of the DataNode, which may have exited.
    pub fn datanode_pid(&self) -> Option<u32> {
        self.pid(DATANODE)
    }

    /// Whether both processes run, in whatever state.
    pub fn is_up(&self) -> bool {
        self.runs(NAMENODE) && self.runs(DATANODE)
    }

    /// The sorted paths of all files below a folder, including those being written; empty if there is no such
    /// folder.
    pub fn files(&self, folder: &str) -> Vec<String> {
        let path = format!("/fsck?ugi=root&files=1&openforwrite=1&path={folder}");
        let text = self.get_with_retries(&path);
        assert!(text.contains("FSCK ended") || text.contains("does not exist"), "{text}");
        let prefix = format!("{}/", folder.trim_end_matches('/'));
        // Files print as `PATH BYTES bytes, …`, folders as `PATH <dir>`.
        let file = |line: &str| {
            let (path, _) = line.split_once(" bytes, ")?.0.rsplit_once(' ')?;
            path.starts_with(&prefix).then(|| path.to_string())
        };
        let mut files: Vec<String> = text.lines().filter_map(file).collect();
        files.sort();
        files.dedup();
        files
    }

    /// Kills the NameNode.
    pub fn stop_namenode(&self) {
        self.place.send("stop-namenode");
    }

    /// Restarts the NameNode unless it runs, and waits until HDFS works.
    pub fn start_namenode(&self) {
        self.start_again(NAMENODE);
    }

    /// Kills the DataNode. The NameNode counts it as alive for some minutes.
    pub fn stop_datanode(&self) {
        self.place.send("stop-datanode");
    }

    /// Restarts the DataNode unless it runs, and waits until HDFS works.
    pub fn start_datanode(&self) {
        self.start_again(DATANODE);
    }

    fn start_again(&self, server: &str) {
        let started = Instant::now();
        while !self.works() {
            assert!(started.elapsed() < START_MAX, "the {server} does not come back: {}", self.last_words());
            // Another process may hold its port for a moment; then the server exits again.
            if !self.runs(server) {
                self.place.send(&format!("start-{server}"));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Gets a page of the NameNode; retries until it answers.
    fn get_with_retries(&self, path: &str) -> String {
        let started = Instant::now();
        loop {
            if let Some(text) = self.http(path) {
                return text;
            }
            assert!(
                started.elapsed() < START_MAX,
                "the NameNode does not answer {path}: {}",
                self.last_words()
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn http(&self, path: &str) -> Option<String> {
        crate::get(self.http_port, path)
    }
}

/// The HTTP port of the registered DataNode, read from the NameNode's `info`. Each start uses another port,
/// so a dead DataNode is distinguished from a restarted one.
fn info_port(info: &str) -> Option<u16> {
    // The address is JSON within JSON, so its quotes are escaped.
    let (_, rest) = info.split_once("infoAddr")?;
    let (_, rest) = rest.split_once("127.0.0.1:")?;
    rest.split(|sign: char| !sign.is_ascii_digit()).next()?.parse().ok()
}

fn write_configuration(folder: &Path, port: u16, http_port: u16, datanode_port: u16) {
    let conf = folder.join("conf");
    fs::create_dir_all(&conf).expect("a folder");
    let core = [
        ("fs.defaultFS", format!("hdfs://127.0.0.1:{port}")),
        ("hadoop.tmp.dir", folder.join("data").display().to_string()),
        // Every user has full access: clients use many names.
        ("hadoop.http.staticuser.user", "root".to_string()),
    ];
    write_site(&conf.join("core-site.xml"), &core);
    let own = [
        ("dfs.namenode.rpc-address", format!("127.0.0.1:{port}")),
        ("dfs.namenode.http-address", format!("127.0.0.1:{http_port}")),
        ("dfs.datanode.address", format!("127.0.0.1:{datanode_port}")),
    ];
    write_site(&conf.join("hdfs-site.xml"), &[&own[..], &common_settings()].concat());
    write_log_settings(&conf, &folder.join("audit.log"));
}

/// Settings common to every NameNode and DataNode.
fn common_settings() -> Vec<(&'static str, String)> {
    [
        ("dfs.replication", "1"),
        ("dfs.permissions.enabled", "false"),
        ("dfs.datanode.http.address", "127.0.0.1:0"),
        ("dfs.datanode.ipc.address", "127.0.0.1:0"),
        ("dfs.datanode.hostname", "localhost"),
        ("dfs.namenode.datanode.registration.ip-hostname-check", "false"),
        ("dfs.client.block.write.replace-datanode-on-failure.policy", "NEVER"),
        ("dfs.namenode.fs-limits.min-block-size", "4096"),
        ("dfs.namenode.safemode.extension", "0"),
        // The default would leave no space on a small disk.
        ("dfs.datanode.du.reserved", "0"),
    ]
    .map(|(name, value)| (name, value.to_string()))
    .to_vec()
}

/// Writes a Hadoop configuration file.
fn write_site(path: &Path, properties: &[(&str, String)]) {
    let properties: String = properties
        .iter()
        .map(|(name, value)| format!("<property><name>{name}</name><value>{value}</value></property>\n"))
        .collect();
    fs::write(path, format!("<configuration>\n{properties}</configuration>\n")).expect("a configuration");
}

/// Logs warnings to the console and the NameNode's operations to `audit_log`.
fn write_log_settings(conf: &Path, audit_log: &Path) {
    let audit = "org.apache.hadoop.hdfs.server.namenode.FSNamesystem.audit";
    let text = format!(
        "log4j.rootLogger=WARN, console\n\
         log4j.appender.console=org.apache.log4j.ConsoleAppender\n\
         log4j.appender.console.layout=org.apache.log4j.PatternLayout\n\
         log4j.appender.console.layout.ConversionPattern=%d %p %c: %m%n\n\
         log4j.logger.{audit}=INFO, audit\n\
         log4j.additivity.{audit}=false\n\
         log4j.appender.audit=org.apache.log4j.FileAppender\n\
         log4j.appender.audit.File={}\n\
         log4j.appender.audit.layout=org.apache.log4j.PatternLayout\n\
         log4j.appender.audit.layout.ConversionPattern=%m%n\n",
        audit_log.display()
    );
    fs::write(conf.join("log4j.properties"), text).expect("a configuration");
}

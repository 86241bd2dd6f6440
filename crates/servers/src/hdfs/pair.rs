//! An HDFS name service: two NameNodes, active and standby, with a shared journal folder. There is no
//! automatic failover: the test chooses the active one.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{START_MAX, common_settings, write_log_settings, write_site};
use crate::keeper::Keeper;

/// The name service and its NameNodes.
const SERVICE: &str = "cluster";
const NAMES: [&str; 2] = ["nn0", "nn1"];

/// `$1` is the folder, `$2` the folder of jars and web pages. The second NameNode begins as a copy of the
/// first one's files.
const KEEPER: &str = r#"
folder=$1 jars=$2
run() {
    conf=$1 && shift
    exec java -Xmx384m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 --add-opens=java.base/java.lang=ALL-UNNAMED \
        --add-opens=java.base/java.nio=ALL-UNNAMED -cp "$folder/$conf:$jars/web:$jars/lib/*" "$@"
}
start() {
    (run "conf$1" org.apache.hadoop.hdfs.server.namenode.NameNode) >>"$folder/namenode$1.log" 2>&1 &
    eval "namenode$1=\$!"
    echo $! >"$folder/namenode$1.pid"
}
end() { kill -9 "$1" 2>/dev/null; wait "$1" 2>/dev/null; }
admin() { (run conf0 org.apache.hadoop.hdfs.tools.DFSHAAdmin "$@") >>"$folder/admin.log" 2>&1; }
fail() { tail -20 "$folder"/*.log; rm -rf "$folder"; exit 1; }
(run conf0 org.apache.hadoop.hdfs.server.namenode.NameNode -format -force -nonInteractive) >"$folder/format.log" 2>&1 || fail
cp -r "$folder/name0" "$folder/name1"
start 0
start 1
(run conf0 org.apache.hadoop.hdfs.server.datanode.DataNode) >>"$folder/datanode.log" 2>&1 & datanode=$!
echo up
while read -r word number; do
    case $word in
        stop) eval "end \$namenode$number" ;;
        start) start "$number" ;;
        # It is refused until the NameNode listens.
        active) until admin -transitionToActive --forceactive "nn$number"; do kill -0 "$datanode" || fail; sleep 0.2; done ;;
        standby) until admin -transitionToStandby "nn$number"; do kill -0 "$datanode" || fail; sleep 0.2; done ;;
    esac
    echo done
done
end "$datanode"
end "$namenode0"
end "$namenode1"
rm -rf "$folder"
"#;

/// A running name service.
pub struct HdfsPair {
    keeper: Keeper,
    ports: [u16; 2],
    http_ports: [u16; 2],
}

impl HdfsPair {
    /// Starts a pair with the first NameNode active, which takes up to a minute. `None`, with a loud message,
    /// if it cannot be installed.
    pub fn start() -> Option<Self> {
        let jars = crate::installation("hdfs.sh")?;
        for _ in 0..3 {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let ports = [(); 5].map(|()| crate::free_port());
            for number in 0..2 {
                write_configuration(folder.path(), number, ports);
            }
            match Keeper::start(KEEPER, folder, &[&jars.display().to_string()], &[]) {
                Ok(keeper) => {
                    let pair = Self { keeper, ports: [ports[0], ports[1]], http_ports: [ports[2], ports[3]] };
                    pair.make_active(0);
                    return Some(pair);
                }
                Err(said) => eprintln!("HDFS did not start: {said}"),
            }
        }
        panic!("HDFS does not start");
    }

    /// The root of the file system; names the service, not a server.
    pub fn url(&self) -> String {
        format!("hdfs://{SERVICE}")
    }

    /// The folder with the configuration that clients read, `HADOOP_CONF_DIR`.
    pub fn configuration(&self) -> PathBuf {
        self.keeper.folder().join("conf0")
    }

    /// The addresses of the service's NameNodes, as options of a table.
    pub fn options(&self) -> Vec<(String, String)> {
        service(self.ports).into_iter().collect()
    }

    /// Kills a NameNode.
    pub fn stop(&self, number: usize) {
        self.keeper.send(&format!("stop {number}"));
    }

    /// Restarts a NameNode as standby.
    pub fn restart(&self, number: usize) {
        self.keeper.send(&format!("start {number}"));
    }

    /// Makes a NameNode active, and waits until it is. The other one must be standby or dead.
    pub fn make_active(&self, number: usize) {
        self.keeper.send(&format!("active {number}"));
        self.wait_until(number, |state| {
            state.contains("\"Safemode\" : \"\"") && state.contains("127.0.0.1:")
        });
    }

    /// Makes a NameNode standby; it rejects clients.
    pub fn make_standby(&self, number: usize) {
        self.keeper.send(&format!("standby {number}"));
    }

    /// Polls `NameNodeInfo`: safe mode and DataNodes.
    fn wait_until(&self, number: usize, is_so: impl Fn(&str) -> bool) {
        let started = Instant::now();
        let path = "/jmx?qry=Hadoop:service=NameNode,name=NameNodeInfo";
        while !crate::get(self.http_ports[number], path).is_some_and(|state| is_so(&state)) {
            let log = self.keeper.folder().join(format!("namenode{number}.log"));
            let last = || fs::read_to_string(&log).unwrap_or_default();
            assert!(started.elapsed() < START_MAX, "NameNode {number} does not serve: {}", last());
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn service(ports: [u16; 2]) -> [(String, String); 3] {
    let address = |number: usize| {
        let name = format!("dfs.namenode.rpc-address.{SERVICE}.{}", NAMES[number]);
        (name, format!("127.0.0.1:{}", ports[number]))
    };
    [(format!("dfs.ha.namenodes.{SERVICE}"), NAMES.join(",")), address(0), address(1)]
}

/// `ports`: the client port of each NameNode, the HTTP port of each, the DataNode's port.
fn write_configuration(folder: &Path, number: usize, ports: [u16; 5]) {
    let conf = folder.join(format!("conf{number}"));
    fs::create_dir_all(&conf).expect("a folder");
    let core = [
        ("fs.defaultFS", format!("hdfs://{SERVICE}")),
        ("hadoop.tmp.dir", folder.join(format!("data{number}")).display().to_string()),
        ("hadoop.http.staticuser.user", "root".to_string()),
    ];
    write_site(&conf.join("core-site.xml"), &core);
    let within = |name: &str| format!("file://{}", folder.join(name).display());
    let mut own = vec![
        ("dfs.nameservices".to_string(), SERVICE.to_string()),
        ("dfs.ha.namenode.id".to_string(), NAMES[number].to_string()),
        ("dfs.namenode.name.dir".to_string(), within(&format!("name{number}"))),
        ("dfs.namenode.shared.edits.dir".to_string(), within("journal")),
        ("dfs.ha.automatic-failover.enabled".to_string(), "false".to_string()),
        ("dfs.ha.fencing.methods".to_string(), "shell(/bin/true)".to_string()),
        (
            format!("dfs.client.failover.proxy.provider.{SERVICE}"),
            "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider".to_string(),
        ),
        // The standby catches up with the journal quickly.
        ("dfs.ha.tail-edits.period".to_string(), "1".to_string()),
        ("dfs.datanode.address".to_string(), format!("127.0.0.1:{}", ports[4])),
        ("dfs.datanode.data.dir".to_string(), within("blocks")),
        ("dfs.heartbeat.interval".to_string(), "1".to_string()),
    ];
    for (number, name) in NAMES.iter().enumerate() {
        let address = format!("127.0.0.1:{}", ports[2 + number]);
        own.push((format!("dfs.namenode.http-address.{SERVICE}.{name}"), address));
    }
    own.extend(service([ports[0], ports[1]]));
    let own: Vec<(&str, String)> = own.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    write_site(&conf.join("hdfs-site.xml"), &[&own[..], &common_settings()].concat());
    write_log_settings(&conf, &folder.join(format!("audit{number}.log")));
}

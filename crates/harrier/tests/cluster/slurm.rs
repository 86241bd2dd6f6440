//! Slurm: job steps (`srun harrier sql`) as gangs, `harrier serve` inside an allocation, and MPI-D programs.
//! Uses a temporary Slurm cluster on this machine (`scripts/slurm.sh`), which needs root and Debian's
//! packages; without them the tests print so and pass.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use crate::test_server::{Client, signal};

const BINARY: &str = env!("CARGO_BIN_EXE_harrier");

struct Cluster {
    script: PathBuf,
    folder: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl Cluster {
    fn start(nodes: u32) -> Option<Cluster> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/slurm.sh");
        let turn = crate::exclusive_cluster();
        let folder = tempfile::tempdir().unwrap();
        let cluster = Cluster { script, folder, _turn: turn };
        let up = cluster.script(&["up", &cluster.path(), &nodes.to_string()]);
        if !up.status.success() {
            eprintln!("no Slurm here: {}", String::from_utf8_lossy(&up.stderr));
            return None;
        }
        Some(cluster)
    }

    fn path(&self) -> String {
        self.folder.path().display().to_string()
    }

    fn script(&self, arguments: &[&str]) -> Output {
        Command::new(&self.script).args(arguments).output().unwrap()
    }

    fn srun(&self, arguments: &[&str], sql: &[&str]) -> Output {
        let mut command = self.step(arguments, BINARY.as_ref());
        command.args(["sql", "--format", "csv", "--set", "harrier.distribute_bytes_min=0"]);
        command.args(sql.iter().flat_map(|sql| ["-c", sql]));
        command.output().unwrap()
    }

    /// Builds a job step that runs a program, without its arguments.
    fn step(&self, arguments: &[&str], program: &Path) -> Command {
        let mut command = Command::new("timeout");
        command.env("SLURM_CONF", self.folder.path().join("slurm.conf"));
        // All virtual nodes have one name and address; restricts Open MPI to it.
        command.env("OMPI_MCA_btl", "tcp,self").env("OMPI_MCA_btl_tcp_if_include", "lo");
        command.args(["60", "srun", "--mpi=pmix"]).args(arguments).arg(program);
        command
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.script(&["down", &self.path()]);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn job_steps_run_as_gangs() {
    let Some(cluster) = Cluster::start(2) else { return };
    let data = tempfile::tempdir().unwrap();
    let generation = Command::new(BINARY)
        .args(["generate", "tpch", "--scale", "0.01", "--out"])
        .arg(data.path())
        .output()
        .unwrap();
    assert!(generation.status.success(), "{}", text(&generation.stderr));
    let table = format!("'{}/orders/'", data.path().display());
    let query =
        format!("select o_orderstatus, count(distinct o_custkey) n from {table} group by 1 order by 1");
    let alone = Command::new(BINARY).args(["sql", "--format", "csv", "-c", &query]).output().unwrap();
    assert!(alone.status.success(), "{}", text(&alone.stderr));
    for step in [["-N", "1", "-n", "3"], ["-N", "2", "-n", "4"]] {
        let plan = cluster.srun(&step, &[&format!("explain {query}")]);
        assert!(text(&plan.stdout).contains(&format!("on {} ranks", step[3])), "{plan:?}");
        let answer = cluster.srun(&step, &[&query]);
        assert_eq!(
            (text(&answer.stdout), answer.status.code()),
            (text(&alone.stdout), Some(0)),
            "{answer:?}"
        );
    }
    let failed =
        cluster.srun(&["-N", "1", "-n", "2"], &[&format!("select 1 / (o_orderkey - 1) from {table}")]);
    assert_eq!(failed.status.code(), Some(1), "{failed:?}");
    assert!(text(&failed.stderr).contains("ERROR 22012"), "{failed:?}");
}

#[test]
fn job_steps_run_mpid_programs() {
    let Some(cluster) = Cluster::start(2) else { return };
    let programs = Path::new(BINARY).with_file_name("mpid-programs");
    assert!(programs.is_file(), "mpid-programs is built with the workspace");
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("records");
    let mut generate = Command::new(&programs);
    generate.args(["generate", "records", "--bytes", "2000000", "--files", "3", "--printable", "--out"]);
    let generation = generate.arg(&input).output().unwrap();
    assert!(generation.status.success(), "{}", text(&generation.stderr));
    for program in ["terasort", "wordcount"] {
        let words = |name: &str| {
            let mut words = vec![program.to_string(), "--check".to_string(), "--input".to_string()];
            words.extend([input.display().to_string(), "--output".to_string()]);
            words.push(folder.path().join(name).display().to_string());
            words
        };
        let alone = Command::new(&programs).args(words(&format!("{program}-alone"))).output().unwrap();
        assert!(alone.status.success(), "{}", text(&alone.stderr));
        for step in [["-N", "1", "-n", "3"], ["-N", "2", "-n", "4"]] {
            // A job appends to an existing timeline.
            let timeline = folder.path().join(format!("{program}-{}.timeline", step[3]));
            let mut command = cluster.step(&step, &programs);
            command.args(words(&format!("{program}-{}", step[3]))).env("HARRIER_MPID_TIMELINE", &timeline);
            let answer = command.output().unwrap();
            assert_eq!(
                (text(&answer.stdout), answer.status.code()),
                (text(&alone.stdout), Some(0)),
                "{answer:?}"
            );
            // Every rank has an A task.
            let tasks = std::fs::read_to_string(&timeline).unwrap();
            let ranks: BTreeSet<&str> =
                tasks.lines().skip(1).filter_map(|line| line.split(',').nth(3)).collect();
            assert_eq!(ranks.len().to_string(), step[3], "{tasks}");
        }
    }
}

/// Timeout of every wait for a server.
const PATIENCE: Duration = Duration::from_secs(90);

#[test]
fn server_starts_ranks_in_its_allocation() {
    let Some(cluster) = Cluster::start(1) else { return };
    let folder = tempfile::tempdir().unwrap();
    let log = std::fs::File::create(folder.path().join("log")).unwrap();
    let script = format!(
        "echo $$; exec {BINARY} serve --listen 127.0.0.1:0 --http off --threads 1 \
         --set harrier.distribute_bytes_min=1 --warehouse {}",
        folder.path().join("warehouse").display()
    );
    let mut job = Command::new("salloc")
        .args(["-N", "1", "-n", "2", "sh", "-c", &script])
        .env("SLURM_CONF", cluster.folder.path().join("slurm.conf"))
        .env("OMPI_MCA_btl", "tcp,self")
        .env("OMPI_MCA_btl_tcp_if_include", "lo")
        .env("TMPDIR", folder.path())
        .env("HARRIER_LOG", "info")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(job.stdout.take().unwrap()).lines().map_while(Result::ok);
    let log_text = || std::fs::read_to_string(folder.path().join("log")).unwrap();
    let pid: u32 = lines.next().unwrap_or_else(|| panic!("no job: {}", log_text())).parse().unwrap();
    let way = lines.next().unwrap_or_else(|| panic!("no server: {}", log_text()));
    let ready = lines.next().unwrap();
    let port = ready.strip_prefix("ready: psql -h 127.0.0.1 -p ").unwrap().split(' ').next().unwrap();
    let port: u16 = port.parse().unwrap();
    let tunnel = format!("from outside, ssh -L {port}:127.0.0.1:{port} ");
    assert!(way.starts_with("job ") && way.contains(&tunnel), "{way}");
    let mut client = Client::connect(port, &[]).unwrap();
    let deadline = Instant::now() + PATIENCE;
    // As many ranks as the allocation has tasks.
    while client.one("SELECT count(*) FROM sys.ranks WHERE state = 'working'").as_deref() != Ok("2") {
        assert!(Instant::now() < deadline, "the ranks do not meet: {}", log_text());
        std::thread::sleep(Duration::from_millis(100));
    }
    client.query("CREATE TABLE t AS SELECT x FROM generate_series(1, 10000) s(x)").unwrap();
    assert_eq!(client.one("SELECT sum(x) FROM t").as_deref(), Ok("50005000"));
    let ran = "SELECT on_gang FROM sys.statements WHERE text = 'SELECT sum(x) FROM t'";
    assert_eq!(client.one(ran).as_deref(), Ok("t"));
    drop(client);
    signal(pid, "TERM");
    let status = job.wait().unwrap();
    assert!(status.success(), "{status}: {}", log_text());
}

/// The batch script that ships runs a server until the job is canceled.
#[test]
fn shipped_batch_script_serves_a_warehouse() {
    let Some(cluster) = Cluster::start(1) else { return };
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("output");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/harrier.sbatch");
    let slurm = |program: &str| {
        let mut command = Command::new(program);
        command.env("SLURM_CONF", cluster.folder.path().join("slurm.conf"));
        command
    };
    let path = std::env::var("PATH").unwrap_or_default();
    let submission = slurm("sbatch")
        .args(["--parsable", "-N", "1", "--ntasks-per-node=2", "--cpus-per-task=1", "--time=5", "--output"])
        .arg(&output)
        .arg(script)
        .args(["--http", "off", "--set", "harrier.distribute_bytes_min=1"])
        .env("PATH", format!("{}:{path}", Path::new(BINARY).parent().unwrap().display()))
        .env("LISTEN", "127.0.0.1:0")
        .env("WAREHOUSE", folder.path().join("warehouse"))
        .env("TMPDIR", folder.path())
        .env("OMPI_MCA_btl", "tcp,self")
        .env("OMPI_MCA_btl_tcp_if_include", "lo")
        .output()
        .unwrap();
    assert!(submission.status.success(), "{}", text(&submission.stderr));
    let job = text(&submission.stdout).trim().to_string();
    let log_text = || std::fs::read_to_string(&output).unwrap_or_default();
    let deadline = Instant::now() + PATIENCE;
    let port: u16 = loop {
        let port = log_text().lines().find_map(|line| {
            line.strip_prefix("ready: psql -h 127.0.0.1 -p ")?.split(' ').next()?.parse().ok()
        });
        if let Some(port) = port {
            break port;
        }
        assert!(Instant::now() < deadline, "job {job} does not serve: {}", log_text());
        std::thread::sleep(Duration::from_millis(100));
    };
    assert!(log_text().contains(&format!("from outside, ssh -L {port}:127.0.0.1:{port} ")), "{}", log_text());
    let mut client = Client::connect(port, &[]).unwrap();
    while client.one("SELECT count(*) FROM sys.ranks WHERE state = 'working'").as_deref() != Ok("2") {
        assert!(Instant::now() < deadline, "the ranks do not meet: {}", log_text());
        std::thread::sleep(Duration::from_millis(100));
    }
    client.query("CREATE TABLE t AS SELECT x FROM generate_series(1, 10000) s(x)").unwrap();
    assert_eq!(client.one("SELECT sum(x) FROM t").as_deref(), Ok("50005000"));
    drop(client);
    // Slurm sends SIGTERM a minute before the time limit.
    assert!(slurm("scancel").args(["--batch", "--signal=TERM", &job]).status().unwrap().success());
    let state = || {
        let job_info = slurm("scontrol").args(["show", "job", &job]).output().unwrap();
        text(&job_info.stdout)
            .split_whitespace()
            .find_map(|word| word.strip_prefix("JobState=").map(str::to_string))
    };
    while state().as_deref() == Some("RUNNING") || state().as_deref() == Some("COMPLETING") {
        assert!(Instant::now() < deadline + PATIENCE, "job {job} does not end: {}", log_text());
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(state().as_deref(), Some("COMPLETED"), "{}", log_text());
}

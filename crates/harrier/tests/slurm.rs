//! `srun harrier sql`: a job step is a gang. Runs on a throw-away Slurm cluster of this machine (`scripts/slurm.sh`), which
//! needs root and Debian's packages; where it cannot be had the test says so and passes.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const BINARY: &str = env!("CARGO_BIN_EXE_harrier");

struct Cluster {
    script: PathBuf,
    folder: tempfile::TempDir,
}

impl Cluster {
    fn start(nodes: u32) -> Option<Cluster> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/slurm.sh");
        let folder = tempfile::tempdir().unwrap();
        let cluster = Cluster { script, folder };
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
        let mut command = Command::new("timeout");
        command.env("SLURM_CONF", self.folder.path().join("slurm.conf"));
        // The virtual nodes have one name and one address: let Open MPI use nothing else between them.
        command.env("OMPI_MCA_btl", "tcp,self").env("OMPI_MCA_btl_tcp_if_include", "lo");
        command.args(["60", "srun", "--mpi=pmix"]).args(arguments).arg(BINARY);
        command.args(["sql", "--format", "csv", "--set", "harrier.distribute_bytes_min=0"]);
        command.args(sql.iter().flat_map(|sql| ["-c", sql]));
        command.output().unwrap()
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
fn a_job_step_is_a_gang() {
    let Some(cluster) = Cluster::start(2) else { return };
    let data = tempfile::tempdir().unwrap();
    let made = Command::new(BINARY)
        .args(["generate", "tpch", "--scale", "0.01", "--out"])
        .arg(data.path())
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", text(&made.stderr));
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

//! Sandbox of a page: a virtual machine made of Linux namespaces, in which the names, folders and ports of
//! the page are free.
//!
//! Its host name is `alpha`. A second host, `beta`, shares files and processes; the network connects only the
//! two, and `ssh` reaches both. The user is `maria` with an empty home folder. `/shared`, `/data`,
//! `/backups`, `/etc/harrier` and `/var/log/harrier` are empty folders that she may write to, and
//! `/source/harrier` is the checkout with its build. The rest of the file system is the host's.
//!
//! Its processes end with the sandbox, and the sandbox ends with this process. Source: namespaces(7),
//! unshare(1), nsenter(1).

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_harrier");

/// Creates the namespaces, prints the process id of its init process as seen outside, and runs until its
/// standard input ends. `$1` is the folder of the sandbox; the user is mapped to root.
const MACHINE: &str = r#"
set -e
exec 4<&0
folder=$1 root=$1/root
read -r pid _ </proc/self/stat
mount --make-rprivate /
mount -t tmpfs tmpfs "$root"
# Shows a path as it is outside.
take() {
    if [ -L "$1" ]; then ln -s "$(readlink "$1")" "$root$1"
    elif [ -d "$1" ]; then mkdir "$root$1"; mount --rbind "$1" "$root$1"
    else : >"$root$1"; mount --bind "$1" "$root$1"
    fi
}
# Shows what is in a folder, beside which others may stand then.
spread() {
    mkdir -p "$root$1"
    for path in "${1%/}"/*; do
        case $path in
            */\* | /proc | /home/maria | /etc/harrier | /var/log/harrier) ;;
            /etc/passwd | /etc/hosts | /shared | /data | /backups | /source) ;;
            /etc | /home | /var | /var/log) spread "$path" ;;
            *) take "$path" ;;
        esac
    done
}
spread /
mkdir "$root/proc"
mount -t proc proc "$root/proc"
# Open MPI names its memory by host and process, which are the same in other sandboxes.
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
for path in /home/maria /shared /data /backups /source /etc/harrier /var/log/harrier; do
    mkdir -p "$folder/own$path" "$root$path"
    mount --bind "$folder/own$path" "$root$path"
done
# The first line with a number is its name.
{ echo "maria:x:0:0::/home/maria:/bin/sh"; cat /etc/passwd; } >"$root/etc/passwd"
printf '127.0.0.1 localhost db minio.lab\n198.18.0.1 alpha\n198.18.0.2 beta\n' >"$root/etc/hosts"
hostname alpha
ip link set lo up
# The other host. The addresses are for tests (RFC 2544).
chroot "$root" unshare --net --uts sh -c 'hostname beta; ip link set lo up; echo; cat' <&4 >"$folder/up" &
beta=$!
until [ -s "$folder/up" ]; do sleep 0.01; done
echo "$beta" >"$folder/beta"
ip link add eth0 type veth peer name eth1
chroot "$root" ip link set eth1 netns "$beta"
chroot "$root" nsenter --target "$beta" --net sh -c '
    ip link set eth1 name eth0
    ip address add 198.18.0.2/24 dev eth0
    ip link set eth0 up'
ip address add 198.18.0.1/24 dev eth0
ip link set eth0 up
# The first process: until its input ends it waits for all whose parents have ended.
exec chroot "$root" sh -c 'exec 3<&0; echo "$1"; cat <&3 >/dev/null & wait $!' sh "$pid"
"#;

/// Requirements of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// `mpirun`.
    Mpi,
    /// `mpiexec.mpich`, beside another MPI.
    Mpich,
    /// psql and pg_dump.
    Psql,
    /// Python with pandas, pyarrow and psycopg.
    Python,
    /// Four nodes, and `srun` and `sbatch`.
    Slurm,
    /// A server at db:5432 with the role `me` and the database `lake`.
    Postgres,
    /// A server of S3 at `http://minio.lab:9000`, which the environment names, with the credentials `me` and
    /// `my-secret` and the buckets `bucket`, `raw` and `logs`.
    S3,
}

impl Need {
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "mpi" => Self::Mpi,
            "mpich" => Self::Mpich,
            "psql" => Self::Psql,
            "python" => Self::Python,
            "slurm" => Self::Slurm,
            "postgres" => Self::Postgres,
            "s3" => Self::S3,
            _ => return None,
        })
    }
}

/// First requirement that is not available or skipped by the environment. With `HARRIER_REQUIRE_SERVERS=1`
/// and `HARRIER_REQUIRE_ALL_MPI=1` a missing requirement is a failure.
pub fn missing(needs: &BTreeSet<Need>) -> Option<String> {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| value == "1");
    for need in needs {
        let (skips, requires) = match need {
            Need::Mpi | Need::Mpich => ("HARRIER_SKIP_MPI", "HARRIER_REQUIRE_ALL_MPI"),
            _ => ("HARRIER_SKIP_SERVERS", "HARRIER_REQUIRE_SERVERS"),
        };
        if is_set(skips) {
            return Some(format!("{skips} is set"));
        }
        let is_there = match need {
            Need::Mpi => harrier_launch::on_path("mpirun").is_some(),
            Need::Mpich => harrier_launch::on_path("mpiexec.mpich").is_some(),
            Need::Psql => harrier_launch::on_path("psql").is_some(),
            Need::Python => harrier_servers::clients_python().is_some(),
            Need::Slurm => is_ok(Command::new(script("slurm.sh")).arg("install")),
            Need::Postgres => harrier_servers::installation("postgres.sh").is_some(),
            Need::S3 => harrier_servers::installation("s3.sh").is_some(),
        };
        assert!(is_there || !is_set(requires), "absent: {need:?}");
        if !is_there {
            return Some(format!("{need:?} is not installed and could not be"));
        }
    }
    None
}

fn is_ok(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

fn script(name: &str) -> PathBuf {
    crate::root().join("scripts").join(name)
}

pub struct Sandbox {
    first: Child,
    pid: u32,
    folder: TempDir,
    environment: Vec<(String, String)>,
}

impl Sandbox {
    /// Starts a sandbox with the required servers.
    ///
    /// Errors: this user may not create namespaces.
    ///
    /// Panics: a server does not start.
    pub fn start(needs: &BTreeSet<Need>) -> Result<Self, String> {
        let hidden = ["/shared", "/data", "/backups", "/source"].map(Path::new);
        let own = [crate::root(), PathBuf::from(BINARY)];
        if let Some(path) = own.iter().find(|path| hidden.iter().any(|folder| path.starts_with(folder))) {
            return Err(format!("{} is in a folder that pages have for themselves", path.display()));
        }
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        for name in ["root", "tmp", "bin", "steps"] {
            fs::create_dir(folder.path().join(name)).map_err(|error| error.to_string())?;
        }
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "--kill-child"]);
        if !is_root() {
            unshare.args(["--user", "--map-root-user"]);
        }
        let mut first = unshare
            .args(["sh", "-c", MACHINE, "sh"])
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(folder.path().join("log")).map_err(|error| error.to_string())?)
            .spawn()
            .map_err(|error| format!("unshare: {error}"))?;
        let mut line = String::new();
        let read = BufReader::new(first.stdout.take().expect("piped")).read_line(&mut line);
        let Some(pid) = read.ok().and_then(|_| line.trim().parse().ok()) else {
            let _ = first.wait();
            let log = fs::read_to_string(folder.path().join("log")).unwrap_or_default();
            return Err(format!("namespaces cannot be made here: {}", log.trim()));
        };
        let environment = environment(folder.path());
        show_checkout(&folder.path().join("own/source/harrier"));
        let mut sandbox = Self { first, pid, folder, environment };
        needs.iter().for_each(|need| sandbox.provide(*need));
        Ok(sandbox)
    }

    /// A folder visible under the same path on both sides.
    pub fn steps(&self) -> PathBuf {
        self.folder.path().join("steps")
    }

    /// Builds a command that runs in the sandbox, in the folder `/`.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg("--target").arg(self.pid.to_string());
        command.args(["--mount", "--net", "--pid", "--uts", "--ipc", "--root", "--wd"]);
        if !is_root() {
            command.args(["--user", "--preserve-credentials"]);
        }
        command.arg("--").arg(program);
        command.env_clear().envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null());
        command
    }

    fn provide(&mut self, need: Need) {
        let own = |name: &str| self.folder.path().join(name);
        match need {
            Need::Mpi | Need::Mpich | Need::Psql | Need::Python => {}
            Need::Slurm => {
                let folder = own("slurm");
                let mut up = self.command(&script("slurm.sh").display().to_string());
                run(up.arg("up").arg(&folder).args(["4", "16"]), &own("slurm.log"));
                let configuration = folder.join("slurm.conf").display().to_string();
                for (name, value) in [
                    ("SLURM_CONF", configuration.as_str()),
                    // All nodes have one name; keeps Open MPI from using shared memory between them.
                    ("OMPI_MCA_btl", "tcp,self"),
                    ("OMPI_MCA_btl_tcp_if_include", "lo"),
                ] {
                    self.environment.push((name.to_owned(), value.to_owned()));
                }
            }
            Need::Postgres => {
                let bin = harrier_servers::installation("postgres.sh").expect("it was there");
                let mut start = self.command("sh");
                start.args(["-c", POSTGRES, "sh"]).arg(own("postgres")).arg(bin);
                run(&mut start, &own("postgres.log"));
            }
            Need::S3 => {
                let program = harrier_servers::installation("s3.sh").expect("it was there");
                let mut start = self.command("sh");
                start.args(["-c", S3, "sh"]).arg(own("s3")).arg(program);
                run(&mut start, &own("s3.log"));
                for (name, value) in
                    [("AWS_ENDPOINT_URL", "http://minio.lab:9000"), ("AWS_ALLOW_HTTP", "true")]
                {
                    self.environment.push((name.to_owned(), value.to_owned()));
                }
            }
        }
    }
}

/// `$1`: folder to create, `$2`: folder of the server's programs.
const POSTGRES: &str = r#"
set -e
mkdir "$1"
as() { if id postgres >/dev/null 2>&1; then runuser -u postgres -- "$@"; else "$@"; fi; }
if id postgres >/dev/null 2>&1; then chown postgres "$1"; fi
cd "$1"
as "$2/initdb" -D data -A trust -U me --encoding=UTF8 --locale=C
as "$2/pg_ctl" -D data -w -l server.log -o "-p 5432 -c unix_socket_directories= -c fsync=off" start
as "$2/psql" -h 127.0.0.1 -U me -d postgres -c 'CREATE DATABASE lake'
"#;

/// `$1`: folder to create, `$2`: the server. Subfolders of its data are buckets.
const S3: &str = r#"
set -e
mkdir -p "$1/data/bucket" "$1/data/raw" "$1/data/logs"
ROOT_ACCESS_KEY=me ROOT_SECRET_KEY=my-secret "$2" --port 127.0.0.1:9000 --quiet posix "$1/data" &
until curl -s -o /dev/null http://127.0.0.1:9000/; do kill -0 $!; sleep 0.1; done
"#;

/// Panics: the command fails.
fn run(command: &mut Command, log: &Path) {
    let file = fs::File::create(log).expect("a file");
    let status = command.stdout(file.try_clone().expect("a file")).stderr(file).status();
    let log_text = fs::read_to_string(log).unwrap_or_default();
    assert!(status.is_ok_and(|status| status.success()), "{}: {log_text}", log.display());
}

/// Implementation of `ssh HOST COMMAND`; Hydra passes options before HOST.
const SSH: &str = r#"#!/bin/sh
while :; do
    case $1 in
        -[bcDEeFIiJLlmOopQRSWw]) shift 2 ;;
        -*) shift ;;
        *) break ;;
    esac
done
host=$1
shift
cd
case $host in
    alpha) exec sh -c "$*" ;;
    beta) exec nsenter --target "$(cat "${0%/*}/../beta")" --net --uts sh -c "$*" ;;
esac
echo "ssh: Could not resolve hostname $host" >&2
exit 255
"#;

/// Environment of an interactive user. Allows more ranks than processors, and root as user, which Open MPI
/// refuses by default.
fn environment(folder: &Path) -> Vec<(String, String)> {
    let programs = Path::new(BINARY).parent().expect("it is in a folder");
    for name in ["harrier", "mpid-programs", "mpidrun"] {
        symlink(programs.join(name), folder.join("bin").join(name)).expect("a link");
    }
    let ssh = folder.join("bin/ssh");
    fs::write(&ssh, SSH).expect("a file");
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).expect("its owner may");
    let clients = crate::root().join(".harrier/clients/python/bin");
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{}:{path}:/usr/sbin:/sbin", folder.join("bin").display(), clients.display());
    let tmp = folder.join("tmp").display().to_string();
    let fixed = [
        ("PATH", path.as_str()),
        ("HOME", "/home/maria"),
        ("USER", "maria"),
        ("LOGNAME", "maria"),
        ("SHELL", "/bin/sh"),
        ("LANG", "C.UTF-8"),
        ("TZ", "UTC"),
        ("TMPDIR", &tmp),
        ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
        ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
        ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
        ("OMPI_MCA_hwloc_base_binding_policy", "none"),
        ("OMPI_MCA_mpi_yield_when_idle", "1"),
    ];
    fixed.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

/// Mounts the checkout without its build output, in which this test lies.
fn show_checkout(folder: &Path) {
    fs::create_dir_all(folder.join("target")).expect("a folder");
    for entry in fs::read_dir(crate::root()).expect("the checkout").flatten() {
        if entry.file_name() != "target" {
            symlink(entry.path(), folder.join(entry.file_name())).expect("a link");
        }
    }
    let built = Path::new(BINARY).parent().expect("it is in a folder");
    let release = folder.join("target/release");
    fs::create_dir(&release).expect("a folder");
    for entry in fs::read_dir(built).expect("what was built").flatten() {
        symlink(entry.path(), release.join(entry.file_name())).expect("a link");
    }
    // Libraries built for tests only are in another folder.
    let library = "libmpid.so";
    if !release.join(library).exists() {
        let _ = fs::remove_file(release.join(library));
        symlink(built.join("deps").join(library), release.join(library)).expect("a link");
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // Killing the init process ends all others.
        drop(self.first.stdin.take());
        let _ = self.first.wait();
    }
}

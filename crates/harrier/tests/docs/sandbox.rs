//! Where a page runs: a machine of its own made of namespaces, on which the names, folders and ports of the
//! text are free.
//!
//! It is called `alpha`. There is another host, `beta`, with the same files and processes, and a network
//! between the two, which leads nowhere else; `ssh` goes to both. The user is `maria`, whose home folder is
//! empty. `/shared`, `/data`, `/backups`, `/etc/harrier` and `/var/log/harrier` are empty folders that she
//! may write to, and `/source/harrier` is the checkout, built. All else of the file system is as outside.
//!
//! What runs there ends with it, and it ends with this process. Source: namespaces(7), unshare(1),
//! nsenter(1).

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_harrier");

/// Makes the machine, prints the process id of its first process as others see it, and stays until its
/// standard input ends. `$1` is the folder of the sandbox; the user's number here is that of root.
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

/// What a page cannot do without.
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

/// What is not there, or what whoever runs the tests wants to do without. With `HARRIER_REQUIRE_SERVERS=1`
/// and `HARRIER_REQUIRE_ALL_MPI=1` what is not there is a failure.
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
    /// With the servers that are needed.
    ///
    /// Errors: namespaces cannot be made here, which is so where the user may not.
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

    /// A folder that both sides see under the same name.
    pub fn steps(&self) -> PathBuf {
        self.folder.path().join("steps")
    }

    /// A program on the machine, its arguments to come; in the folder `/`.
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
                    // The nodes have one name: let Open MPI not take them for one host, with shared memory.
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

/// `$1`: a folder to be made, `$2`: the server's programs.
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

/// `$1`: a folder to be made, `$2`: the server. Folders of its data are buckets.
const S3: &str = r#"
set -e
mkdir -p "$1/data/bucket" "$1/data/raw" "$1/data/logs"
ROOT_ACCESS_KEY=me ROOT_SECRET_KEY=my-secret "$2" --port 127.0.0.1:9000 --quiet posix "$1/data" &
until curl -s -o /dev/null http://127.0.0.1:9000/; do kill -0 $!; sleep 0.1; done
"#;

/// Panics: it fails.
fn run(command: &mut Command, log: &Path) {
    let file = fs::File::create(log).expect("a file");
    let status = command.stdout(file.try_clone().expect("a file")).stderr(file).status();
    let said = fs::read_to_string(log).unwrap_or_default();
    assert!(status.is_ok_and(|status| status.success()), "{}: {said}", log.display());
}

/// What `ssh HOST COMMAND` is; Hydra gives options before that.
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

/// Of a person at a terminal. Ranks may be more than there are processors, and root may start them, which
/// Open MPI does not let happen by itself.
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

/// All that is in the checkout but what was built, which is where this test is.
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
    // Libraries that only tests have asked for are there alone.
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
        // With the first process of the machine all others end.
        drop(self.first.stdin.take());
        let _ = self.first.wait();
    }
}

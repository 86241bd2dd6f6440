//! The hosts that ranks are started on: which of them answer, which rank goes where, and which are back.
//!
//! ```text
//!   hosts file ─► hosts that answer ─► a line for each rank ─► launcher        while the gang runs: who is away, and who is back?
//!                 (remote shell)       (slots, and moves of operators)
//! ```
//!
//! # Invariants
//! The first host of the file is the one that the server runs on, and rank 0 is on it: its desk is a local
//! socket. A host that does not answer is left out, and its ranks go to the others, so that a gang is whole
//! again as long as one host is left.
//!
//! # Errors
//! A hosts file that cannot be read, or names no host, is told as why the gang is not started.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use futures::future::join_all;
use harrier_error::SqlState;
use parking_lot::Mutex;
use tokio::process::Command;
use tokio::time::{sleep, timeout};

/// How long a host may take to answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(4);

/// How often it is looked whether hosts are back, or still there while a gang starts.
const LOOK: Duration = Duration::from_secs(1);

/// Looks in a row at which a host has to answer before it gets ranks again, and not to answer before a start
/// is given up.
const LOOKS_STEADY: u32 = 3;

/// What Open MPI's launcher starts programs on other hosts with, if the environment says so.
const OPEN_MPI_SHELL: &str = "OMPI_MCA_plm_rsh_agent";

/// A line of a hosts file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Host {
    name: String,
    /// Ranks that it gets before the next host gets one.
    slots: usize,
}

/// Where the ranks of a server may be, and are.
#[derive(Debug)]
pub(super) struct Hosts {
    path: PathBuf,
    /// Runs a program on another host: this, the host's name, the program. Empty: there is none, and nobody
    /// is asked.
    shell: Vec<String>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Where operators want ranks, by number.
    moved: BTreeMap<usize, String>,
    /// Hosts that have answered at some time.
    known: BTreeSet<String>,
    /// Hosts that were left out, or all of whose ranks were lost, and how often in a row they have answered
    /// since.
    away: BTreeMap<String, u32>,
    /// Of every rank of the gang, by number.
    placed: Vec<String>,
}

impl Hosts {
    /// `shell`: the command line that runs a program on another host.
    pub(super) fn new(path: PathBuf, shell: &str) -> Self {
        let mut shell = shell.to_string();
        if shell == "ssh"
            && let Ok(agent) = std::env::var(OPEN_MPI_SHELL)
        {
            shell = agent;
        }
        let mut words: Vec<String> = shell.split_whitespace().map(str::to_string).collect();
        if words == ["ssh"] {
            // Nobody is there to be asked for a password.
            words.extend(["-o", "BatchMode=yes", "-o", "ConnectTimeout=3"].map(str::to_string));
        }
        if words == ["none"] {
            words.clear();
        }
        Self { path, shell: words, state: Mutex::default() }
    }

    fn read(&self) -> Result<Vec<Host>, String> {
        let path = self.path.display();
        let text = fs::read_to_string(&self.path).map_err(|error| format!("cannot read {path}: {error}"))?;
        let hosts = parsed(&text);
        if hosts.is_empty() { Err(format!("{path} names no host")) } else { Ok(hosts) }
    }

    /// Whether a host answers.
    async fn answers(&self, host: &str) -> bool {
        let Some((program, arguments)) = self.shell.split_first() else {
            return true;
        };
        let mut command = Command::new(program);
        command.args(arguments).args([host, "true"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        let answers =
            matches!(timeout(ANSWER_PATIENCE, command.status()).await, Ok(Ok(status)) if status.success());
        if answers {
            self.state.lock().known.insert(host.to_string());
        }
        answers
    }

    /// Those that do not answer, of others than the first.
    async fn silent(&self, hosts: &[Host]) -> BTreeSet<String> {
        let others = hosts.iter().skip(1).filter(|host| host.name != hosts[0].name);
        let asked = others.map(|host| async { (!self.answers(&host.name).await).then(|| host.name.clone()) });
        join_all(asked).await.into_iter().flatten().collect()
    }

    /// Decides where `count` ranks go, and writes that to `path` for a launcher: a line for each. `failures`:
    /// starts that have failed since the last gang. A host that has never answered is left out only after
    /// such a one: it may be reached in a way that is not known here.
    ///
    /// Errors: for people.
    pub(super) async fn place(
        &self,
        count: usize,
        failures: u32,
        path: &Path,
        line: fn(&str) -> String,
    ) -> Result<(), String> {
        let hosts = self.read()?;
        let silent = self.silent(&hosts).await;
        let mut state = self.state.lock();
        let is_away =
            |host: &Host| silent.contains(&host.name) && (failures > 0 || state.known.contains(&host.name));
        let (away, present): (Vec<Host>, Vec<Host>) = hosts.into_iter().partition(is_away);
        for host in &away {
            tracing::warn!(host = host.name, "a host does not answer and gets no ranks");
        }
        let placed = placement(&present, count, &state.moved);
        state.away = away.into_iter().map(|host| (host.name, 0)).collect();
        let lines: String = placed.iter().map(|host| line(host)).collect();
        state.placed = placed;
        fs::write(path, lines).map_err(|error| format!("cannot write {}: {error}", path.display()))
    }

    /// Waits until a host that was just given ranks does not answer any more.
    pub(super) async fn vanished(&self) -> String {
        let mut missed = BTreeMap::new();
        loop {
            sleep(LOOK).await;
            let hosts: Vec<Host> = {
                let placed = &self.state.lock().placed;
                placed.iter().map(|name| Host { name: name.clone(), slots: 1 }).collect()
            };
            let silent = self.silent(&hosts).await;
            let known: Vec<String> =
                silent.into_iter().filter(|host| self.state.lock().known.contains(host)).collect();
            missed.retain(|host, _| known.contains(host));
            for host in known {
                let looks: &mut u32 = missed.entry(host.clone()).or_default();
                *looks += 1;
                if *looks == LOOKS_STEADY {
                    return host;
                }
            }
        }
    }

    /// Waits until a host that is away has answered for some time. `lost`: of every rank of the gang, whether
    /// it is lost.
    pub(super) async fn returned(&self, lost: impl Fn() -> Vec<bool>) -> String {
        loop {
            sleep(LOOK).await;
            self.note_lost(&lost());
            let away: Vec<String> = self.state.lock().away.keys().cloned().collect();
            let asked = away.into_iter().map(|host| async {
                let answers = self.answers(&host).await;
                (host, answers)
            });
            for (host, answers) in join_all(asked).await {
                let mut state = self.state.lock();
                let looks = state.away.entry(host.clone()).or_default();
                *looks = if answers { *looks + 1 } else { 0 };
                if *looks >= LOOKS_STEADY {
                    return host;
                }
            }
        }
    }

    /// A host that has lost all its ranks was cut off, or ended; the server's own is where it runs.
    fn note_lost(&self, lost: &[bool]) {
        let mut state = self.state.lock();
        let is_lost = |rank: usize| lost.get(rank).copied().unwrap_or(false);
        let placed = state.placed.clone();
        for host in placed.iter().filter(|host| Some(*host) != placed.first()) {
            let mut ranks = (0..placed.len()).filter(|rank| placed[*rank] == *host);
            if ranks.all(is_lost) && !self.shell.is_empty() {
                state.away.entry(host.clone()).or_default();
            }
        }
    }

    /// Has a rank be on another host from the next start on. Returns whether it is elsewhere now.
    ///
    /// Errors: SQLSTATE and message; there is no such host (22023), or it does not get ranks at the moment
    /// (55000).
    pub(super) fn move_rank(&self, rank: usize, name: &str) -> Result<bool, (SqlState, String)> {
        let hosts = self.read().map_err(|message| (SqlState::IO_ERROR, message))?;
        if !hosts.iter().any(|host| host.name == name) {
            let names: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
            let message = format!("the hosts file names no host \"{name}\", but {}", names.join(", "));
            return Err((SqlState::INVALID_PARAMETER_VALUE, message));
        }
        let mut state = self.state.lock();
        if state.away.contains_key(name) {
            return Err((
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("host \"{name}\" does not answer"),
            ));
        }
        state.moved.insert(rank, name.to_string());
        Ok(state.placed.get(rank).is_none_or(|host| host != name))
    }
}

/// What a hosts file of Open MPI (`name slots=2`) or of Hydra (`name:2`) says. A line without a number is one
/// slot, and a host that is named again gets more.
fn parsed(text: &str) -> Vec<Host> {
    let line = |line: &str| {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let first = words.next()?;
        let told = words.find_map(|word| word.strip_prefix("slots=")?.parse().ok());
        let (name, slots) = match first.rsplit_once(':') {
            Some((name, slots)) if slots.parse::<usize>().is_ok() => (name, slots.parse().ok()),
            _ => (first, told),
        };
        Some(Host { name: name.to_string(), slots: slots.unwrap_or(1) })
    };
    text.lines().filter_map(line).filter(|host| host.slots > 0).collect()
}

/// Hosts for `count` ranks: all slots of the file in its order, and again from its beginning when they are
/// used up. Moved ranks are where they were moved to, if that is among `hosts`.
fn placement(hosts: &[Host], count: usize, moved: &BTreeMap<usize, String>) -> Vec<String> {
    let slots = hosts.iter().flat_map(|host| std::iter::repeat_n(&host.name, host.slots));
    let mut placed: Vec<String> = slots.cycle().take(count).cloned().collect();
    for (rank, name) in moved {
        if *rank > 0 && *rank < count && hosts.iter().any(|host| host.name == *name) {
            placed[*rank].clone_from(name);
        }
    }
    placed
}

/// What tells Open MPI's launcher of a remote shell that is not its own.
pub(super) fn open_mpi_shell(shell: &str) -> Vec<OsString> {
    match shell {
        "ssh" | "none" => vec![],
        shell => ["--mca", "plm_rsh_agent", shell].map(OsString::from).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str, count: usize, moved: &[(usize, &str)]) -> String {
        let moved = moved.iter().map(|(rank, name)| (*rank, name.to_string())).collect();
        placement(&parsed(text), count, &moved).join(" ")
    }

    #[test]
    fn ranks_fill_the_slots_in_order_and_begin_again() {
        let cases = [
            ("a\nb\nc\n", 4, "a b c a"),
            ("# here\na slots=2 max_slots=4\n\nb slots=1 # there\n", 4, "a a b a"),
            ("a:2\nb:1\n", 3, "a a b"),
            ("a\nb\na\n", 3, "a b a"),
            ("a slots=0\nb\n", 2, "b b"),
        ];
        for (text, count, expected) in cases {
            assert_eq!(names(text, count, &[]), expected, "{text}");
        }
    }

    #[test]
    fn moved_ranks_are_where_they_were_moved_to() {
        assert_eq!(names("a\nb\nc\n", 3, &[(2, "b")]), "a b b");
        assert_eq!(names("a\nb\n", 3, &[(1, "gone"), (7, "b")]), "a b a");
        // The server's own socket is rank 0's.
        assert_eq!(names("a\nb\n", 2, &[(0, "b")]), "a b");
    }

    fn hosts(folder: &Path, silent: &str) -> Hosts {
        let file = folder.join("hosts");
        fs::write(&file, "here\nfirst\nsecond\n").unwrap();
        let shell = folder.join("shell");
        // A host answers unless there is a file of its name. The script is read and not executed: a process
        // that another thread has just forked may hold it open for writing, and then it cannot be (ETXTBSY).
        fs::write(&shell, format!("[ ! -e {}/$1 ]\n", folder.display())).unwrap();
        if !silent.is_empty() {
            fs::write(folder.join(silent), "").unwrap();
        }
        Hosts::new(file, &format!("sh {}", shell.display()))
    }

    async fn placed(hosts: &Hosts, failures: u32, folder: &Path) -> String {
        let path = folder.join("placed");
        hosts.place(3, failures, &path, |host| format!("{host} ")).await.unwrap();
        fs::read_to_string(path).unwrap()
    }

    #[tokio::test]
    async fn hosts_that_are_silent_get_no_ranks_until_they_are_back() {
        let folder = tempfile::tempdir().unwrap();
        let hosts = hosts(folder.path(), "");
        assert_eq!(placed(&hosts, 0, folder.path()).await, "here first second ");
        fs::write(folder.path().join("first"), "").unwrap();
        assert_eq!(placed(&hosts, 0, folder.path()).await, "here second here ");
        assert_eq!(hosts.move_rank(1, "first").unwrap_err().0, "55000");
        assert_eq!(hosts.move_rank(1, "nowhere").unwrap_err().0, "22023");
        fs::remove_file(folder.path().join("first")).unwrap();
        assert_eq!(hosts.returned(|| vec![false; 3]).await, "first");
        assert_eq!(placed(&hosts, 0, folder.path()).await, "here first second ");
        assert_eq!(hosts.move_rank(1, "second"), Ok(true));
        assert_eq!(placed(&hosts, 0, folder.path()).await, "here second second ");
        assert_eq!(hosts.move_rank(1, "second"), Ok(false));
        // A host that lost its ranks is asked, too.
        assert_eq!(hosts.returned(|| vec![false, true, true]).await, "second");
    }

    #[tokio::test]
    async fn a_host_that_never_answered_is_left_out_when_a_start_has_failed() {
        let folder = tempfile::tempdir().unwrap();
        let hosts = hosts(folder.path(), "second");
        assert_eq!(placed(&hosts, 0, folder.path()).await, "here first second ");
        assert_eq!(placed(&hosts, 1, folder.path()).await, "here first here ");
    }
}

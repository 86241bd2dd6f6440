//! Placement of ranks on the hosts of a hosts file, and detection of hosts that fail or return.
//!
//! ```text
//!   hosts file ─► responding hosts ─► a line for each rank ─► launcher, then monitoring while the gang runs
//!                 (remote shell)      (slots, and moves of operators)
//! ```
//!
//! # Invariants
//! The first host of the file is the one that the server runs on, and rank 0 is on it: its desk is a local
//! socket. A host that does not respond is excluded, and its ranks go to the others, so that the gang is
//! complete as long as one host is left.
//!
//! # Errors
//! A hosts file that cannot be read, or lists no host, is reported as the reason why the gang did not start.

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

/// Timeout of a host's response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(4);

/// Interval of checks for returned hosts, and for failed ones while a gang starts.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Consecutive successful checks before a host gets ranks again, and consecutive failed ones before a start
/// is aborted.
const STEADY_CHECKS: u32 = 3;

/// The environment variable of Open MPI's remote shell.
const OPEN_MPI_SHELL: &str = "OMPI_MCA_plm_rsh_agent";

/// A line of a hosts file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Host {
    name: String,
    /// Ranks that it gets before the next host gets one.
    slots: usize,
}

/// Possible and actual hosts of a server's ranks.
#[derive(Debug)]
pub(super) struct Hosts {
    path: PathBuf,
    /// Command prefix that runs a program on another host: this, the host's name, the program. Empty: none,
    /// and hosts count as responders.
    shell: Vec<String>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Hosts requested by operators, by rank number.
    moved: BTreeMap<usize, String>,
    /// Hosts that have responded at some time.
    responders: BTreeSet<String>,
    /// Hosts that were excluded, or lost all their ranks, and the number of consecutive responses since.
    away: BTreeMap<String, u32>,
    /// Host of every rank of the gang, by number.
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
            // Nobody can answer a password prompt.
            words.extend(["-o", "BatchMode=yes", "-o", "ConnectTimeout=3"].map(str::to_string));
        }
        if words == ["none"] {
            words.clear();
        }
        Self { path, shell: words, state: Mutex::default() }
    }

    fn read_file(&self) -> Result<Vec<Host>, String> {
        let path = self.path.display();
        let text = fs::read_to_string(&self.path).map_err(|error| format!("cannot read {path}: {error}"))?;
        let hosts = parse(&text);
        if hosts.is_empty() { Err(format!("{path} names no host")) } else { Ok(hosts) }
    }

    /// Whether a host responds.
    async fn responds(&self, host: &str) -> bool {
        let Some((program, arguments)) = self.shell.split_first() else {
            return true;
        };
        let mut command = Command::new(program);
        command.args(arguments).args([host, "true"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        let answers =
            matches!(timeout(RESPONSE_TIMEOUT, command.status()).await, Ok(Ok(status)) if status.success());
        if answers {
            self.state.lock().responders.insert(host.to_string());
        }
        answers
    }

    /// The hosts, except the first, that do not respond.
    async fn unresponsive(&self, hosts: &[Host]) -> BTreeSet<String> {
        let others = hosts.iter().skip(1).filter(|host| host.name != hosts[0].name);
        let asked =
            others.map(|host| async { (!self.responds(&host.name).await).then(|| host.name.clone()) });
        join_all(asked).await.into_iter().flatten().collect()
    }

    /// Places `count` ranks, and writes the placement to `path` for a launcher: one line for each rank.
    /// `failures`: failed starts since the last gang. A host that has never responded is excluded only after
    /// a failure: the launcher may reach it in a way that is unknown here.
    ///
    /// Errors: messages for the user.
    pub(super) async fn place(
        &self,
        count: usize,
        failures: u32,
        path: &Path,
        line: fn(&str) -> String,
    ) -> Result<(), String> {
        let hosts = self.read_file()?;
        let silent = self.unresponsive(&hosts).await;
        let mut state = self.state.lock();
        let is_away = |host: &Host| {
            silent.contains(&host.name) && (failures > 0 || state.responders.contains(&host.name))
        };
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

    /// Waits until a host with ranks stops responders.
    pub(super) async fn wait_for_failure(&self) -> String {
        let mut missed = BTreeMap::new();
        loop {
            sleep(POLL_INTERVAL).await;
            let hosts: Vec<Host> = {
                let placed = &self.state.lock().placed;
                placed.iter().map(|name| Host { name: name.clone(), slots: 1 }).collect()
            };
            let silent = self.unresponsive(&hosts).await;
            let known: Vec<String> =
                silent.into_iter().filter(|host| self.state.lock().responders.contains(host)).collect();
            missed.retain(|host, _| known.contains(host));
            for host in known {
                let checks: &mut u32 = missed.entry(host.clone()).or_default();
                *checks += 1;
                if *checks == STEADY_CHECKS {
                    return host;
                }
            }
        }
    }

    /// Waits until an absent host has responded for some time. `lost`: for every rank of the gang, whether it
    /// is lost.
    pub(super) async fn wait_for_return(&self, lost: impl Fn() -> Vec<bool>) -> String {
        loop {
            sleep(POLL_INTERVAL).await;
            self.note_lost(&lost());
            let away: Vec<String> = self.state.lock().away.keys().cloned().collect();
            let asked = away.into_iter().map(|host| async {
                let answers = self.responds(&host).await;
                (host, answers)
            });
            for (host, answers) in join_all(asked).await {
                let mut state = self.state.lock();
                let checks = state.away.entry(host.clone()).or_default();
                *checks = if answers { *checks + 1 } else { 0 };
                if *checks >= STEADY_CHECKS {
                    return host;
                }
            }
        }
    }

    /// Marks hosts that lost all their ranks as away; the server's own host is excepted.
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

    /// Moves a rank to another host at the next start. Returns whether the host changes.
    ///
    /// Errors: SQLSTATE and message; no such host (22023), or it gets no ranks at the moment (55000).
    pub(super) fn move_rank(&self, rank: usize, name: &str) -> Result<bool, (SqlState, String)> {
        let hosts = self.read_file().map_err(|message| (SqlState::IO_ERROR, message))?;
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

/// Parses a hosts file of Open MPI (`name slots=2`) or of Hydra (`name:2`). A line without a number is one
/// slot; a repeated host gets more.
fn parse(text: &str) -> Vec<Host> {
    let line = |line: &str| {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let first = words.next()?;
        let slots_option = words.find_map(|word| word.strip_prefix("slots=")?.parse().ok());
        let (name, slots) = match first.rsplit_once(':') {
            Some((name, slots)) if slots.parse::<usize>().is_ok() => (name, slots.parse().ok()),
            _ => (first, slots_option),
        };
        Some(Host { name: name.to_string(), slots: slots.unwrap_or(1) })
    };
    text.lines().filter_map(line).filter(|host| host.slots > 0).collect()
}

/// Hosts for `count` ranks: all slots in file order, then again from the beginning. Moved ranks go to their
/// requested host, if that is among `hosts`.
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

/// Arguments that set a non-default remote shell in Open MPI's launcher.
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
        placement(&parse(text), count, &moved).join(" ")
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
    fn moved_ranks_have_their_new_host() {
        assert_eq!(names("a\nb\nc\n", 3, &[(2, "b")]), "a b b");
        assert_eq!(names("a\nb\n", 3, &[(1, "gone"), (7, "b")]), "a b a");
        // Rank 0 stays on the server's host, with its local socket.
        assert_eq!(names("a\nb\n", 2, &[(0, "b")]), "a b");
    }

    fn hosts(folder: &Path, silent: &str) -> Hosts {
        let file = folder.join("hosts");
        fs::write(&file, "here\nfirst\nsecond\n").unwrap();
        let shell = folder.join("shell");
        // A host responds unless there is a file of its name. The script is read and not executed: a process
        // that another thread has just forked may hold it open for writing, and executing it would fail
        // (ETXTBSY).
        fs::write(&shell, format!("[ ! -e {}/$1 ]\n", folder.display())).unwrap();
        if !silent.is_empty() {
            fs::write(folder.join(silent), "").unwrap();
        }
        Hosts::new(file, &format!("sh {}", shell.display()))
    }

    async fn place(hosts: &Hosts, failures: u32, folder: &Path) -> String {
        let path = folder.join("placed");
        hosts.place(3, failures, &path, |host| format!("{host} ")).await.unwrap();
        fs::read_to_string(path).unwrap()
    }

    #[tokio::test]
    async fn silent_hosts_get_no_ranks_until_they_return() {
        let folder = tempfile::tempdir().unwrap();
        let hosts = hosts(folder.path(), "");
        assert_eq!(place(&hosts, 0, folder.path()).await, "here first second ");
        fs::write(folder.path().join("first"), "").unwrap();
        assert_eq!(place(&hosts, 0, folder.path()).await, "here second here ");
        assert_eq!(hosts.move_rank(1, "first").unwrap_err().0, "55000");
        assert_eq!(hosts.move_rank(1, "nowhere").unwrap_err().0, "22023");
        fs::remove_file(folder.path().join("first")).unwrap();
        assert_eq!(hosts.wait_for_return(|| vec![false; 3]).await, "first");
        assert_eq!(place(&hosts, 0, folder.path()).await, "here first second ");
        assert_eq!(hosts.move_rank(1, "second"), Ok(true));
        assert_eq!(place(&hosts, 0, folder.path()).await, "here second second ");
        assert_eq!(hosts.move_rank(1, "second"), Ok(false));
        // A host that lost its ranks is checked as well.
        assert_eq!(hosts.wait_for_return(|| vec![false, true, true]).await, "second");
    }

    #[tokio::test]
    async fn unreachable_hosts_are_excluded_after_a_failed_start() {
        let folder = tempfile::tempdir().unwrap();
        let hosts = hosts(folder.path(), "second");
        assert_eq!(place(&hosts, 0, folder.path()).await, "here first second ");
        assert_eq!(place(&hosts, 1, folder.path()).await, "here first here ");
    }
}

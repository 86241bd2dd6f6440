//! Attendance of ranks before the gang is formed: MPI itself does not report ranks that do not come, and may
//! wait for them for ever inside one call.
//!
//! Before it calls MPI, every rank binds a datagram socket in the abstract namespace, whose name is derived
//! from the launcher's process on its host and its rank. Nothing is sent to it: its existence is the signal.
//! So ranks of one host see one another, and not those of other hosts.

use harrier_mpi::LaunchedProcess;
use nix::unistd::getuid;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The known state of the ranks that this one waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attendance {
    /// This host.
    pub host: String,
    /// The number of ranks, if known.
    pub ranks: Option<usize>,
    /// The number of them started on this host, if known.
    pub ranks_here: Option<usize>,
    /// Ranks on this host that have come, in order.
    pub here: Vec<usize>,
}

impl Attendance {
    /// The ranks that have not come, if known.
    pub fn missing(&self) -> Option<Vec<usize>> {
        let ranks = self.ranks.filter(|ranks| self.ranks_here == Some(*ranks))?;
        Some((0..ranks).filter(|rank| !self.here.contains(rank)).collect())
    }
}

/// This rank's signal to others, while this lives.
pub(crate) struct Presence {
    launched: LaunchedProcess,
    _socket: Option<UnixDatagram>,
}

impl Presence {
    /// `None`: this process was not started by a launcher.
    pub fn announce() -> Option<Presence> {
        let launched = harrier_mpi::detect_launcher().ok().flatten()?;
        let name = name(&launched, launched.rank?)?;
        // Without a socket others only lack a hint about this rank.
        let socket = UnixDatagram::bind_addr(&name).ok();
        Some(Presence { launched, _socket: socket })
    }

    /// The ranks that have come so far.
    pub fn attendance(&self) -> Attendance {
        let host = nix::sys::utsname::uname()
            .map(|names| names.nodename().to_string_lossy().into_owned())
            .unwrap_or_default();
        let LaunchedProcess { ranks, ranks_here, .. } = self.launched;
        let has_come = |rank: &usize| is_there(&self.launched, *rank);
        let here = (0..ranks.unwrap_or(RANKS_CHECKED_MAX)).filter(has_come).collect();
        Attendance { host, ranks, ranks_here, here }
    }
}

/// Ranks to check if their number is unknown.
const RANKS_CHECKED_MAX: usize = 4096;

fn is_there(launched: &LaunchedProcess, rank: usize) -> bool {
    let Some(name) = name(launched, rank) else { return false };
    UnixDatagram::unbound().and_then(|socket| socket.connect_addr(&name)).is_ok()
}

/// `None`: the launcher's process is unknown.
fn name(launched: &LaunchedProcess, rank: usize) -> Option<SocketAddr> {
    let name = format!("harrier-start-{}-{}-{rank}", getuid(), launched.launcher?);
    SocketAddr::from_abstract_name(name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_on_one_host_detect_each_other() {
        let launched = |rank| LaunchedProcess {
            rank: Some(rank),
            ranks: Some(3),
            ranks_here: Some(3),
            launcher: Some(std::process::id()),
            sign: String::new(),
        };
        let come = |rank| {
            let name = name(&launched(rank), rank).unwrap();
            Presence { launched: launched(rank), _socket: Some(UnixDatagram::bind_addr(&name).unwrap()) }
        };
        let (first, last) = (come(0), come(2));
        assert_eq!(first.attendance().here, [0, 2]);
        assert_eq!(first.attendance().missing(), Some(vec![1]));
        drop(last);
        assert_eq!(first.attendance().missing(), Some(vec![1, 2]));
        let elsewhere = Attendance { ranks_here: Some(2), ..first.attendance() };
        assert_eq!(elsewhere.missing(), None);
    }
}

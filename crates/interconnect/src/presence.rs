//! Which ranks of a gang have come, before they have met: MPI itself says nothing of ranks that do not come,
//! and may wait for them for ever inside of one call.
//!
//! Every rank binds a datagram socket in the abstract namespace, whose name follows from the launcher's
//! process on its host and its rank, before it calls MPI. Nothing is sent to it: who wants to know looks
//! whether there is one. So ranks of one host know of one another, and of those elsewhere nothing.

use harrier_mpi::LaunchedProcess;
use nix::unistd::getuid;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// What is known of the ranks that this one waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attendance {
    /// This host.
    pub host: String,
    /// How many ranks there are, if that is known.
    pub ranks: Option<usize>,
    /// How many of them were started on this host, if that is known.
    pub ranks_here: Option<usize>,
    /// Those on this host that have come, in their order.
    pub here: Vec<usize>,
}

impl Attendance {
    /// The ranks that have not come, if it is known which.
    pub fn missing(&self) -> Option<Vec<usize>> {
        let ranks = self.ranks.filter(|ranks| self.ranks_here == Some(*ranks))?;
        Some((0..ranks).filter(|rank| !self.here.contains(rank)).collect())
    }
}

/// This rank, as others see it as long as this lives.
pub(crate) struct Presence {
    launched: LaunchedProcess,
    _socket: Option<UnixDatagram>,
}

impl Presence {
    /// `None`: no launcher tells of this process.
    pub fn announce() -> Option<Presence> {
        let launched = harrier_mpi::detect_launcher().ok().flatten()?;
        let name = name(&launched, launched.rank?)?;
        // One that cannot be had costs others a word about this rank.
        let socket = UnixDatagram::bind_addr(&name).ok();
        Some(Presence { launched, _socket: socket })
    }

    /// Who has come until now.
    pub fn look(&self) -> Attendance {
        let host = nix::sys::utsname::uname()
            .map(|names| names.nodename().to_string_lossy().into_owned())
            .unwrap_or_default();
        let LaunchedProcess { ranks, ranks_here, .. } = self.launched;
        let has_come = |rank: &usize| is_there(&self.launched, *rank);
        let here = (0..ranks.unwrap_or(RANKS_LOOKED_AFTER)).filter(has_come).collect();
        Attendance { host, ranks, ranks_here, here }
    }
}

/// Ranks that are looked for where their number is not known.
const RANKS_LOOKED_AFTER: usize = 4096;

fn is_there(launched: &LaunchedProcess, rank: usize) -> bool {
    let Some(name) = name(launched, rank) else { return false };
    UnixDatagram::unbound().and_then(|socket| socket.connect_addr(&name)).is_ok()
}

/// `None`: nobody knows what the ranks of this launch have in common.
fn name(launched: &LaunchedProcess, rank: usize) -> Option<SocketAddr> {
    let name = format!("harrier-start-{}-{}-{rank}", getuid(), launched.launcher?);
    SocketAddr::from_abstract_name(name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_a_host_see_one_another() {
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
        assert_eq!(first.look().here, [0, 2]);
        assert_eq!(first.look().missing(), Some(vec![1]));
        drop(last);
        assert_eq!(first.look().missing(), Some(vec![1, 2]));
        let elsewhere = Attendance { ranks_here: Some(2), ..first.look() };
        assert_eq!(elsewhere.missing(), None);
    }
}

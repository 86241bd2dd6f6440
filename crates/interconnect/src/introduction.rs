//! What ranks tell each other when they meet, and what follows from it for those that share a host.

use crate::error::StartError;
use crate::lending::Lending;
use crate::limits::SHARED_ADDRESSES;
use crate::{Options, Peer};
use harrier_mpi::process;
use harrier_mpi::shared::{Arena, Window};
use nix::sys::utsname::uname;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// One line each on the wire.
pub(crate) struct Introduction {
    pub version: String,
    pub host: String,
    /// Ranks with the same one can ring each other: same kernel, host name and network namespace.
    place: String,
    /// Ranks with the same one see each other's process ids.
    pid_space: String,
    pub pid: u32,
    /// Unguessable.
    pub token: String,
    /// The descriptor of its shared memory; -1 if it has none.
    arena: i32,
}

impl Introduction {
    pub fn mine(version: &str, arena: Option<&Arena>) -> Introduction {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_string();
        let link = |path: &str| {
            std::fs::read_link(path).map(|target| target.to_string_lossy().into_owned()).unwrap_or_default()
        };
        let host = uname().map(|names| names.nodename().to_string_lossy().into_owned()).unwrap_or_default();
        let boot = read("/proc/sys/kernel/random/boot_id");
        Introduction {
            version: version.to_string(),
            place: format!("{boot} {host} {}", link("/proc/self/ns/net")),
            pid_space: format!("{boot} {}", link("/proc/self/ns/pid")),
            host,
            pid: std::process::id(),
            token: read("/proc/sys/kernel/random/uuid"),
            arena: arena.map_or(-1, Arena::descriptor),
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        let (pid, arena) = (self.pid.to_string(), self.arena.to_string());
        [&self.version, &self.host, &self.place, &self.pid_space, &pid, &self.token, &arena]
            .map(|field| field.replace('\n', " "))
            .join("\n")
            .into_bytes()
    }

    pub fn decode(bytes: &[u8]) -> Introduction {
        let text = String::from_utf8_lossy(bytes);
        let mut fields = text.split('\n').map(str::to_string);
        let mut next = || fields.next().unwrap_or_default();
        Introduction {
            version: next(),
            host: next(),
            place: next(),
            pid_space: next(),
            pid: next().parse().unwrap_or(0),
            token: next(),
            arena: next().parse().unwrap_or(-1),
        }
    }

    fn sees(&self, other: &Introduction) -> bool {
        self.pid_space == other.pid_space
    }
}

/// Everybody's introductions, from the place of one of them.
pub(crate) struct Circle {
    pub rank: usize,
    pub all: Vec<Introduction>,
}

impl Circle {
    /// Errors: the ranks run different builds. Every rank comes to the same result.
    pub fn new(rank: usize, all: Vec<Introduction>) -> Result<Circle, StartError> {
        if all.iter().any(|other| other.version != all[rank].version) {
            return Err(StartError::VersionMismatch {
                versions: all.into_iter().map(|other| other.version).collect(),
            });
        }
        Ok(Circle { rank, all })
    }

    fn me(&self) -> &Introduction {
        &self.all[self.rank]
    }

    fn others(&self) -> impl Iterator<Item = (usize, &Introduction)> {
        self.all.iter().enumerate().filter(|(peer, _)| *peer != self.rank)
    }

    /// Whether this rank can see the peer's process.
    pub fn sees(&self, peer: usize) -> bool {
        self.me().sees(&self.all[peer])
    }

    /// By rank, whether it shares this rank's host and network namespace.
    pub fn here(&self) -> Vec<bool> {
        self.all.iter().map(|other| other.place == self.me().place).collect()
    }

    pub fn peers(&self) -> Vec<Peer> {
        let peer =
            |(other, here): (&Introduction, bool)| Peer { host: other.host.clone(), pid: other.pid, here };
        self.all.iter().zip(self.here()).map(peer).collect()
    }

    /// Descriptors that become readable when a peer's process ends, for the peers whose process this rank can see.
    pub fn watches(&self) -> Vec<(usize, OwnedFd)> {
        self.others()
            .filter(|(_, other)| self.me().sees(other))
            .filter_map(|(peer, other)| Some((peer, process::watch(other.pid).ok()?)))
            .collect()
    }

    /// The shared memory of every other rank that has some which this rank can map, by rank.
    pub fn windows(&self) -> Vec<Option<Arc<Window>>> {
        let window = |(peer, other): (usize, &Introduction)| {
            (peer != self.rank && self.me().sees(other) && other.arena >= 0)
                .then(|| Window::open(other.pid, other.arena))?
                .inspect_err(|error| tracing::debug!(peer, %error, "no shared memory with this rank"))
                .ok()
        };
        self.all.iter().enumerate().map(window).collect()
    }

    /// `opened`: by rank, whether it could map the shared memory of every rank; see [`Circle::windows`].
    pub fn lending(
        &self,
        arena: Option<Arc<Arena>>,
        windows: Vec<Option<Arc<Window>>>,
        opened: &[Vec<u8>],
    ) -> Lending {
        let readers = opened.iter().map(|by_peer| by_peer.get(self.rank) == Some(&1)).collect();
        Lending::new(arena, readers, windows)
    }
}

/// Which of `windows` are open, as bytes to tell the others.
pub(crate) fn opened(windows: &[Option<Arc<Window>>]) -> Vec<u8> {
    windows.iter().map(|window| u8::from(window.is_some())).collect()
}

/// Shared memory to lend blocks from; without it they travel as frames.
pub(crate) fn create_arena(options: &Options, ranks: usize) -> Option<Arc<Arena>> {
    if !options.shared_memory || ranks < 2 {
        return None;
    }
    Arena::create(SHARED_ADDRESSES)
        .inspect_err(|error| tracing::info!(%error, "no shared memory, all blocks travel as frames"))
        .ok()
}

//! The introduction that ranks exchange when they connect, and the resources shared on one host.

use crate::configuration::{ConfigurationFact, Difference, FOLLOWER};
use crate::error::StartError;
use crate::lending::Lending;
use crate::limits::SHARED_ADDRESSES;
use crate::{Options, Peer};
use harrier_mpi::process;
use harrier_mpi::shared::{Arena, Window};
use nix::sys::utsname::uname;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Separator of facts.
const FACT_SEPARATOR: char = '\u{1e}';

/// A rank's introduction; one line per field on the wire.
pub(crate) struct Introduction {
    pub version: String,
    pub host: String,
    /// Ranks with the same value can ring each other: same kernel, host name and network namespace.
    place: String,
    /// Ranks with the same value see each other's process ids.
    pid_space: String,
    pub pid: u32,
    /// Unguessable.
    pub token: String,
    /// The descriptor of its shared memory; -1 if it has none.
    arena: i32,
    facts: Vec<ConfigurationFact>,
}

impl Introduction {
    pub fn mine(options: &Options, arena: Option<&Arena>) -> Introduction {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_string();
        let link = |path: &str| {
            std::fs::read_link(path).map(|target| target.to_string_lossy().into_owned()).unwrap_or_default()
        };
        let host = uname().map(|names| names.nodename().to_string_lossy().into_owned()).unwrap_or_default();
        let boot = read("/proc/sys/kernel/random/boot_id");
        Introduction {
            version: options.version.clone(),
            place: format!("{boot} {host} {}", link("/proc/self/ns/net")),
            pid_space: format!("{boot} {}", link("/proc/self/ns/pid")),
            host,
            pid: std::process::id(),
            token: read("/proc/sys/kernel/random/uuid"),
            arena: arena.map_or(-1, Arena::descriptor),
            facts: options.facts.clone(),
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        let (pid, arena) = (self.pid.to_string(), self.arena.to_string());
        let facts = self
            .facts
            .iter()
            .map(ConfigurationFact::encode)
            .collect::<Vec<_>>()
            .join(&FACT_SEPARATOR.to_string());
        [&self.version, &self.host, &self.place, &self.pid_space, &pid, &self.token, &arena, &facts]
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
            facts: next().split(FACT_SEPARATOR).filter_map(ConfigurationFact::decode).collect(),
        }
    }

    fn sees(&self, other: &Introduction) -> bool {
        self.pid_space == other.pid_space
    }
}

/// The introductions of all ranks, as seen by one of them.
pub(crate) struct Introductions {
    pub rank: usize,
    pub all: Vec<Introduction>,
}

impl Introductions {
    /// Errors: the ranks run different builds, or have different configurations. Every rank gets the same
    /// result.
    pub fn new(rank: usize, all: Vec<Introduction>) -> Result<Introductions, StartError> {
        if all.iter().any(|other| other.version != all[rank].version) {
            return Err(StartError::VersionMismatch {
                versions: all.into_iter().map(|other| other.version).collect(),
            });
        }
        match all.iter().enumerate().find_map(|(other, mine)| first_difference(&all[..other], mine)) {
            Some(difference) => Err(StartError::ConfigurationMismatch(difference)),
            None => Ok(Introductions { rank, all }),
        }
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

    /// Descriptors that become readable when a peer's process ends, for the peers whose process this rank can
    /// see.
    pub fn watches(&self) -> Vec<(usize, OwnedFd)> {
        self.others()
            .filter(|(_, other)| self.me().sees(other))
            .filter_map(|(peer, other)| Some((peer, process::watch(other.pid).ok()?)))
            .collect()
    }

    /// The shared memory of every other rank that this rank can map, by rank.
    pub fn windows(&self) -> Vec<Option<Arc<Window>>> {
        let window = |(peer, other): (usize, &Introduction)| {
            (peer != self.rank && self.me().sees(other) && other.arena >= 0)
                .then(|| Window::open(other.pid, other.arena))?
                .inspect_err(|error| tracing::debug!(peer, %error, "no shared memory with this rank"))
                .ok()
        };
        self.all.iter().enumerate().map(window).collect()
    }

    /// `opened`: by rank, whether it could map the shared memory of every rank; see
    /// [`Introductions::windows`].
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

impl Introduction {
    fn follows(&self) -> bool {
        self.facts.first().is_some_and(|fact| fact.what == FOLLOWER)
    }
}

/// Compares `mine` with the ranks before it that it has to agree with; returns the first difference.
fn first_difference(before: &[Introduction], mine: &Introduction) -> Option<Difference> {
    if mine.follows() {
        return None;
    }
    let nothing = ConfigurationFact::new("", "");
    for at in 0..mine.facts.len().max(before.first().map_or(0, |first| first.facts.len())) {
        let fact = mine.facts.get(at).unwrap_or(&nothing);
        let is_about = |other: &&(usize, &Introduction)| !fact.is_per_host || other.1.place == mine.place;
        let Some((other, first)) =
            before.iter().enumerate().find(|other| is_about(&other) && !other.1.follows())
        else {
            continue;
        };
        let known = first.facts.get(at).unwrap_or(&nothing);
        if (&fact.what, fact.digest) != (&known.what, known.digest) {
            return Some(Difference {
                rank: before.len(),
                host: mine.host.clone(),
                what: if fact.what.is_empty() { known.what.clone() } else { fact.what.clone() },
                theirs: fact.preview.clone(),
                other,
                others: known.preview.clone(),
            });
        }
    }
    None
}

/// One byte per window for the other ranks: whether it is mapped.
pub(crate) fn mapped_flags(windows: &[Option<Arc<Window>>]) -> Vec<u8> {
    windows.iter().map(|window| u8::from(window.is_some())).collect()
}

/// Creates shared memory to lend blocks from; without it blocks travel as frames.
pub(crate) fn create_arena(options: &Options, ranks: usize) -> Option<Arc<Arena>> {
    if !options.shared_memory || ranks < 2 {
        return None;
    }
    Arena::create(SHARED_ADDRESSES)
        .inspect_err(|error| tracing::info!(%error, "no shared memory, all blocks travel as frames"))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn introduction(place: &str, facts: &[ConfigurationFact]) -> Introduction {
        let introduction = Introduction {
            version: "1".to_string(),
            host: "a".to_string(),
            place: place.to_string(),
            pid_space: String::new(),
            pid: 1,
            token: String::new(),
            arena: -1,
            facts: facts.to_vec(),
        };
        Introduction::decode(&introduction.encode())
    }

    /// Checks which rank differs, and in what, for ranks with these facts.
    fn check(facts: &[(&str, &[ConfigurationFact])], expected: Option<(usize, &str, &str, &str)>) {
        let all = facts.iter().map(|(place, facts)| introduction(place, facts)).collect();
        let difference = match Introductions::new(0, all) {
            Err(StartError::ConfigurationMismatch(difference)) => Some(difference),
            other => {
                assert!(other.is_ok());
                None
            }
        };
        let found = difference
            .as_ref()
            .map(|found| (found.rank, found.what.as_str(), found.theirs.as_str(), found.others.as_str()));
        assert_eq!(found, expected);
    }

    #[test]
    fn mismatched_ranks_are_detected() {
        let sql = |text: &str| ConfigurationFact::new("statements", text);
        let folder = |text: &str| ConfigurationFact::per_host("folder", text);
        check(&[("a", &[]), ("a", &[])], None);
        check(&[("a", &[sql("SELECT 1")]), ("b", &[sql("SELECT 1")])], None);
        check(
            &[("a", &[sql("SELECT 0")]), ("a", &[sql("SELECT 0")]), ("b", &[sql("SELECT\n2")])],
            Some((2, "statements", "SELECT 2", "SELECT 0")),
        );
        // Paths differ between hosts, but must agree within one.
        let both = |path| [sql("x"), folder(path)];
        check(&[("a", &both("/a")), ("b", &both("/b")), ("b", &both("/b"))], None);
        check(&[("a", &both("/a")), ("b", &both("/b")), ("b", &both("/c"))], Some((2, "folder", "/c", "/b")));
        check(&[("a", &[sql("x")]), ("a", &[])], Some((1, "statements", "", "x")));
        check(&[("a", &[sql("x")]), ("a", &[ConfigurationFact::follower()]), ("b", &[sql("x")])], None);
        check(
            &[("a", &[sql("x")]), ("a", &[ConfigurationFact::follower()]), ("b", &[sql("y")])],
            Some((2, "statements", "y", "x")),
        );
        let secret = |text: &str| [ConfigurationFact::secret("settings", text)];
        check(&[("a", &secret("k=1")), ("a", &secret("k=2"))], Some((1, "settings", "", "")));
        // The part after the shown beginning counts, too.
        let long = |end: &str| [sql(&format!("{}{end}", "x".repeat(1000)))];
        check(&[("a", &long("1")), ("a", &long("1"))], None);
        let (one, two) = (long("1"), long("2"));
        assert!(Introductions::new(1, vec![introduction("a", &one), introduction("a", &two)]).is_err());
    }
}

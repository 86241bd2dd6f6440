//! What ranks tell each other when they meet, and what follows from it for those that share a host.

use crate::error::StartError;
use crate::lending::Lending;
use crate::limits::SHARED_ADDRESSES;
use crate::{Options, Peer};
use harrier_mpi::process;
use harrier_mpi::shared::{Arena, Window};
use nix::sys::utsname::uname;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// What a rank was told to do, by its arguments and where it was started: the same on all ranks, unless they
/// were meant to work each by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// What it is, as in "started with other …".
    what: String,
    digest: u64,
    /// The beginning, for people.
    shown: String,
    /// Of ranks on other hosts it may differ.
    here_only: bool,
}

/// In the place of what it is: nothing of its own.
const FOLLOWS: &str = "nothing";

/// Characters of it that are shown to people.
const SHOWN_MAX: usize = 60;

/// Between the parts of what a rank was told, and between the fields of such a part.
const PARTS: char = '\u{1e}';
const FIELDS: char = '\u{1f}';

impl Told {
    /// `value` is shown in part if ranks differ in it.
    pub fn new(what: &str, value: &str) -> Told {
        let mut shown: String = value.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        if let Some((at, _)) = shown.char_indices().nth(SHOWN_MAX) {
            shown.truncate(at);
            shown.push('…');
        }
        let mut hasher = DefaultHasher::new();
        value.hash(&mut hasher);
        Told { what: what.to_string(), digest: hasher.finish(), shown, here_only: false }
    }

    /// What may have secrets in it: only that it differs is shown.
    pub fn hidden(what: &str, value: &str) -> Told {
        Told { shown: String::new(), ..Told::new(what, value) }
    }

    /// What ranks of other hosts may have been told otherwise.
    pub fn of_host(what: &str, value: &str) -> Told {
        Told { here_only: true, ..Told::new(what, value) }
    }

    /// What a rank was told that does what rank 0 is told: it agrees with all others.
    pub fn to_follow() -> Told {
        Told::new(FOLLOWS, "")
    }

    fn encode(&self) -> String {
        let Told { what, digest, shown, here_only } = self;
        [what.clone(), digest.to_string(), shown.clone(), u8::from(*here_only).to_string()]
            .join(&FIELDS.to_string())
    }

    fn decode(text: &str) -> Option<Told> {
        let mut fields = text.split(FIELDS);
        let mut next = || fields.next();
        let (what, digest, shown, here_only) = (next()?, next()?, next()?, next()?);
        Some(Told {
            what: what.to_string(),
            digest: digest.parse().ok()?,
            shown: shown.to_string(),
            here_only: here_only == "1",
        })
    }
}

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
    told: Vec<Told>,
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
            told: options.told.clone(),
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        let (pid, arena) = (self.pid.to_string(), self.arena.to_string());
        let told = self.told.iter().map(Told::encode).collect::<Vec<_>>().join(&PARTS.to_string());
        [&self.version, &self.host, &self.place, &self.pid_space, &pid, &self.token, &arena, &told]
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
            told: next().split(PARTS).filter_map(Told::decode).collect(),
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
    /// Errors: the ranks run different builds, or were told to do different things. Every rank comes to the
    /// same result.
    pub fn new(rank: usize, all: Vec<Introduction>) -> Result<Circle, StartError> {
        if all.iter().any(|other| other.version != all[rank].version) {
            return Err(StartError::VersionMismatch {
                versions: all.into_iter().map(|other| other.version).collect(),
            });
        }
        match all.iter().enumerate().find_map(|(other, told)| differs(&all[..other], told)) {
            Some(difference) => Err(StartError::ToldMismatch(difference)),
            None => Ok(Circle { rank, all }),
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

impl Introduction {
    fn follows(&self) -> bool {
        self.told.first().is_some_and(|told| told.what == FOLLOWS)
    }
}

/// What two ranks were told differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub rank: usize,
    pub host: String,
    /// What it is.
    pub what: String,
    /// Of that rank, the beginning; empty if it is not for people.
    pub theirs: String,
    /// The first rank that was told otherwise, and what.
    pub other: usize,
    pub others: String,
}

/// What `mine` was told otherwise than the first of those before it that it has to agree with.
fn differs(before: &[Introduction], mine: &Introduction) -> Option<Difference> {
    if mine.follows() {
        return None;
    }
    let nothing = Told::new("", "");
    for at in 0..mine.told.len().max(before.first().map_or(0, |first| first.told.len())) {
        let told = mine.told.get(at).unwrap_or(&nothing);
        let is_about = |other: &&(usize, &Introduction)| !told.here_only || other.1.place == mine.place;
        let Some((other, first)) =
            before.iter().enumerate().find(|other| is_about(&other) && !other.1.follows())
        else {
            continue;
        };
        let known = first.told.get(at).unwrap_or(&nothing);
        if (&told.what, told.digest) != (&known.what, known.digest) {
            return Some(Difference {
                rank: before.len(),
                host: mine.host.clone(),
                what: if told.what.is_empty() { known.what.clone() } else { told.what.clone() },
                theirs: told.shown.clone(),
                other,
                others: known.shown.clone(),
            });
        }
    }
    None
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

#[cfg(test)]
mod tests {
    use super::*;

    fn introduction(place: &str, told: &[Told]) -> Introduction {
        let introduction = Introduction {
            version: "1".to_string(),
            host: "a".to_string(),
            place: place.to_string(),
            pid_space: String::new(),
            pid: 1,
            token: String::new(),
            arena: -1,
            told: told.to_vec(),
        };
        Introduction::decode(&introduction.encode())
    }

    /// The rank that was told otherwise, and what, of ranks that were told `told`.
    fn check(told: &[(&str, &[Told])], expected: Option<(usize, &str, &str, &str)>) {
        let all = told.iter().map(|(place, told)| introduction(place, told)).collect();
        let difference = match Circle::new(0, all) {
            Err(StartError::ToldMismatch(difference)) => Some(difference),
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
    fn ranks_that_were_told_otherwise_are_found() {
        let sql = |text: &str| Told::new("statements", text);
        let folder = |text: &str| Told::of_host("folder", text);
        check(&[("a", &[]), ("a", &[])], None);
        check(&[("a", &[sql("SELECT 1")]), ("b", &[sql("SELECT 1")])], None);
        check(
            &[("a", &[sql("SELECT 0")]), ("a", &[sql("SELECT 0")]), ("b", &[sql("SELECT\n2")])],
            Some((2, "statements", "SELECT 2", "SELECT 0")),
        );
        // On other hosts folders have other names, but ranks of one host are together.
        let both = |path| [sql("x"), folder(path)];
        check(&[("a", &both("/a")), ("b", &both("/b")), ("b", &both("/b"))], None);
        check(&[("a", &both("/a")), ("b", &both("/b")), ("b", &both("/c"))], Some((2, "folder", "/c", "/b")));
        check(&[("a", &[sql("x")]), ("a", &[])], Some((1, "statements", "", "x")));
        check(&[("a", &[sql("x")]), ("a", &[Told::to_follow()]), ("b", &[sql("x")])], None);
        check(
            &[("a", &[sql("x")]), ("a", &[Told::to_follow()]), ("b", &[sql("y")])],
            Some((2, "statements", "y", "x")),
        );
        let secret = |text: &str| [Told::hidden("settings", text)];
        check(&[("a", &secret("k=1")), ("a", &secret("k=2"))], Some((1, "settings", "", "")));
        // What comes behind what is shown counts, too.
        let long = |end: &str| [sql(&format!("{}{end}", "x".repeat(1000)))];
        check(&[("a", &long("1")), ("a", &long("1"))], None);
        let (one, two) = (long("1"), long("2"));
        assert!(Circle::new(1, vec![introduction("a", &one), introduction("a", &two)]).is_err());
    }
}

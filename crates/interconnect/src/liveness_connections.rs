//! A TCP connection between the coordinator and each rank whose process it cannot see, over which nothing is
//! ever said: its other end closes when the process does, however that ends. Without it only silence would
//! tell, some seconds later.
//!
//! ```text
//!   coordinator                                   rank on another host
//!   listens ── addresses and port (all-gather) ──► tries them, one after the other
//!           ◄──────── token, rank ────────────────
//!           ──────── one byte ───────────────────►
//!   listens no more (all-gather)                   both: readable = the other process has ended
//! ```
//!
//! Where no such connection can be made (a firewall, networks that only MPI can use) nothing else is
//! different. One that breaks instead of being closed says nothing about the process: firewalls and restarted
//! routers do that too.

use crate::introduction::Circle;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long an address, and an answer over it, is waited for.
const ANSWER_PATIENCE: Duration = Duration::from_millis(250);

/// How long a rank tries the coordinator's addresses.
const CONNECT_PATIENCE: Duration = Duration::from_secs(1);

/// Addresses of the coordinator that are told: hosts have few networks, and many bridges of containers.
const ADDRESSES_MAX: usize = 16;

/// The time between two looks of who listens whether it should go on.
const LISTEN_PAUSE_MS: u8 = 10;

/// How long after its connection has closed a rank is held to have ended: what it sent before, a goodbye
/// among it, may be slower.
const GRACE: Duration = Duration::from_millis(50);

/// What the coordinator says to whom it knows.
const WELCOME: u8 = 1;

/// The connections of one rank: those of the coordinator to all ranks that it cannot see, that of another
/// rank to the coordinator.
#[derive(Default)]
pub(crate) struct LivenessConnections {
    open: Vec<(usize, TcpStream)>,
    closed: Vec<(usize, Instant)>,
}

impl LivenessConnections {
    pub fn descriptors(&self) -> impl Iterator<Item = &TcpStream> {
        self.open.iter().map(|(_, stream)| stream)
    }

    /// To be called when one of the descriptors is readable.
    pub fn look(&mut self) {
        self.open.retain(|(peer, stream)| match is_closed(stream) {
            Ok(false) => true,
            Ok(true) => {
                self.closed.push((*peer, Instant::now()));
                false
            }
            Err(error) => {
                tracing::debug!(peer, %error, "only silence will tell of its end");
                false
            }
        });
    }

    /// Peers that have ended, each once.
    pub fn ended(&mut self) -> Vec<usize> {
        let ended = self.closed.extract_if(.., |(_, since)| since.elapsed() > GRACE);
        ended.map(|(peer, _)| peer).collect()
    }
}

/// Errors: it is broken.
fn is_closed(mut stream: &TcpStream) -> io::Result<bool> {
    match stream.read(&mut [0]) {
        Ok(read) => Ok(read == 0),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

/// The coordinator's side until all have come.
pub(crate) struct Listening {
    told: Vec<u8>,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Vec<(usize, TcpStream)>>,
}

impl Listening {
    /// `None`: this is not the coordinator, or it sees everybody, or it cannot listen.
    pub fn start(circle: &Circle) -> Option<Listening> {
        let far: Vec<usize> = (1..circle.all.len()).filter(|peer| !circle.sees(*peer)).collect();
        if circle.rank != 0 || far.is_empty() {
            return None;
        }
        Self::listen(circle.all[0].token.clone(), far, addresses())
            .inspect_err(|error| tracing::debug!(%error, "only silence will tell of ends on other hosts"))
            .ok()
    }

    fn listen(token: String, far: Vec<usize>, addresses: Vec<IpAddr>) -> io::Result<Listening> {
        let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0))
            .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let lines = addresses.iter().map(|address| format!("{}\n", SocketAddr::new(*address, port)));
        let told = lines.collect::<String>().into_bytes();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = std::thread::Builder::new()
            .name("liveness_connections".to_string())
            .spawn(move || accept(&listener, &token, far, &over))?;
        Ok(Listening { told, is_over, thread })
    }

    /// Where the coordinator listens, for [`connect`].
    pub fn told(&self) -> &[u8] {
        &self.told
    }

    /// To be called when everybody has tried.
    pub fn finish(self) -> LivenessConnections {
        self.is_over.store(true, Ordering::Relaxed);
        LivenessConnections { open: self.thread.join().unwrap_or_default(), closed: Vec::new() }
    }
}

/// Lets in each of `far` once, until all are there or it is over.
fn accept(
    listener: &TcpListener,
    token: &str,
    mut far: Vec<usize>,
    is_over: &AtomicBool,
) -> Vec<(usize, TcpStream)> {
    let mut open = Vec::new();
    while !far.is_empty() && !is_over.load(Ordering::Relaxed) {
        let mut fds = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut fds, PollTimeout::from(LISTEN_PAUSE_MS));
        while let Ok((stream, _)) = listener.accept() {
            let welcomed = welcome(stream, token, &far);
            if let Some((peer, stream)) = welcomed {
                far.retain(|other| *other != peer);
                open.push((peer, stream));
            }
        }
    }
    open
}

fn welcome(mut stream: TcpStream, token: &str, far: &[usize]) -> Option<(usize, TcpStream)> {
    stream.set_nonblocking(false).ok()?;
    stream.set_read_timeout(Some(ANSWER_PATIENCE)).ok()?;
    let mut said = vec![0; hello(token, 0).len()];
    stream.read_exact(&mut said).ok()?;
    let peer = far.iter().find(|peer| hello(token, **peer) == said)?;
    stream.write_all(&[WELCOME]).ok()?;
    stream.set_nonblocking(true).ok()?;
    Some((*peer, stream))
}

fn hello(token: &str, rank: usize) -> Vec<u8> {
    [token.as_bytes(), &(rank as u64).to_le_bytes()].concat()
}

/// This rank's connection to the coordinator, of which `told` says where it listens: where it cannot see it,
/// and one can be made.
pub(crate) fn connect(circle: &Circle, told: &[u8]) -> LivenessConnections {
    if circle.rank == 0 || told.is_empty() || circle.sees(0) {
        return LivenessConnections::default();
    }
    let stream = connected(&hello(&circle.all[0].token, circle.rank), told);
    if stream.is_none() {
        tracing::debug!("only silence will tell of the coordinator's end");
    }
    LivenessConnections { open: stream.map(|stream| (0, stream)).into_iter().collect(), closed: Vec::new() }
}

fn connected(hello: &[u8], told: &[u8]) -> Option<TcpStream> {
    let deadline = Instant::now() + CONNECT_PATIENCE;
    let told = String::from_utf8_lossy(told);
    let addresses = told.lines().filter_map(|line| line.parse().ok());
    addresses.take_while(|_| Instant::now() < deadline).find_map(|address: SocketAddr| {
        let attempt = || {
            let mut stream = TcpStream::connect_timeout(&address, ANSWER_PATIENCE)?;
            stream.set_read_timeout(Some(ANSWER_PATIENCE))?;
            stream.write_all(hello)?;
            let mut answer = [0];
            stream.read_exact(&mut answer)?;
            stream.set_nonblocking(true)?;
            io::Result::Ok((answer == [WELCOME]).then_some(stream))
        };
        attempt().inspect_err(|error| tracing::debug!(%address, %error, "no way to the coordinator")).ok()?
    })
}

/// This host's, without those that only it can reach.
fn addresses() -> Vec<IpAddr> {
    let Ok(interfaces) = getifaddrs() else { return Vec::new() };
    let up = interfaces.filter(|interface| {
        interface.flags.contains(InterfaceFlags::IFF_UP)
            && !interface.flags.contains(InterfaceFlags::IFF_LOOPBACK)
    });
    let address = up.filter_map(|interface| {
        let address = interface.address?;
        match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
            (Some(v4), _) => Some(IpAddr::V4(v4.ip())),
            (None, Some(v6)) if !v6.ip().is_unicast_link_local() => Some(IpAddr::V6(v6.ip())),
            _ => None,
        }
    });
    address.take(ADDRESSES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "00000000-0000-0000-0000-000000000001";

    fn listening(far: Vec<usize>) -> Listening {
        Listening::listen(TOKEN.to_string(), far, vec![IpAddr::V4(Ipv4Addr::LOCALHOST)]).unwrap()
    }

    fn ended_within_a_second(liveness_connections: &mut LivenessConnections) -> Vec<usize> {
        let deadline = Instant::now() + Duration::from_secs(1);
        loop {
            liveness_connections.look();
            let ended = liveness_connections.ended();
            if !ended.is_empty() || Instant::now() > deadline {
                return ended;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn an_end_is_told_once_on_either_side() {
        let listening = listening(vec![2, 5]);
        let two = connected(&hello(TOKEN, 2), listening.told()).expect("a connection");
        let five = connected(&hello(TOKEN, 5), listening.told()).expect("a connection");
        let mut coordinator = listening.finish();
        assert_eq!(coordinator.descriptors().count(), 2);
        coordinator.look();
        assert_eq!(coordinator.ended(), [0; 0]);
        drop(five);
        assert_eq!(ended_within_a_second(&mut coordinator), [5]);
        assert_eq!(coordinator.ended(), [0; 0]);
        let mut other = LivenessConnections { open: vec![(0, two)], closed: vec![] };
        assert_eq!(other.ended(), [0; 0]);
        drop(coordinator);
        assert_eq!(ended_within_a_second(&mut other), [0]);
    }

    #[test]
    fn nobody_else_is_let_in() {
        let listening = listening(vec![1]);
        assert!(connected(&hello("another", 1), listening.told()).is_none());
        assert!(connected(&hello(TOKEN, 3), listening.told()).is_none());
        let one = connected(&hello(TOKEN, 1), listening.told());
        assert!(one.is_some());
        // Its place is taken.
        assert!(connected(&hello(TOKEN, 1), listening.told()).is_none());
        assert_eq!(listening.finish().descriptors().count(), 1);
    }

    #[test]
    fn a_connection_that_breaks_is_no_end() {
        let listening = listening(vec![1]);
        let one = connected(&hello(TOKEN, 1), listening.told()).expect("a connection");
        let mut coordinator = listening.finish();
        // Unread bytes at its end make a close a reset.
        (&coordinator.open[0].1).write_all(&[0]).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        drop(one);
        assert_eq!(ended_within_a_second(&mut coordinator), [0; 0]);
        assert_eq!(coordinator.descriptors().count(), 0);
    }
}

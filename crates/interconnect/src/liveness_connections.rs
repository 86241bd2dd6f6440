//! Idle TCP connections between the coordinator and ranks on other hosts, to detect their exit: the
//! connection closes when its process ends, however that happens. Without it only missed heartbeats would
//! show it, seconds later.
//!
//! ```text
//!   coordinator                                   rank on another host
//!   listens ── addresses and port (all-gather) ──► tries them, one after the other
//!           ◄──────── token, rank ────────────────
//!           ──────── one byte ───────────────────►
//!   listens no more (all-gather)                   both: readable = the other process has ended
//! ```
//!
//! If no such connection can be made (a firewall, networks that only MPI can use), detection falls back to
//! heartbeats. A connection that breaks instead of closing says nothing about the process: firewalls and
//! restarted routers do that too.

use crate::introduction::Introductions;
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

/// Timeout of a connection attempt, and of the answer over it.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(250);

/// Total time for which a rank tries the coordinator's addresses.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum number of addresses that the coordinator announces: hosts have few networks, and many bridges of
/// containers.
const ADDRESSES_MAX: usize = 16;

/// Interval at which the listener checks whether to stop.
const LISTEN_POLL_MS: u8 = 10;

/// Delay between the close of a connection and the declared exit of its rank: frames sent before, such as a
/// goodbye, may be slower.
const GRACE: Duration = Duration::from_millis(50);

/// The coordinator's answer to a valid rank.
const ACCEPTED: u8 = 1;

/// The connections of one rank: of the coordinator to all ranks that it cannot see, of another rank to the
/// coordinator.
#[derive(Default)]
pub(crate) struct LivenessConnections {
    open: Vec<(usize, TcpStream)>,
    closed: Vec<(usize, Instant)>,
}

impl LivenessConnections {
    pub fn descriptors(&self) -> impl Iterator<Item = &TcpStream> {
        self.open.iter().map(|(_, stream)| stream)
    }

    /// Call it when one of the descriptors is readable.
    pub fn poll(&mut self) {
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
    pub fn take_ended(&mut self) -> Vec<usize> {
        let ended = self.closed.extract_if(.., |(_, since)| since.elapsed() > GRACE);
        ended.map(|(peer, _)| peer).collect()
    }
}

/// Errors: the connection is broken.
fn is_closed(mut stream: &TcpStream) -> io::Result<bool> {
    match stream.read(&mut [0]) {
        Ok(read) => Ok(read == 0),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

/// The coordinator's listener during start-up.
pub(crate) struct LivenessListener {
    announcement: Vec<u8>,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Vec<(usize, TcpStream)>>,
}

impl LivenessListener {
    /// `None`: this is not the coordinator, or it sees all processes, or it cannot listen.
    pub fn start(introductions: &Introductions) -> Option<LivenessListener> {
        let remote: Vec<usize> =
            (1..introductions.all.len()).filter(|peer| !introductions.sees(*peer)).collect();
        if introductions.rank != 0 || remote.is_empty() {
            return None;
        }
        Self::listen(introductions.all[0].token.clone(), remote, addresses())
            .inspect_err(|error| tracing::debug!(%error, "only silence will tell of ends on other hosts"))
            .ok()
    }

    fn listen(token: String, remote: Vec<usize>, addresses: Vec<IpAddr>) -> io::Result<LivenessListener> {
        let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0))
            .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let lines = addresses.iter().map(|address| format!("{}\n", SocketAddr::new(*address, port)));
        let announcement = lines.collect::<String>().into_bytes();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = std::thread::Builder::new()
            .name("liveness_connections".to_string())
            .spawn(move || accept(&listener, &token, remote, &over))?;
        Ok(LivenessListener { announcement, is_over, thread })
    }

    /// The encoded addresses on which the coordinator listens, for [`connect`].
    pub fn announcement(&self) -> &[u8] {
        &self.announcement
    }

    /// Call it when all ranks have tried.
    pub fn finish(self) -> LivenessConnections {
        self.is_over.store(true, Ordering::Relaxed);
        LivenessConnections { open: self.thread.join().unwrap_or_default(), closed: Vec::new() }
    }
}

/// Accepts each of `far` once, until all are connected or it is over.
fn accept(
    listener: &TcpListener,
    token: &str,
    mut remote: Vec<usize>,
    is_over: &AtomicBool,
) -> Vec<(usize, TcpStream)> {
    let mut open = Vec::new();
    while !remote.is_empty() && !is_over.load(Ordering::Relaxed) {
        let mut fds = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut fds, PollTimeout::from(LISTEN_POLL_MS));
        while let Ok((stream, _)) = listener.accept() {
            let accepted = authenticate(stream, token, &remote);
            if let Some((peer, stream)) = accepted {
                remote.retain(|other| *other != peer);
                open.push((peer, stream));
            }
        }
    }
    open
}

fn authenticate(mut stream: TcpStream, token: &str, remote: &[usize]) -> Option<(usize, TcpStream)> {
    stream.set_nonblocking(false).ok()?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT)).ok()?;
    let mut said = vec![0; hello(token, 0).len()];
    stream.read_exact(&mut said).ok()?;
    let peer = remote.iter().find(|peer| hello(token, **peer) == said)?;
    stream.write_all(&[ACCEPTED]).ok()?;
    stream.set_nonblocking(true).ok()?;
    Some((*peer, stream))
}

fn hello(token: &str, rank: usize) -> Vec<u8> {
    [token.as_bytes(), &(rank as u64).to_le_bytes()].concat()
}

/// Connects this rank to the coordinator at the announced addresses, if it cannot see the coordinator's
/// process. The result may have no connection.
pub(crate) fn connect(introductions: &Introductions, announcement: &[u8]) -> LivenessConnections {
    if introductions.rank == 0 || announcement.is_empty() || introductions.sees(0) {
        return LivenessConnections::default();
    }
    let stream = connect_to(&hello(&introductions.all[0].token, introductions.rank), announcement);
    if stream.is_none() {
        tracing::debug!("only silence will tell of the coordinator's end");
    }
    LivenessConnections { open: stream.map(|stream| (0, stream)).into_iter().collect(), closed: Vec::new() }
}

fn connect_to(hello: &[u8], announcement: &[u8]) -> Option<TcpStream> {
    let deadline = Instant::now() + CONNECT_TIMEOUT;
    let lines = String::from_utf8_lossy(announcement);
    let addresses = lines.lines().filter_map(|line| line.parse().ok());
    addresses.take_while(|_| Instant::now() < deadline).find_map(|address: SocketAddr| {
        let attempt = || {
            let mut stream = TcpStream::connect_timeout(&address, ANSWER_TIMEOUT)?;
            stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
            stream.write_all(hello)?;
            let mut answer = [0];
            stream.read_exact(&mut answer)?;
            stream.set_nonblocking(true)?;
            io::Result::Ok((answer == [ACCEPTED]).then_some(stream))
        };
        attempt().inspect_err(|error| tracing::debug!(%address, %error, "no way to the coordinator")).ok()?
    })
}

/// This host's addresses, except those that only it can reach.
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

    fn listening(remote: Vec<usize>) -> LivenessListener {
        LivenessListener::listen(TOKEN.to_string(), remote, vec![IpAddr::V4(Ipv4Addr::LOCALHOST)]).unwrap()
    }

    fn ended_within_a_second(liveness_connections: &mut LivenessConnections) -> Vec<usize> {
        let deadline = Instant::now() + Duration::from_secs(1);
        loop {
            liveness_connections.poll();
            let ended = liveness_connections.take_ended();
            if !ended.is_empty() || Instant::now() > deadline {
                return ended;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn disconnects_are_reported_once_per_side() {
        let listening = listening(vec![2, 5]);
        let two = connect_to(&hello(TOKEN, 2), listening.announcement()).expect("a connection");
        let five = connect_to(&hello(TOKEN, 5), listening.announcement()).expect("a connection");
        let mut coordinator = listening.finish();
        assert_eq!(coordinator.descriptors().count(), 2);
        coordinator.poll();
        assert_eq!(coordinator.take_ended(), [0; 0]);
        drop(five);
        assert_eq!(ended_within_a_second(&mut coordinator), [5]);
        assert_eq!(coordinator.take_ended(), [0; 0]);
        let mut other = LivenessConnections { open: vec![(0, two)], closed: vec![] };
        assert_eq!(other.take_ended(), [0; 0]);
        drop(coordinator);
        assert_eq!(ended_within_a_second(&mut other), [0]);
    }

    #[test]
    fn foreign_connections_are_refused() {
        let listening = listening(vec![1]);
        assert!(connect_to(&hello("another", 1), listening.announcement()).is_none());
        assert!(connect_to(&hello(TOKEN, 3), listening.announcement()).is_none());
        let one = connect_to(&hello(TOKEN, 1), listening.announcement());
        assert!(one.is_some());
        // Its rank is already connected.
        assert!(connect_to(&hello(TOKEN, 1), listening.announcement()).is_none());
        assert_eq!(listening.finish().descriptors().count(), 1);
    }

    #[test]
    fn broken_connections_are_not_exits() {
        let listening = listening(vec![1]);
        let one = connect_to(&hello(TOKEN, 1), listening.announcement()).expect("a connection");
        let mut coordinator = listening.finish();
        // A close with unread bytes is a reset.
        (&coordinator.open[0].1).write_all(&[0]).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        drop(one);
        assert_eq!(ended_within_a_second(&mut coordinator), [0; 0]);
        assert_eq!(coordinator.descriptors().count(), 0);
    }
}

//! Wake-up of a sleeping driver: an eventfd for tasks of this process, and a datagram socket for peers on the
//! same host.
//!
//! MPI has no call that sleeps until a message arrives: its blocking receives spin. So after passing MPI a
//! message for a peer on the same host, a rank sends one byte to the peer's socket in the abstract namespace
//! (no file, no port). A ring only means "poll again": lost, late and redundant rings are harmless. Peers on
//! other hosts cannot ring; the thread then sleeps for bounded times (see `limits`).
//!
//! No wake-up is lost: see `handshake.rs`.

use crate::handshake::Handshake;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The half that tasks use, from any thread.
pub struct Wake {
    handshake: Handshake<AtomicBool>,
    event: EventFd,
}

impl Wake {
    pub fn new() -> io::Result<Wake> {
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(Wake { handshake: Handshake::default(), event })
    }

    /// Wakes the driver if it sleeps. Call it after queueing. Never blocks.
    pub fn wake(&self) {
        if self.handshake.must_wake() {
            // A full counter means that a wake-up is already pending.
            let _ = self.event.write(1);
        }
    }

    /// For the driver: publishes that it sleeps, then returns whether it may, by `nothing_to_do`. It is woken
    /// until [`Wake::stop_sleeping`].
    pub(crate) fn start_sleeping(&self, nothing_to_do: impl FnOnce() -> bool) -> bool {
        self.handshake.start_sleeping(nothing_to_do)
    }

    pub(crate) fn stop_sleeping(&self) {
        self.handshake.stop_sleeping();
    }

    /// Readable when the sleeping driver was woken, until [`Wake::clear`].
    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    pub(crate) fn clear(&self) {
        let _ = self.event.read();
    }
}

/// The half that the driver owns.
pub struct Doorbell {
    socket: UnixDatagram,
    /// Addresses of the peers that can be rung, by rank.
    peers: Vec<Option<SocketAddr>>,
}

impl Doorbell {
    /// `token` is the gang's, the same on every rank and unguessable; `reachable[rank]` is whether a rank
    /// shares this host.
    pub fn new(token: &str, rank: usize, reachable: &[bool]) -> io::Result<Doorbell> {
        let address = |rank: usize| SocketAddr::from_abstract_name(format!("harrier-{token}-{rank}"));
        let socket = UnixDatagram::bind_addr(&address(rank)?)?;
        socket.set_nonblocking(true)?;
        let peers = reachable
            .iter()
            .enumerate()
            .map(|(peer, here)| if *here && peer != rank { address(peer).map(Some) } else { Ok(None) })
            .collect::<io::Result<_>>()?;
        Ok(Doorbell { socket, peers })
    }

    /// Wakes `peer` to poll for messages. Returns whether it can be rung at all. Never blocks.
    pub fn ring(&self, peer: usize) -> bool {
        match &self.peers[peer] {
            Some(address) => {
                // A full socket means that rings are pending; a dead peer is detected elsewhere.
                let _ = self.socket.send_to_addr(&[0], address);
                true
            }
            None => false,
        }
    }

    /// Sleeps until a wake-up, a ring, or one of `watched` is readable, for at most `timeout_ns`. Returns the
    /// indices of `watched` that are ready. Returns at once if `queue_is_empty` is false after `asleep` is
    /// published.
    pub fn sleep(
        &self,
        wake: &Wake,
        watched: &[BorrowedFd<'_>],
        timeout_ns: u64,
        queue_is_empty: impl Fn() -> bool,
    ) -> io::Result<Vec<usize>> {
        let timeout_ns = if wake.start_sleeping(queue_is_empty) { timeout_ns } else { 0 };
        let mut fds = Vec::with_capacity(2 + watched.len());
        fds.push(PollFd::new(wake.event.as_fd(), PollFlags::POLLIN));
        fds.push(PollFd::new(self.socket.as_fd(), PollFlags::POLLIN));
        fds.extend(watched.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)));
        let timeout = TimeSpec::from_duration(Duration::from_nanos(timeout_ns));
        let polled = ppoll(&mut fds, Some(timeout), None);
        wake.stop_sleeping();
        match polled {
            Ok(0) | Err(Errno::EINTR) => return Ok(vec![]),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(false)).collect();
        if ready[0] {
            wake.clear();
        }
        if ready[1] {
            let mut byte = [0u8; 8];
            while self.socket.recv(&mut byte).is_ok() {}
        }
        Ok((0..watched.len()).filter(|at| ready[at + 2]).collect())
    }
}

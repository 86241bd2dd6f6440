//! What wakes a sleeping driver: an eventfd that tasks of this process write, and a datagram socket that
//! peers on the same host ring.
//!
//! MPI has no call that sleeps until a message arrives: its blocking receives spin. So after handing MPI a
//! message for a peer on the same host, a rank sends one byte to the peer's socket in the abstract namespace
//! (no file is left behind, no port is listened on). A ring says "look again", nothing else: lost, late and
//! superfluous rings are harmless. Peers on other hosts cannot ring; the thread then sleeps for bounded times
//! (see `limits`).
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

/// The part that tasks use, on any thread.
pub struct Wake {
    handshake: Handshake<AtomicBool>,
    event: EventFd,
}

impl Wake {
    pub fn new() -> io::Result<Wake> {
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(Wake { handshake: Handshake::default(), event })
    }

    /// Wakes the driver if it sleeps. To be called after queueing. Never blocks.
    pub fn wake(&self) {
        if self.handshake.must_wake() {
            // A full counter means that a wake-up is already pending.
            let _ = self.event.write(1);
        }
    }

    /// For the driver: whether it may sleep, `nothing_to_do` asked after it was published that it does. Until
    /// [`Wake::get_up`] it is woken.
    pub(crate) fn lie_down(&self, nothing_to_do: impl FnOnce() -> bool) -> bool {
        self.handshake.lie_down(nothing_to_do)
    }

    pub(crate) fn get_up(&self) {
        self.handshake.get_up();
    }

    /// Readable when the sleeping driver was woken, until [`Wake::clear`].
    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    pub(crate) fn clear(&self) {
        let _ = self.event.read();
    }
}

/// The part that the driver owns.
pub struct Doorbell {
    socket: UnixDatagram,
    /// Addresses of the peers that can be rung, by rank.
    peers: Vec<Option<SocketAddr>>,
}

impl Doorbell {
    /// `token` is the gang's, the same on every rank and unguessable; `reachable[rank]` says which ranks
    /// share this host.
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

    /// Asks `peer` to look at its messages. Returns whether it can be rung at all. Never blocks.
    pub fn ring(&self, peer: usize) -> bool {
        match &self.peers[peer] {
            Some(address) => {
                // A full socket means that rings are pending; a peer that is gone is noticed elsewhere.
                let _ = self.socket.send_to_addr(&[0], address);
                true
            }
            None => false,
        }
    }

    /// Sleeps until somebody wakes or rings, one of `watched` is readable, or `timeout_ns` passes. Returns
    /// the indices of `watched` that are ready. Returns at once if `queue_is_empty` says no once `asleep` is
    /// published.
    pub fn sleep(
        &self,
        wake: &Wake,
        watched: &[BorrowedFd<'_>],
        timeout_ns: u64,
        queue_is_empty: impl Fn() -> bool,
    ) -> io::Result<Vec<usize>> {
        let timeout_ns = if wake.lie_down(queue_is_empty) { timeout_ns } else { 0 };
        let mut fds = Vec::with_capacity(2 + watched.len());
        fds.push(PollFd::new(wake.event.as_fd(), PollFlags::POLLIN));
        fds.push(PollFd::new(self.socket.as_fd(), PollFlags::POLLIN));
        fds.extend(watched.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)));
        let timeout = TimeSpec::from_duration(Duration::from_nanos(timeout_ns));
        let polled = ppoll(&mut fds, Some(timeout), None);
        wake.get_up();
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

//! Service notifications for systemd (`Type=notify`), sent to the socket that it names.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Environment variable that names the socket; without it nothing is sent.
const SOCKET: &str = "NOTIFY_SOCKET";

/// Reports that the server is ready; `status` is for people.
pub(super) fn ready(status: &str) {
    tell(&format!("READY=1\nSTATUS={status}"));
}

/// Reports that the configuration is being reloaded; [`ready`] ends that state.
pub(super) fn reloading() {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    let us = now.map_or(0, |now| now.tv_sec() * 1_000_000 + now.tv_nsec() / 1_000);
    tell(&format!("RELOADING=1\nMONOTONIC_USEC={us}"));
}

pub(super) fn stopping() {
    tell("STOPPING=1\nSTATUS=lets statements end");
}

fn tell(words: &str) {
    let Some(path) = std::env::var_os(SOCKET) else {
        return;
    };
    if let Err(error) = send(path.as_bytes(), words) {
        tracing::warn!(%error, "cannot tell systemd how the server is");
    }
}

fn send(path: &[u8], words: &str) -> std::io::Result<()> {
    let address = match path.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(std::ffi::OsString::from_vec(path.to_vec()))?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.send_to_addr(words.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sd_notify_over_path_and_abstract_sockets() {
        let name = format!("harrier-notify-{}", std::process::id());
        let path = std::env::temp_dir().join(&name);
        let named = UnixDatagram::bind(&path).unwrap();
        let unnamed =
            UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name.as_bytes()).unwrap()).unwrap();
        for (socket, path) in [(&named, path.to_str().unwrap().to_string()), (&unnamed, format!("@{name}"))] {
            send(path.as_bytes(), "READY=1").unwrap();
            let mut bytes = [0; 32];
            let length = socket.recv(&mut bytes).unwrap();
            assert_eq!(&bytes[..length], b"READY=1");
        }
        std::fs::remove_file(path).unwrap();
    }
}

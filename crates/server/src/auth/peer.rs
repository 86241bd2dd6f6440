//! Peer authentication: the operating-system user at the other end of a local connection.
//!
//! For a Unix-domain socket the kernel reports the user. For TCP on the loopback interface, which every user
//! of a login node may use, the kernel lists every socket with its owner: the client's end is the socket with
//! the connection's two addresses swapped.
//!
//! Invariants: an uncertain user is nobody. A socket whose process has closed it is listed as root's, so it
//! does not count.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::Path;

use harrier_error::{SqlError, SqlState};
use tokio::process::Command;

/// Attempts to read the list; a connection may be missing from it if it changes meanwhile.
const ATTEMPTS_MAX: usize = 3;
/// Connected state in the kernel's list of sockets.
const ESTABLISHED: &str = "01";

/// An operating-system user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    pub uid: u32,
    /// `None` if the system has no name for the uid.
    pub name: Option<String>,
}

/// Whether the requested role exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoleExistence {
    /// It exists.
    Exists,
    /// It does not.
    Missing,
    /// There are no roles at all, so every client has full access.
    NoRoles,
}

/// Checks whether a user may connect as a role: the server's own user as any existing role, others as the
/// role with their name. While there are no roles, only the server's own user may connect.
///
/// Errors: 28000, with the same message for a missing role and for one of another name.
pub fn check(peer: Option<&Peer>, server: u32, role: &str, existence: RoleExistence) -> Result<(), SqlError> {
    let failed = || {
        SqlError::fatal(
            SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
            format!("peer authentication failed for user \"{role}\""),
        )
    };
    let Some(peer) = peer else { return Err(failed()) };
    match existence {
        RoleExistence::NoRoles | RoleExistence::Exists if peer.uid == server => Ok(()),
        RoleExistence::Missing if peer.uid == server || peer.name.as_deref() == Some(role) => {
            Err(SqlError::fatal(
                SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
                format!("role \"{role}\" does not exist"),
            ))
        }
        RoleExistence::Exists if peer.name.as_deref() == Some(role) => Ok(()),
        _ => Err(failed()),
    }
}

/// Finds the user at the other end of a TCP connection; `None` if it is remote or uncertain. `client` and
/// `server` are the addresses of the connection's ends as the server sees them. Cancel-safe.
pub async fn find(client: SocketAddr, server: SocketAddr) -> io::Result<Option<Peer>> {
    let (client, server) = (canonical(client), canonical(server));
    if !client.ip().is_loopback() {
        return Ok(None);
    }
    let look = move || -> io::Result<Option<u32>> {
        for _ in 0..ATTEMPTS_MAX {
            if let Some(uid) = connected_uid(client, server)? {
                return Ok(Some(uid));
            }
        }
        Ok(None)
    };
    match tokio::task::spawn_blocking(look).await.map_err(io::Error::other)?? {
        Some(uid) => of_uid(uid).await.map(Some),
        None => Ok(None),
    }
}

/// A user with its name; for a local socket, `uid` comes from `UnixStream::peer_cred`.
pub async fn of_uid(uid: u32) -> io::Result<Peer> {
    Ok(Peer { uid, name: user_name(uid).await? })
}

/// The user that runs this process.
pub fn own_uid() -> io::Result<u32> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    // Real, effective, saved and file-system uid.
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    line.and_then(|ids| ids.split_whitespace().nth(1)?.parse().ok())
        .ok_or_else(|| io::Error::other("/proc/self/status does not tell the user"))
}

/// Names may come from a directory service, which `getent` queries and /etc/passwd lacks.
async fn user_name(uid: u32) -> io::Result<Option<String>> {
    let passwd = tokio::fs::read_to_string("/etc/passwd").await.unwrap_or_default();
    if let Some(name) = name_in_passwd(&passwd, uid) {
        return Ok(Some(name));
    }
    let answer = Command::new("getent").arg("passwd").arg(uid.to_string()).kill_on_drop(true).output().await;
    match answer {
        Ok(answer) => Ok(name_in_passwd(&String::from_utf8_lossy(&answer.stdout), uid)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn name_in_passwd(passwd: &str, uid: u32) -> Option<String> {
    let found = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then_some(name)
    });
    found.filter(|name| !name.is_empty()).map(str::to_string)
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn connected_uid(client: SocketAddr, server: SocketAddr) -> io::Result<Option<u32>> {
    let overflow = std::fs::read_to_string("/proc/sys/kernel/overflowuid");
    let overflow = overflow.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(65534);
    // A dual-stack socket with an IPv4 connection is in the second list.
    for list in ["/proc/net/tcp", "/proc/net/tcp6"] {
        if !Path::new(list).exists() {
            continue;
        }
        if let Some(uid) = owner(&std::fs::read_to_string(list)?, client, server) {
            // The owner of sockets from other user namespaces.
            return Ok(Some(uid).filter(|uid| *uid != overflow));
        }
    }
    Ok(None)
}

/// The owner of the connected socket from `local` to `remote` in one of the kernel's lists.
fn owner(list: &str, local: SocketAddr, remote: SocketAddr) -> Option<u32> {
    list.lines().skip(1).find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (from, to) = (address(fields.next()?)?, address(fields.next()?)?);
        if (from, to) != (local, remote) || fields.next()? != ESTABLISHED {
            return None;
        }
        // After queues, timer and retransmissions.
        let uid = fields.nth(3)?.parse().ok()?;
        let inode: u64 = fields.nth(1)?.parse().ok()?;
        (inode != 0).then_some(uid)
    })
}

/// Parses `0100007F:1F90`: four-byte words, each a number in native byte order.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| {
        ip.get(at..at + 8).and_then(|word| u32::from_str_radix(word, 16).ok()).map(u32::to_ne_bytes)
    };
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (number, four) in bytes.chunks_exact_mut(4).enumerate() {
                four.copy_from_slice(&word(number * 8)?);
            }
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some(canonical(SocketAddr::new(ip, port)))
}

/// Whether an address belongs to this machine: only those can be bound, unless the machine is configured to
/// bind any.
pub(super) fn is_own_address(address: IpAddr) -> bool {
    let any = match address {
        IpAddr::V4(_) => "/proc/sys/net/ipv4/ip_nonlocal_bind",
        IpAddr::V6(_) => "/proc/sys/net/ipv6/ip_nonlocal_bind",
    };
    let binds_any = std::fs::read_to_string(any).is_ok_and(|text| text.trim() != "0");
    !binds_any
        && !address.is_unspecified()
        && !address.is_multicast()
        && address != IpAddr::V4(Ipv4Addr::BROADCAST)
        && UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    const LIST: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1538 00000000:0000 0A 00000000:00000000 00:00000000 00000000   999        0 11 1 0 100 0 0 10 0
   1: 0100007F:1538 0100007F:C350 01 00000000:00000000 00:00000000 00000000   999        0 12 1 0 20 4 30 10 -1
   2: 0100007F:C350 0100007F:1538 01 00000000:00000000 00:00000000 00000000  1000        0 13 1 0 20 4 30 10 -1
   3: 0100007F:C351 0100007F:1538 04 00000000:00000000 00:00000000 00000000     0        0 0 1 0 20 4 30 10 -1
   4: 0100007F:C352 0100007F:1538 01 00000000:00000000 00:00000000 00000000     0        0 0 1 0 20 4 30 10 -1
   5: 00000000000000000000000001000000:C353 00000000000000000000000001000000:1538 01 00000000:00000000 00:00000000 00000000  1001 0 14 1
   6: 0000000000000000FFFF00000100007F:C354 0000000000000000FFFF00000100007F:1538 01 00000000:00000000 00:00000000 00000000  1002 0 15 1
   7: garbage
";

    #[test]
    fn the_client_is_the_other_end_of_the_connection() {
        for (client, server, expected) in [
            ("127.0.0.1:50000", "127.0.0.1:5432", Some(1000)),
            // The server's own end.
            ("127.0.0.1:5432", "127.0.0.1:50000", Some(999)),
            // Closed by its process, and so listed as root's.
            ("127.0.0.1:50001", "127.0.0.1:5432", None),
            ("127.0.0.1:50002", "127.0.0.1:5432", None),
            ("127.0.0.1:50000", "127.0.0.1:5433", None),
            ("[::1]:50003", "[::1]:5432", Some(1001)),
            ("127.0.0.1:50004", "127.0.0.1:5432", Some(1002)),
        ] {
            let found = owner(LIST, client.parse().unwrap(), server.parse().unwrap());
            assert_eq!(found, expected, "{client}");
        }
        assert_eq!(owner("", "127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap()), None);
    }

    #[test]
    fn peer_users_map_to_roles() {
        let peer = |uid, name: &str| Peer { uid, name: (!name.is_empty()).then(|| name.to_string()) };
        let server = 1000;
        for (peer, role, existence, expected) in [
            (Some(peer(1000, "anna")), "anna", RoleExistence::Exists, "in"),
            (Some(peer(1000, "anna")), "bert", RoleExistence::Exists, "in"),
            (Some(peer(1000, "anna")), "anything", RoleExistence::NoRoles, "in"),
            (Some(peer(1000, "anna")), "bert", RoleExistence::Missing, "does not exist"),
            (Some(peer(1001, "bert")), "bert", RoleExistence::Exists, "in"),
            (Some(peer(1001, "bert")), "bert", RoleExistence::Missing, "does not exist"),
            (Some(peer(1001, "bert")), "bert", RoleExistence::NoRoles, "failed"),
            (Some(peer(1001, "bert")), "anna", RoleExistence::Exists, "failed"),
            (Some(peer(1001, "bert")), "nobody", RoleExistence::Missing, "failed"),
            (Some(peer(0, "root")), "anna", RoleExistence::Exists, "failed"),
            (Some(peer(1002, "")), "", RoleExistence::Exists, "failed"),
            (None, "anna", RoleExistence::Exists, "failed"),
            (None, "anna", RoleExistence::NoRoles, "failed"),
        ] {
            let outcome = check(peer.as_ref(), server, role, existence);
            match outcome {
                Ok(()) => assert_eq!(expected, "in", "{peer:?} as {role}"),
                Err(failure) => {
                    assert!(failure.message.contains(expected), "{peer:?} as {role}: {failure}");
                    assert_eq!(failure.sqlstate, "28000");
                }
            }
        }
    }

    #[test]
    fn names_of_users_are_looked_up() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nanna:x:1000:1000::/home/anna:\nbroken\n:x:7:7::/:\n";
        assert_eq!(name_in_passwd(passwd, 1000).as_deref(), Some("anna"));
        assert_eq!(name_in_passwd(passwd, 100), None);
        assert_eq!(name_in_passwd(passwd, 7), None);
    }

    #[tokio::test]
    async fn a_connection_of_this_process_is_its_users() {
        for (listen, connect) in [
            ("127.0.0.1:0", "127.0.0.1"),
            ("[::1]:0", "::1"),
            ("[::]:0", "127.0.0.1"),
            ("127.0.0.1:0", "::ffff:127.0.0.1"),
        ] {
            let Ok(listener) = TcpListener::bind(listen) else {
                eprintln!("this machine has no {listen}");
                continue;
            };
            let to = SocketAddr::new(connect.parse().unwrap(), listener.local_addr().unwrap().port());
            let client = TcpStream::connect(to).unwrap();
            let (server, from) = listener.accept().unwrap();
            let found = find(from, server.local_addr().unwrap()).await.unwrap();
            assert_eq!(found.map(|peer| peer.uid), Some(own_uid().unwrap()), "{listen} {connect}");
            drop(client);
            let gone = find(from, server.local_addr().unwrap()).await.unwrap();
            assert_eq!(gone, None, "{listen} {connect}");
        }
        let nowhere = find("10.0.0.1:1".parse().unwrap(), "10.0.0.2:2".parse().unwrap()).await.unwrap();
        assert_eq!(nowhere, None);
    }

    #[test]
    fn own_addresses_are_recognized() {
        assert!(is_own_address("127.0.0.1".parse().unwrap()));
        for other in ["192.0.2.1", "2001:db8::1", "0.0.0.0", "255.255.255.255", "224.0.0.1"] {
            assert!(!is_own_address(other.parse().unwrap()), "{other}");
        }
    }
}

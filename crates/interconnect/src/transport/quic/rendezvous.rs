//! Rendezvous of the ranks of a gang without a launcher: one connection per pair, made by the higher rank.
//!
//! ```text
//!   higher rank                                        lower rank
//!      │ connect, retry until it answers ───────────────► │ TLS: both know the token
//!      │ ◄── control: magic, rank, ranks, introduction ──► │ identity and compatibility
//!      │ ◄── control: which windows it can map ──────────► │ to every rank, once all are connected
//! ```
//!
//! Each side opens two streams to the other, one per channel, which stay for the life of the gang; their
//! first byte is the channel.
//!
//! # Errors
//! A rank that does not come in time is named, as is one with another token or another hosts file. A stranger
//! with another token does not abort the start: anybody can send to a port.

use super::hosts::{Address, Place};
use super::secret::{ALERT_OTHER_PROTOCOL, ALERT_WRONG_KEY};
use crate::error::StartError;
use harrier_mpi::Channel;
use quinn::{
    ClientConfig, Connection, ConnectionError, Endpoint, Incoming, RecvStream, SendStream,
    TransportErrorCode, VarInt,
};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Timeout of one connection attempt. The first packets to a rank that does not listen yet are lost, and
/// retransmitted ever more slowly; a new attempt resets the backoff.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a client without the token may keep this rank busy.
const STRANGER_TIMEOUT: Duration = Duration::from_secs(5);

const ATTEMPT_PAUSE: Duration = Duration::from_millis(50);

/// How long a rank that gives up stays so that the others receive the reason.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum number of concurrent handshakes besides those of the ranks: more are ignored.
const STRANGERS_AT_ONCE_MAX: usize = 64;

/// Attempts from strangers that are reported.
const STRANGERS_MAX: usize = 8;

/// Maximum length of a hello, bytes.
const HELLO_BYTES_MAX: usize = 64 * 1024;

const MAGIC: [u8; 4] = *b"HRQ1";

/// Close codes on the wire.
pub(super) const CLOSED_IN_ORDER: VarInt = VarInt::from_u32(0);
pub(super) const CLOSED_AS_LOST: VarInt = VarInt::from_u32(1);
const CLOSED_AS_INCOMPATIBLE: VarInt = VarInt::from_u32(2);

/// A connection to a rank, with the streams of both channels.
pub(super) struct Link {
    pub connection: Connection,
    /// By channel.
    pub send: [SendStream; 2],
    pub receive: [RecvStream; 2],
}

/// The first message of a rank.
struct Hello {
    rank: usize,
    ranks: usize,
    introduction: Vec<u8>,
}

impl Hello {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&(self.rank as u32).to_le_bytes());
        bytes.extend_from_slice(&(self.ranks as u32).to_le_bytes());
        bytes.extend_from_slice(&self.introduction);
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Hello> {
        let (magic, rest) = bytes.split_first_chunk::<4>()?;
        let (rank, rest) = rest.split_first_chunk::<4>()?;
        let (ranks, introduction) = rest.split_first_chunk::<4>()?;
        (*magic == MAGIC).then(|| Hello {
            rank: u32::from_le_bytes(*rank) as usize,
            ranks: u32::from_le_bytes(*ranks) as usize,
            introduction: introduction.to_vec(),
        })
    }
}

/// The outcome of one connection.
enum Outcome {
    Rank(Hello, Box<Link>),
    /// It does not know the token.
    Stranger(SocketAddr),
    /// It disconnected, or sent an invalid hello.
    Nobody,
    /// This rank cannot continue.
    Fatal(StartError),
}

enum Event {
    /// An incoming connection; `None`: this rank does not listen any more.
    Incoming(Option<Box<Incoming>>),
    Finished(Outcome),
}

/// The connected ranks, and their introductions.
pub(super) struct Rendezvous<'a> {
    place: &'a Place,
    endpoint: &'a Endpoint,
    deadline: Instant,
    links: BTreeMap<usize, Box<Link>>,
}

impl<'a> Rendezvous<'a> {
    pub fn new(place: &'a Place, endpoint: &'a Endpoint) -> Rendezvous<'a> {
        Rendezvous { place, endpoint, deadline: Instant::now() + place.patience, links: BTreeMap::new() }
    }

    /// Connects to every other rank. Returns the introductions of all, this one's being `mine`, by rank.
    pub async fn gather(&mut self, client: ClientConfig, mine: Vec<u8>) -> Result<Vec<Vec<u8>>, StartError> {
        let Place { rank, addresses, .. } = self.place;
        let (rank, ranks) = (*rank, addresses.len());
        let hello = Hello { rank, ranks, introduction: mine };
        let said = hello.encode();
        let mut work = JoinSet::new();
        for (lower, address) in addresses.iter().enumerate().take(rank) {
            let (endpoint, client, said) = (self.endpoint.clone(), client.clone(), said.clone());
            let address = address.clone();
            work.spawn(async move { connect(endpoint, client, lower, ranks, address, said).await });
        }
        let mut all: Vec<Option<Vec<u8>>> = (0..ranks).map(|_| None).collect();
        all[rank] = Some(hello.introduction);
        let mut strangers: Vec<String> = Vec::new();
        while all.iter().any(Option::is_none) {
            let event = timeout_at(self.deadline, async {
                tokio::select! {
                    incoming = self.endpoint.accept() => Event::Incoming(incoming.map(Box::new)),
                    Some(met) = work.join_next() => Event::Finished(met.unwrap_or(Outcome::Nobody)),
                }
            });
            match event.await {
                Ok(Event::Incoming(Some(incoming))) if work.len() >= 2 * ranks + STRANGERS_AT_ONCE_MAX => {
                    incoming.ignore();
                }
                Ok(Event::Incoming(incoming)) => {
                    work.spawn(answer(incoming, said.clone()));
                }
                Ok(Event::Finished(Outcome::Rank(hello, link))) => self.register(hello, link, &mut all)?,
                Ok(Event::Finished(Outcome::Stranger(from))) if strangers.len() < STRANGERS_MAX => {
                    strangers.push(from.to_string());
                }
                Ok(Event::Finished(Outcome::Stranger(_) | Outcome::Nobody)) => {}
                Ok(Event::Finished(Outcome::Fatal(error))) => return Err(error),
                Err(_) => {
                    let missing = (0..ranks).filter(|rank| all[*rank].is_none());
                    return Err(StartError::NoAnswer {
                        missing: missing.map(|rank| (rank, addresses[rank].to_string())).collect(),
                        seconds: self.place.patience.as_secs(),
                        strangers,
                    });
                }
            }
        }
        // A duplicate of a connected rank gets the reason for its rejection.
        while let Some(met) = work.try_join_next() {
            if let Ok(Outcome::Rank(hello, link)) = met {
                self.register(hello, link, &mut all)?;
            }
        }
        Ok(all.into_iter().flatten().collect())
    }

    /// Registers the rank of `hello`, if it is compatible and not connected yet.
    fn register(
        &mut self,
        hello: Hello,
        link: Box<Link>,
        all: &mut [Option<Vec<u8>>],
    ) -> Result<(), StartError> {
        let Hello { rank, ranks, introduction } = hello;
        let what = if ranks != all.len() {
            format!("was started for a gang of {ranks} ranks, not of {}", all.len())
        } else if rank >= ranks || rank == self.place.rank {
            format!("calls itself rank {rank}, as this one does")
        } else if all[rank].is_some() {
            // Two processes with one rank: the first stays, and the other gets the reason.
            let reason = format!("has another process as rank {rank}");
            link.connection.close(CLOSED_AS_INCOMPATIBLE, reason.as_bytes());
            return Ok(());
        } else {
            all[rank] = Some(introduction);
            self.links.insert(rank, link);
            return Ok(());
        };
        let address = link.connection.remote_address().to_string();
        link.connection.close(CLOSED_AS_INCOMPATIBLE, what.as_bytes());
        Err(StartError::Incompatible { rank, address, what })
    }

    /// Sends `mine` to every rank, once all are connected. Returns the messages of all, by rank.
    pub async fn all_gather(&mut self, mine: Vec<u8>) -> Result<Vec<Vec<u8>>, StartError> {
        let (rank, deadline) = (self.place.rank, self.deadline);
        let mut all = vec![Vec::new(); self.place.addresses.len()];
        for (peer, link) in &mut self.links {
            let said = write_message(&mut link.send[Channel::Control as usize], &mine).await;
            said.map_err(|()| disconnection_error(*peer, link))?;
        }
        for (peer, link) in &mut self.links {
            let message = read_message(&mut link.receive[Channel::Control as usize]);
            match timeout_at(deadline, message).await {
                Ok(Ok(message)) => all[*peer] = message,
                Ok(Err(())) => return Err(disconnection_error(*peer, link)),
                Err(_) => {
                    let missing = vec![(*peer, self.place.addresses[*peer].to_string())];
                    let seconds = self.place.patience.as_secs();
                    return Err(StartError::NoAnswer { missing, seconds, strangers: Vec::new() });
                }
            }
        }
        all[rank] = mine;
        Ok(all)
    }

    /// Gives up: stays until the others have received its messages.
    pub async fn close_when_sent(self) {
        let farewell = async {
            for mut link in self.links.into_values() {
                let control = &mut link.send[Channel::Control as usize];
                let _ = control.finish();
                let _ = control.stopped().await;
            }
        };
        let _ = timeout(FAREWELL_TIMEOUT, farewell).await;
    }

    /// By rank.
    pub fn into_links(mut self) -> Vec<Option<Link>> {
        (0..self.place.addresses.len()).map(|rank| self.links.remove(&rank).map(|link| *link)).collect()
    }
}

/// The error of a rank that was connected and is not any more.
fn disconnection_error(rank: usize, link: &Link) -> StartError {
    let address = link.connection.remote_address().to_string();
    let what = match link.connection.close_reason() {
        Some(ConnectionError::ApplicationClosed(closed)) if closed.error_code == CLOSED_AS_INCOMPATIBLE => {
            String::from_utf8_lossy(&closed.reason).into_owned()
        }
        Some(ConnectionError::ApplicationClosed(_)) => {
            "ended the connection: it formed the gang without this process, or not at all".to_string()
        }
        Some(reason) => format!("went away while the gang was formed: {reason}"),
        None => "said something that is not understood".to_string(),
    };
    StartError::Incompatible { rank, address, what }
}

/// Connects to the rank `peer` at `address`, with retries.
async fn connect(
    endpoint: Endpoint,
    client: ClientConfig,
    peer: usize,
    ranks: usize,
    address: Address,
    said: Vec<u8>,
) -> Outcome {
    loop {
        // A name may not resolve before its host is up.
        let found = tokio::net::lookup_host((address.host.as_str(), address.port)).await;
        for place in found.into_iter().flatten() {
            let Ok(connecting) = endpoint.connect_with(client.clone(), place, "harrier") else { continue };
            let error = match timeout(ATTEMPT_TIMEOUT, connecting).await {
                Err(_) => continue,
                Ok(Err(error)) => error,
                Ok(Ok(connection)) => match exchange_hellos(connection.clone(), &said).await {
                    Some((hello, _)) if hello.rank != peer => {
                        let what =
                            format!("is answered by rank {} of {}, not of {ranks}", hello.rank, hello.ranks);
                        connection.close(CLOSED_AS_INCOMPATIBLE, what.as_bytes());
                        return Outcome::Fatal(incompatible(peer, &address, what));
                    }
                    Some((hello, link)) => return Outcome::Rank(hello, link),
                    None => match connection.close_reason() {
                        Some(error) => error,
                        None => continue,
                    },
                },
            };
            match &error {
                ConnectionError::ApplicationClosed(closed) if closed.error_code == CLOSED_AS_INCOMPATIBLE => {
                    let what = String::from_utf8_lossy(&closed.reason).into_owned();
                    return Outcome::Fatal(incompatible(peer, &address, what));
                }
                error if is_alert(error, ALERT_WRONG_KEY) => {
                    let address = address.to_string();
                    return Outcome::Fatal(StartError::WrongToken { rank: peer, address });
                }
                error if is_alert(error, ALERT_OTHER_PROTOCOL) => {
                    let what = "speaks another version of the protocol".to_string();
                    return Outcome::Fatal(incompatible(peer, &address, what));
                }
                error => tracing::debug!(peer, %error, "no connection yet"),
            }
        }
        sleep(ATTEMPT_PAUSE).await;
    }
}

fn incompatible(rank: usize, address: &Address, what: String) -> StartError {
    StartError::Incompatible { rank, address: address.to_string(), what }
}

/// Answers an incoming connection.
async fn answer(incoming: Option<Box<Incoming>>, said: Vec<u8>) -> Outcome {
    let Some(incoming) = incoming else { return Outcome::Nobody };
    let from = incoming.remote_address();
    let Ok(connecting) = incoming.accept() else { return Outcome::Nobody };
    match timeout(STRANGER_TIMEOUT, connecting).await {
        Ok(Ok(connection)) => match exchange_hellos(connection, &said).await {
            Some((hello, link)) => Outcome::Rank(hello, link),
            None => Outcome::Nobody,
        },
        Ok(Err(error)) if is_alert(&error, ALERT_WRONG_KEY) => {
            tracing::warn!(%from, "somebody with another token tried to join the gang");
            Outcome::Stranger(from)
        }
        Ok(Err(error)) => {
            tracing::debug!(%from, %error, "a connection that is none");
            Outcome::Nobody
        }
        Err(_) => Outcome::Nobody,
    }
}

/// Whether the connection ended by this TLS alert, from either side.
fn is_alert(error: &ConnectionError, alert: u8) -> bool {
    let alert = TransportErrorCode::crypto(alert);
    match error {
        ConnectionError::TransportError(error) => error.code == alert,
        ConnectionError::ConnectionClosed(closed) => closed.error_code == alert,
        _ => false,
    }
}

/// Opens the streams of both channels and sends `said`; receives the other side's. `None`: it disconnected,
/// or sent an invalid hello.
async fn exchange_hellos(connection: Connection, said: &[u8]) -> Option<(Hello, Box<Link>)> {
    let mut control = connection.open_uni().await.ok()?;
    // Control frames have priority over rows.
    control.set_priority(1).ok()?;
    control.write_all(&[Channel::Control as u8]).await.ok()?;
    write_message(&mut control, said).await.ok()?;
    let mut data = connection.open_uni().await.ok()?;
    data.write_all(&[Channel::Data as u8]).await.ok()?;
    let (mut their_control, mut their_data) = (None, None);
    for _ in Channel::ALL {
        let mut stream = connection.accept_uni().await.ok()?;
        let mut channel = [0];
        stream.read_exact(&mut channel).await.ok()?;
        match channel[0] {
            channel if channel == Channel::Control as u8 => their_control = Some(stream),
            channel if channel == Channel::Data as u8 => their_data = Some(stream),
            _ => return None,
        }
    }
    let (mut their_control, their_data) = (their_control?, their_data?);
    let hello = Hello::decode(&read_message(&mut their_control).await.ok()?)?;
    let link = Link { connection, send: [control, data], receive: [their_control, their_data] };
    Some((hello, Box::new(link)))
}

async fn write_message(stream: &mut SendStream, message: &[u8]) -> Result<(), ()> {
    let length = u32::try_from(message.len()).map_err(|_| ())?.to_le_bytes();
    stream.write_all(&[&length, message].concat()).await.map_err(|_| ())
}

async fn read_message(stream: &mut RecvStream) -> Result<Vec<u8>, ()> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).await.map_err(|_| ())?;
    let length = u32::from_le_bytes(length) as usize;
    if length > HELLO_BYTES_MAX {
        return Err(());
    }
    let mut message = vec![0; length];
    stream.read_exact(&mut message).await.map_err(|_| ())?;
    Ok(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hellos_round_trip() {
        let hello = Hello { rank: 3, ranks: 70_000, introduction: b"me".to_vec() };
        let again = Hello::decode(&hello.encode()).unwrap();
        assert_eq!((again.rank, again.ranks, &again.introduction[..]), (3, 70_000, &b"me"[..]));
        assert!(Hello::decode(b"HRQ2\0\0\0\0\0\0\0\0").is_none());
        assert!(Hello::decode(b"HRQ1\0\0\0\0\0\0\0").is_none());
    }
}

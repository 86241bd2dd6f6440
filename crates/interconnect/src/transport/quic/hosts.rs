//! The hosts file of a gang without a launcher, and the environment variables of its ranks.
//!
//! ```text
//! # one rank a line, numbered in their order from 0
//! alpha:7250
//! beta slots=2          # two ranks, on the ports 7250 and 7251
//! [fd00::3]:9000
//! ```
//!
//! | variable | meaning |
//! |---|---|
//! | `HARRIER_HOSTS` | path of the hosts file; its content may differ between hosts, but not the order of the ranks |
//! | `HARRIER_RANK` | the rank of this process |
//! | `HARRIER_RANKS` | number of ranks: the file's first ones. Without it: all of the file's |
//! | `HARRIER_TOKEN` | secret shared by the ranks: at least 16 bytes |
//! | `HARRIER_TOKEN_FILE` | a file that contains it; used when `HARRIER_TOKEN` is not set |
//! | `HARRIER_START_SECONDS` | how long a rank waits for the others, 60 by default |

use super::secret::Token;
use crate::error::PlaceError;
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

/// The default port of a host's first rank; its other ranks use the following ones.
pub const PORT: u16 = 7250;

pub(crate) const HOSTS: &str = "HARRIER_HOSTS";
pub(crate) const RANK: &str = "HARRIER_RANK";
const RANKS: &str = "HARRIER_RANKS";
const TOKEN: &str = "HARRIER_TOKEN";
const TOKEN_FILE: &str = "HARRIER_TOKEN_FILE";
const START_SECONDS: &str = "HARRIER_START_SECONDS";

/// Default time to wait for the other ranks: jobs of a batch system do not start all at once.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum number of ranks per line: ports have to be left for them.
const SLOTS_MAX: u16 = 1024;

/// The address on which a rank listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// A name, or the text of an address.
    pub host: String,
    pub port: u16,
}

impl Address {
    /// The host, if it is an address and not a name.
    pub(super) fn ip(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// This process's place among the ranks of a gang over QUIC.
#[derive(Clone, Debug)]
pub struct Place {
    pub rank: usize,
    /// Addresses of all ranks, this one included, by rank.
    pub addresses: Vec<Address>,
    pub token: Token,
    /// How long this rank waits for the others.
    pub patience: Duration,
    /// Whether the processes of ranks on this host are watched; if not, their exit is detected as for ranks
    /// on other hosts.
    pub watch_processes: bool,
}

impl Place {
    /// Reads the environment, with the hosts file at `hosts`.
    pub fn from_environment(hosts: &Path) -> Result<Place, PlaceError> {
        Place::read(hosts, |name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn read(hosts: &Path, variable: impl Fn(&str) -> Option<String>) -> Result<Place, PlaceError> {
        let mut addresses = parse(&read_file("hosts file", hosts)?)
            .map_err(|BadLine { line, what }| PlaceError::Line { path: hosts.to_path_buf(), line, what })?;
        if let Some(ranks) = number(&variable, RANKS, "the number of ranks, from 1 on")? {
            if ranks == 0 || ranks > addresses.len() as u64 {
                return Err(PlaceError::Ranks { ranks, places: addresses.len() });
            }
            addresses.truncate(ranks as usize);
        }
        let rank = number(&variable, RANK, "the number of this rank, from 0 on")?;
        let rank = rank.ok_or(PlaceError::Missing { variable: RANK })?;
        if rank >= addresses.len() as u64 {
            return Err(PlaceError::Rank { rank, ranks: addresses.len() });
        }
        let token = match (variable(TOKEN), variable(TOKEN_FILE)) {
            (Some(token), _) => token,
            (None, Some(path)) => read_file("token file", Path::new(&path))?,
            (None, None) => return Err(PlaceError::Missing { variable: TOKEN }),
        };
        Ok(Place {
            rank: rank as usize,
            addresses,
            token: Token::new(&token)?,
            patience: start_timeout_from(&variable)?,
            watch_processes: true,
        })
    }
}

/// How long a rank waits for the others, over any carrier.
///
/// Errors: the variable is not a number.
pub(crate) fn start_timeout() -> Result<Duration, PlaceError> {
    start_timeout_from(&|name: &str| std::env::var(name).ok().filter(|value| !value.is_empty()))
}

fn start_timeout_from(variable: &impl Fn(&str) -> Option<String>) -> Result<Duration, PlaceError> {
    let seconds = number(variable, START_SECONDS, "seconds, from 1 on")?;
    Ok(seconds.map_or(START_TIMEOUT, |seconds| Duration::from_secs(seconds.max(1))))
}

fn read_file(what: &'static str, path: &Path) -> Result<String, PlaceError> {
    std::fs::read_to_string(path).map_err(|error| PlaceError::Unreadable {
        what,
        path: path.to_path_buf(),
        error,
    })
}

fn number(
    variable: &impl Fn(&str) -> Option<String>,
    name: &'static str,
    wanted: &'static str,
) -> Result<Option<u64>, PlaceError> {
    let parse = |value: String| match value.trim().parse() {
        Ok(number) => Ok(number),
        Err(_) => Err(PlaceError::Variable { variable: name, value, wanted }),
    };
    variable(name).map(parse).transpose()
}

/// An error in a line, counted from 1.
#[derive(Debug, PartialEq, Eq)]
pub struct BadLine {
    pub line: usize,
    pub what: String,
}

/// Parses a hosts file into the address of every rank, by rank.
pub fn parse(text: &str) -> Result<Vec<Address>, BadLine> {
    let mut addresses: Vec<Address> = Vec::new();
    // The line of each address, and the next port of a host whose lines give none.
    let mut lines: HashMap<Address, usize> = HashMap::new();
    let mut next_ports: HashMap<String, u16> = HashMap::new();
    for (at, line) in text.lines().enumerate() {
        let bad = |what: String| BadLine { line: at + 1, what };
        let said = line.split_once('#').map_or(line, |(said, _)| said);
        let mut words = said.split_whitespace();
        let Some(place) = words.next() else { continue };
        let (host, port) = host_and_port(place).map_err(bad)?;
        let mut slots = 1;
        for word in words {
            slots = match word.strip_prefix("slots=").map(str::parse) {
                Some(Ok(slots)) if (1..=SLOTS_MAX).contains(&slots) => slots,
                Some(_) => return Err(bad(format!("slots= takes 1 to {SLOTS_MAX}, not \"{word}\""))),
                None => return Err(bad(format!("\"{word}\" is not slots=N"))),
            };
        }
        let first = port.unwrap_or_else(|| next_ports.get(&host).copied().unwrap_or(PORT));
        let Some(after) = first.checked_add(slots) else {
            return Err(bad(format!("there are not {slots} ports from {first} on")));
        };
        if port.is_none() {
            next_ports.insert(host.clone(), after);
        }
        for port in first..after {
            let address = Address { host: host.clone(), port };
            if let Some(earlier) = lines.insert(address.clone(), at + 1) {
                return Err(bad(format!("{address} is in line {earlier} too")));
            }
            addresses.push(address);
        }
    }
    match addresses.is_empty() {
        true => {
            Err(BadLine { line: text.lines().count().max(1), what: "the file names no host".to_string() })
        }
        false => Ok(addresses),
    }
}

/// `host`, `host:port`, `address`, `[address]` or `[address]:port`.
fn host_and_port(place: &str) -> Result<(String, Option<u16>), String> {
    let (host, port) = match place.strip_prefix('[').map(|rest| rest.split_once(']')) {
        Some(Some((address, rest))) if address.parse::<IpAddr>().is_ok() => match rest.strip_prefix(':') {
            Some(port) => (address, Some(port)),
            None if rest.is_empty() => (address, None),
            None => return Err(format!("\"{rest}\" follows the address")),
        },
        Some(_) => return Err(format!("\"{place}\" is not an address in brackets")),
        None if place.parse::<IpAddr>().is_ok() => (place, None),
        None => match place.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        },
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    if host.is_empty() || !host.chars().all(plain) {
        return Err(format!("\"{host}\" is not the name of a host"));
    }
    let port = match port.map(str::parse) {
        None => None,
        Some(Ok(port)) if port > 0 => Some(port),
        Some(_) => return Err(format!("the port of \"{place}\" is not a number from 1 to 65535")),
    };
    Ok((host.to_string(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let got = match parse(text) {
            Ok(addresses) => addresses.iter().map(Address::to_string).collect::<Vec<_>>().join(" "),
            Err(BadLine { line, what }) => format!("line {line}: {what}"),
        };
        assert_eq!(got, expected, "{text}");
    }

    #[test]
    fn hosts_files() {
        check("alpha:7001\nbeta:7002\n", "alpha:7001 beta:7002");
        check("# ours\n\n alpha slots=3 # three\nbeta\n", "alpha:7250 alpha:7251 alpha:7252 beta:7250");
        check("alpha\nalpha\nalpha:9 slots=2", "alpha:7250 alpha:7251 alpha:9 alpha:10");
        check("[fd00::3]:9\nfd00::3\n[::1] slots=2", "[fd00::3]:9 [fd00::3]:7250 [::1]:7250 [::1]:7251");
        check("10.0.0.1:5\r\n10.0.0.2:5\r\n", "10.0.0.1:5 10.0.0.2:5");
    }

    #[test]
    fn errors_name_their_line() {
        check("", "line 1: the file names no host");
        check("# nobody\n\n", "line 2: the file names no host");
        check("alpha\nbeta:0", "line 2: the port of \"beta:0\" is not a number from 1 to 65535");
        check("alpha:99999", "line 1: the port of \"alpha:99999\" is not a number from 1 to 65535");
        check("alpha slots=0", "line 1: slots= takes 1 to 1024, not \"slots=0\"");
        check("alpha slots=many", "line 1: slots= takes 1 to 1024, not \"slots=many\"");
        check("\nalpha 4", "line 2: \"4\" is not slots=N");
        check("al/pha", "line 1: \"al/pha\" is not the name of a host");
        check(":7001", "line 1: \"\" is not the name of a host");
        check("[fd00::3:9", "line 1: \"[fd00::3:9\" is not an address in brackets");
        check("[fd00::3]9", "line 1: \"9\" follows the address");
        check("alpha:5\nbeta\nalpha:4 slots=2", "line 3: alpha:5 is in line 1 too");
        check("alpha:65535 slots=2", "line 1: there are not 2 ports from 65535 on");
    }

    fn place(variables: &[(&str, &str)]) -> Result<Place, String> {
        let folder = std::env::temp_dir().join(format!("harrier-hosts-{}", std::process::id()));
        std::fs::write(&folder, "alpha slots=2\nbeta\n").unwrap();
        let get = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string())
        };
        let place = Place::read(&folder, get).map_err(|error| error.to_string());
        std::fs::remove_file(&folder).unwrap();
        place.map_err(|error| error.replace(&folder.display().to_string(), "FILE"))
    }

    #[test]
    fn rank_is_read_from_the_environment() {
        let token = (TOKEN, "0123456789abcdef");
        let all = place(&[token, (RANK, "2")]).unwrap();
        assert_eq!((all.rank, all.addresses.len(), all.patience), (2, 3, START_TIMEOUT));
        let some = place(&[token, (RANK, "1"), (RANKS, "2"), (START_SECONDS, "5")]).unwrap();
        assert_eq!((some.rank, some.addresses.len(), some.patience), (1, 2, Duration::from_secs(5)));
        for (variables, expected) in [
            (vec![token], "HARRIER_RANK is not set"),
            (vec![(RANK, "0")], "HARRIER_TOKEN is not set"),
            (vec![token, (RANK, "one")], "HARRIER_RANK is \"one\""),
            (vec![token, (RANK, "3")], "there is no rank 3 of 3"),
            (vec![token, (RANK, "0"), (RANKS, "4")], "the hosts file has places for 3 ranks, not for 4"),
            (vec![(TOKEN, " short\n"), (RANK, "0")], "the token has 5 bytes"),
        ] {
            assert_eq!(place(&variables).unwrap_err(), expected);
        }
    }
}

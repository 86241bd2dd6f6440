//! Value types of configuration keys: parsing, TOML form, and documentation.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;
use toml::Value;

/// Maximum time: SQL settings count milliseconds in 32 bits.
const PERIOD_MAX: Duration = Duration::from_secs(24 * 24 * 3600);

/// Units of a [`Size`], the largest first.
const SIZES: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// Units of a [`Period`] in milliseconds, the largest first.
const PERIODS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1)];

/// A value type.
pub trait Kind: Sized {
    /// Allowed values after `key =`, for documentation and errors.
    fn allowed_values() -> String;

    /// The value as TOML.
    fn to_toml(&self) -> String;

    /// Resolves relative paths against `folder`.
    fn resolve_path(&mut self, _folder: &std::path::Path) {}
}

/// A size in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "Value")]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        number_with_unit(text, &SIZES).map(Self).ok_or_else(|| format!("{text:?} is not a size"))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shortest(self.0, &SIZES))
    }
}

impl TryFrom<Value> for Size {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        string(value, "a size")?.parse()
    }
}

impl Kind for Size {
    fn allowed_values() -> String {
        "a size in B, KiB, MiB, GiB or TiB, such as \"8GiB\"".to_string()
    }

    fn to_toml(&self) -> String {
        toml_string(&self.to_string())
    }
}

/// A duration above zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "Value")]
pub struct Period(pub Duration);

impl Period {
    pub const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

impl FromStr for Period {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let ms = number_with_unit(text, &PERIODS).ok_or_else(|| format!("{text:?} is not a time"))?;
        let period = Duration::from_millis(ms);
        if period.is_zero() || period > PERIOD_MAX {
            return Err(format!("{text:?} is not from 1ms to {}", Self(PERIOD_MAX)));
        }
        Ok(Self(period))
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shortest(self.0.as_millis() as u64, &PERIODS))
    }
}

impl TryFrom<Value> for Period {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        string(value, "a time")?.parse()
    }
}

impl Kind for Period {
    fn allowed_values() -> String {
        format!("a time in ms, s, min, h or d from 1ms to {}, such as \"30s\"", Self(PERIOD_MAX))
    }

    fn to_toml(&self) -> String {
        toml_string(&self.to_string())
    }
}

/// A value, or `"off"`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value", bound = "T: serde::de::DeserializeOwned")]
pub struct OrOff<T>(pub Option<T>);

impl<T> OrOff<T> {
    pub const OFF: Self = Self(None);

    /// The value; `None`: off.
    pub fn get(&self) -> Option<&T> {
        self.0.as_ref()
    }
}

impl<T: serde::de::DeserializeOwned> TryFrom<Value> for OrOff<T> {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        match value {
            Value::String(text) if text == "off" => Ok(Self(None)),
            value => deserialize_nested(value).map(|value| Self(Some(value))),
        }
    }
}

impl<T: Kind> Kind for OrOff<T> {
    fn allowed_values() -> String {
        format!("{}, or \"off\"", T::allowed_values())
    }

    fn to_toml(&self) -> String {
        self.0.as_ref().map_or_else(|| toml_string("off"), T::to_toml)
    }

    fn resolve_path(&mut self, folder: &std::path::Path) {
        if let Some(value) = &mut self.0 {
            value.resolve_path(folder);
        }
    }
}

/// A value, or `"auto"`: Harrier determines it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value", bound = "T: serde::de::DeserializeOwned")]
pub struct OrAuto<T>(pub Option<T>);

impl<T> OrAuto<T> {
    pub const AUTO: Self = Self(None);

    /// The value; `None`: automatic.
    pub fn get(&self) -> Option<&T> {
        self.0.as_ref()
    }
}

impl<T: serde::de::DeserializeOwned> TryFrom<Value> for OrAuto<T> {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        match value {
            Value::String(text) if text == "auto" => Ok(Self(None)),
            value => deserialize_nested(value).map(|value| Self(Some(value))),
        }
    }
}

impl<T: Kind> Kind for OrAuto<T> {
    fn allowed_values() -> String {
        format!("{}, or \"auto\"", T::allowed_values())
    }

    fn to_toml(&self) -> String {
        self.0.as_ref().map_or_else(|| toml_string("auto"), T::to_toml)
    }
}

/// A listen address.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub struct Address {
    /// A name, or an IP address without brackets.
    pub host: String,
    pub port: u16,
}

impl Address {
    pub fn loopback(port: u16) -> Self {
        Self { host: "127.0.0.1".to_string(), port }
    }

    /// Whether only this machine can reach it. A name other than `localhost` may resolve to anything, so it
    /// cannot.
    pub fn is_loopback(&self) -> bool {
        match self.host.parse::<IpAddr>() {
            Ok(address) => address.to_canonical().is_loopback(),
            Err(_) => self.host.eq_ignore_ascii_case("localhost"),
        }
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || format!("{text:?} is not an address with a port");
        let (host, port) = text.rsplit_once(':').ok_or_else(refuse)?;
        let port = port.parse().map_err(|_| refuse())?;
        let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(inner) if inner.parse::<std::net::Ipv6Addr>().is_ok() => inner,
            None if is_host_name(host) => host,
            _ => return Err(refuse()),
        };
        Ok(Self { host: host.to_string(), port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl TryFrom<Value> for Address {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        string(value, "an address")?.parse()
    }
}

impl Kind for Address {
    fn allowed_values() -> String {
        "an address and a port, such as \"127.0.0.1:5433\", \"[::1]:5433\" or \"localhost:5433\"".to_string()
    }

    fn to_toml(&self) -> String {
        toml_string(&self.to_string())
    }
}

/// A host name in a URL.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub struct HostName(pub String);

impl TryFrom<Value> for HostName {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let text = string(value, "a host name")?;
        if is_host_name(&text) { Ok(Self(text)) } else { Err(format!("{text:?} is not a host name")) }
    }
}

impl Kind for HostName {
    fn allowed_values() -> String {
        "a host name without a port, such as \"warehouse.example.com\"".to_string()
    }

    fn to_toml(&self) -> String {
        toml_string(&self.0)
    }
}

/// How the ranks of the gang are started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub enum GangLauncher {
    /// `srun` in a Slurm allocation, else `mpirun` where available, else none.
    Auto,
    Mpirun,
    Srun,
    /// There is no gang: statements run in the server's process.
    None,
}

impl GangLauncher {
    const ALL: [Self; 4] = [Self::Auto, Self::Mpirun, Self::Srun, Self::None];

    pub fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Mpirun => "mpirun",
            Self::Srun => "srun",
            Self::None => "none",
        }
    }
}

impl FromStr for GangLauncher {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = Self::ALL.into_iter().find(|launcher| launcher.word() == text);
        named.ok_or_else(|| format!("{text:?} is not a launcher"))
    }
}

impl TryFrom<Value> for GangLauncher {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        string(value, "a launcher")?.parse()
    }
}

impl Kind for GangLauncher {
    fn allowed_values() -> String {
        let [others @ .., last] = Self::ALL.map(|launcher| launcher.to_toml());
        format!("{} or {last}", others.join(", "))
    }

    fn to_toml(&self) -> String {
        toml_string(self.word())
    }
}

/// The statements in an audit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub enum AuditStatements {
    None,
    /// Those that change definitions or privileges.
    Ddl,
    All,
}

impl AuditStatements {
    const ALL: [Self; 3] = [Self::None, Self::Ddl, Self::All];

    pub fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Ddl => "ddl",
            Self::All => "all",
        }
    }
}

impl FromStr for AuditStatements {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = Self::ALL.into_iter().find(|statements| statements.word() == text);
        named.ok_or_else(|| format!("{text:?} is no kind of statements"))
    }
}

impl TryFrom<Value> for AuditStatements {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        string(value, "a kind of statements")?.parse()
    }
}

impl Kind for AuditStatements {
    fn allowed_values() -> String {
        let [others @ .., last] = Self::ALL.map(|statements| statements.to_toml());
        format!("{} or {last}", others.join(", "))
    }

    fn to_toml(&self) -> String {
        toml_string(self.word())
    }
}

impl Kind for u32 {
    fn allowed_values() -> String {
        "a number".to_string()
    }

    fn to_toml(&self) -> String {
        self.to_string()
    }
}

impl Kind for bool {
    fn allowed_values() -> String {
        "true or false".to_string()
    }

    fn to_toml(&self) -> String {
        self.to_string()
    }
}

impl Kind for String {
    fn allowed_values() -> String {
        "a text in quotes".to_string()
    }

    fn to_toml(&self) -> String {
        toml_string(self)
    }
}

impl Kind for PathBuf {
    fn allowed_values() -> String {
        "a path in quotes".to_string()
    }

    fn to_toml(&self) -> String {
        toml_string(&self.to_string_lossy())
    }

    fn resolve_path(&mut self, folder: &std::path::Path) {
        // Joining an absolute path ignores the folder.
        *self = folder.join(&*self);
    }
}

impl<T: Kind> Kind for Vec<T> {
    fn allowed_values() -> String {
        format!("a list, in brackets, of: {}", T::allowed_values())
    }

    fn to_toml(&self) -> String {
        let items: Vec<String> = self.iter().map(T::to_toml).collect();
        format!("[{}]", items.join(", "))
    }

    fn resolve_path(&mut self, folder: &std::path::Path) {
        self.iter_mut().for_each(|item| item.resolve_path(folder));
    }
}

/// Quotes a TOML string.
pub(super) fn toml_string(text: &str) -> String {
    Value::String(text.to_string()).to_string()
}

/// Deserializes a nested value; its error names no Rust type.
fn deserialize_nested<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, String> {
    let shown = value.to_string();
    let error = match value.try_into() {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    let error: toml::de::Error = error;
    match error.message().starts_with("invalid ") {
        true => Err(format!("{shown} is not allowed here")),
        false => Err(error.message().to_string()),
    }
}

pub(super) fn string(value: Value, what: &str) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text),
        value => Err(format!("{value} is not {what} in quotes")),
    }
}

fn is_host_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 253
        && text.chars().all(|char| char.is_ascii_alphanumeric() || matches!(char, '.' | '-' | '_'))
}

/// Parses `8GiB` or `8 GiB` in the smallest unit; `None` if malformed or too large.
fn number_with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.find(|char: char| !char.is_ascii_digit())?;
    let (number, unit) = (&text[..digits], text[digits..].trim_start());
    let factor = units.iter().find(|(name, _)| *name == unit)?.1;
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// Formats in the largest unit without a fraction.
fn shortest(value: u64, units: &[(&str, u64)]) -> String {
    let last = units[units.len() - 1];
    let (unit, factor) =
        units.iter().copied().find(|(_, factor)| value > 0 && value.is_multiple_of(*factor)).unwrap_or(last);
    format!("{}{unit}", value / factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_read_and_written() {
        let sizes = [("8GiB", 8 << 30), ("0B", 0), ("1536KiB", 1536 << 10), ("3 TiB", 3 << 40), ("7B", 7)];
        for (text, bytes) in sizes {
            let size: Size = text.parse().unwrap();
            assert_eq!(size.0, bytes, "{text}");
            assert_eq!(size.to_string(), text.replace(' ', ""));
        }
        for (text, ms) in [("30s", 30_000), ("1500ms", 1500), ("90min", 5_400_000), ("24d", 2_073_600_000)] {
            let period: Period = text.parse().unwrap();
            assert_eq!(period.0.as_millis(), ms, "{text}");
            assert_eq!(period.to_string(), text);
        }
    }

    #[test]
    fn invalid_sizes_and_durations_are_refused() {
        for text in
            ["", "8", "GiB", "8GB", "8 gib", "-1B", "1.5GiB", "99999999999999TiB", "18446744073709551616B"]
        {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
        for text in ["", "30", "s", "0s", "25d", "-1s", "30 seconds", "18446744073709551615d"] {
            assert!(text.parse::<Period>().is_err(), "{text}");
        }
    }

    #[test]
    fn addresses_are_parsed_and_classified_as_loopback() {
        for (text, loopback) in [
            ("127.0.0.1:5433", true),
            ("127.8.8.8:1", true),
            ("[::1]:80", true),
            ("[::ffff:127.0.0.1]:80", true),
            ("localhost:65535", true),
            ("0.0.0.0:5433", false),
            ("[::]:5433", false),
            ("10.0.0.1:5433", false),
            ("localhost.example.com:5433", false),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!((address.is_loopback(), address.to_string().as_str()), (loopback, text));
        }
        for text in ["", ":1", "localhost", "::1:80", "[::1]", "a b:1", "h:65536", "[h]:1", "http://h:1"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}

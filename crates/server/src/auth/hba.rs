//! Host-based authentication rules in the syntax of PostgreSQL's `pg_hba.conf`; the first match counts.
//!
//! Supported: `local`, `host`, `hostssl`, `hostnossl`; databases and users as lists of names, `all`,
//! `sameuser`, `samerole` and `+role`; addresses as CIDR, with a mask, `all`, `localhost` and `samehost`; the
//! methods of [`Method`]; the options `clientcert` and those of [`LdapDirectory`]. Everything else that
//! PostgreSQL supports is reported as an error, never ignored.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use harrier_error::{SqlError, SqlState};

use super::ldap::LdapDirectory;
use super::peer;

/// Rules, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules(Vec<Rule>);

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Line number, from 1; 0 for built-in rules.
    pub line: usize,
    pub transport: ConnectionTransport,
    databases: Vec<Database>,
    users: Vec<User>,
    /// For connections over TCP.
    pub address: Address,
    pub method: Method,
    pub client_certificate: ClientCertificate,
    /// For [`Method::Ldap`].
    pub ldap: Option<Arc<LdapDirectory>>,
}

/// The required transport of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionTransport {
    /// A Unix-domain socket.
    Local,
    Host,
    HostTls,
    HostNoTls,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Database {
    All,
    SameUser,
    SameRole,
    Named(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum User {
    All,
    Member(String),
    Named(String),
}

/// The required address of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Address {
    Any,
    /// Any of this machine's addresses.
    SameHost,
    Loopback,
    /// An address and its prefix length.
    Net(IpAddr, u8),
}

/// An authentication method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// No authentication.
    Trust,
    /// Rejects the connection.
    Reject,
    ScramSha256,
    /// Cleartext password, over TLS or a local socket.
    Password,
    /// Cleartext password, checked against a directory; without TLS on the loopback interface, too.
    Ldap,
    /// Operating-system user.
    Peer,
    /// Certificate with the role as its common name.
    Cert,
}

impl Method {
    const ALL: [Self; 7] =
        [Self::Trust, Self::Reject, Self::ScramSha256, Self::Password, Self::Ldap, Self::Peer, Self::Cert];

    pub fn name(self) -> &'static str {
        match self {
            Self::Trust => "trust",
            Self::Reject => "reject",
            Self::ScramSha256 => "scram-sha-256",
            Self::Password => "password",
            Self::Ldap => "ldap",
            Self::Peer => "peer",
            Self::Cert => "cert",
        }
    }
}

/// The client certificate required in addition to the method.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClientCertificate {
    #[default]
    None,
    /// A certificate signed by an authority known to the server.
    Signed,
    /// One whose common name is the role, too.
    OfRole,
}

/// A connection, as matched by rules.
#[derive(Debug, Clone, Copy)]
pub struct Connection<'a> {
    pub origin: Origin,
    pub is_tls: bool,
    pub database: &'a str,
    pub user: &'a str,
}

/// The origin of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    Local,
    Tcp(IpAddr),
}

/// Errors in the text of rules, by line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HbaErrors(pub Vec<(usize, String)>);

impl fmt::Display for HbaErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (line, message)) in self.0.iter().enumerate() {
            write!(f, "{}line {line}: {message}", if number == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

impl std::error::Error for HbaErrors {}

/// The default rules admit operating-system users as themselves, and nobody else.
impl Default for Rules {
    fn default() -> Self {
        let rule = |transport| Rule {
            line: 0,
            transport,
            databases: vec![Database::All],
            users: vec![User::All],
            address: Address::Loopback,
            method: Method::Peer,
            client_certificate: ClientCertificate::None,
            ldap: None,
        };
        Self(vec![rule(ConnectionTransport::Local), rule(ConnectionTransport::Host)])
    }
}

impl Rules {
    /// Whether a local client may connect without a password: as its operating-system user, or with a
    /// certificate.
    pub fn let_in_without_password(&self) -> bool {
        let knows_none = |rule: &Rule| matches!(rule.method, Method::Trust | Method::Peer | Method::Cert);
        self.rules().iter().any(|rule| !rule.is_remote() && knows_none(rule))
    }

    /// Parses rules. Errors: all invalid lines.
    pub fn parse(text: &str) -> Result<Self, HbaErrors> {
        let (mut rules, mut errors) = (Vec::new(), Vec::new());
        for (line, text) in join_lines(text) {
            let outcome = fields(&text).and_then(|fields| match fields.is_empty() {
                true => Ok(None),
                false => rule(line, &fields).map(Some),
            });
            match outcome {
                Ok(rule) => rules.extend(rule),
                Err(message) => errors.push((line, message)),
            }
        }
        if errors.is_empty() && rules.is_empty() {
            errors.push((1, "there is no rule: nobody could come in".to_string()));
        }
        if errors.is_empty() { Ok(Self(rules)) } else { Err(HbaErrors(errors)) }
    }

    pub fn rules(&self) -> &[Rule] {
        &self.0
    }

    /// Finds the first matching rule. `is_member`: whether the connection's user is a direct or indirect
    /// member of a role.
    pub fn find(&self, connection: &Connection<'_>, is_member: impl Fn(&str) -> bool) -> Option<&Rule> {
        self.0.iter().find(|rule| rule.matches(connection, &is_member))
    }

    /// Finds the first matching rule; returns the client's error for `reject` or no match.
    pub fn admit(
        &self,
        connection: &Connection<'_>,
        is_member: impl Fn(&str) -> bool,
    ) -> Result<&Rule, SqlError> {
        let Connection { origin, is_tls, database, user } = connection;
        let host = match origin {
            Origin::Local => "[local]".to_string(),
            Origin::Tcp(address) => address.to_canonical().to_string(),
        };
        let encryption = if *is_tls { "SSL encryption" } else { "no encryption" };
        let what = format!("host \"{host}\", user \"{user}\", database \"{database}\", {encryption}");
        match self.find(connection, is_member) {
            Some(rule) if rule.method == Method::Reject => Err(SqlError::fatal(
                SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
                format!("an hba rule rejects connection for {what}"),
            )),
            Some(rule) => Ok(rule),
            None => Err(SqlError::fatal(
                SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
                format!("no hba rule for {what}"),
            )),
        }
    }
}

impl Rule {
    fn matches(&self, connection: &Connection<'_>, is_member: &impl Fn(&str) -> bool) -> bool {
        let is_transport = match (self.transport, connection.origin) {
            (ConnectionTransport::Local, Origin::Local) => true,
            (ConnectionTransport::Local, _) | (_, Origin::Local) => false,
            (ConnectionTransport::Host, Origin::Tcp(_)) => true,
            (ConnectionTransport::HostTls, Origin::Tcp(_)) => connection.is_tls,
            (ConnectionTransport::HostNoTls, Origin::Tcp(_)) => !connection.is_tls,
        };
        let user = connection.user;
        is_transport
            && self.databases.iter().any(|database| match database {
                Database::All => true,
                Database::SameUser => connection.database == user,
                Database::SameRole => connection.database == user || is_member(connection.database),
                Database::Named(name) => name == connection.database,
            })
            && self.users.iter().any(|one| match one {
                User::All => true,
                User::Member(role) => is_member(role),
                User::Named(name) => name == user,
            })
            && match connection.origin {
                Origin::Local => true,
                Origin::Tcp(address) => self.address.has(address),
            }
    }

    /// Whether the rule admits clients from other machines.
    pub fn is_remote(&self) -> bool {
        self.transport != ConnectionTransport::Local && !self.address.is_this_machine()
    }
}

impl Address {
    fn has(self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        match self {
            Self::Any => true,
            Self::Loopback => client.is_loopback(),
            Self::SameHost => client.is_loopback() || peer::is_own_address(client),
            Self::Net(net, bits) => match (net, client) {
                (IpAddr::V4(net), IpAddr::V4(client)) => {
                    same_bits(u128::from(net.to_bits()) << 96, u128::from(client.to_bits()) << 96, bits)
                }
                (IpAddr::V6(net), IpAddr::V6(client)) => same_bits(net.to_bits(), client.to_bits(), bits),
                _ => false,
            },
        }
    }

    fn is_this_machine(self) -> bool {
        self == Self::SameHost || self.is_loopback()
    }

    /// Whether the whole network is loopback.
    fn is_loopback(self) -> bool {
        match self {
            Self::Any | Self::SameHost => false,
            Self::Loopback => true,
            Self::Net(IpAddr::V4(net), bits) => net.is_loopback() && bits >= 8,
            Self::Net(IpAddr::V6(net), bits) => net.is_loopback() && bits == 128,
        }
    }
}

fn same_bits(left: u128, right: u128, bits: u8) -> bool {
    let rest = 128 - u32::from(bits);
    (left ^ right).checked_shr(rest).unwrap_or(0) == 0
}

/// Splits into lines without comments, joined at backslashes, each with the number of its first line.
fn join_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (number, line) in text.lines().enumerate() {
        let (line, next) = match line.strip_suffix('\\') {
            Some(line) => (line, true),
            None => (line, false),
        };
        match lines.last_mut().filter(|_| goes_on) {
            Some((_, last)) => last.push_str(line),
            None => lines.push((number + 1, line.to_string())),
        }
        goes_on = next;
    }
    lines
}

/// A word of a rule. Quoted keywords lose their meaning.
#[derive(Debug, PartialEq, Eq)]
struct Word {
    text: String,
    is_quoted: bool,
}

impl Word {
    fn is(&self, keyword: &str) -> bool {
        !self.is_quoted && self.text == keyword
    }
}

/// Splits a line into fields at blanks, and fields into words at commas.
fn fields(line: &str) -> Result<Vec<Vec<Word>>, String> {
    let mut fields: Vec<Vec<Word>> = Vec::new();
    let mut rest = line.chars().peekable();
    let mut after_comma = false;
    loop {
        while rest.next_if(|c| c.is_whitespace()).is_some() {}
        match rest.peek() {
            None | Some('#') => break,
            Some(',') => {
                rest.next();
                if fields.is_empty() || after_comma {
                    return Err("a comma without a name before it".to_string());
                }
                after_comma = true;
                continue;
            }
            Some(_) => {}
        }
        let mut word = Word { text: String::new(), is_quoted: false };
        let mut is_open = false;
        while let Some(c) = rest.next_if(|c| is_open || !(c.is_whitespace() || matches!(c, ',' | '#'))) {
            if c != '"' {
                word.text.push(c);
            } else if is_open && rest.next_if_eq(&'"').is_some() {
                word.text.push('"');
            } else {
                is_open = !is_open;
                word.is_quoted = true;
            }
        }
        if is_open {
            return Err("a quote is not closed".to_string());
        }
        match fields.last_mut().filter(|_| after_comma) {
            Some(field) => field.push(word),
            None => fields.push(vec![word]),
        }
        after_comma = false;
    }
    if after_comma {
        return Err("a comma without a name after it".to_string());
    }
    Ok(fields)
}

fn rule(line: usize, fields: &[Vec<Word>]) -> Result<Rule, String> {
    let mut fields = fields.iter();
    let mut next = |what: &str| fields.next().ok_or_else(|| format!("the rule ends before its {what}"));
    let transport = match single(next("connection type")?, "connection type")?.text.as_str() {
        "local" => ConnectionTransport::Local,
        "host" => ConnectionTransport::Host,
        "hostssl" => ConnectionTransport::HostTls,
        "hostnossl" => ConnectionTransport::HostNoTls,
        other @ ("hostgssenc" | "hostnogssenc") => {
            return Err(format!("connection type \"{other}\" is not supported: there is no GSSAPI"));
        }
        other @ ("include" | "include_if_exists" | "include_dir") => {
            return Err(format!("\"{other}\" is not supported"));
        }
        other => {
            return Err(format!("\"{other}\" is no connection type: local, host, hostssl and hostnossl are"));
        }
    };
    let databases = next("database")?.iter().map(database).collect::<Result<_, _>>()?;
    let users = next("user")?.iter().map(user).collect::<Result<_, _>>()?;
    let mut address = Address::Loopback;
    if transport != ConnectionTransport::Local {
        let word = single(next("address")?, "address")?;
        address = match self::address(word)? {
            Parsed::Whole(address) => address,
            Parsed::NeedsMask(net) => {
                let mask = single(next("mask")?, "mask")?;
                Address::Net(net, prefix(net, &mask.text)?)
            }
        };
    }
    let name = single(next("method")?, "method")?;
    let method =
        Method::ALL.into_iter().find(|method| name.is(method.name())).ok_or_else(|| unknown(&name.text))?;
    let mut client_certificate = ClientCertificate::None;
    let mut directory = Vec::new();
    for field in fields {
        // Not in the message: it may be a password.
        let (name, value) = single(field, "option")?
            .text
            .split_once('=')
            .ok_or("an option is written name=value, with quotes around a value that has blanks or commas")?;
        match name {
            "clientcert" => client_certificate = client_certificate.max(certificate(value, transport)?),
            _ if method == Method::Ldap => directory.push((name.to_string(), value.to_string())),
            _ if name.starts_with("ldap") => {
                return Err(format!("option \"{name}\" is for method \"ldap\" only"));
            }
            _ => return Err(format!("option \"{name}\" is not supported: clientcert is")),
        }
    }
    let ldap = match method {
        Method::Ldap => Some(Arc::new(LdapDirectory::parse(&directory)?)),
        _ => None,
    };
    match method {
        Method::Cert if transport != ConnectionTransport::HostTls => {
            return Err("method \"cert\" is for hostssl rules only".to_string());
        }
        Method::Cert => client_certificate = ClientCertificate::OfRole,
        Method::Password
            if !matches!(transport, ConnectionTransport::HostTls | ConnectionTransport::Local) =>
        {
            return Err("method \"password\" would send passwords as they are: it is for hostssl and local rules only"
                .to_string());
        }
        Method::Ldap
            if !matches!(transport, ConnectionTransport::HostTls | ConnectionTransport::Local)
                && !address.is_loopback() =>
        {
            return Err("method \"ldap\" would send passwords as they are: it is for hostssl and local rules, and for loopback \
                        addresses"
                .to_string());
        }
        Method::Peer if transport != ConnectionTransport::Local && !address.is_loopback() => {
            return Err(
                "method \"peer\" is for local rules and loopback addresses only: nobody can tell who runs a client \
                 on another machine"
                    .to_string(),
            );
        }
        _ => {}
    }
    Ok(Rule { line, transport, databases, users, address, method, client_certificate, ldap })
}

fn single<'w>(field: &'w [Word], what: &str) -> Result<&'w Word, String> {
    match field {
        [word] => Ok(word),
        _ => Err(format!("a rule has one {what}, and this is a list")),
    }
}

fn database(word: &Word) -> Result<Database, String> {
    Ok(match word.text.as_str() {
        _ if word.is_quoted => Database::Named(word.text.clone()),
        "all" => Database::All,
        "sameuser" => Database::SameUser,
        "samerole" | "samegroup" => Database::SameRole,
        "replication" => return Err("there is no replication".to_string()),
        name => Database::Named(plain(name)?),
    })
}

fn user(word: &Word) -> Result<User, String> {
    Ok(match word.text.strip_prefix('+').filter(|_| !word.is_quoted) {
        Some(role) => User::Member(role.to_string()),
        None if word.is("all") => User::All,
        None if word.is_quoted => User::Named(word.text.clone()),
        None => User::Named(plain(&word.text)?),
    })
}

fn plain(name: &str) -> Result<String, String> {
    match name.chars().next() {
        Some('@') => Err(format!("names from a file (\"{name}\") are not supported")),
        Some('/') => Err(format!("regular expressions (\"{name}\") are not supported")),
        _ => Ok(name.to_string()),
    }
}

enum Parsed {
    Whole(Address),
    NeedsMask(IpAddr),
}

fn address(word: &Word) -> Result<Parsed, String> {
    let text = word.text.as_str();
    match text {
        "all" => return Ok(Parsed::Whole(Address::Any)),
        "samehost" => return Ok(Parsed::Whole(Address::SameHost)),
        "localhost" => return Ok(Parsed::Whole(Address::Loopback)),
        "samenet" => {
            return Err("address \"samenet\" is not supported: write the network as CIDR".to_string());
        }
        _ => {}
    }
    let (net, bits) = text.split_once('/').map_or((text, None), |(net, bits)| (net, Some(bits)));
    let Ok(net) = net.parse::<IpAddr>() else {
        return Err(format!(
            "\"{text}\" is no address: CIDR such as 10.0.0.0/8, all, localhost and samehost are"
        ));
    };
    if matches!(net, IpAddr::V6(net) if net.to_ipv4_mapped().is_some()) {
        return Err(format!("\"{text}\" is an IPv4 address in the form of IPv6: write it as IPv4"));
    }
    let Some(bits) = bits else { return Ok(Parsed::NeedsMask(net)) };
    let most = if net.is_ipv4() { 32 } else { 128 };
    let count = bits.parse::<u8>().ok().filter(|bits| *bits <= most);
    let bits =
        count.ok_or_else(|| format!("\"{bits}\" in \"{text}\" is no number of bits from 0 to {most}"))?;
    check_host_bits(net, bits).map(Parsed::Whole)
}

/// Rejects host bits beyond the prefix, which are usually a mistake.
fn check_host_bits(net: IpAddr, bits: u8) -> Result<Address, String> {
    let first = match net {
        IpAddr::V4(net) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(net.to_bits() & mask))
        }
        IpAddr::V6(net) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(net.to_bits() & mask))
        }
    };
    match first == net {
        true => Ok(Address::Net(net, bits)),
        false => {
            Err(format!("{net}/{bits} has bits beyond the first {bits}: {first}/{bits} is that network"))
        }
    }
}

fn prefix(net: IpAddr, mask: &str) -> Result<u8, String> {
    let wrong = || {
        format!("\"{mask}\" is no mask for {net}; an address needs one, or a number of bits, as in {net}/32")
    };
    let (bits, width) = match (net, mask.parse::<IpAddr>()) {
        (IpAddr::V4(_), Ok(IpAddr::V4(mask))) => (u128::from(mask.to_bits()) << 96, 32),
        (IpAddr::V6(_), Ok(IpAddr::V6(mask))) => (mask.to_bits(), 128),
        _ => return Err(wrong()),
    };
    let ones = bits.leading_ones();
    if bits.count_ones() != ones || ones > width {
        return Err(wrong());
    }
    let ones = u8::try_from(ones).map_err(|_| wrong())?;
    check_host_bits(net, ones).map(|_| ones)
}

fn certificate(value: &str, transport: ConnectionTransport) -> Result<ClientCertificate, String> {
    if transport != ConnectionTransport::HostTls {
        return Err("option \"clientcert\" is for hostssl rules only".to_string());
    }
    match value {
        "verify-ca" => Ok(ClientCertificate::Signed),
        "verify-full" => Ok(ClientCertificate::OfRole),
        _ => Err(format!("\"{value}\" is no value of clientcert: verify-ca and verify-full are")),
    }
}

fn unknown(method: &str) -> String {
    let instead = match method {
        "md5" => ": use scram-sha-256",
        "ident" => ": use peer",
        "gss" | "sspi" | "radius" | "pam" | "bsd" | "oauth" => " by this server",
        _ => {
            return format!(
                "\"{method}\" is no method: trust, reject, scram-sha-256, password, ldap, peer and cert are"
            );
        }
    };
    format!("method \"{method}\" is not supported{instead}")
}

#[cfg(test)]
mod tests;

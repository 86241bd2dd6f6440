//! LDAP options of an HBA rule, named as in PostgreSQL.

use std::fmt;

use ldap3::Scope;
use url::Url;

use super::trust::Trust;

/// Placeholder for the role in a filter.
pub(super) const USERNAME: &str = "$username";

/// Maximum number of servers; more are a mistake, since all of them would be waited for.
const SERVERS_MAX: usize = 8;

const PORT: u16 = 389;
const TLS_PORT: u16 = 636;

/// Names of the options.
const NAMES: [&str; 12] = [
    "ldapserver",
    "ldapport",
    "ldapscheme",
    "ldaptls",
    "ldapprefix",
    "ldapsuffix",
    "ldapbasedn",
    "ldapbinddn",
    "ldapbindpasswd",
    "ldapsearchattribute",
    "ldapsearchfilter",
    "ldapurl",
];

/// An LDAP directory, and how a role's entry is found in it.
#[derive(Debug, PartialEq)]
pub struct LdapDirectory {
    /// Tried in turn; at least one.
    pub(super) servers: Vec<Server>,
    pub(super) encryption: Encryption,
    pub(super) find: Find,
    pub(super) trust: Trust,
}

impl Eq for LdapDirectory {}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Server {
    pub host: String,
    pub port: u16,
}

impl Server {
    /// By its name only.
    pub fn is_loopback(&self) -> bool {
        self.host == "localhost"
            || self.host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encryption {
    None,
    /// StartTLS on an unencrypted connection.
    StartTls,
    /// TLS from the first byte.
    Tls,
}

#[derive(Debug, PartialEq)]
pub(super) enum Find {
    /// Prefix and suffix around the role in its distinguished name.
    Name { prefix: String, suffix: String },
    Search {
        base: String,
        scope: Scope,
        /// Contains [`USERNAME`].
        filter: String,
        /// The search account; `None` for an anonymous search.
        account: Option<(String, Secret)>,
    },
}

/// A password, hidden in Debug output.
#[derive(PartialEq)]
pub(super) struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// The options in a rule's URL.
#[derive(Default)]
struct UrlOptions {
    scheme: Option<String>,
    server: Option<String>,
    port: Option<String>,
    base: Option<String>,
    attribute: Option<String>,
    scope: Option<Scope>,
    filter: Option<String>,
}

impl LdapDirectory {
    /// Parses options and their values, in any order.
    ///
    /// Errors, as text: an option is unknown, missing, or conflicts with another. They contain no passwords.
    pub fn parse(options: &[(String, String)]) -> Result<Self, String> {
        for (number, (name, _)) in options.iter().enumerate() {
            if !NAMES.contains(&name.as_str()) {
                return Err(format!("option \"{name}\" is not supported: {} are", NAMES.join(", ")));
            }
            if options[..number].iter().any(|(earlier, _)| earlier == name) {
                return Err(format!("option \"{name}\" is given twice"));
            }
        }
        let of = |name: &str| options.iter().find(|(given, _)| given == name).map(|(_, value)| value.clone());
        let url = of("ldapurl").map(|url| parse_url(&url)).transpose()?.unwrap_or_default();
        let both = |name: &str, url: Option<String>| match (of(name), url) {
            (Some(_), Some(_)) => Err(format!("{name} and ldapurl say the same thing twice")),
            (given, url) => Ok(given.or(url)),
        };
        let scheme = both("ldapscheme", url.scheme)?;
        let encryption = encryption(scheme.as_deref(), of("ldaptls").as_deref())?;
        let servers = servers(both("ldapserver", url.server)?, both("ldapport", url.port)?, encryption)?;
        let base = both("ldapbasedn", url.base)?;
        let attribute = both("ldapsearchattribute", url.attribute)?;
        let filter = both("ldapsearchfilter", url.filter)?;
        let account = account(of("ldapbinddn"), of("ldapbindpasswd"))?;
        let (prefix, suffix) = (of("ldapprefix"), of("ldapsuffix"));
        let is_search = base.is_some()
            || attribute.is_some()
            || filter.is_some()
            || account.is_some()
            || of("ldapurl").is_some();
        let find = match (prefix.is_some() || suffix.is_some(), is_search) {
            (true, true) => {
                return Err(
                    "ldapprefix and ldapsuffix do not go with ldapbasedn, ldapbinddn, ldapbindpasswd, \
                            ldapsearchattribute, ldapsearchfilter or ldapurl"
                        .to_string(),
                );
            }
            (true, false) => {
                Find::Name { prefix: prefix.unwrap_or_default(), suffix: suffix.unwrap_or_default() }
            }
            (false, _) => Find::Search {
                base: base.ok_or("method \"ldap\" needs ldapbasedn, ldapprefix or ldapsuffix")?,
                scope: url.scope.unwrap_or(Scope::Subtree),
                filter: self::filter(attribute, filter)?,
                account,
            },
        };
        Ok(Self { servers, encryption, find, trust: Trust::default() })
    }
}

fn encryption(scheme: Option<&str>, tls: Option<&str>) -> Result<Encryption, String> {
    let start = match tls {
        None | Some("0") => false,
        Some("1") => true,
        Some(other) => return Err(format!("\"{other}\" is no value of ldaptls: 0 and 1 are")),
    };
    match scheme {
        None | Some("ldap") if start => Ok(Encryption::StartTls),
        None | Some("ldap") => Ok(Encryption::None),
        Some("ldaps") if start => {
            Err("ldaptls=1 is for the scheme ldap: ldaps is encrypted already".to_string())
        }
        Some("ldaps") => Ok(Encryption::Tls),
        Some(other) => Err(format!("\"{other}\" is no value of ldapscheme: ldap and ldaps are")),
    }
}

fn servers(
    hosts: Option<String>,
    port: Option<String>,
    encryption: Encryption,
) -> Result<Vec<Server>, String> {
    let usual = if encryption == Encryption::Tls { TLS_PORT } else { PORT };
    let port = match port {
        None => usual,
        Some(port) => port
            .parse()
            .ok()
            .filter(|port| *port != 0)
            .ok_or_else(|| format!("\"{port}\" is no value of ldapport: a number from 1 to 65535 is"))?,
    };
    let hosts = hosts.unwrap_or_default();
    let servers: Vec<Server> = hosts
        .split_whitespace()
        .map(|host| {
            let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
            Server { host: bare.to_string(), port }
        })
        .collect();
    match servers.iter().find(|server| server.host.contains('/') || server.host.matches(':').count() == 1) {
        Some(odd) => Err(format!("\"{}\" is no host of ldapserver: ldapport has the port", odd.host)),
        None if servers.is_empty() => Err("method \"ldap\" needs ldapserver or ldapurl".to_string()),
        None if servers.len() > SERVERS_MAX => {
            Err(format!("{} servers are more than the {SERVERS_MAX} that are tried", servers.len()))
        }
        None => Ok(servers),
    }
}

/// The search account: both name and password, or neither. Some servers treat a name alone as an anonymous
/// bind.
fn account(name: Option<String>, password: Option<String>) -> Result<Option<(String, Secret)>, String> {
    let is_given = |value: &Option<String>| value.as_ref().is_some_and(|value| !value.is_empty());
    match (is_given(&name), is_given(&password)) {
        (true, true) => Ok(name.zip(password.map(Secret))),
        (true, false) => {
            Err("ldapbinddn needs ldapbindpasswd: a directory takes a name without one for nobody"
                .to_string())
        }
        (false, true) => Err("ldapbindpasswd needs ldapbinddn".to_string()),
        (false, false) => Ok(None),
    }
}

fn filter(attribute: Option<String>, filter: Option<String>) -> Result<String, String> {
    let filter = match (attribute, filter) {
        (Some(_), Some(_)) => return Err("ldapsearchattribute does not go with ldapsearchfilter".to_string()),
        (_, Some(filter)) => filter,
        (attribute, None) => {
            let attribute = attribute.unwrap_or_else(|| "uid".to_string());
            if attribute.is_empty()
                || !attribute.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | ';'))
            {
                return Err(format!("\"{attribute}\" is no name of an attribute"));
            }
            format!("({attribute}={USERNAME})")
        }
    };
    if !filter.contains(USERNAME) {
        // Without it every role would have the same entry and password.
        return Err(format!("the filter {filter} has no {USERNAME}"));
    }
    match ldap3::parse_filter(filter.replace(USERNAME, "x")) {
        Ok(_) => Ok(filter),
        Err(_) => Err(format!("\"{filter}\" is no filter, as (&(objectClass=person)(uid={USERNAME})) is")),
    }
}

/// Parses `ldap[s]://host[:port]/base[?attribute[?scope[?filter]]]`.
fn parse_url(text: &str) -> Result<UrlOptions, String> {
    let wrong = |why: &str| format!("\"{text}\" is no value of ldapurl: {why}");
    let url = Url::parse(text).map_err(|error| wrong(&error.to_string()))?;
    if !matches!(url.scheme(), "ldap" | "ldaps") {
        return Err(wrong("its scheme has to be ldap or ldaps"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(
            "a value of ldapurl has no user and no password: ldapbinddn and ldapbindpasswd have".to_string()
        );
    }
    let said = ldap3::get_url_params(&url).map_err(|error| wrong(&error.to_string()))?;
    if !said.extensions.is_empty() {
        return Err(wrong("extensions are not supported"));
    }
    let mut parts = url.query().unwrap_or_default().split('?').map(|part| !part.is_empty());
    let (has_attribute, has_scope, has_filter) =
        (parts.next() == Some(true), parts.next() == Some(true), parts.next() == Some(true));
    let given = |text: &str| Some(text.to_string()).filter(|text| !text.is_empty());
    Ok(UrlOptions {
        scheme: given(url.scheme()),
        server: url.host_str().and_then(given),
        port: url.port().map(|port| port.to_string()),
        base: given(&said.base),
        attribute: said.attrs.first().filter(|_| has_attribute).and_then(|attribute| given(attribute)),
        // RFC 4516, section 2.
        scope: Some(if has_scope { said.scope } else { Scope::Base }),
        filter: Some(said.filter.to_string()).filter(|_| has_filter),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(options: &[(&str, &str)]) -> Result<LdapDirectory, String> {
        let owned = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
        LdapDirectory::parse(&options.iter().map(owned).collect::<Vec<_>>())
    }

    #[test]
    fn complete_ldap_options_are_accepted() {
        let direct = parse(&[
            ("ldapserver", "one [::1]  two"),
            ("ldaptls", "1"),
            ("ldapprefix", "uid="),
            ("ldapsuffix", ",dc=org"),
        ]);
        let direct = direct.unwrap();
        let shown: Vec<_> = direct.servers.iter().map(Server::to_string).collect();
        assert_eq!(shown, ["one:389", "[::1]:389", "two:389"]);
        assert_eq!(direct.encryption, Encryption::StartTls);
        let search = parse(&[
            ("ldapurl", "ldaps://dir.example.org:10636/dc=example,dc=org?cn?sub"),
            ("ldapbinddn", "cn=reader"),
            ("ldapbindpasswd", "hidden"),
        ])
        .unwrap();
        assert_eq!(search.servers, [Server { host: "dir.example.org".to_string(), port: 10636 }]);
        assert_eq!(search.encryption, Encryption::Tls);
        let Find::Search { base, scope, filter, .. } = &search.find else { panic!("{search:?}") };
        assert_eq!(
            (base.as_str(), *scope, filter.as_str()),
            ("dc=example,dc=org", Scope::Subtree, "(cn=$username)")
        );
        assert!(!format!("{search:?}").contains("hidden"));
        // Without a scope, a URL refers to the entry that it names.
        let base = parse(&[("ldapurl", "ldap://h/dc=org???(&(a=b)(uid=$username))")]).unwrap();
        let Find::Search { scope, filter, .. } = &base.find else { panic!("{base:?}") };
        assert_eq!((*scope, filter.as_str()), (Scope::Base, "(&(a=b)(uid=$username))"));
        assert_eq!(base.servers[0].port, PORT);
        let plain = parse(&[("ldapserver", "h"), ("ldapscheme", "ldaps"), ("ldapbasedn", "dc=org")]).unwrap();
        assert_eq!(plain.servers[0].port, TLS_PORT);
        let Find::Search { scope, filter, account, .. } = &plain.find else { panic!("{plain:?}") };
        assert_eq!((*scope, filter.as_str(), account), (Scope::Subtree, "(uid=$username)", &None));
    }

    #[test]
    fn conflicting_ldap_options_are_refused_without_secrets() {
        let server = ("ldapserver", "h");
        for (options, says) in [
            (vec![server], "needs ldapbasedn"),
            (vec![("ldapbasedn", "dc=org")], "needs ldapserver"),
            (vec![server, ("ldapprefix", "a"), ("ldapbasedn", "b")], "do not go with"),
            (vec![server, ("ldapsearchattribute", "uid"), ("ldapprefix", "a")], "do not go with"),
            (
                vec![server, ("ldapbasedn", "b"), ("ldapsearchattribute", "a"), ("ldapsearchfilter", "f")],
                "does not go",
            ),
            (vec![server, ("ldapbasedn", "b"), ("ldapsearchfilter", "(uid=ann)")], "has no $username"),
            (vec![server, ("ldapbasedn", "b"), ("ldapsearchfilter", "(uid=$username")], "is no filter"),
            (
                vec![server, ("ldapbasedn", "b"), ("ldapsearchattribute", "uid=*)(a")],
                "no name of an attribute",
            ),
            (vec![server, ("ldapbasedn", "b"), ("ldapbinddn", "cn=x")], "needs ldapbindpasswd"),
            (vec![server, ("ldapbasedn", "b"), ("ldapbindpasswd", "hidden")], "needs ldapbinddn"),
            (vec![server, ("ldapbasedn", "b"), ("ldapport", "0")], "ldapport"),
            (vec![("ldapserver", "h:389"), ("ldapbasedn", "b")], "ldapport has the port"),
            (vec![("ldapserver", "1 2 3 4 5 6 7 8 9"), ("ldapbasedn", "b")], "more than"),
            (vec![server, ("ldapbasedn", "b"), ("ldapscheme", "ldapi")], "ldapscheme"),
            (
                vec![server, ("ldapbasedn", "b"), ("ldapscheme", "ldaps"), ("ldaptls", "1")],
                "encrypted already",
            ),
            (vec![server, ("ldapbasedn", "b"), ("ldaptls", "on")], "ldaptls"),
            (vec![server, ("ldapbasedn", "b"), ("ldapbasedn", "c")], "given twice"),
            (vec![("ldapurl", "ldap://h/b"), server], "twice"),
            (vec![("ldapurl", "http://h/b")], "scheme"),
            (vec![("ldapurl", "ldap://cn:hidden@h/b")], "no password"),
            (vec![("ldapurl", "ldap://h/b?uid?tree")], "scope"),
            (vec![server, ("ldapbase", "b")], "not supported"),
        ] {
            let said = parse(&options).map(|_| ()).unwrap_err();
            assert!(said.contains(says), "{options:?}: {said}");
            assert!(!said.contains("hidden"), "{said}");
        }
    }
}

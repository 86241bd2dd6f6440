//! The configuration file of `harrier serve`: keys, their documentation, and validation.
//!
//! A key is declared once, below, with its documentation, its default, and whether it can be reloaded. The
//! fields, the commented example file ([`Config::example`]), the errors, and [`Config::reload`] derive from
//! that.

pub mod telemetry;
pub mod values;

mod checks;
mod findings;
mod secrets;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use harrier_error::{SqlError, SqlState};
use serde::Deserialize;
use toml::de::{DeTable, DeValue};

pub use findings::{Finding, Gravity, on_path};
use telemetry::{Endpoint, HeaderLine};
use values::{Address, AuditStatements, GangLauncher, HostName, Kind, OrAuto, OrOff, Period, Size};

/// The complete configuration.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub server: Server,
    pub gang: Gang,
    pub statements: Statements,
    pub telemetry: Telemetry,
    pub settings: Settings,
}

/// Metadata of a key.
#[derive(Debug, Clone)]
pub struct Key {
    /// `gang.ranks`.
    pub name: String,
    /// Sentences, one per line.
    pub documentation: &'static [&'static str],
    /// Allowed values after `key =`.
    pub allowed: String,
    /// The default, as TOML.
    pub default: String,
    /// Whether a reload applies a new value.
    pub can_change: bool,
}

/// A section of the file with its keys' metadata.
#[derive(Debug, Clone)]
pub struct Section {
    pub name: &'static str,
    /// Sentences, one per line.
    pub about: &'static [&'static str],
    pub keys: Vec<Key>,
    /// Example lines of a section with free keys.
    pub example: &'static [&'static str],
}

/// Declares a section: a struct with its defaults, and its keys' metadata.
macro_rules! section {
    ($(#[doc = $about:literal])+ $section:literal $name:ident {
        $($(#[doc = $doc:literal])+ $change:ident $field:ident: $kind:ty = $default:expr;)+
    }) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $($(#[doc = $doc])+ pub $field: $kind,)+
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }

        impl $name {
            const SECTION: &str = $section;
            const ABOUT: &[&str] = &[$($about),+];

            fn keys() -> Vec<Key> {
                let default = Self::default();
                vec![$(Key {
                    name: concat!($section, ".", stringify!($field)).to_string(),
                    documentation: &[$($doc),+],
                    allowed: <$kind as Kind>::allowed_values(),
                    default: default.$field.to_toml(),
                    can_change: section!(@ $change),
                }),+]
            }

            /// Applies reloadable values, and reports the other keys that differ.
            fn reload(&mut self, new: Self, differ: &mut Vec<&'static str>) {
                $(if self.$field != new.$field {
                    if section!(@ $change) {
                        self.$field = new.$field;
                    } else {
                        differ.push(concat!($section, ".", stringify!($field)));
                    }
                })+
            }

            fn resolve_path(&mut self, folder: &Path) {
                $(self.$field.resolve_path(folder);)+
            }

            fn values(&self) -> Vec<String> {
                vec![$(self.$field.to_toml()),+]
            }
        }
    };
    (@ reload) => { true };
    (@ restart) => { false };
}

section! {
    /// Where clients come in.
    "server" Server {
        /// Where clients of the PostgreSQL protocol connect to.
        /// An address that other machines can reach needs a certificate.
        restart listen: Vec<Address> = vec![Address::loopback(5433)];

        /// The folder of a socket for clients on this machine, as psql's -h takes it.
        /// The socket gets the name .s.PGSQL.<port>, with the port of the first address.
        restart unix_socket: OrOff<PathBuf> = OrOff::OFF;

        /// Where the pages, /metrics and /healthz are. Their password and what they show are not
        /// encrypted on the way: an address that other machines can reach is refused.
        restart http: OrOff<Address> = OrOff(Some(Address::loopback(8080)));

        /// A file with the password of the user harrier of the pages and of /metrics, in its first line, that
        /// nobody else can read. Off: one is made at every start and printed.
        restart http_password_file: OrOff<PathBuf> = OrOff::OFF;

        /// Names by which browsers reach the pages, beside localhost and addresses.
        /// A request for another name is refused, so that a foreign page cannot have its own name point here.
        restart http_names: Vec<HostName> = Vec::new();

        /// Whether statements can be canceled and sessions ended from the pages.
        restart http_actions: bool = false;

        /// Where clients of Arrow Flight SQL connect to. With a certificate all of them have to come over
        /// TLS. An address that other machines can reach needs a certificate.
        restart flight: OrOff<Address> = OrOff::OFF;

        /// Where clients of Hive connect to: beeline, drivers of JDBC and ODBC, PyHive, impyla. The binary
        /// transport with SASL PLAIN or without SASL, and HTTP, are told apart by themselves. With a
        /// certificate all of them have to come over TLS. An address that other machines can reach needs a
        /// certificate.
        restart hive: OrOff<Address> = OrOff::OFF;

        /// Sessions at a time, from 1 to 100000. Flight SQL and HiveServer2 take a new value over when the
        /// server is started again.
        reload max_connections: u32 = 1024;

        /// Rules of who may come in from where, and how they prove who they are, as PostgreSQL's pg_hba.conf.
        /// Its methods are peer, scram-sha-256, password, ldap, cert, trust and reject.
        /// Off: from this machine only, as the operating system's user or with the password of a role.
        reload hba_file: OrOff<PathBuf> = OrOff::OFF;

        /// Whether this is one of several servers of the same warehouse, of which one serves and the others
        /// wait to take over. Their catalog has to be in PostgreSQL. Who waits refuses clients (57P03), which
        /// try the next host of their connection string.
        restart standby: bool = false;

        /// How long a server of several that is not heard of is left its place, at least a second.
        restart lease: Period = Period::seconds(5);

        /// The certificate for TLS with the chain below its root, as PEM. Certificates and keys are read
        /// again at a reload.
        reload tls_certificate: OrOff<PathBuf> = OrOff::OFF;

        /// The key of that certificate, as PEM, in a file that nobody else can read.
        reload tls_key: OrOff<PathBuf> = OrOff::OFF;

        /// Certificates, as PEM, of who may sign certificates of clients.
        reload tls_client_ca: OrOff<PathBuf> = OrOff::OFF;

        /// A file to which it is written, a line of JSON each, who comes and goes, who is refused, and what
        /// statements come to. It is opened again at a reload. While it cannot be written, nothing new is let
        /// in or run.
        reload audit_log: OrOff<PathBuf> = OrOff::OFF;

        /// Which statements the audit log has: none, those that change what there is or who may do what, or
        /// all. Passwords and keys in them are left out.
        reload audit_statements: AuditStatements = AuditStatements::Ddl;

        /// How long a client may take to say and prove who it is.
        reload authentication_timeout: Period = Period::seconds(30);

        /// How long statements may go on when the server is asked to end.
        reload drain_timeout: Period = Period::seconds(10);
    }
}

section! {
    /// The ranks that statements run on.
    "gang" Gang {
        /// Ranks that work, from 1 to 4096. Auto: in a Slurm allocation its tasks, or else its cores;
        /// elsewhere as many as this machine has cores, whatever the hostfile says; 1 without a launcher.
        restart ranks: OrAuto<u32> = OrAuto::AUTO;

        /// Ranks that wait to replace one that is lost, from 0 to 4096.
        restart spares: u32 = 0;

        /// What starts the ranks. Auto: srun in a Slurm allocation, else mpirun where there is one, else
        /// none. None: there are no ranks, and statements run in the server's process.
        restart launcher: GangLauncher = GangLauncher::Auto;

        /// The hosts to start ranks on, a line each (`name slots=2`, or `name:2`; one rank without a number),
        /// the server's own first.
        restart hostfile: OrOff<PathBuf> = OrOff::OFF;

        /// What runs a program on another host of that file, as ssh does: it gets the host's name and the
        /// program. A host that does not answer it is left out until it does. None: nobody is asked.
        restart remote_shell: String = "ssh".to_string();

        /// What mpirun or srun gets before the program.
        restart launcher_arguments: Vec<String> = Vec::new();

        /// Threads of each rank, from 1 to 1024. Auto: the cores of a host by its ranks.
        restart threads_per_rank: OrAuto<u32> = OrAuto::AUTO;

        /// Memory that statements may hold, over all ranks of this host and this process, before they spill
        /// to disk. Auto: 80 % of the machine's.
        restart memory: OrAuto<Size> = OrAuto::AUTO;

        /// The folders of temporary files, best on a disk each; one that fails is not used again. None: the
        /// system's.
        restart spill_dirs: Vec<PathBuf> = Vec::new();

        /// Statements that run on the gang at a time; others wait. Off: any number.
        reload statements_max: OrOff<u32> = OrOff(Some(4));
    }
}

section! {
    /// How long sessions and statements may take, and how much.
    "statements" Statements {
        /// How long a statement may run. What SET statement_timeout starts from.
        reload timeout: OrOff<Period> = OrOff::OFF;

        /// How long a session may do nothing outside of a transaction.
        reload idle_session_timeout: OrOff<Period> = OrOff::OFF;

        /// How long a session may do nothing inside of a transaction.
        reload idle_in_transaction_timeout: OrOff<Period> = OrOff::OFF;

        /// How long a statement may wait for its turn on the gang.
        reload queue_wait_max: OrOff<Period> = OrOff(Some(Period::seconds(300)));

        /// Memory that a statement may take of every rank, or of this process, before it spills; the limit of
        /// its resource queue counts as well. Sessions can only set less (harrier.statement_memory).
        restart memory_max: OrOff<Size> = OrOff::OFF;

        /// Temporary files that a statement may have on every rank; one that needs more fails with 53400.
        restart spill_max: OrOff<Size> = OrOff::OFF;

        /// Rows that a statement may return to its client; one that has more fails with 54000.
        restart rows_max: OrOff<u32> = OrOff::OFF;
    }
}

section! {
    /// What is told to OpenTelemetry.
    "telemetry" Telemetry {
        /// A collector that takes OTLP over HTTP, without /v1/traces. It gets a span for every statement, and
        /// one for each of its slices on each rank.
        restart otlp_endpoint: OrOff<Endpoint> = OrOff::OFF;

        /// What every request to it carries, such as its token.
        restart otlp_headers: Vec<HeaderLine> = Vec::new();

        /// What the spans name this server.
        restart service_name: String = "harrier".to_string();

        /// Whether texts of statements are sent with the values in them. False: a question mark stands for
        /// each.
        restart literals: bool = false;
    }
}

/// SQL settings that every session starts with, as for `SET`. `Debug` hides their values: some are secrets.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "toml::Table")]
pub struct Settings(pub BTreeMap<String, String>);

impl Settings {
    const SECTION: &str = "settings";
    const ABOUT: &[&str] = &[
        " SQL settings that every session starts with, as SET takes them: a text, a number, or true or false.",
        " A running server takes new ones over, for new sessions; those with a dot in their names need a restart.",
    ];
    /// Settings of the engine, for all sessions: their names contain a dot.
    pub fn of_engine(&self) -> impl Iterator<Item = (&String, &String)> {
        self.0.iter().filter(|(name, _)| name.contains('.'))
    }

    /// Settings that a client could set in its startup message.
    pub fn of_sessions(&self) -> impl Iterator<Item = (&String, &String)> {
        self.0.iter().filter(|(name, _)| !name.contains('.'))
    }

    const EXAMPLE: &[&str] = &["timezone = \"UTC\"", "harrier.distribute_bytes_min = \"1MiB\""];
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl TryFrom<toml::Table> for Settings {
    type Error = String;

    fn try_from(table: toml::Table) -> Result<Self, String> {
        let mut settings = BTreeMap::new();
        flatten("", table, &mut settings)?;
        Ok(Self(settings))
    }
}

/// A dot in a TOML key makes a table, unlike a dot in a setting's name.
fn flatten(prefix: &str, table: toml::Table, settings: &mut BTreeMap<String, String>) -> Result<(), String> {
    for (key, value) in table {
        let name = format!("{prefix}{key}");
        let value = match value {
            toml::Value::Table(table) => {
                flatten(&format!("{name}."), table, settings)?;
                continue;
            }
            toml::Value::String(text) => text,
            toml::Value::Integer(_) | toml::Value::Float(_) | toml::Value::Boolean(_) => value.to_string(),
            _ => return Err(format!("{name} is a list or a date without quotes")),
        };
        if settings.insert(name.clone(), value).is_some() {
            return Err(format!("{name} is set twice"));
        }
    }
    Ok(())
}

/// An error in a configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// `gang.ranks`; empty for the text as a whole.
    pub key: String,
    /// 1-based; `None` if the file lacks the key, or cannot be read.
    pub line: Option<usize>,
    pub message: String,
    /// Allowed values, or a remedy.
    pub hint: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)?;
        self.hint.iter().try_for_each(|hint| write!(f, " ({hint})"))
    }
}

/// All errors of a configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    pub path: PathBuf,
    /// At least one.
    pub problems: Vec<Problem>,
}

impl ConfigError {
    pub fn sqlstate(&self) -> SqlState {
        SqlState::CONFIG_FILE_ERROR
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "configuration file \"{}\" cannot be used", self.path.display())?;
        self.problems.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

impl std::error::Error for ConfigError {}

impl From<ConfigError> for SqlError {
    fn from(error: ConfigError) -> Self {
        let problems: Vec<String> = error.problems.iter().map(Problem::to_string).collect();
        let message = format!("configuration file \"{}\" cannot be used", error.path.display());
        Self::new(error.sqlstate(), message).with_detail(problems.join("\n"))
    }
}

impl Config {
    /// Reads and validates a file. Relative paths in it are relative to its folder. Blocks.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let fail = |problems| ConfigError { path: path.to_path_buf(), problems };
        let text = std::fs::read_to_string(path).map_err(|error| {
            let message = error.to_string();
            fail(vec![Problem { key: String::new(), line: None, message, hint: None }])
        })?;
        let folder = std::path::absolute(path).ok().and_then(|path| path.parent().map(Path::to_path_buf));
        Self::parse(&text, &folder.unwrap_or_default()).map_err(fail)
    }

    /// Parses and validates the text of a file in `folder`.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, Vec<Problem>> {
        let document = DeTable::parse(text).map_err(|error| vec![syntax_problem(text, &error)])?;
        let places = Places::of(text, document.get_ref());
        let unknown = places.unknown();
        if !unknown.is_empty() {
            return Err(unknown);
        }
        let mut config: Self = toml::from_str(text).map_err(|error| vec![places.kind_problem(&error)])?;
        config.server.resolve_path(folder);
        config.gang.resolve_path(folder);
        config.statements.resolve_path(folder);
        config.telemetry.resolve_path(folder);
        let mut problems = config.check();
        for problem in &mut problems {
            problem.line = places.line(&problem.key);
        }
        problems.sort_by_key(|problem| problem.line.unwrap_or(usize::MAX));
        if problems.is_empty() { Ok(config) } else { Err(problems) }
    }

    /// Applies the reloadable values of `new`. Returns the keys that differ and need a restart.
    pub fn reload(&mut self, new: Self) -> Vec<&'static str> {
        let mut differ = Vec::new();
        self.server.reload(new.server, &mut differ);
        self.gang.reload(new.gang, &mut differ);
        self.statements.reload(new.statements, &mut differ);
        self.telemetry.reload(new.telemetry, &mut differ);
        if self.settings.of_engine().ne(new.settings.of_engine()) {
            differ.push(Settings::SECTION);
        }
        self.settings = new.settings;
        differ
    }

    /// Metadata of every key, in the order of the example file, without the free keys of `settings`.
    pub fn keys() -> Vec<Key> {
        [Server::keys(), Gang::keys(), Statements::keys(), Telemetry::keys()].concat()
    }

    /// The sections of the example file, in order.
    pub fn sections() -> Vec<Section> {
        let section = |name, about, keys| Section { name, about, keys, example: &[] };
        vec![
            section(Server::SECTION, Server::ABOUT, Server::keys()),
            section(Gang::SECTION, Gang::ABOUT, Gang::keys()),
            section(Statements::SECTION, Statements::ABOUT, Statements::keys()),
            section(Telemetry::SECTION, Telemetry::ABOUT, Telemetry::keys()),
            Section { example: Settings::EXAMPLE, ..section(Settings::SECTION, Settings::ABOUT, Vec::new()) },
        ]
    }

    /// The values of [`Config::keys`], as TOML.
    pub fn values(&self) -> Vec<String> {
        let Self { server, gang, statements, telemetry, .. } = self;
        [server.values(), gang.values(), statements.values(), telemetry.values()].concat()
    }

    /// An example file with every key, its documentation and its default, all commented out.
    pub fn example() -> String {
        let mut lines = vec![
            "# The configuration of `harrier serve`. Every key has its default; remove the # before one to change it.".to_string(),
            "# Relative paths are relative to the folder of this file.".to_string(),
        ];
        for section in Self::sections() {
            lines.push(String::new());
            lines.extend(section.about.iter().map(|line| format!("#{line}")));
            lines.push(format!("[{}]", section.name));
            lines.extend(section.example.iter().map(|line| format!("#{line}")));
            for key in section.keys {
                let name = key.name.rsplit('.').next().unwrap_or_default();
                lines.push(String::new());
                lines.extend(key.documentation.iter().map(|line| format!("#{line}")));
                lines.push(format!("# Allowed: {}.", key.allowed));
                if !key.can_change {
                    lines.push("# A new value needs a restart of the server.".to_string());
                }
                lines.push(format!("#{name} = {}", key.default));
            }
        }
        lines.push(String::new());
        lines.join("\n")
    }
}

fn syntax_problem(text: &str, error: &toml::de::Error) -> Problem {
    Problem {
        key: String::new(),
        line: error.span().map(|span| line_at(text, span.start)),
        message: error.message().lines().next().unwrap_or_default().to_string(),
        hint: error.message().lines().nth(1).map(str::to_string),
    }
}

/// 1-based.
fn line_at(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// Positions of the keys in a text.
struct Places<'a> {
    text: &'a str,
    /// Full name, offset, and byte range of the value.
    keys: Vec<(String, usize, std::ops::Range<usize>)>,
    definitions: Vec<Key>,
    /// Settings with unsuitable values, and their offsets.
    unsuitable: Vec<(String, usize)>,
}

impl<'a> Places<'a> {
    fn of(text: &'a str, document: &DeTable<'_>) -> Self {
        let mut places = Self { text, keys: Vec::new(), definitions: Config::keys(), unsuitable: Vec::new() };
        for (section, value) in document.iter() {
            let name = section.get_ref().to_string();
            places.keys.push((name.clone(), section.span().start, value.span()));
            if let DeValue::Table(table) = value.get_ref() {
                places.add(&name, table);
            }
        }
        places
    }

    /// Adds the keys of a table. Below `settings`, a table made by a dot is only part of a name.
    fn add(&mut self, prefix: &str, table: &DeTable<'_>) {
        for (key, value) in table.iter() {
            let (name, at) = (format!("{prefix}.{}", key.get_ref()), key.span().start);
            if prefix.split('.').next() == Some(Settings::SECTION) {
                match value.get_ref() {
                    DeValue::Table(table) => {
                        self.add(&name, table);
                        continue;
                    }
                    DeValue::Array(_) | DeValue::Datetime(_) => self.unsuitable.push((name.clone(), at)),
                    // The same name, both quoted and unquoted.
                    _ if self.line(&name).is_some() => self.unsuitable.push((name.clone(), at)),
                    _ => {}
                }
            }
            self.keys.push((name, at, value.span()));
        }
    }

    fn line(&self, key: &str) -> Option<usize> {
        let at = self.keys.iter().find(|(name, ..)| name == key)?.1;
        Some(line_at(self.text, at))
    }

    fn unknown(&self) -> Vec<Problem> {
        let sections =
            [Server::SECTION, Gang::SECTION, Statements::SECTION, Telemetry::SECTION, Settings::SECTION];
        let mut problems: Vec<Problem> = Vec::new();
        for (name, at, _) in &self.keys {
            let names: Vec<&str> = self.definitions.iter().map(|key| key.name.as_str()).collect();
            let (message, allowed) = match name.split_once('.') {
                None if !sections.contains(&name.as_str()) => ("there is no such section", sections.to_vec()),
                Some((section, _)) if section != Settings::SECTION && sections.contains(&section) => {
                    if names.contains(&name.as_str()) {
                        continue;
                    }
                    let prefix = &name[..=section.len()];
                    (
                        "there is no such key",
                        names.iter().filter_map(|name| name.strip_prefix(prefix)).collect(),
                    )
                }
                _ => continue,
            };
            let own = name.rsplit('.').next().unwrap_or_default();
            let elsewhere =
                names.iter().find(|known| known.rsplit('.').next() == Some(own)).map(ToString::to_string);
            let meant = elsewhere.or_else(|| {
                let near = allowed.iter().map(|known| (distance(own, known), known)).min()?;
                (near.0 <= own.len() / 3).then(|| near.1.to_string())
            });
            let hint = match meant {
                Some(meant) => format!("did you mean {meant}?"),
                None => format!("allowed: {}", allowed.join(", ")),
            };
            problems.push(Problem {
                key: name.clone(),
                line: Some(line_at(self.text, *at)),
                message: message.to_string(),
                hint: Some(hint),
            });
        }
        problems.extend(self.unsuitable.iter().map(|(name, at)| Problem {
            key: name.clone(),
            line: Some(line_at(self.text, *at)),
            message: "not a value of a setting, or set twice".to_string(),
            hint: Some("allowed: a text in quotes, a number, true or false".to_string()),
        }));
        problems.sort_by_key(|problem| problem.line);
        problems
    }

    /// A value of the wrong type.
    fn kind_problem(&self, error: &toml::de::Error) -> Problem {
        let at = error.span().map_or(0, |span| span.start);
        let around = self.keys.iter().filter(|(_, start, value)| (*start..value.end).contains(&at));
        // A section contains its keys; the innermost range wins.
        let place = around.min_by_key(|(_, start, value)| value.end - start);
        let Some((name, start, value)) = place else {
            return syntax_problem(self.text, error);
        };
        let known = self.definitions.iter().find(|key| key.name == *name);
        // serde's own messages name Rust types.
        let is_serdes = error.message().starts_with("invalid ");
        let (message, hint) = match known {
            Some(key) => {
                let shown = self.text[value.clone()].lines().next().unwrap_or_default();
                let message =
                    if is_serdes { format!("{shown} is not allowed") } else { error.message().to_string() };
                (message, Some(format!("allowed: {}", key.allowed)))
            }
            None if is_serdes => {
                ("not a section".to_string(), Some(format!("write [{name}] and keys below it")))
            }
            None => (error.message().to_string(), None),
        };
        Problem { key: name.clone(), line: Some(line_at(self.text, *start)), message, hint }
    }
}

/// Edit distance between two words.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, char) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, other) in other.iter().enumerate() {
            let changed = diagonal + usize::from(char != *other);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests;

//! A measured configuration: parses its text from the command line, and builds the command of its worker.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Failure, machine};

/// One process without ranks.
const EMBEDDED: &str = "embedded";

/// Ranks started by a launcher, over MPI and over gRPC.
pub const MPI: &str = "mpi";
pub const GRPC: &str = "grpc";

/// Value of `harrier.interconnect` with all ranks in one process.
pub const INPROCESS: &str = "inprocess";

/// Single-process kinds of `bench interconnect`: a copy in memory, and a copy that is then read.
pub const MEMCPY: &str = "memcpy";
pub const MEMCPY_SUM: &str = "memcpysum";

/// Kind whose ranks connect over QUIC, without a launcher.
pub const UDP: &str = "udp";

/// Launchers to search for, in order of likelihood, after `HARRIER_MPIRUN`.
const LAUNCHERS: [&str; 2] = ["mpirun", "mpiexec"];
const LAUNCHER_VARIABLE: &str = "HARRIER_MPIRUN";

/// Environment of launchers: Open MPI 4, Open MPI 5 and others use different names, and each ignores those of
/// the others.
pub const LAUNCHER_ENVIRONMENT: [(&str, &str); 9] = [
    // Allow more ranks than cores, and do not bind ranks to cores.
    ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
    ("OMPI_MCA_hwloc_base_binding_policy", "none"),
    ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"),
    ("PRTE_MCA_hwloc_default_binding_policy", "none"),
    ("OMPI_MCA_mpi_yield_when_idle", "1"),
    // Containers often run everything as root.
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("PRTE_ALLOW_RUN_AS_ROOT", "1"),
    ("PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
];

/// One configuration to measure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configuration {
    /// As the user wrote it; for a peer, the part before the equals sign.
    pub name: String,
    start: Start,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Start {
    Harrier(Harrier),
    /// A program and its arguments.
    Peer(Vec<String>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Harrier {
    kind: String,
    /// `None`: the number that the benchmark chooses, or 2; embedded always has 1.
    ranks: Option<usize>,
    /// `None`: a rank's share of the cores.
    threads: Option<usize>,
    purpose: Purpose,
    memory: Option<String>,
    warehouse: Option<String>,
    settings: Vec<(String, String)>,
    environment: Vec<(String, String)>,
    launcher: Option<String>,
    binary: Option<PathBuf>,
}

/// Task of the worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// Runs statements.
    Statements,
    /// Moves batches between ranks.
    Exchange,
    /// Sends bytes from one process to another.
    Primitive,
}

/// The short form: an interconnect and a number of ranks.
pub struct Short<'a> {
    pub kind: &'a str,
    pub ranks: usize,
}

impl Configuration {
    /// Parses `KIND[:KEY=VALUE,…]`. Errors: a message for the user.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = |what: String| format!("invalid configuration \"{text}\": {what}");
        let (kind, pairs) = text.split_once(':').unwrap_or((text, ""));
        if kind.is_empty() || !kind.bytes().all(|byte| byte.is_ascii_lowercase()) {
            return Err(wrong("it begins with embedded, mpi, grpc or another interconnect".to_owned()));
        }
        let mut harrier = Harrier {
            kind: kind.to_owned(),
            ranks: None,
            threads: None,
            purpose: Purpose::Statements,
            memory: None,
            warehouse: None,
            settings: Vec::new(),
            environment: Vec::new(),
            launcher: None,
            binary: None,
        };
        for pair in pairs.split(',').filter(|pair| !pair.is_empty()) {
            let (key, value) =
                pair.split_once('=').ok_or_else(|| wrong(format!("no value for \"{pair}\"")))?;
            let count = || match value.parse::<usize>() {
                Ok(count) if count > 0 => Ok(Some(count)),
                _ => Err(wrong(format!("{key} is a whole number of one or more"))),
            };
            match key {
                "ranks" => harrier.ranks = count()?,
                "threads" => harrier.threads = count()?,
                "memory" => harrier.memory = Some(value.to_owned()),
                "warehouse" => harrier.warehouse = Some(value.to_owned()),
                "compression" => {
                    harrier.settings.push(("distributed.compression".to_owned(), value.to_owned()))
                }
                "mpirun" => harrier.launcher = Some(value.to_owned()),
                "binary" => harrier.binary = Some(value.into()),
                _ if key.starts_with("env.") => {
                    harrier.environment.push((key["env.".len()..].to_owned(), value.to_owned()))
                }
                _ if key.contains('.') => harrier.settings.push((key.to_owned(), value.to_owned())),
                _ => return Err(wrong(format!("there is no \"{key}\""))),
            }
        }
        if kind == EMBEDDED && harrier.ranks.is_some_and(|ranks| ranks > 1) {
            return Err(wrong("embedded is one process".to_owned()));
        }
        Ok(Self { name: text.to_owned(), start: Start::Harrier(harrier) })
    }

    /// Builds `KIND:ranks=N`.
    pub fn short(short: &Short) -> Result<Self, String> {
        Self::parse(&format!("{}:ranks={}", short.kind, short.ranks))
    }

    /// Parses `[NAME=]COMMAND`. Words of the command are separated by blanks and may be quoted, by double or
    /// single quotes.
    pub fn peer(text: &str) -> Result<Self, String> {
        let name = |name: &&str| !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || c == '/');
        let (name, command) = match text.split_once('=') {
            Some((before, after)) if name(&before) => (before, after),
            _ => (text, text),
        };
        let words = words(command).ok_or_else(|| format!("a quote is open in the peer \"{text}\""))?;
        if words.is_empty() {
            return Err(format!("no command for the peer \"{text}\""));
        }
        Ok(Self { name: name.to_owned(), start: Start::Peer(words) })
    }

    /// Renames the configuration.
    pub fn with_name(self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self }
    }

    /// Returns this configuration under another build of Harrier, named the baseline.
    ///
    /// Errors: the configuration is a peer, or already names its build.
    pub fn baseline(&self, binary: &Path) -> Result<Self, String> {
        let wrong = |what: &str| Err(format!("invalid configuration \"{}\": {what}", self.name));
        let Start::Harrier(harrier) = &self.start else {
            return wrong("a peer is no build of Harrier");
        };
        if harrier.binary.is_some() {
            return wrong("--baseline says which builds are compared");
        }
        let harrier = Harrier { binary: Some(binary.to_path_buf()), ..harrier.clone() };
        Ok(Self { name: format!("{} of the baseline", self.name), start: Start::Harrier(harrier) })
    }

    /// Returns this configuration as a worker of `ranks` ranks that moves batches between them.
    ///
    /// Errors: the configuration is a peer, or already sets its number of ranks.
    pub fn exchange(&self, ranks: usize) -> Result<Self, String> {
        let wrong = |what: &str| Err(format!("invalid configuration \"{}\": {what}", self.name));
        let Start::Harrier(harrier) = &self.start else {
            return wrong("a peer has no interconnect of Harrier");
        };
        if harrier.ranks.is_some() {
            return wrong("the patterns say how many ranks there are; see --ranks");
        }
        let harrier = Harrier { ranks: Some(ranks), purpose: Purpose::Exchange, ..harrier.clone() };
        Ok(Self { name: self.name.clone(), start: Start::Harrier(harrier) })
    }

    /// Parses a worker that sends bytes: mpi, streams or grpc, with `:KEY=VALUE,…` as for statements.
    pub fn primitive(text: &str) -> Result<Self, String> {
        let mut configuration = Self::parse(text)?;
        if let Start::Harrier(harrier) = &mut configuration.start {
            harrier.purpose = Purpose::Primitive;
        }
        Ok(configuration)
    }

    /// The word before the colon; empty for a peer.
    pub fn kind(&self) -> &str {
        match &self.start {
            Start::Harrier(harrier) => &harrier.kind,
            Start::Peer(_) => "",
        }
    }

    /// Whether it is another program.
    pub fn is_peer(&self) -> bool {
        matches!(self.start, Start::Peer(_))
    }

    /// Numbers of ranks and of threads per rank; `None` for a peer.
    pub fn size(&self) -> Option<(usize, usize)> {
        match &self.start {
            Start::Harrier(harrier) => Some((harrier.ranks(), harrier.threads())),
            Start::Peer(_) => None,
        }
    }

    /// Builds the command that starts the worker, with its environment.
    pub fn command(&self) -> Result<Command, Failure> {
        match &self.start {
            Start::Peer(words) => {
                let mut command = Command::new(&words[0]);
                command.args(&words[1..]);
                Ok(command)
            }
            Start::Harrier(harrier) => harrier.command(),
        }
    }

    /// Formats the command as a shell command line.
    pub fn command_line(&self) -> Result<String, Failure> {
        let command = self.command()?;
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        Ok(words.map(|word| quote(&word.to_string_lossy())).collect::<Vec<_>>().join(" "))
    }
}

impl Harrier {
    fn ranks(&self) -> usize {
        self.ranks.unwrap_or(if self.kind == EMBEDDED { 1 } else { 2 })
    }

    /// Threads per rank.
    fn threads(&self) -> usize {
        self.threads.unwrap_or((machine::cores() / self.ranks()).max(1))
    }

    fn command(&self) -> Result<Command, Failure> {
        let binary = match &self.binary {
            Some(path) => path.clone(),
            None => this_binary()?,
        };
        let embedded = self.kind == EMBEDDED;
        let (ranks, threads) = (self.ranks(), self.threads());
        let udp = self.kind == UDP;
        let is_primitive = self.purpose == Purpose::Primitive;
        let alone = match is_primitive {
            // This worker starts its other process itself.
            true => vec![GRPC],
            false => vec![INPROCESS, MEMCPY, MEMCPY_SUM],
        };
        let launched = !embedded && !udp && !alone.contains(&self.kind.as_str());
        let mut command = if launched {
            let mut command = Command::new(launcher(self.launcher.clone())?);
            command.args(["-n", &ranks.to_string()]).arg(binary).envs(LAUNCHER_ENVIRONMENT);
            command
        } else {
            Command::new(binary)
        };
        // Ranks on this host inherit their launcher's environment.
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        if is_primitive {
            command.args(["bench-worker", "--primitive", &self.kind]);
            return Ok(command);
        }
        command.args(["bench-worker", "--threads", &threads.to_string()]);
        if self.purpose == Purpose::Exchange {
            command.arg("--exchange");
        }
        if let Some(memory) = &self.memory {
            command.args(["--memory", memory]);
        }
        if let Some(warehouse) = &self.warehouse {
            command.args(["--tables", warehouse]);
        }
        if udp {
            command.args(["--udp-ranks", &ranks.to_string()]);
        } else if !launched && !embedded {
            command.args(["--inprocess-ranks", &ranks.to_string()]);
        }
        // For statements there is one interconnect, whatever its transport.
        let interconnect = if udp && self.purpose == Purpose::Statements { MPI } else { &self.kind };
        if !embedded {
            command.args(["--set", &format!("harrier.interconnect={interconnect}")]);
        }
        for (key, value) in &self.settings {
            command.args(["--set", &format!("{key}={value}")]);
        }
        Ok(command)
    }
}

/// Returns the rank launcher: `wanted`, or the one named in the environment, or the first found.
pub fn launcher(wanted: Option<String>) -> Result<PathBuf, Failure> {
    if let Some(launcher) = wanted.or_else(|| env::var(LAUNCHER_VARIABLE).ok()) {
        return Ok(launcher.into());
    }
    let folders: Vec<PathBuf> = env::var_os("PATH").iter().flat_map(env::split_paths).collect();
    let mut candidates =
        LAUNCHERS.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    candidates.find(|path| path.is_file()).ok_or_else(|| {
        Failure::missing("mpirun was not found")
            .hint(format!("scripts/mpi-runtimes.sh installs an MPI; {LAUNCHER_VARIABLE} names its mpirun"))
    })
}

/// Path of the running program.
pub fn this_binary() -> Result<PathBuf, Failure> {
    env::current_exe().map_err(|e| Failure::dead(format!("this program does not know its own path: {e}")))
}

/// Splits a command line into words; `None` for an unclosed quote.
fn words(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in text.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => word.get_or_insert_default().push(c),
            None if c == '"' || c == '\'' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => words.extend(word.take()),
            None => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+%@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(text: &str) -> Vec<String> {
        let command = Configuration::parse(text).unwrap().command().unwrap();
        command.get_args().map(|word| word.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn configurations_build_commands() {
        assert_eq!(
            arguments("embedded:threads=2,memory=8GiB,datafusion.execution.batch_size=17"),
            [
                "bench-worker",
                "--threads",
                "2",
                "--memory",
                "8GiB",
                "--set",
                "datafusion.execution.batch_size=17"
            ]
        );
        let binary = this_binary().unwrap();
        assert_eq!(
            arguments("grpc:ranks=3,threads=1,compression=none,mpirun=/opt/mpi/bin/mpirun"),
            [
                "-n",
                "3",
                binary.to_str().unwrap(),
                "bench-worker",
                "--threads",
                "1",
                "--set",
                "harrier.interconnect=grpc",
                "--set",
                "distributed.compression=none"
            ]
        );
        assert_eq!(
            arguments("inprocess:ranks=2,threads=1"),
            [
                "bench-worker",
                "--threads",
                "1",
                "--inprocess-ranks",
                "2",
                "--set",
                "harrier.interconnect=inprocess"
            ]
        );
        assert_eq!(arguments("mpi:ranks=100000,mpirun=x")[5..7], ["1", "--set"]);
    }

    #[test]
    fn a_configuration_moves_batches_too() {
        let parse = |text| Configuration::parse(text).unwrap();
        let command = parse("memcpy").exchange(4).unwrap().command().unwrap();
        let arguments: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        assert_eq!(
            arguments[3..],
            ["--exchange", "--inprocess-ranks", "4", "--set", "harrier.interconnect=memcpy"]
        );
        assert!(parse("mpi:ranks=2").exchange(2).is_err());
        assert!(Configuration::peer("a=b").unwrap().exchange(2).is_err());
        assert_eq!(parse("mpi:threads=2").kind(), "mpi");
        assert_eq!(parse("mpi:threads=3").size(), Some((2, 3)));
        assert_eq!(parse("embedded:threads=2").size(), Some((1, 2)));
        assert_eq!(Configuration::peer("a=b").unwrap().size(), None);
    }

    #[test]
    fn a_baseline_differs_in_its_build_alone() {
        let own = Configuration::parse("mpi:ranks=3,threads=1,mpirun=x").unwrap();
        let baseline = own.baseline(Path::new("/old/harrier")).unwrap();
        assert_eq!(baseline.name, "mpi:ranks=3,threads=1,mpirun=x of the baseline");
        let this = this_binary().unwrap().display().to_string();
        assert_eq!(
            baseline.command_line().unwrap(),
            own.command_line().unwrap().replace(&quote(&this), "/old/harrier")
        );
        let of_another_build = Configuration::parse("embedded:binary=/new/harrier").unwrap();
        assert!(of_another_build.baseline(Path::new("/old/harrier")).is_err());
        assert!(Configuration::peer("a=b").unwrap().baseline(Path::new("/old/harrier")).is_err());
    }

    #[test]
    fn variables_reach_the_ranks() {
        let text = "mpi:mpirun=x,env.HARRIER_SHARED_MEMORY=0,env.OMPI_MCA_btl=^vader";
        let command = Configuration::parse(text).unwrap().command().unwrap();
        let value =
            |name: &str| command.get_envs().find(|(key, _)| *key == name).and_then(|(_, value)| value);
        assert_eq!(value("HARRIER_SHARED_MEMORY"), Some("0".as_ref()));
        assert_eq!(value("OMPI_MCA_btl"), Some("^vader".as_ref()));
    }

    #[test]
    fn invalid_input_is_refused() {
        for text in [
            "",
            ":threads=2",
            "Embedded",
            "embedded:ranks=2",
            "mpi:ranks=0",
            "mpi:ranks",
            "mpi:colour=red",
            "mpi:env.A",
            "mpi:ranks=-1",
        ] {
            assert!(Configuration::parse(text).is_err(), "{text}");
        }
        for text in ["", "x=", "x='a"] {
            assert!(Configuration::peer(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_peer_is_a_command() {
        let peer = Configuration::peer("duckdb=bench/peers/run duckdb --threads 2 'a b' \"\"").unwrap();
        assert_eq!(peer.name, "duckdb");
        assert_eq!(peer.command_line().unwrap(), "bench/peers/run duckdb --threads 2 'a b' ''");
        assert_eq!(Configuration::peer("env A=1 run").unwrap().name, "env A=1 run");
    }
}

//! Options of `harrier serve`: a configuration file, overridden by the command line.

use std::path::PathBuf;

use harrier_server::config::Config;
use harrier_server::config::values::{Address, GangLauncher, OrAuto, OrOff, Period, Size};

use crate::option_values::{key_value, memory_size};
use crate::warehouse_args::WarehouseArgs;

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// A configuration file; what the command line says goes before what it says
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print a configuration file with every key, its meaning and its default, and end
    #[arg(long)]
    pub(super) example_config: bool,
    /// Where clients of PostgreSQL connect to [default: 127.0.0.1:5433]
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<Address>,
    /// Where clients of Arrow Flight SQL connect to, or off [default: off]
    #[arg(long, value_name = "ADDRESS", value_parser = address_or_off)]
    flight: Option<OrOff<Address>>,
    /// Where clients of Hive connect to, or off [default: off]
    #[arg(long, value_name = "ADDRESS", value_parser = address_or_off)]
    hive: Option<OrOff<Address>>,
    /// Where the pages, /metrics and /healthz are, or off [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS", value_parser = address_or_off)]
    http: Option<OrOff<Address>>,
    /// Folder of a local socket for clients on this machine
    #[arg(long, value_name = "DIR")]
    socket_dir: Option<PathBuf>,
    /// Ranks that statements run on [default: the tasks of a Slurm allocation, or the cores of this machine]
    #[arg(long, value_name = "N")]
    ranks: Option<u32>,
    /// Ranks that do nothing until others are lost [default: 0]
    #[arg(long, value_name = "N")]
    spares: Option<u32>,
    /// The hosts that ranks are started on: a hosts file of the launcher
    #[arg(long, value_name = "FILE")]
    hostfile: Option<PathBuf>,
    /// What starts the ranks: auto, mpirun, srun or none [default: auto]
    #[arg(long, value_name = "NAME")]
    launcher: Option<GangLauncher>,
    /// Threads a statement may keep busy on a rank [default: the cores, divided by the ranks]
    #[arg(long, value_name = "N")]
    threads: Option<u32>,
    /// Memory that statements may hold before they spill to disk, over all ranks here and this process, such
    /// as 8GiB [default: 80 % of the machine's]
    #[arg(long, value_name = "SIZE", value_parser = memory_size)]
    memory: Option<u64>,
    /// Folder for temporary files; several, on disks of their own, are used in turn [default: $TMPDIR]
    #[arg(long = "spill-dir", value_name = "DIR")]
    spill_dirs: Vec<PathBuf>,
    /// Be one of several servers of a warehouse, of which one serves and the others wait to take over
    #[arg(long)]
    standby: bool,
    /// How long a server of several that is not heard of is left its place, such as 5s [default: 5s]
    #[arg(long, value_name = "TIME")]
    lease: Option<Period>,
    /// Set a parameter for all sessions, as SET does
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
    settings: Vec<(String, String)>,
    #[command(flatten)]
    pub(super) warehouse: WarehouseArgs,
}

fn address_or_off(text: &str) -> Result<OrOff<Address>, String> {
    match text {
        "off" => Ok(OrOff(None)),
        address => address.parse().map(|address| OrOff(Some(address))),
    }
}

impl Args {
    /// The configuration of the file, overridden by the command line.
    ///
    /// Errors: the file cannot be used, or values are not allowed; as lines for the user.
    pub(super) fn config(&self) -> Result<Config, String> {
        let mut config = match &self.config {
            Some(path) => {
                Config::load(path).map_err(|error| format!("ERROR {}: {error}", error.sqlstate()))?
            }
            None => Config::default(),
        };
        let Config { server, gang, settings, .. } = &mut config;
        if !self.listen.is_empty() {
            server.listen.clone_from(&self.listen);
        }
        replace(&mut server.flight, &self.flight);
        replace(&mut server.hive, &self.hive);
        replace(&mut server.http, &self.http);
        replace(&mut server.unix_socket, &self.socket_dir.clone().map(|folder| OrOff(Some(folder))));
        server.standby |= self.standby;
        replace(&mut server.lease, &self.lease);
        replace(&mut gang.ranks, &self.ranks.map(|ranks| OrAuto(Some(ranks))));
        replace(&mut gang.spares, &self.spares);
        replace(&mut gang.hostfile, &self.hostfile.clone().map(|file| OrOff(Some(file))));
        replace(&mut gang.launcher, &self.launcher);
        replace(&mut gang.threads_per_rank, &self.threads.map(|threads| OrAuto(Some(threads))));
        replace(&mut gang.memory, &self.memory.map(|bytes| OrAuto(Some(Size(bytes)))));
        if !self.spill_dirs.is_empty() {
            gang.spill_dirs.clone_from(&self.spill_dirs);
        }
        settings.0.extend(self.settings.iter().cloned());
        let problems = config.check();
        match problems.is_empty() {
            true => Ok(config),
            false => {
                let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
                Err(format!("ERROR F0000: {}", lines.join("\n")))
            }
        }
    }
}

fn replace<T: Clone>(value: &mut T, with: &Option<T>) {
    if let Some(with) = with {
        value.clone_from(with);
    }
}

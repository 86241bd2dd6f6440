//! Settings of a job, each with unit, default and its justification, and the environment variables that set
//! them.

use crate::error::Error;
use crate::sizes::bytes_of;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

/// Share of a rank's memory for received pairs. Source: hive-on-datampi, figure 8: both workloads are fastest
/// at 0.4.
pub const MEMORY_SHARE: f64 = 0.4;

/// Length of the send queue to one rank, in blocks. Source: hive-on-datampi, figure 8: no gain above 6.
pub const SEND_QUEUE_BLOCKS: usize = 6;

/// Size of a block of pairs, including headers: the interconnect's target size.
pub const BLOCK_BYTES: usize = harrier_interconnect::limits::BLOCK_BYTES_TARGET;

/// Minimum size of a block: headers and a few pairs.
pub const BLOCK_BYTES_MIN: usize = 1024;

/// Bytes of pairs that an A task sorts into one run. Larger runs mean fewer to merge; smaller ones are sorted
/// in cache, and earlier, while O tasks still run.
pub const RUN_BYTES: usize = 32 << 20;

/// Size of an O task's combine buffer.
pub const COMBINE_BYTES: usize = 32 << 20;

/// Maximum memory of a rank, more than any machine has.
const MEMORY_BYTES_MAX: u64 = 1 << 50;

/// Maximum length of a send queue. Queues are allocated for it, and their own limit is far above.
const SEND_QUEUE_BLOCKS_MAX: usize = 1 << 16;

/// Maximum run size: with the smallest blocks, the number of blocks still fits the run's index.
const RUN_BYTES_MAX: usize = 1 << 36;

/// Maximum concurrent tasks of a rank: each has a thread, and a merger thread.
const THREADS_MAX: usize = 1024;

/// Share of the memory for pairs above which pairs are spilled.
pub const SPILL_THRESHOLD: f64 = 0.9;

/// Maximum A tasks of a job. Each costs every rank 20 to 40 KB even if it receives little, and up to
/// [`BLOCK_BYTES`] for each O task that runs there and fills a block for it.
pub const A_TASKS_MAX: usize = 1 << 16;

/// Maximum O tasks of a job, and splits of an input: rank 0 keeps a list of those left.
pub const O_TASKS_MAX: usize = 1 << 20;

/// Variables with the settings' prefix that are not settings: the library that Python loads, the file for the
/// exit status, and the programs that a benchmark starts.
const OTHER_VARIABLES: [&str; 3] = ["HARRIER_MPID_LIBRARY", crate::outcome::OUTCOME, "HARRIER_MPID_PROGRAMS"];

/// Execution mode of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Jobs of O tasks, then A tasks.
    #[default]
    Common,
    /// Rounds over data that stays in memory.
    Iteration,
    /// Unbounded input, in windows.
    Streaming,
}

impl fmt::Display for Mode {
    /// As in `mpidrun -mode` and `HARRIER_MPID_MODE`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Common => "COM",
            Mode::Iteration => "ITER",
            Mode::Streaming => "STREAM",
        })
    }
}

/// Default number of A tasks. Source: hive-on-datampi, section IV-D.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Parallelism {
    /// As many as can run concurrently.
    #[default]
    Default,
    /// As many as O tasks: smaller ones, so that skew hurts less.
    Enhanced,
}

/// Settings of a job. Every rank must have the same.
#[derive(Clone, Debug)]
pub struct Config {
    /// Mode that the program was started in; jobs of another mode fail before they begin. `None`: any mode.
    pub mode: Option<Mode>,
    /// Memory of this rank, in bytes, that the job may rely on. `None`: the machine's free memory, divided
    /// among its ranks.
    pub memory_bytes: Option<u64>,
    pub memory_share: f64,
    pub send_queue_blocks: usize,
    pub block_bytes: usize,
    pub run_bytes: usize,
    pub combine_bytes: usize,
    pub spill_threshold: f64,
    pub parallelism: Parallelism,
    /// Blocking mode: an O task with a full block waits until its blocks are received. The baseline for
    /// non-blocking sends.
    pub blocking: bool,
    /// Spill folders; several disks are used in turn.
    pub spill_folders: Vec<PathBuf>,
    /// Folder for the checkpoint, from which a crashed job resumes. Every rank must see the folder. Rounds
    /// and streams have no checkpoint, of which rank 0 warns once on stderr.
    pub checkpoint: Option<PathBuf>,
    /// Concurrent tasks of a rank. `None`: its share of the host's cores.
    pub threads: Option<usize>,
    /// Numbers of O and A tasks, unless the program fixes them: then other numbers are rejected.
    pub o_tasks: Option<usize>,
    pub a_tasks: Option<usize>,
    /// Whether rank 0 prints progress to stderr, and the counters at the end.
    pub progress: bool,
    /// File for rank 0's timeline of tasks, as CSV.
    pub timeline: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            mode: None,
            memory_bytes: None,
            memory_share: MEMORY_SHARE,
            send_queue_blocks: SEND_QUEUE_BLOCKS,
            block_bytes: BLOCK_BYTES,
            run_bytes: RUN_BYTES,
            combine_bytes: COMBINE_BYTES,
            spill_threshold: SPILL_THRESHOLD,
            parallelism: Parallelism::Default,
            blocking: false,
            spill_folders: vec![temporary_folder(std::env::temp_dir())],
            checkpoint: None,
            threads: None,
            o_tasks: None,
            a_tasks: None,
            progress: false,
            timeline: None,
        }
    }
}

/// Environment variables that [`Config::from_environment`] reads, each with its meaning.
pub const VARIABLES: [(&str, &str); 17] = [
    ("HARRIER_MPID_MODE", "COM, ITER or STREAM"),
    ("HARRIER_MPID_O", "number of O tasks, 1 to 1048576"),
    ("HARRIER_MPID_A", "number of A tasks, 1 to 65536"),
    ("HARRIER_MPID_MEMORY", "memory of a rank, such as 512MiB, up to 1 PiB"),
    ("HARRIER_MPID_MEMORY_SHARE", "share of it for received pairs, 0 to 1"),
    ("HARRIER_MPID_SEND_QUEUE", "blocks that wait to be sent to one rank, 1 to 65536"),
    ("HARRIER_MPID_BLOCK", "size of a block, 1 KiB to 1 GiB"),
    ("HARRIER_MPID_RUN", "size of the pairs sorted at once, up to 64 GiB"),
    ("HARRIER_MPID_COMBINE", "size of the pairs that an O task combines, up to 2 GiB"),
    ("HARRIER_MPID_SPILL_THRESHOLD", "share of the pairs' memory in use at which they are spilled, 0 to 1"),
    ("HARRIER_MPID_PARALLELISM", "default or enhanced"),
    ("HARRIER_MPID_BLOCKING", "1: O tasks wait until each block is received"),
    ("HARRIER_MPID_SPILL", "folders to spill to, with : between them"),
    ("HARRIER_MPID_CHECKPOINT", "folder to keep what was received"),
    ("HARRIER_MPID_THREADS", "tasks that a rank runs at once, 1 to 1024"),
    ("HARRIER_MPID_PROGRESS", "1: rank 0 tells how far it is, and the counters"),
    ("HARRIER_MPID_TIMELINE", "file for when which task ran where"),
];

impl Config {
    /// Returns the defaults, overridden by the environment: see [`VARIABLES`]. Covers this process only:
    /// ranks call [`crate::World::configure`], so that none waits for one whose environment is invalid.
    ///
    /// Errors: an invalid value, or an unknown variable with the prefix.
    pub fn from_environment() -> Result<Config, Error> {
        check_unknown(std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned()))?;
        Config::default().with_variables(|name| std::env::var_os(name))
    }

    fn with_variables(mut self, variable: impl Fn(&str) -> Option<OsString>) -> Result<Config, Error> {
        for (name, meaning) in VARIABLES {
            let Some(value) = variable(name) else { continue };
            if value.is_empty() {
                // An empty value, for example from a script whose own variable is unset, would silently leave
                // the default.
                return Err(Error::Configuration(format!("{name} is empty; it takes: {meaning}")));
            }
            let wrong = |error: Error| Error::Configuration(format!("{name} is {value:?}: {error}"));
            self.set(name, &value)
                .ok_or_else(|| Error::Configuration(format!("{name} is {value:?}; it takes: {meaning}")))?;
            self.check().map_err(wrong)?;
        }
        Ok(self)
    }

    fn set(&mut self, name: &str, given: &OsStr) -> Option<()> {
        let name = name.strip_prefix("HARRIER_MPID_")?;
        match name {
            "SPILL" => self.spill_folders = std::env::split_paths(given).collect(),
            "CHECKPOINT" => self.checkpoint = Some(given.into()),
            "TIMELINE" => self.timeline = Some(given.into()),
            _ => return self.set_text(name, given.to_str()?.trim()),
        }
        Some(())
    }

    fn set_text(&mut self, name: &str, value: &str) -> Option<()> {
        fn number<T: std::str::FromStr>(value: &str) -> Option<T> {
            value.parse().ok()
        }
        let bytes = |value: &str| usize::try_from(bytes_of(value)?).ok();
        let flag = |value: &str| match value {
            "1" | "true" => Some(true),
            "0" | "false" => Some(false),
            _ => None,
        };
        match name {
            "MODE" => {
                self.mode = Some(match value {
                    "COM" => Mode::Common,
                    "ITER" => Mode::Iteration,
                    "STREAM" => Mode::Streaming,
                    _ => return None,
                })
            }
            "O" => self.o_tasks = Some(number(value)?),
            "A" => self.a_tasks = Some(number(value)?),
            "MEMORY" => self.memory_bytes = Some(bytes_of(value)?),
            "MEMORY_SHARE" => self.memory_share = number(value)?,
            "SEND_QUEUE" => self.send_queue_blocks = number(value)?,
            "BLOCK" => self.block_bytes = bytes(value)?,
            "RUN" => self.run_bytes = bytes(value)?,
            "COMBINE" => self.combine_bytes = bytes(value)?,
            "SPILL_THRESHOLD" => self.spill_threshold = number(value)?,
            "PARALLELISM" => {
                self.parallelism = match value {
                    "default" => Parallelism::Default,
                    "enhanced" => Parallelism::Enhanced,
                    _ => return None,
                }
            }
            "BLOCKING" => self.blocking = flag(value)?,
            "THREADS" => self.threads = Some(number(value)?),
            "PROGRESS" => self.progress = flag(value)?,
            _ => return None,
        }
        Some(())
    }

    /// Errors: a value out of range.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let share = |value: f64| (0.0..=1.0).contains(&value);
        let no_name = |path: &PathBuf| path.as_os_str().is_empty();
        let wrong = match () {
            () if self.memory_bytes.is_some_and(|bytes| bytes > MEMORY_BYTES_MAX) => {
                "a rank has at most 1 PiB"
            }
            () if !share(self.memory_share) => "the memory share is from 0 to 1",
            () if !share(self.spill_threshold) => "the spill threshold is from 0 to 1",
            () if !(1..=SEND_QUEUE_BLOCKS_MAX).contains(&self.send_queue_blocks) => {
                "the send queue has 1 to 65536 blocks"
            }
            () if !(BLOCK_BYTES_MIN..=1 << 30).contains(&self.block_bytes) => "a block has 1 KiB to 1 GiB",
            () if self.run_bytes > RUN_BYTES_MAX => "at most 64 GiB are sorted at once",
            () if self.threads.is_some_and(|threads| !(1..=THREADS_MAX).contains(&threads)) => {
                "a rank runs 1 to 1024 tasks at a time"
            }
            () if self.o_tasks == Some(0) || self.a_tasks == Some(0) => {
                "there is at least one task of each kind"
            }
            () if self.combine_bytes > 1 << 31 => "at most 2 GiB are combined at once",
            () if self.spill_folders.iter().any(no_name) => "each folder to spill to has a name",
            () if self.checkpoint.as_ref().is_some_and(no_name) => "the checkpoint's folder has a name",
            () if self.timeline.as_ref().is_some_and(no_name) => "the timeline's file has a name",
            () => return check_counts(self.o_tasks.unwrap_or(1), self.a_tasks.unwrap_or(1)),
        };
        Err(Error::Configuration(wrong.to_string()))
    }

    /// Memory for received pairs on a rank, in bytes. `ranks_here`: ranks that share the host.
    pub(crate) fn cache_bytes(&self, ranks_here: usize) -> usize {
        let memory = self.memory_bytes.unwrap_or_else(|| available_memory() / ranks_here.max(1) as u64);
        (memory as f64 * self.memory_share * self.spill_threshold) as usize
    }
}

/// Errors: too many tasks.
pub(crate) fn check_counts(o_tasks: usize, a_tasks: usize) -> Result<(), Error> {
    for (tasks, most, side) in [(o_tasks, O_TASKS_MAX, "O"), (a_tasks, A_TASKS_MAX, "A")] {
        if tasks > most {
            return Err(Error::Configuration(format!("{tasks} {side} tasks: a job has {most} at most")));
        }
    }
    Ok(())
}

/// Errors: a variable has the settings' prefix but is unknown.
fn check_unknown(names: impl Iterator<Item = String>) -> Result<(), Error> {
    for name in names {
        let Some(knob) = name.strip_prefix("HARRIER_MPID_") else { continue };
        let is_known = VARIABLES.iter().any(|(known, _)| *known == name);
        if !is_known && !OTHER_VARIABLES.contains(&&name[..]) {
            return Err(Error::Configuration(format!("there is no knob {knob} ({name})")));
        }
    }
    Ok(())
}

/// `folder`: the system's temporary folder, which is empty if TMPDIR is.
fn temporary_folder(folder: PathBuf) -> PathBuf {
    if folder.as_os_str().is_empty() { PathBuf::from("/tmp") } else { folder }
}

/// Returns the available memory of the host or of this process's control group, in bytes.
fn available_memory() -> u64 {
    const UNKNOWN: u64 = 2 << 30;
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let host = meminfo.lines().find_map(|line| {
        let kib = line.strip_prefix("MemAvailable:")?.trim().strip_suffix("kB")?;
        Some(kib.trim().parse::<u64>().ok()? * 1024)
    });
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = available_to_groups(&groups, Path::new("/sys/fs/cgroup"));
    [host, group].into_iter().flatten().min().unwrap_or(UNKNOWN)
}

/// Returns the available memory of this process's control groups, in bytes: the minimum along the path up to
/// the root, for version 2 (one line `0::/path`) and version 1 (a line whose controllers contain `memory`).
/// Page cache is reclaimable and counts as available.
fn available_to_groups(groups: &str, root: &Path) -> Option<u64> {
    let mut least = None;
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (base, limit, used, files) = match controllers.split(',').any(|name| name == "memory") {
            true => (root.join("memory"), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
            false if controllers.is_empty() => (root.to_path_buf(), "memory.max", "memory.current", ""),
            false => continue,
        };
        let group = base.join(path.trim_start_matches('/'));
        for folder in group.ancestors().take_while(|folder| folder.starts_with(&base)) {
            let read = |file: &str| std::fs::read_to_string(folder.join(file)).ok();
            let number = |file: &str| read(file)?.trim().parse::<u64>().ok();
            // Without a limit: "max", or in version 1 a number larger than the host's memory.
            let Some(limit) = number(limit) else { continue };
            let stat = read("memory.stat").unwrap_or_default();
            let held = |name: &str| {
                let name = format!("{files}{name}_file ");
                stat.lines()
                    .find_map(|line| line.strip_prefix(&name)?.trim().parse::<u64>().ok())
                    .unwrap_or(0)
            };
            let used = number(used).unwrap_or(0).saturating_sub(held("active") + held("inactive"));
            let left = limit.saturating_sub(used);
            least = Some(least.map_or(left, |least: u64| least.min(left)));
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    fn of(variables: &[(&str, &str)]) -> Result<Config, Error> {
        Config::default().with_variables(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
        })
    }

    #[test]
    fn the_papers_defaults() {
        let config = of(&[]).unwrap();
        assert_eq!((config.memory_share, config.send_queue_blocks, config.blocking), (0.4, 6, false));
        assert_eq!(config.parallelism, Parallelism::Default);
    }

    #[test]
    fn every_variable_sets_something_and_refuses_nonsense() {
        let good = [
            "ITER", "3", "4", "1000", "0.5", "7", "4096", "1", "2", "0.1", "enhanced", "1", "/a:/b", "/c",
            "2", "1", "/d",
        ];
        for ((name, _), value) in VARIABLES.iter().zip(good) {
            let changed = format!("{:?}", of(&[(name, value)]).unwrap());
            assert_ne!(changed, format!("{:?}", Config::default()), "{name}");
            if !name.ends_with("SPILL") && !name.ends_with("CHECKPOINT") && !name.ends_with("TIMELINE") {
                let error = of(&[(name, "nonsense")]).unwrap_err().to_string();
                assert!(error.contains(name), "{error}");
            }
        }
        for (name, value) in [("HARRIER_MPID_MEMORY_SHARE", "1.5"), ("HARRIER_MPID_O", "0")] {
            assert!(of(&[(name, value)]).is_err());
        }
    }

    /// An empty value is never ignored silently, whichever variable it is.
    #[test]
    fn empty_values_are_refused() {
        for (name, meaning) in VARIABLES {
            let error = of(&[(name, "")]).unwrap_err().to_string();
            assert_eq!(error, format!("{name} is empty; it takes: {meaning}"));
        }
        for folders in [":", "/a::/b", "/a:", ":/a"] {
            let error = of(&[("HARRIER_MPID_SPILL", folders)]).unwrap_err().to_string();
            assert!(error.contains("HARRIER_MPID_SPILL") && error.contains("has a name"), "{error}");
        }
        assert_eq!(temporary_folder(PathBuf::new()), Path::new("/tmp"));
        let programs = Config { checkpoint: Some(PathBuf::new()), ..Config::default() };
        assert!(programs.check().is_err());
    }

    #[test]
    fn numbers_have_ranges() {
        let numbers = [
            "O",
            "A",
            "MEMORY",
            "MEMORY_SHARE",
            "SEND_QUEUE",
            "BLOCK",
            "RUN",
            "COMBINE",
            "SPILL_THRESHOLD",
            "THREADS",
        ];
        for knob in numbers {
            let name = format!("HARRIER_MPID_{knob}");
            for number in ["18446744073709551615", "18446744073709551616", "-1", "1e999", "NaN"] {
                let error = of(&[(&name, number)]).unwrap_err().to_string();
                assert!(error.contains(&name) && error.contains(number), "{error}");
            }
        }
    }

    #[test]
    fn sizes_may_have_units() {
        let config = of(&[
            ("HARRIER_MPID_MEMORY", "1.5GiB"),
            ("HARRIER_MPID_BLOCK", "64k"),
            ("HARRIER_MPID_RUN", "8 MiB"),
            ("HARRIER_MPID_COMBINE", "1MB"),
        ])
        .unwrap();
        assert_eq!(config.memory_bytes, Some(3 << 29));
        assert_eq!(
            (config.block_bytes, config.run_bytes, config.combine_bytes),
            (64 << 10, 8 << 20, 1 << 20)
        );
        for knob in ["MEMORY", "BLOCK", "RUN", "COMBINE"] {
            let name = format!("HARRIER_MPID_{knob}");
            for value in ["1XiB", "2PiB", "1e6", "MiB"] {
                let error = of(&[(&name, value)]).unwrap_err().to_string();
                assert!(error.contains(&name) && error.contains("it takes: "), "{error}");
            }
        }
        assert!(of(&[("HARRIER_MPID_BLOCK", "1TiB")]).is_err());
    }

    /// A path may be any bytes; a setting that is not a path must be UTF-8.
    #[test]
    fn invalid_utf8_values_are_refused() {
        let bytes = OsStr::from_bytes(b"/tmp/\xff");
        for (name, _) in VARIABLES {
            let config =
                Config::default().with_variables(|variable| (variable == name).then(|| bytes.into()));
            match name {
                "HARRIER_MPID_SPILL" => assert_eq!(config.unwrap().spill_folders, [Path::new(bytes)]),
                "HARRIER_MPID_CHECKPOINT" => {
                    assert_eq!(config.unwrap().checkpoint.as_deref(), Some(Path::new(bytes)));
                }
                "HARRIER_MPID_TIMELINE" => {
                    assert_eq!(config.unwrap().timeline.as_deref(), Some(Path::new(bytes)));
                }
                _ => assert!(config.unwrap_err().to_string().contains(name)),
            }
        }
    }

    #[test]
    fn unknown_knobs_are_refused() {
        let names = |names: &[&str]| check_unknown(names.iter().map(|name| name.to_string()));
        assert!(names(&["HARRIER_MPID_O", "HARRIER_MPID_TIMELINE", "HARRIER_MPIRUN", "PATH"]).is_ok());
        assert!(names(&OTHER_VARIABLES).is_ok());
        let error = names(&["PATH", "HARRIER_MPID_NOSUCH"]).unwrap_err().to_string();
        assert!(error.contains("there is no knob NOSUCH"), "{error}");
    }

    #[test]
    fn the_number_of_tasks_has_a_bound() {
        let most = A_TASKS_MAX.to_string();
        assert_eq!(of(&[("HARRIER_MPID_A", &most)]).unwrap().a_tasks, Some(A_TASKS_MAX));
        for (name, value) in [("HARRIER_MPID_A", "1000000000"), ("HARRIER_MPID_O", "1048577")] {
            let error = of(&[(name, value)]).unwrap_err().to_string();
            assert!(error.contains(value) && error.contains("at most"), "{error}");
        }
    }

    #[test]
    fn the_tightest_cgroup_limit_applies() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let write = |file: &str, text: &str| {
            std::fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            std::fs::write(root.join(file), text).unwrap();
        };
        write("job/memory.max", "1000\n");
        write("job/memory.current", "700\n");
        write("job/memory.stat", "anon 500\ninactive_file 150\nactive_file 50\n");
        write("job/step/memory.max", "max\n");
        write("memory/old/memory.limit_in_bytes", "400\n");
        write("memory/old/memory.usage_in_bytes", "100\n");
        write("memory/old/memory.stat", "total_inactive_file 60\ntotal_active_file 0\n");
        assert_eq!(available_to_groups("0::/job/step\n", root), Some(500));
        assert_eq!(available_to_groups("3:cpu:/c\n2:memory:/old\n", root), Some(360));
        assert_eq!(available_to_groups("0::/\n", root), None);
    }

    #[test]
    fn a_share_of_memory_is_kept() {
        let config = Config { memory_bytes: Some(1000), spill_threshold: 1.0, ..Config::default() };
        assert_eq!(config.cache_bytes(2), 400);
        assert!(Config::default().cache_bytes(1) > 0);
    }
}

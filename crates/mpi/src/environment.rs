//! The launcher's environment variables, read without loading MPI: the single place that decides whether a
//! process is alone, one of N ranks, or has to ask MPI.
//!
//! ```text
//!   variables ──► claims, one per launcher that left some ──► those of the nearest launcher, if visible
//!        none, or each says one rank:  alone             each says the same number:  that many ranks
//!        else:  MPI is loaded and asked (MPI_Comm_size), and its answer is trusted only where it can know
//! ```
//! # Invariants
//! - A process never runs alone if there are signs of a launch that is not known to have one rank: N such
//!   processes would each do the whole work.
//! - Variables that a launcher leaves for processes that are not ranks (a batch script, a shell in an
//!   allocation) are not a sign.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::path::Path;

use crate::ancestry::{Ancestor, Family, MpiAncestor, ancestors, launcher, mpi_ancestor};
use crate::{Abi, LibraryInfo, MpiError, pmi};

/// This process as one of those that a launcher started, as far as the launcher's variables say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LaunchedProcess {
    /// This process's rank.
    pub rank: Option<usize>,
    /// Number of processes started together, this one included. `None`: MPI has to be asked, and it may be
    /// one.
    pub ranks: Option<usize>,
    /// Number of them started on this host.
    pub ranks_here: Option<usize>,
    /// The process on this host that started them here, if visible.
    pub launcher: Option<u32>,
    /// The variable that shows the launch, as `KEY=value`.
    pub sign: String,
}

/// A variable that the launcher of this process has set, and its value; also if that started this process
/// only.
/// `None`: no launcher.
pub fn launcher_sign() -> Option<String> {
    Launch::from_environment().claims.into_iter().next().map(|claim| claim.sign)
}

/// Detects the launcher of this process; `None`: no launcher, or one of a single process. Reads only the
/// environment and `/proc`: MPI is not loaded.
///
/// Errors: the variables belong to another process: [`MpiError::Nested`], [`MpiError::Inherited`].
pub fn detect_launcher() -> Result<Option<LaunchedProcess>, MpiError> {
    let launch = Launch::from_environment();
    match launch.decide() {
        Decision::Alone => Ok(None),
        Decision::Launched(launched) => {
            match mpi_ancestor(&launch.ancestors, &launched.sign) {
                MpiAncestor::Rank(Ancestor { pid, name, .. }) => {
                    return Err(MpiError::Nested { pid, name, sign: launched.sign });
                }
                // A child of a program that uses MPI without a launcher.
                MpiAncestor::SelfStarted => return Ok(None),
                MpiAncestor::Absent => {}
            }
            match launch.lost_connection() {
                Some(sign) => Err(MpiError::Inherited { sign }),
                None => Ok(Some(launched)),
            }
        }
    }
}

/// The values of one launcher's variables.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Claim {
    names: &'static LauncherVariables,
    ranks: Option<usize>,
    rank: Option<usize>,
    ranks_here: Option<usize>,
    sign: String,
}

/// The variables of a launcher.
#[derive(PartialEq, Eq, Debug)]
struct LauncherVariables {
    family: Family,
    ranks: &'static [&'static str],
    rank: &'static [&'static str],
    /// Variables set only for ranks that contain neither number.
    others: &'static [&'static str],
    ranks_here: &'static [&'static str],
    /// The kinds of MPI that this launcher can connect, the likeliest first.
    abis: &'static [Abi],
    /// The kinds among them that fail instead of starting as a world of one when they cannot reach the
    /// launcher: if the number of ranks is unknown, a world of one is accepted from these alone.
    trusted: &'static [Abi],
}

const LAUNCHES: [LauncherVariables; 10] = [
    LauncherVariables {
        family: Family::OpenMpi,
        ranks: &["OMPI_COMM_WORLD_SIZE"],
        rank: &["OMPI_COMM_WORLD_RANK"],
        others: &[],
        ranks_here: &["OMPI_COMM_WORLD_LOCAL_SIZE"],
        abis: &[Abi::OpenMpi, Abi::Standard],
        trusted: &[Abi::OpenMpi],
    },
    // With -pmi-port Hydra sets its address, and no number of ranks.
    LauncherVariables {
        family: Family::Pmi,
        ranks: &["PMI_SIZE"],
        rank: &["PMI_RANK", "PMI_ID"],
        others: &["PMI_PORT", "PMI_FD"],
        ranks_here: &["MPI_LOCALNRANKS"],
        abis: &[Abi::Mpich, Abi::Standard],
        trusted: &[Abi::Mpich, Abi::Standard],
    },
    LauncherVariables {
        family: Family::Mvapich,
        ranks: &["MV2_COMM_WORLD_SIZE"],
        rank: &["MV2_COMM_WORLD_RANK"],
        others: &[],
        ranks_here: &["MV2_COMM_WORLD_LOCAL_SIZE"],
        abis: &[Abi::Mpich, Abi::Standard],
        trusted: &[],
    },
    LauncherVariables {
        family: Family::Mvapich,
        ranks: &["MPIRUN_NPROCS"],
        rank: &["MPIRUN_RANK"],
        others: &[],
        ranks_here: &[],
        abis: &[Abi::Mpich, Abi::Standard],
        trusted: &[],
    },
    // A batch script and a shell in an allocation look alike but are not ranks: see `claims`.
    LauncherVariables {
        family: Family::Slurm,
        ranks: &["SLURM_STEP_NUM_TASKS"],
        rank: &["SLURM_PROCID"],
        others: &[],
        ranks_here: &[],
        abis: &[Abi::OpenMpi, Abi::Mpich, Abi::Standard],
        trusted: &[],
    },
    LauncherVariables {
        family: Family::Flux,
        ranks: &["FLUX_JOB_SIZE"],
        rank: &["FLUX_TASK_RANK"],
        others: &[],
        ranks_here: &["FLUX_TASK_LOCAL_SIZE"],
        abis: &[Abi::Mpich, Abi::OpenMpi, Abi::Standard],
        trusted: &[],
    },
    // Other variables with this prefix are options of `mpiexec`.
    LauncherVariables {
        family: Family::Pals,
        ranks: &[],
        rank: &["PALS_RANKID"],
        others: &["PALS_APID"],
        ranks_here: &["PALS_LOCAL_SIZE"],
        abis: &[Abi::Mpich, Abi::OpenMpi, Abi::Standard],
        trusted: &[],
    },
    LauncherVariables {
        family: Family::Alps,
        ranks: &[],
        rank: &["ALPS_APP_PE"],
        others: &["ALPS_APP_ID"],
        ranks_here: &[],
        abis: &[Abi::Mpich, Abi::Standard],
        trusted: &[],
    },
    LauncherVariables {
        family: Family::Jsm,
        ranks: &["JSM_NAMESPACE_SIZE"],
        rank: &["JSM_NAMESPACE_RANK"],
        others: &[],
        ranks_here: &["JSM_NAMESPACE_LOCAL_SIZE"],
        abis: &[Abi::OpenMpi, Abi::Standard],
        trusted: &[],
    },
    // PRRTE's prterun, which sets no number of ranks, and any other launcher that speaks PMIx.
    LauncherVariables {
        family: Family::Pmix,
        ranks: &[],
        rank: &["PMIX_RANK"],
        others: &["PMIX_NAMESPACE"],
        ranks_here: &[],
        abis: &[Abi::OpenMpi, Abi::Mpich, Abi::Standard],
        trusted: &[Abi::OpenMpi],
    },
];

/// Without a launcher.
const ANY_ABI: &[Abi] = &[Abi::OpenMpi, Abi::Mpich, Abi::Standard];

/// Slurm numbers steps from 0; batch scripts, interactive shells and the like have numbers from here on
/// (`SLURM_MAX_NORMAL_STEP_ID` in slurm.h is 0xfffffff0).
const SLURM_SPECIAL_STEP_MIN: usize = 0xffff_fff0;

/// How this process was started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Launch {
    /// The authoritative one first.
    claims: Vec<Claim>,
    ancestors: Vec<Ancestor>,
    /// The launcher's connection: a descriptor that it has opened.
    descriptor: Option<String>,
    has_pmix: bool,
    has_pmi: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Decision {
    Alone,
    Launched(LaunchedProcess),
}

impl Launch {
    pub(crate) fn from_environment() -> Launch {
        let variables = std::env::vars_os()
            .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)));
        Launch::from_variables(variables, ancestors())
    }

    /// Of several launchers, the nearest among `ancestors` is authoritative: `mpirun` inside a Slurm step
    /// leaves the step's variables in place, and a program that `mpirun` started may call `srun`. If none is
    /// visible, they have to agree.
    fn from_variables(
        variables: impl IntoIterator<Item = (String, String)>,
        ancestors: Vec<Ancestor>,
    ) -> Launch {
        let variables: HashMap<String, String> =
            variables.into_iter().filter(|(_, value)| !value.trim().is_empty()).collect();
        let mut claims = claims(&variables);
        let nearest = launcher(&ancestors).and_then(Ancestor::families).unwrap_or_default();
        if claims.iter().any(|claim| nearest.contains(&claim.names.family)) {
            claims.retain(|claim| nearest.contains(&claim.names.family));
        }
        let has = |prefix| variables.keys().any(|key| key.starts_with(prefix));
        let (has_pmix, has_pmi) = (has("PMIX_"), has("PMI_"));
        Launch { claims, ancestors, descriptor: variables.get("PMI_FD").cloned(), has_pmix, has_pmi }
    }

    /// The kinds of MPI that may be the launcher's, the likeliest first.
    pub(crate) fn abis(&self) -> &'static [Abi] {
        self.claims.first().map_or(ANY_ABI, |claim| claim.names.abis)
    }

    fn decide(&self) -> Decision {
        let Some(first) = self.claims.first() else { return Decision::Alone };
        let agreed = self.claims.iter().all(|claim| claim.ranks == first.ranks);
        let ranks = first.ranks.filter(|_| agreed);
        if ranks == Some(1) {
            return Decision::Alone;
        }
        Decision::Launched(LaunchedProcess {
            rank: first.rank,
            ranks,
            ranks_here: first.ranks_here,
            launcher: launcher(&self.ancestors).map(|launcher| launcher.pid),
            sign: first.sign.clone(),
        })
    }

    /// Hydra and `srun --mpi=pmi2` pass a rank an open connection, which children of a rank usually do not
    /// inherit. Returns its variable if it is closed.
    fn lost_connection(&self) -> Option<String> {
        let descriptor = self.descriptor.as_ref()?;
        self.claims.first().filter(|claim| claim.names.family == Family::Pmi)?;
        let is_socket = descriptor.trim().parse().is_ok_and(is_socket);
        (!is_socket).then(|| format!("PMI_FD={descriptor}"))
    }

    /// Checks before initialisation whether the library can learn of the other ranks at all. Open MPI itself
    /// would report the failure in 25 lines per rank.
    pub(crate) fn check_library(&self, library: &LibraryInfo) -> Result<(), MpiError> {
        let of_slurm = self.claims.iter().find(|claim| claim.names.family == Family::Slurm);
        let tasks = of_slurm.and_then(|claim| claim.ranks).filter(|tasks| *tasks > 1);
        let Some(tasks) = tasks.filter(|_| library.abi == Abi::OpenMpi && !self.has_pmix) else {
            return Ok(());
        };
        match self.has_pmi && pmi::may_speak_pmi(library) {
            true => Ok(()),
            false => Err(MpiError::NoProcessManager { tasks }),
        }
    }

    /// Checks that MPI's world of `world` ranks is what the launcher started.
    pub(crate) fn check_world(&self, world: usize, abi: Abi, library: &Path) -> Result<(), MpiError> {
        let Decision::Launched(launched) = self.decide() else { return Ok(()) };
        let mismatch = |launched| MpiError::WorldMismatch { launched, world, library: library.to_owned() };
        if let Some(ranks) = launched.ranks {
            return if ranks == world { Ok(()) } else { Err(mismatch(ranks)) };
        }
        let claimed = self.claims.iter().filter_map(|claim| claim.ranks);
        let least = claimed.chain(launched.ranks_here).chain(launched.rank.map(|rank| rank + 1)).max();
        if let Some(least) = least.filter(|least| *least > world) {
            return Err(mismatch(least));
        }
        let is_trusted = self.claims.first().is_some_and(|claim| claim.names.trusted.contains(&abi));
        if world == 1 && !is_trusted {
            return Err(MpiError::WorldUnknown { sign: launched.sign, library: library.to_owned() });
        }
        Ok(())
    }
}

/// One claim for each launcher that has left variables.
fn claims(variables: &HashMap<String, String>) -> Vec<Claim> {
    let number = |key: &&str| variables.get(*key).and_then(|value| value.trim().parse::<usize>().ok());
    let step = variables.get("SLURM_STEP_ID").map(|step| step.trim().parse::<usize>());
    let is_step = matches!(step, Some(Ok(step)) if step < SLURM_SPECIAL_STEP_MIN);
    let mut claims: Vec<Claim> = Vec::new();
    for names in &LAUNCHES {
        let keys = names.rank.iter().chain(names.ranks).chain(names.others);
        let Some((key, value)) = keys.filter_map(|key| variables.get_key_value(*key)).next() else {
            continue;
        };
        if names.family == Family::Slurm && !is_step {
            continue;
        }
        let claim = Claim {
            names,
            ranks: names.ranks.iter().find_map(number),
            rank: names.rank.iter().find_map(number),
            ranks_here: match names.family {
                Family::Slurm => tasks_of_node(variables),
                _ => names.ranks_here.iter().find_map(number),
            },
            sign: format!("{key}={value}"),
        };
        if names.family == Family::Pmix {
            // Other PMIx launchers set more variables. Slurm's own remains in the environment of a batch
            // script that was submitted from a step.
            let is_slurms = variables.get("PMIX_NAMESPACE").is_some_and(|name| name.starts_with("slurm."));
            let is_known = claims.iter().any(|known| known.ranks.is_some() && known.rank == claim.rank);
            if is_known || (is_slurms && step.is_some()) {
                continue;
            }
        }
        claims.push(claim);
    }
    claims
}

/// The number of tasks of a Slurm step on this node, parsed from the form `2(x3),1`.
fn tasks_of_node(variables: &HashMap<String, String>) -> Option<usize> {
    let mut node: usize = variables.get("SLURM_NODEID")?.trim().parse().ok()?;
    for nodes in variables.get("SLURM_STEP_TASKS_PER_NODE")?.split(',') {
        let (tasks, times) = match nodes.split_once("(x") {
            Some((tasks, times)) => (tasks, times.strip_suffix(')')?.parse().ok()?),
            None => (nodes, 1),
        };
        if node < times {
            return tasks.parse().ok();
        }
        node -= times;
    }
    None
}

/// Whether the descriptor is an open socket of this process.
fn is_socket(descriptor: i32) -> bool {
    // SAFETY: fstat writes into a value of ours and touches nothing else, whatever the number is.
    unsafe {
        let mut status = std::mem::zeroed::<libc::stat>();
        libc::fstat(descriptor, &mut status) == 0 && status.st_mode & libc::S_IFMT == libc::S_IFSOCK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `environment` in lines of `KEY=value`, below the program `above`.
    fn launch(environment: &str, above: &str) -> Launch {
        let variables = environment.lines().filter_map(|line| line.trim().split_once('='));
        let variables = variables.map(|(key, value)| (key.to_string(), value.to_string()));
        let ancestors = [("sh", "/bin/sh"), (above, above)];
        let ancestors = ancestors
            .iter()
            .filter(|(name, _)| !name.is_empty())
            .map(|(name, program)| Ancestor { pid: 2, name: name.to_string(), program: program.into() });
        Launch::from_variables(variables, ancestors.collect())
    }

    /// The decision for `environment`: "alone", or the rank, the ranks (`?`: MPI is asked) and the likeliest
    /// kind of library.
    fn decision(environment: &str, above: &str) -> String {
        let launch = launch(environment, above);
        let number = |number: Option<usize>| number.map_or("?".to_string(), |number| number.to_string());
        match launch.decide() {
            Decision::Alone => "alone".to_string(),
            Decision::Launched(LaunchedProcess { rank, ranks, .. }) => {
                format!("{} of {}, {}", number(rank), number(ranks), launch.abis()[0])
            }
        }
    }

    fn check(environment: &str, expected: &str) {
        assert_eq!(decision(environment, ""), expected, "{environment}");
    }

    #[test]
    fn no_launcher() {
        check("", "alone");
        check("PATH=/usr/bin\nOMPI_MCA_btl=self", "alone");
        check("PMI_SIZE=\nPMI_RANK=", "alone");
        check("PALS_PMI=pmix\nPALS_PPN=4", "alone");
    }

    #[test]
    fn launchers_with_a_known_number_of_ranks() {
        check("OMPI_COMM_WORLD_SIZE=4\nOMPI_COMM_WORLD_RANK=3\nPMIX_RANK=3", "3 of 4, openmpi");
        check("PMI_SIZE=2\nPMI_RANK=0", "0 of 2, mpich");
        check("FLUX_JOB_SIZE=3\nFLUX_TASK_RANK=1\nPMIX_RANK=1", "1 of 3, mpich");
        check("MV2_COMM_WORLD_SIZE=3\nMV2_COMM_WORLD_RANK=1", "1 of 3, mpich");
        check("MPIRUN_NPROCS=3\nMPIRUN_RANK=2", "2 of 3, mpich");
        check("JSM_NAMESPACE_SIZE=3\nJSM_NAMESPACE_RANK=2\nPMIX_RANK=2", "2 of 3, openmpi");
        check("OMPI_COMM_WORLD_SIZE=1\nOMPI_COMM_WORLD_RANK=0\nPMIX_RANK=0\nPMIX_NAMESPACE=p@1", "alone");
    }

    #[test]
    fn launchers_without_a_known_number_of_ranks() {
        check("PMIX_RANK=1\nPMIX_NAMESPACE=prterun-a-7@1", "1 of ?, openmpi");
        check("PMIX_NAMESPACE=prterun-a-7@1", "? of ?, openmpi");
        check("PMI_PORT=a:33\nPMI_ID=2\nMPI_LOCALNRANKS=3", "2 of ?, mpich");
        check("PMI_FD=6", "? of ?, mpich");
        check("PALS_RANKID=1", "1 of ?, mpich");
        check("ALPS_APP_PE=0", "0 of ?, mpich");
        // Not a number.
        check("PMI_SIZE=two\nPMI_RANK=0", "0 of ?, mpich");
        check("OMPI_COMM_WORLD_RANK=0", "0 of ?, openmpi");
    }

    #[test]
    fn srun() {
        let step = "SLURM_STEP_ID=0\nSLURM_STEP_NUM_TASKS=4\nSLURM_PROCID=2";
        check(&format!("{step}\nPMIX_RANK=2\nPMIX_NAMESPACE=slurm.pmix.1.0"), "2 of 4, openmpi");
        check(&format!("{step}\nPMI_SIZE=4\nPMI_RANK=2"), "2 of 4, mpich");
        check("SLURM_STEP_ID=0\nSLURM_STEP_NUM_TASKS=1\nSLURM_PROCID=0", "alone");
    }

    #[test]
    fn a_slurm_allocation_without_a_step_is_no_gang() {
        check("SLURM_JOB_ID=17\nSLURM_NTASKS=4\nSLURM_PROCID=0", "alone");
        check("SLURM_STEP_ID=4294967290\nSLURM_STEP_NUM_TASKS=4\nSLURM_PROCID=0", "alone");
        // A batch script that was submitted from a step.
        let left = "PMIX_RANK=0\nPMIX_NAMESPACE=slurm.pmix.1.0";
        check(&format!("SLURM_STEP_ID=4294967291\nSLURM_STEP_NUM_TASKS=4\nSLURM_PROCID=0\n{left}"), "alone");
    }

    #[test]
    fn tasks_of_a_node_of_a_step() {
        for (node, tasks, expected) in [
            ("0", "3", Some(3)),
            ("2", "2(x3),1", Some(2)),
            ("3", "2(x3),1", Some(1)),
            ("4", "2(x3),1", None),
            ("0", "x", None),
        ] {
            let variables = [("SLURM_NODEID", node), ("SLURM_STEP_TASKS_PER_NODE", tasks)];
            let variables = variables.map(|(key, value)| (key.to_string(), value.to_string())).into();
            assert_eq!(tasks_of_node(&variables), expected, "{tasks}");
        }
    }

    const STEP_OF_8: &str = "SLURM_STEP_ID=0\nSLURM_STEP_NUM_TASKS=8\nSLURM_PROCID=3";

    #[test]
    fn the_nearest_launcher_counts() {
        let both = format!("{STEP_OF_8}\nOMPI_COMM_WORLD_SIZE=2\nOMPI_COMM_WORLD_RANK=1");
        assert_eq!(decision(&both, "/usr/bin/orted"), "1 of 2, openmpi");
        assert_eq!(decision(&both, "/usr/sbin/slurmstepd"), "3 of 8, openmpi");
        let farm = format!("{STEP_OF_8}\nOMPI_COMM_WORLD_SIZE=1\nOMPI_COMM_WORLD_RANK=0");
        assert_eq!(decision(&farm, "/usr/bin/mpirun"), "alone");
        let inherited = "OMPI_COMM_WORLD_SIZE=1\nOMPI_COMM_WORLD_RANK=0\nPMI_SIZE=4\nPMI_RANK=0";
        assert_eq!(decision(inherited, "/usr/bin/hydra_pmi_proxy"), "0 of 4, mpich");
        // prted on another host of an allocation is started by srun.
        let remote = format!("{STEP_OF_8}\nPMIX_RANK=5\nPMIX_NAMESPACE=prterun-a-7@1");
        assert_eq!(decision(&remote, "/usr/bin/prted"), "5 of ?, openmpi");
        // No launcher is visible: MPI is asked.
        assert_eq!(decision(&both, ""), "1 of ?, openmpi");
        assert_eq!(decision(inherited, ""), "0 of ?, openmpi");
    }

    /// The result of `check_world`.
    fn world(environment: &str, world: usize, abi: Abi) -> String {
        match launch(environment, "").check_world(world, abi, Path::new("libmpi.so")) {
            Ok(()) => "right".to_string(),
            Err(MpiError::WorldMismatch { launched, .. }) => format!("{launched} were launched"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_world_is_trusted_where_the_library_can_know() {
        let known = "OMPI_COMM_WORLD_SIZE=4\nOMPI_COMM_WORLD_RANK=3";
        assert_eq!(world(known, 4, Abi::OpenMpi), "right");
        assert_eq!(world(known, 1, Abi::OpenMpi), "4 were launched");
        let prte = "PMIX_RANK=0\nPMIX_NAMESPACE=p@1";
        assert_eq!(world(prte, 3, Abi::OpenMpi), "right");
        assert_eq!(world(prte, 1, Abi::OpenMpi), "right");
        assert_eq!(world(prte, 3, Abi::Mpich), "right");
        assert!(world(prte, 1, Abi::Mpich).contains("PMIX_RANK=0"));
        assert_eq!(world("PMIX_RANK=2", 1, Abi::OpenMpi), "3 were launched");
        let port = "PMI_PORT=a:33\nPMI_ID=0\nMPI_LOCALNRANKS=3";
        assert_eq!(world(port, 3, Abi::Mpich), "right");
        assert_eq!(world(port, 1, Abi::Mpich), "3 were launched");
        assert!(world("PMI_PORT=a:33\nPMI_ID=0", 1, Abi::OpenMpi).contains("PMI_ID=0"));
        assert!(world("ALPS_APP_PE=0", 1, Abi::Mpich).contains("ALPS_APP_PE=0"));
        // Two launchers that disagree, and a world of one.
        let both = format!("{STEP_OF_8}\nOMPI_COMM_WORLD_SIZE=1\nOMPI_COMM_WORLD_RANK=0");
        assert_eq!(world(&both, 1, Abi::OpenMpi), "8 were launched");
        assert_eq!(world("", 1, Abi::OpenMpi), "right");
    }

    #[test]
    fn steps_without_pmi_are_reported_before_mpi_init() {
        let is_refused = |environment: &str, abi, version: &str| {
            let library = LibraryInfo { path: "/nowhere/libmpi.so".into(), abi, version: version.into() };
            launch(environment, "slurmstepd").check_library(&library).is_err()
        };
        const OPEN_MPI_4: &str = "Open MPI v4.1.4, package: Debian OpenMPI";
        const OPEN_MPI_5: &str = "Open MPI v5.0.11, package: Open MPI";
        assert!(is_refused(STEP_OF_8, Abi::OpenMpi, OPEN_MPI_4));
        assert!(!is_refused(STEP_OF_8, Abi::Mpich, "MPICH Version: 4.0.2"));
        assert!(!is_refused(&format!("{STEP_OF_8}\nPMIX_RANK=3"), Abi::OpenMpi, OPEN_MPI_5));
        let pmi2 = format!("{STEP_OF_8}\nPMI_RANK=3\nPMI_SIZE=8\nPMI_FD=11");
        assert!(is_refused(&pmi2, Abi::OpenMpi, OPEN_MPI_5));
        // It may have been built for it, with the plugins inside the library.
        assert!(!is_refused(&pmi2, Abi::OpenMpi, OPEN_MPI_4));
        assert!(!is_refused(&pmi2, Abi::Mpich, "MPICH Version: 4.0.2"));
    }

    #[test]
    fn missing_pmi_connections_are_detected() {
        let lost = |environment| launch(environment, "").lost_connection();
        assert_eq!(lost("PMI_SIZE=4\nPMI_RANK=2\nPMI_FD=987654"), Some("PMI_FD=987654".to_string()));
        assert_eq!(lost("PMI_SIZE=4\nPMI_RANK=2"), None);
        let (_here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&there);
        assert_eq!(lost(&format!("PMI_SIZE=4\nPMI_RANK=2\nPMI_FD={descriptor}")), None);
    }
}

//! What a launcher's environment says about this process, told without loading MPI: the one place that
//! decides whether a process is alone, one of so many ranks, or has to ask MPI.
//!
//! ```text
//!   variables ──► claims, one for each launcher that left some ──► those of the nearest launcher above this process, if it is seen
//!        none, or each says one rank:  alone             each says the same number:  so many ranks
//!        else:  MPI is loaded and asked (MPI_Comm_size), and what it says is believed only where it can know
//! ```
//! # Invariants
//! - No process runs alone that has the sign of a launch of which it does not know that it is of one rank: N
//!   of them would each do the work of all.
//! - What a launcher left around for processes that are no ranks (a batch script, a shell in an allocation)
//!   is no sign.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::path::Path;

use crate::ancestry::{Above, Ancestor, Family, above, ancestors, launcher};
use crate::{Abi, LibraryInfo, MpiError, discovery};

/// This process as one of those that a launcher started, as far as the launcher tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Launched {
    /// This process among them.
    pub rank: Option<usize>,
    /// How many were started together, this one included. `None`: MPI has to be asked, and they may turn out
    /// to be one.
    pub ranks: Option<usize>,
    /// How many of them were started on this host.
    pub ranks_here: Option<usize>,
    /// The process on this host that started them here, if it is seen.
    pub launcher: Option<u32>,
    /// The variable that tells of it, as `KEY=value`.
    pub sign: String,
}

/// What started this process; `None`: no launcher, or one of a single process. Reads the environment and
/// `/proc` only: MPI is not loaded.
///
/// Errors: the variables are not this process's: [`MpiError::Nested`], [`MpiError::Inherited`].
pub fn launched() -> Result<Option<Launched>, MpiError> {
    let launch = Launch::from_environment();
    match launch.decide() {
        Decision::Alone => Ok(None),
        Decision::Launched(launched) => {
            match above(&launch.ancestors, &launched.sign) {
                Above::Rank(Ancestor { pid, name, .. }) => {
                    return Err(MpiError::Nested { pid, name, sign: launched.sign });
                }
                // Children of a program that uses MPI without a launcher.
                Above::Own => return Ok(None),
                Above::Nobody => {}
            }
            match launch.lost_connection() {
                Some(sign) => Err(MpiError::Inherited { sign }),
                None => Ok(Some(launched)),
            }
        }
    }
}

/// What the variables of one launcher say.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Claim {
    signs: &'static Signs,
    ranks: Option<usize>,
    rank: Option<usize>,
    ranks_here: Option<usize>,
    sign: String,
}

/// The variables of a launcher.
#[derive(PartialEq, Eq, Debug)]
struct Signs {
    family: Family,
    ranks: &'static [&'static str],
    rank: &'static [&'static str],
    /// Variables that only ranks have, and which tell neither.
    others: &'static [&'static str],
    ranks_here: &'static [&'static str],
    /// The kinds of MPI that such a launcher can connect, the likeliest first.
    abis: &'static [Abi],
    /// Of them, those that do not start as a world of their own where they cannot speak with it: where the
    /// number of ranks is not told, a world of one is believed of these alone.
    believed: &'static [Abi],
}

const LAUNCHES: [Signs; 10] = [
    Signs {
        family: Family::OpenMpi,
        ranks: &["OMPI_COMM_WORLD_SIZE"],
        rank: &["OMPI_COMM_WORLD_RANK"],
        others: &[],
        ranks_here: &["OMPI_COMM_WORLD_LOCAL_SIZE"],
        abis: &[Abi::OpenMpi, Abi::Standard],
        believed: &[Abi::OpenMpi],
    },
    // With -pmi-port Hydra says where it listens, and no number of ranks.
    Signs {
        family: Family::Pmi,
        ranks: &["PMI_SIZE"],
        rank: &["PMI_RANK", "PMI_ID"],
        others: &["PMI_PORT", "PMI_FD"],
        ranks_here: &["MPI_LOCALNRANKS"],
        abis: &[Abi::Mpich, Abi::Standard],
        believed: &[Abi::Mpich, Abi::Standard],
    },
    Signs {
        family: Family::Mvapich,
        ranks: &["MV2_COMM_WORLD_SIZE"],
        rank: &["MV2_COMM_WORLD_RANK"],
        others: &[],
        ranks_here: &["MV2_COMM_WORLD_LOCAL_SIZE"],
        abis: &[Abi::Mpich, Abi::Standard],
        believed: &[],
    },
    Signs {
        family: Family::Mvapich,
        ranks: &["MPIRUN_NPROCS"],
        rank: &["MPIRUN_RANK"],
        others: &[],
        ranks_here: &[],
        abis: &[Abi::Mpich, Abi::Standard],
        believed: &[],
    },
    // A batch script and a shell in an allocation look alike but are no ranks: see `claims`.
    Signs {
        family: Family::Slurm,
        ranks: &["SLURM_STEP_NUM_TASKS"],
        rank: &["SLURM_PROCID"],
        others: &[],
        ranks_here: &[],
        abis: &[Abi::OpenMpi, Abi::Mpich, Abi::Standard],
        believed: &[],
    },
    Signs {
        family: Family::Flux,
        ranks: &["FLUX_JOB_SIZE"],
        rank: &["FLUX_TASK_RANK"],
        others: &[],
        ranks_here: &["FLUX_TASK_LOCAL_SIZE"],
        abis: &[Abi::Mpich, Abi::OpenMpi, Abi::Standard],
        believed: &[],
    },
    // Other variables that begin so are options of `mpiexec`.
    Signs {
        family: Family::Pals,
        ranks: &[],
        rank: &["PALS_RANKID"],
        others: &["PALS_APID"],
        ranks_here: &["PALS_LOCAL_SIZE"],
        abis: &[Abi::Mpich, Abi::OpenMpi, Abi::Standard],
        believed: &[],
    },
    Signs {
        family: Family::Alps,
        ranks: &[],
        rank: &["ALPS_APP_PE"],
        others: &["ALPS_APP_ID"],
        ranks_here: &[],
        abis: &[Abi::Mpich, Abi::Standard],
        believed: &[],
    },
    Signs {
        family: Family::Jsm,
        ranks: &["JSM_NAMESPACE_SIZE"],
        rank: &["JSM_NAMESPACE_RANK"],
        others: &[],
        ranks_here: &["JSM_NAMESPACE_LOCAL_SIZE"],
        abis: &[Abi::OpenMpi, Abi::Standard],
        believed: &[],
    },
    // PRRTE's prterun, which says no number of ranks, and whatever else speaks PMIx.
    Signs {
        family: Family::Pmix,
        ranks: &[],
        rank: &["PMIX_RANK"],
        others: &["PMIX_NAMESPACE"],
        ranks_here: &[],
        abis: &[Abi::OpenMpi, Abi::Mpich, Abi::Standard],
        believed: &[Abi::OpenMpi],
    },
];

/// Where there is no launcher.
const ANY_ABI: &[Abi] = &[Abi::OpenMpi, Abi::Mpich, Abi::Standard];

/// Slurm numbers steps from 0; batch scripts, interactive shells and the like have numbers from here on
/// (`SLURM_MAX_NORMAL_STEP_ID` in slurm.h is 0xfffffff0).
const SLURM_SPECIAL_STEP_MIN: usize = 0xffff_fff0;

/// How this process was started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Launch {
    /// The one that counts comes first.
    claims: Vec<Claim>,
    ancestors: Vec<Ancestor>,
    /// Where the launcher is to be spoken with, by a descriptor that it has opened.
    descriptor: Option<String>,
    has_pmix: bool,
    has_pmi: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Decision {
    Alone,
    Launched(Launched),
}

impl Launch {
    pub(crate) fn from_environment() -> Launch {
        let variables = std::env::vars_os()
            .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)));
        Launch::from_variables(variables, ancestors())
    }

    /// Of several launchers the one counts that is the nearest of `ancestors`: `mpirun` inside of a step of
    /// Slurm leaves the variables of that in place, and a program that `mpirun` started may call `srun`.
    /// Where none is seen, they have to agree.
    fn from_variables(
        variables: impl IntoIterator<Item = (String, String)>,
        ancestors: Vec<Ancestor>,
    ) -> Launch {
        let variables: HashMap<String, String> =
            variables.into_iter().filter(|(_, value)| !value.trim().is_empty()).collect();
        let mut claims = claims(&variables);
        let nearest = launcher(&ancestors).and_then(Ancestor::families).unwrap_or_default();
        if claims.iter().any(|claim| nearest.contains(&claim.signs.family)) {
            claims.retain(|claim| nearest.contains(&claim.signs.family));
        }
        let has = |prefix| variables.keys().any(|key| key.starts_with(prefix));
        let (has_pmix, has_pmi) = (has("PMIX_"), has("PMI_"));
        Launch { claims, ancestors, descriptor: variables.get("PMI_FD").cloned(), has_pmix, has_pmi }
    }

    /// The kinds of MPI that may be the launcher's, the likeliest first.
    pub(crate) fn abis(&self) -> &'static [Abi] {
        self.claims.first().map_or(ANY_ABI, |claim| claim.signs.abis)
    }

    fn decide(&self) -> Decision {
        let Some(first) = self.claims.first() else { return Decision::Alone };
        let agreed = self.claims.iter().all(|claim| claim.ranks == first.ranks);
        let ranks = first.ranks.filter(|_| agreed);
        if ranks == Some(1) {
            return Decision::Alone;
        }
        Decision::Launched(Launched {
            rank: first.rank,
            ranks,
            ranks_here: first.ranks_here,
            launcher: launcher(&self.ancestors).map(|launcher| launcher.pid),
            sign: first.sign.clone(),
        })
    }

    /// Hydra and `srun --mpi=pmi2` give a rank an open connection. It is closed in what a rank starts in
    /// turn, as a rule.
    fn lost_connection(&self) -> Option<String> {
        let descriptor = self.descriptor.as_ref()?;
        self.claims.first().filter(|claim| claim.signs.family == Family::Pmi)?;
        let is_socket = descriptor.trim().parse().is_ok_and(is_socket);
        (!is_socket).then(|| format!("PMI_FD={descriptor}"))
    }

    /// Before the library is initialised: whether it can hear of the other ranks at all. Open MPI would say
    /// in 25 lines for every rank that it cannot.
    pub(crate) fn check_library(&self, library: &LibraryInfo) -> Result<(), MpiError> {
        let of_slurm = self.claims.iter().find(|claim| claim.signs.family == Family::Slurm);
        let tasks = of_slurm.and_then(|claim| claim.ranks).filter(|tasks| *tasks > 1);
        let Some(tasks) = tasks.filter(|_| library.abi == Abi::OpenMpi && !self.has_pmix) else {
            return Ok(());
        };
        match self.has_pmi && discovery::may_speak_pmi(library) {
            true => Ok(()),
            false => Err(MpiError::NoProcessManager { tasks }),
        }
    }

    /// Whether MPI's world of `world` ranks is what the launcher started.
    pub(crate) fn check_world(&self, world: usize, abi: Abi, library: &Path) -> Result<(), MpiError> {
        let Decision::Launched(launched) = self.decide() else { return Ok(()) };
        let mismatch = |launched| MpiError::WorldMismatch { launched, world, library: library.to_owned() };
        if let Some(ranks) = launched.ranks {
            return if ranks == world { Ok(()) } else { Err(mismatch(ranks)) };
        }
        let told = self.claims.iter().filter_map(|claim| claim.ranks);
        let least = told.chain(launched.ranks_here).chain(launched.rank.map(|rank| rank + 1)).max();
        if let Some(least) = least.filter(|least| *least > world) {
            return Err(mismatch(least));
        }
        let is_believed = self.claims.first().is_some_and(|claim| claim.signs.believed.contains(&abi));
        if world == 1 && !is_believed {
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
    for signs in &LAUNCHES {
        let keys = signs.rank.iter().chain(signs.ranks).chain(signs.others);
        let Some((key, value)) = keys.filter_map(|key| variables.get_key_value(*key)).next() else {
            continue;
        };
        if signs.family == Family::Slurm && !is_step {
            continue;
        }
        let claim = Claim {
            signs,
            ranks: signs.ranks.iter().find_map(number),
            rank: signs.rank.iter().find_map(number),
            ranks_here: match signs.family {
                Family::Slurm => tasks_of_node(variables),
                _ => signs.ranks_here.iter().find_map(number),
            },
            sign: format!("{key}={value}"),
        };
        if signs.family == Family::Pmix {
            // Others that speak PMIx say more. Slurm's own stays in the environment of a batch script that
            // was submitted from a step.
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

/// The tasks of a step of Slurm on this node, out of what it writes as `2(x3),1`.
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

/// Whether this process has a socket with the number `descriptor`.
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

    /// Lines of `KEY=value`, below the program `above`.
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

    /// What is made of `environment`: "alone", or the rank, the ranks (`?`: MPI is asked) and the likeliest
    /// kind of library.
    fn told(environment: &str, above: &str) -> String {
        let launch = launch(environment, above);
        let number = |number: Option<usize>| number.map_or("?".to_string(), |number| number.to_string());
        match launch.decide() {
            Decision::Alone => "alone".to_string(),
            Decision::Launched(Launched { rank, ranks, .. }) => {
                format!("{} of {}, {}", number(rank), number(ranks), launch.abis()[0])
            }
        }
    }

    fn check(environment: &str, expected: &str) {
        assert_eq!(told(environment, ""), expected, "{environment}");
    }

    #[test]
    fn no_launcher() {
        check("", "alone");
        check("PATH=/usr/bin\nOMPI_MCA_btl=self", "alone");
        check("PMI_SIZE=\nPMI_RANK=", "alone");
        check("PALS_PMI=pmix\nPALS_PPN=4", "alone");
    }

    #[test]
    fn launchers_that_say_how_many() {
        check("OMPI_COMM_WORLD_SIZE=4\nOMPI_COMM_WORLD_RANK=3\nPMIX_RANK=3", "3 of 4, openmpi");
        check("PMI_SIZE=2\nPMI_RANK=0", "0 of 2, mpich");
        check("FLUX_JOB_SIZE=3\nFLUX_TASK_RANK=1\nPMIX_RANK=1", "1 of 3, mpich");
        check("MV2_COMM_WORLD_SIZE=3\nMV2_COMM_WORLD_RANK=1", "1 of 3, mpich");
        check("MPIRUN_NPROCS=3\nMPIRUN_RANK=2", "2 of 3, mpich");
        check("JSM_NAMESPACE_SIZE=3\nJSM_NAMESPACE_RANK=2\nPMIX_RANK=2", "2 of 3, openmpi");
        check("OMPI_COMM_WORLD_SIZE=1\nOMPI_COMM_WORLD_RANK=0\nPMIX_RANK=0\nPMIX_NAMESPACE=p@1", "alone");
    }

    #[test]
    fn launchers_that_do_not_say_how_many() {
        check("PMIX_RANK=1\nPMIX_NAMESPACE=prterun-a-7@1", "1 of ?, openmpi");
        check("PMIX_NAMESPACE=prterun-a-7@1", "? of ?, openmpi");
        check("PMI_PORT=a:33\nPMI_ID=2\nMPI_LOCALNRANKS=3", "2 of ?, mpich");
        check("PMI_FD=6", "? of ?, mpich");
        check("PALS_RANKID=1", "1 of ?, mpich");
        check("ALPS_APP_PE=0", "0 of ?, mpich");
        // A number that is none.
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
    fn of_two_launchers_the_nearest_counts() {
        let both = format!("{STEP_OF_8}\nOMPI_COMM_WORLD_SIZE=2\nOMPI_COMM_WORLD_RANK=1");
        assert_eq!(told(&both, "/usr/bin/orted"), "1 of 2, openmpi");
        assert_eq!(told(&both, "/usr/sbin/slurmstepd"), "3 of 8, openmpi");
        let farm = format!("{STEP_OF_8}\nOMPI_COMM_WORLD_SIZE=1\nOMPI_COMM_WORLD_RANK=0");
        assert_eq!(told(&farm, "/usr/bin/mpirun"), "alone");
        let inherited = "OMPI_COMM_WORLD_SIZE=1\nOMPI_COMM_WORLD_RANK=0\nPMI_SIZE=4\nPMI_RANK=0";
        assert_eq!(told(inherited, "/usr/bin/hydra_pmi_proxy"), "0 of 4, mpich");
        // prted on another host of an allocation is started by srun.
        let remote = format!("{STEP_OF_8}\nPMIX_RANK=5\nPMIX_NAMESPACE=prterun-a-7@1");
        assert_eq!(told(&remote, "/usr/bin/prted"), "5 of ?, openmpi");
        // Nobody is seen: MPI is asked.
        assert_eq!(told(&both, ""), "1 of ?, openmpi");
        assert_eq!(told(inherited, ""), "0 of ?, openmpi");
    }

    /// What is made of a world of MPI.
    fn world(environment: &str, world: usize, abi: Abi) -> String {
        match launch(environment, "").check_world(world, abi, Path::new("libmpi.so")) {
            Ok(()) => "right".to_string(),
            Err(MpiError::WorldMismatch { launched, .. }) => format!("{launched} were launched"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_world_is_believed_where_the_library_can_know() {
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
        // Two launchers that say other things, and a world of one.
        let both = format!("{STEP_OF_8}\nOMPI_COMM_WORLD_SIZE=1\nOMPI_COMM_WORLD_RANK=0");
        assert_eq!(world(&both, 1, Abi::OpenMpi), "8 were launched");
        assert_eq!(world("", 1, Abi::OpenMpi), "right");
    }

    #[test]
    fn a_step_without_a_process_manager_is_told_before_open_mpi_does() {
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
        // It may have been built for it, and its plugins may be part of the library.
        assert!(!is_refused(&pmi2, Abi::OpenMpi, OPEN_MPI_4));
        assert!(!is_refused(&pmi2, Abi::Mpich, "MPICH Version: 4.0.2"));
    }

    #[test]
    fn a_connection_that_was_not_passed_on_is_noticed() {
        let lost = |environment| launch(environment, "").lost_connection();
        assert_eq!(lost("PMI_SIZE=4\nPMI_RANK=2\nPMI_FD=987654"), Some("PMI_FD=987654".to_string()));
        assert_eq!(lost("PMI_SIZE=4\nPMI_RANK=2"), None);
        let (_here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&there);
        assert_eq!(lost(&format!("PMI_SIZE=4\nPMI_RANK=2\nPMI_FD={descriptor}")), None);
    }
}

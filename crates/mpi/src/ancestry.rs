//! Ancestor processes: the launcher that started this process, if it is still alive, or a rank in between.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Maximum depth: `mpirun` may start a shell, that a wrapper or a container runtime, that this process.
const ANCESTORS_MAX: usize = 12;

/// Length to which the kernel truncates a program's name.
const NAME_BYTES: usize = 15;

/// Launcher families, by the variables they set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Family {
    /// `mpirun` of Open MPI.
    OpenMpi,
    /// `prterun`, and other launchers that speak PMIx and set nothing more specific.
    Pmix,
    /// Hydra: `mpiexec` of MPICH, Intel MPI and others; and any other launcher that speaks PMI-1 or PMI-2.
    Pmi,
    /// `mpirun_rsh`.
    Mvapich,
    /// A step of `srun`.
    Slurm,
    Flux,
    /// HPE Cray.
    Pals,
    /// Cray's `aprun`.
    Alps,
    /// IBM's `jsrun`.
    Jsm,
}

/// Launcher programs and the families whose variables they set. For launchers of MPI libraries, their own
/// library lies beside them: `<prefix>/bin/mpirun` and `<prefix>/lib`.
const LAUNCHERS: [(&str, &[Family]); 24] = [
    ("mpirun", &[Family::OpenMpi, Family::Pmix, Family::Pmi]),
    ("mpiexec", &[Family::OpenMpi, Family::Pmix, Family::Pmi]),
    ("orterun", &[Family::OpenMpi]),
    ("orted", &[Family::OpenMpi]),
    ("mpirun.openmpi", &[Family::OpenMpi]),
    ("prterun", &[Family::OpenMpi, Family::Pmix]),
    ("prte", &[Family::OpenMpi, Family::Pmix]),
    ("prted", &[Family::OpenMpi, Family::Pmix]),
    ("hydra_pmi_proxy", &[Family::Pmi]),
    ("mpiexec.hydra", &[Family::Pmi]),
    ("mpiexec.gforker", &[Family::Pmi]),
    ("mpiexec.mpich", &[Family::Pmi]),
    ("mpispawn", &[Family::Mvapich, Family::Pmi]),
    ("mpirun_rsh", &[Family::Mvapich, Family::Pmi]),
    ("slurmstepd", &[Family::Slurm, Family::Pmi]),
    ("slurmstepd-wlm", &[Family::Slurm, Family::Pmi]),
    ("flux-shell", &[Family::Flux, Family::Pmi, Family::Pmix]),
    ("flux-broker", &[Family::Flux, Family::Pmi, Family::Pmix]),
    ("palsd", &[Family::Pals, Family::Pmi, Family::Pmix]),
    ("apinit", &[Family::Alps, Family::Pmi]),
    ("apshepherd", &[Family::Alps, Family::Pmi]),
    ("jsrund", &[Family::Jsm, Family::Pmix]),
    ("jsmd", &[Family::Jsm, Family::Pmix]),
    ("jskd", &[Family::Jsm, Family::Pmix]),
];

/// An ancestor of this process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ancestor {
    pub(crate) pid: u32,
    /// As the kernel shows it to all users, truncated.
    pub(crate) name: String,
    /// Empty for another user's process.
    pub(crate) program: PathBuf,
}

/// The ancestors of this process, the parent first.
pub(crate) fn ancestors() -> Vec<Ancestor> {
    let mut all = Vec::new();
    let mut pid = std::os::unix::process::parent_id();
    while pid > 1 && all.len() < ANCESTORS_MAX {
        // Another user's process hides its program, but not its name or parent.
        let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        all.push(Ancestor { pid, name: name_of_stat(&stat).unwrap_or_default().to_string(), program });
        pid = parent_of_stat(&stat).unwrap_or(0);
    }
    all
}

impl Ancestor {
    /// The families of this launcher; `None` if it is not one.
    pub(crate) fn families(&self) -> Option<&'static [Family]> {
        let is = |name: &str| match self.program.file_name() {
            Some(file) => file == OsStr::new(name),
            None => self.name == name[..name.len().min(NAME_BYTES)],
        };
        LAUNCHERS.iter().find(|(name, _)| is(name)).map(|(_, families)| *families)
    }

    /// Whether an MPI library is loaded in it.
    fn has_mpi(&self) -> bool {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.pid)).unwrap_or_default();
        maps.lines().filter_map(|line| line.rsplit('/').next()).any(is_mpi)
    }

    /// Whether its initial environment contains `variable`, given as `KEY=value`.
    fn has_variable(&self, variable: &str) -> bool {
        let environment = std::fs::read(format!("/proc/{}/environ", self.pid)).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes())
    }
}

/// Whether a file name is that of an MPI library: `libmpi.so.40`, `libmpich.so.12`, `libmpi_abi.so.1`.
fn is_mpi(file: &str) -> bool {
    ["libmpi.so", "libmpich.so", "libmpi_abi.so"].iter().any(|name| file.starts_with(name))
}

/// The nearest launcher among the ancestors.
pub(crate) fn launcher(ancestors: &[Ancestor]) -> Option<&Ancestor> {
    ancestors.iter().find(|ancestor| ancestor.families().is_some())
}

/// Whether a launcher on this machine started this process and is still alive.
pub fn has_launcher() -> bool {
    launcher(&ancestors()).is_some()
}

/// The nearest MPI process between this one and its launcher.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum MpiAncestor {
    /// The rank that the launcher's variables describe: `variable` is in its initial environment.
    Rank(Ancestor),
    /// A process that set the variables itself, as an MPI library started without a launcher does.
    SelfStarted,
    /// None uses MPI.
    Absent,
}

/// Finds the nearest MPI process below the launcher; `variable` is `KEY=value`.
pub(crate) fn mpi_ancestor(ancestors: &[Ancestor], variable: &str) -> MpiAncestor {
    let mut between = ancestors.iter().take_while(|ancestor| ancestor.families().is_none());
    match between.find(|ancestor| ancestor.has_mpi()) {
        Some(rank) if rank.has_variable(variable) => MpiAncestor::Rank(rank.clone()),
        Some(_) => MpiAncestor::SelfStarted,
        None => MpiAncestor::Absent,
    }
}

/// The installation prefixes of the launchers above this process, which may contain MPI libraries: the
/// nearest first.
pub(crate) fn launcher_prefixes() -> Vec<PathBuf> {
    let programs = ancestors().into_iter().filter(|ancestor| ancestor.families().is_some());
    programs
        .filter_map(|launcher| Some(launcher.program.parent().and_then(Path::parent)?.to_owned()))
        .collect()
}

/// The name in the text of `/proc/<pid>/stat`, which may contain spaces and brackets.
fn name_of_stat(stat: &str) -> Option<&str> {
    Some(stat.rsplit_once(')')?.0.split_once('(')?.1)
}

/// The parent in the text of `/proc/<pid>/stat`: the second field after the program's name.
fn parent_of_stat(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_found_behind_any_program_name() {
        for (stat, parent, name) in [
            ("12 (mpirun) S 7 12 7 0", Some(7), Some("mpirun")),
            ("12 (a b) c) R 8 12 7 0", Some(8), Some("a b) c")),
            ("12 (", None, None),
            ("", None, None),
        ] {
            assert_eq!((parent_of_stat(stat), name_of_stat(stat)), (parent, name), "{stat}");
        }
    }

    #[test]
    fn launchers_are_recognized_by_program_or_name() {
        let ancestor =
            |name: &str, program: &str| Ancestor { pid: 2, name: name.into(), program: program.into() };
        let families = |name, program| ancestor(name, program).families().map(|families| families[0]);
        assert_eq!(families("hydra_pmi_proxy", "/usr/bin/hydra_pmi_proxy"), Some(Family::Pmi));
        assert_eq!(families("slurmstepd", ""), Some(Family::Slurm));
        assert_eq!(families("hydra_pmi_proxy", ""), Some(Family::Pmi));
        assert_eq!(families("mpirun", "/usr/bin/bash"), None);
        let chain =
            [ancestor("sh", "/bin/sh"), ancestor("orted", "/usr/bin/orted"), ancestor("slurmstepd", "")];
        assert_eq!(launcher(&chain).unwrap().name, "orted");
    }

    #[test]
    fn this_process_has_a_parent_and_no_mpi() {
        let all = ancestors();
        assert_eq!(all[0].pid, std::os::unix::process::parent_id());
        assert!(!all[0].has_mpi());
        assert!(is_mpi("libmpi.so.40.30.4") && is_mpi("libmpich.so.12") && !is_mpi("libmpidata.so"));
    }
}

//! What a launcher's environment says about this process, told without loading MPI.

use std::collections::HashMap;

use crate::Abi;

/// The number of ranks that were launched together with this process, itself included; `None` when it was not started by a
/// launcher. Reads the environment only: MPI is not loaded.
pub fn launched_ranks() -> Option<usize> {
    Launch::from_environment().ranks
}

/// The rank that the launcher gave to this process; `None` when it was not started by a launcher. Reads the environment only.
pub fn launched_rank() -> Option<usize> {
    Launch::from_environment().rank
}

/// How this process was started.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Launch {
    /// The number of ranks started together.
    pub(crate) ranks: Option<usize>,
    /// This process among them.
    pub(crate) rank: Option<usize>,
    /// The kinds of MPI that such a launcher can connect, the likeliest first.
    pub(crate) abis: Vec<Abi>,
}

impl Launch {
    pub(crate) fn from_environment() -> Launch {
        let variables = std::env::vars_os()
            .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)));
        Launch::from_variables(variables)
    }

    /// Reads `variables`: the innermost launcher wins, because `mpirun` inside a Slurm allocation leaves Slurm's variables in place.
    pub(crate) fn from_variables(variables: impl IntoIterator<Item = (String, String)>) -> Launch {
        let variables: HashMap<String, String> = variables.into_iter().collect();
        let number = |key: &str| variables.get(key).and_then(|value| value.trim().parse::<usize>().ok());
        let launch = |ranks, rank, abis: &[Abi]| Launch { ranks, rank, abis: abis.to_vec() };

        // mpirun of Open MPI 4 and 5.
        if let (Some(ranks), Some(rank)) = (number("OMPI_COMM_WORLD_SIZE"), number("OMPI_COMM_WORLD_RANK")) {
            return launch(Some(ranks), Some(rank), &[Abi::OpenMpi, Abi::Standard]);
        }
        // Hydra (mpiexec of MPICH and its descendants), srun --mpi=pmi2.
        if let (Some(ranks), Some(rank)) = (number("PMI_SIZE"), number("PMI_RANK")) {
            return launch(Some(ranks), Some(rank), &[Abi::Mpich, Abi::Standard]);
        }
        // A step of srun, with PMIx or without. A batch script and an interactive shell look alike but are no gang.
        if let (Some(ranks), Some(rank)) = (number("SLURM_STEP_NUM_TASKS"), number("SLURM_PROCID"))
            && number("SLURM_STEP_ID").is_some_and(|step| step < SLURM_SPECIAL_STEP_MIN)
        {
            return launch(Some(ranks), Some(rank), &[Abi::OpenMpi, Abi::Mpich, Abi::Standard]);
        }
        // Flux.
        if let (Some(ranks), Some(rank)) = (number("FLUX_JOB_SIZE"), number("FLUX_TASK_RANK")) {
            return launch(Some(ranks), Some(rank), &[Abi::Mpich, Abi::OpenMpi, Abi::Standard]);
        }
        // Another PMIx launcher (prterun): it tells the rank in the environment, but not of how many.
        if let Some(rank) = number("PMIX_RANK") {
            return launch(None, Some(rank), &[Abi::OpenMpi, Abi::Mpich, Abi::Standard]);
        }
        launch(None, None, &[Abi::OpenMpi, Abi::Mpich, Abi::Standard])
    }
}

/// Slurm numbers steps from 0; batch scripts, interactive shells and the like have numbers from here on
/// (`SLURM_MAX_NORMAL_STEP_ID` in slurm.h is 0xfffffff0).
const SLURM_SPECIAL_STEP_MIN: usize = 0xffff_fff0;

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks what is made of `environment`, lines of `KEY=value`.
    fn check(environment: &str, ranks: Option<usize>, rank: Option<usize>, first: Abi) {
        let variables = environment.lines().filter_map(|line| line.trim().split_once('='));
        let launch =
            Launch::from_variables(variables.map(|(key, value)| (key.to_string(), value.to_string())));
        assert_eq!((launch.ranks, launch.rank, launch.abis[0]), (ranks, rank, first), "{environment}");
    }

    #[test]
    fn no_launcher() {
        check("", None, None, Abi::OpenMpi);
        check("PATH=/usr/bin\nOMPI_MCA_btl=self", None, None, Abi::OpenMpi);
    }

    #[test]
    fn open_mpi() {
        check("OMPI_COMM_WORLD_SIZE=4\nOMPI_COMM_WORLD_RANK=3\nPMIX_RANK=3", Some(4), Some(3), Abi::OpenMpi);
    }

    #[test]
    fn hydra() {
        check("PMI_SIZE=2\nPMI_RANK=0\nPMI_FD=6", Some(2), Some(0), Abi::Mpich);
    }

    #[test]
    fn mpirun_inside_a_slurm_step_is_what_counts() {
        check(
            "SLURM_STEP_ID=0\nSLURM_STEP_NUM_TASKS=1\nSLURM_PROCID=0\nOMPI_COMM_WORLD_SIZE=8\nOMPI_COMM_WORLD_RANK=5",
            Some(8),
            Some(5),
            Abi::OpenMpi,
        );
    }

    #[test]
    fn srun() {
        check(
            "SLURM_STEP_ID=0\nSLURM_STEP_NUM_TASKS=4\nSLURM_PROCID=2\nPMIX_RANK=2",
            Some(4),
            Some(2),
            Abi::OpenMpi,
        );
        check(
            "SLURM_STEP_ID=3\nSLURM_STEP_NUM_TASKS=4\nSLURM_PROCID=2\nPMI_SIZE=4\nPMI_RANK=2",
            Some(4),
            Some(2),
            Abi::Mpich,
        );
    }

    #[test]
    fn a_slurm_allocation_without_a_step_is_no_gang() {
        check("SLURM_JOB_ID=17\nSLURM_NTASKS=4\nSLURM_PROCID=0", None, None, Abi::OpenMpi);
        check("SLURM_STEP_ID=4294967290\nSLURM_STEP_NUM_TASKS=1\nSLURM_PROCID=0", None, None, Abi::OpenMpi);
    }

    #[test]
    fn flux_and_other_pmix() {
        check("FLUX_JOB_SIZE=3\nFLUX_TASK_RANK=1", Some(3), Some(1), Abi::Mpich);
        check("PMIX_RANK=1\nPMIX_NAMESPACE=prterun", None, Some(1), Abi::OpenMpi);
    }

    #[test]
    fn what_is_no_number_is_ignored() {
        check("PMI_SIZE=two\nPMI_RANK=0", None, None, Abi::OpenMpi);
    }
}

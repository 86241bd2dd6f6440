//! Environment variables read by Harrier, and their reference page. A test compares Harrier's own variables
//! with the sources.

use super::page::{Page, codes};

/// Variables with the same meaning, or used together.
pub(crate) struct Variable {
    pub(crate) names: &'static [&'static str],
    pub(crate) meaning: &'static str,
    default: &'static str,
}

const fn variable(names: &'static [&'static str], meaning: &'static str) -> Variable {
    Variable { names, meaning, default: "" }
}

const fn with_default(
    names: &'static [&'static str],
    meaning: &'static str,
    default: &'static str,
) -> Variable {
    Variable { names, meaning, default }
}

struct Section {
    /// Empty: continues the section before.
    title: &'static str,
    introduction: &'static str,
    variables: &'static [Variable],
}

/// Harrier's own variables for its users, by their prefix.
pub(crate) fn own() -> impl Iterator<Item = &'static Variable> {
    let all = SECTIONS.iter().filter(|section| section.title != FOR_TESTS);
    all.flat_map(|section| section.variables).filter(|variable| variable.names[0].starts_with("HARRIER_"))
}

pub(super) fn page() -> String {
    let mut page = Page::new(
        "Environment variables",
        "This page lists every environment variable that Harrier reads, with its meaning and default.",
    );
    page.paragraph(
        "Options of the command line go before variables, unless a row says otherwise, and so do a setting by `SET` \
         and a key of the [configuration file](configuration.md) of a server. A variable goes before the default \
         alone. In the first two sections, an empty value counts as not set.",
    );
    for section in SECTIONS {
        if !section.title.is_empty() {
            page.heading(2, section.title);
        }
        if !section.introduction.is_empty() {
            page.paragraph(section.introduction);
        }
        let rows = section.variables.iter().map(|variable| {
            [
                codes(variable.names.iter().copied()),
                variable.meaning.to_string(),
                variable.default.to_string(),
            ]
        });
        page.table(["variable", "meaning", "default"], rows.collect());
    }
    page.paragraph("More of them are read by the tests alone, below `crates/*/tests`.");
    page.finish()
}

const FOR_TESTS: &str = "For tests and measurements";

const SECTIONS: &[Section] = &[
    Section {
        title: "Ranks without MPI",
        introduction: "See [Run on several hosts without MPI](../how-to/hosts-file.md).",
        variables: &[
            with_default(&["HARRIER_HOSTS"], "the hosts file, as `--hosts`", "none"),
            with_default(&["HARRIER_RANK"], "number of this rank, from 0", "required with a hosts file"),
            with_default(
                &["HARRIER_RANKS"],
                "number of ranks: the first ones of the file",
                "all of the file",
            ),
            with_default(
                &["HARRIER_TOKEN"],
                "the secret that all ranks share, at least 16 bytes",
                "required with a hosts file",
            ),
            with_default(
                &["HARRIER_TOKEN_FILE"],
                "a file with that secret, if `HARRIER_TOKEN` is not set",
                "none",
            ),
            with_default(
                &["HARRIER_START_SECONDS"],
                "how long ranks wait for each other, also over MPI; at least 1",
                "60",
            ),
        ],
    },
    Section {
        title: "MPI and launchers",
        introduction: "See [Launchers and MPI libraries](launchers.md).",
        variables: &[
            with_default(
                &["HARRIER_ALONE"],
                "`1`: work alone, even if a launcher started this process, as `--alone`; \
                          `0`: do not",
                "`0`",
            ),
            with_default(
                &["HARRIER_MPI_LIBRARY"],
                "the MPI library to load, and no other",
                "found from the launcher",
            ),
            with_default(
                &["HARRIER_MPI_ABI"],
                "demands a kind: `openmpi`, `mpich` or `standard`",
                "the launcher's",
            ),
            with_default(
                &["HARRIER_SHARED_MEMORY"],
                "`0`: ranks of one host send large blocks through MPI, not through shared \
                          memory. The same on every rank",
                "on",
            ),
            with_default(
                &["HARRIER_MPIRUN"],
                "the launcher that `mpidrun` and `harrier bench` call",
                "`mpirun` in `PATH`",
            ),
            variable(
                &["OMPI_LIBDIR_LOC", "OPAL_PREFIX"],
                "folders in which Open MPI's library is looked for first",
            ),
            variable(&["LD_LIBRARY_PATH"], "where the dynamic loader looks for MPI; counts under `srun`"),
        ],
    },
    Section {
        title: "",
        introduction: "These tell Harrier which rank it is. Launchers set them; you do not:",
        variables: &[
            variable(
                &["OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"],
                "Open MPI",
            ),
            variable(
                &["PMI_SIZE", "PMI_RANK", "PMI_ID", "PMI_PORT", "PMI_FD", "MPI_LOCALNRANKS"],
                "MPICH, Intel MPI (Hydra)",
            ),
            variable(
                &[
                    "MV2_COMM_WORLD_SIZE",
                    "MV2_COMM_WORLD_RANK",
                    "MV2_COMM_WORLD_LOCAL_SIZE",
                    "MPIRUN_NPROCS",
                    "MPIRUN_RANK",
                ],
                "MVAPICH",
            ),
            variable(
                &[
                    "SLURM_STEP_NUM_TASKS",
                    "SLURM_PROCID",
                    "SLURM_STEP_ID",
                    "SLURM_NODEID",
                    "SLURM_STEP_TASKS_PER_NODE",
                ],
                "Slurm's `srun`",
            ),
            variable(&["FLUX_JOB_SIZE", "FLUX_TASK_RANK", "FLUX_TASK_LOCAL_SIZE"], "Flux"),
            variable(&["PALS_RANKID", "PALS_APID", "PALS_LOCAL_SIZE"], "PALS (Cray)"),
            variable(&["ALPS_APP_PE", "ALPS_APP_ID"], "ALPS (Cray)"),
            variable(
                &["JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_LOCAL_SIZE"],
                "`jsrun` (IBM)",
            ),
            variable(&["PMIX_RANK", "PMIX_NAMESPACE"], "PMIx, `prterun`"),
        ],
    },
    Section {
        title: "The command line and its shell",
        introduction: "",
        variables: &[
            with_default(
                &["HARRIER_LOG"],
                "what is logged on standard error: `info`, `debug`, or by crate, such as \
                          `harrier_engine=debug`",
                "`warn`",
            ),
            with_default(
                &["TMPDIR"],
                "folder for temporary files, unless `--spill-dir` says otherwise; also of \
                          `mpidrun`'s programs and of backups",
                "`/tmp`",
            ),
            with_default(
                &["USER", "LOGNAME"],
                "who you are to `current_user`, as long as the warehouse has no roles",
                "`harrier`",
            ),
            variable(&["PWD"], "compared among ranks, which have to be in the same folder"),
            with_default(
                &["PAGER"],
                "shows what is longer than the screen; empty: nothing does",
                "`less -SX`, else `more`",
            ),
            with_default(
                &["PSQL_EDITOR", "EDITOR", "VISUAL"],
                "the editor of `\\e`, the first that is set",
                "`vi`",
            ),
            with_default(
                &["XDG_STATE_HOME"],
                "the shell's history is `harrier/history` in it",
                "`~/.local/state`",
            ),
            variable(&["HOME"], "for `~/.local/state` and `~/.aws`"),
            variable(&["PATH"], "where launchers, `less` and `ssh` are looked for"),
            with_default(
                &["MIMALLOC_PURGE_DELAY"],
                "milliseconds that freed memory is kept before the system has it back",
                "10000; 0 with less than 2 GiB of `--memory`",
            ),
        ],
    },
    Section {
        title: "Stores",
        introduction: "See [Use S3 and HDFS](../how-to/object-stores.md) and [Credentials for \
                       S3](../credentials.md). Every rank reads them. Options of a session or table \
                       go before them.",
        variables: &[
            with_default(&["HARRIER_STORE_CONNECT_SECONDS"], "a connection is made within this time", "5"),
            with_default(
                &["HARRIER_STORE_REQUEST_SECONDS"],
                "a request is given up when the server says nothing for so long",
                "30",
            ),
            with_default(
                &["HARRIER_STORE_RETRY_SECONDS"],
                "nothing is tried again so long after a request's beginning",
                "100",
            ),
            with_default(&["HARRIER_STORE_RETRIES"], "how often a request is tried again", "10"),
            with_default(
                &["HARRIER_STORE_LEASE_SECONDS"],
                "how long a writer that died keeps its lock on an external table; the same \
                          everywhere",
                "30",
            ),
            with_default(
                &["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"],
                "keys for S3",
                "the next source",
            ),
            with_default(
                &["AWS_PROFILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"],
                "a profile, and the files that have it",
                "`default`, `~/.aws/config`, `~/.aws/credentials`",
            ),
            variable(
                &["AWS_ROLE_ARN", "AWS_ROLE_SESSION_NAME", "AWS_WEB_IDENTITY_TOKEN_FILE"],
                "a web identity",
            ),
            variable(
                &[
                    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
                    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
                ],
                "the agent of a container",
            ),
            with_default(
                &[
                    "AWS_EC2_METADATA_DISABLED",
                    "AWS_EC2_METADATA_SERVICE_ENDPOINT",
                    "AWS_METADATA_ENDPOINT",
                    "AWS_IMDSV1_FALLBACK",
                ],
                "the role of an instance",
                "asked last, version 2",
            ),
            with_default(&["AWS_REGION", "AWS_DEFAULT_REGION"], "the region", "the profile's"),
            variable(
                &["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_S3_ENDPOINT"],
                "a store other than Amazon's",
            ),
            variable(
                &["AWS_ENDPOINT_URL_STS", "AWS_ENDPOINT_URL_SSO", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"],
                "other endpoints; leave out those of the profile",
            ),
            with_default(&["AWS_ALLOW_HTTP"], "`true`: also an endpoint without TLS", "`false`"),
            with_default(&["AWS_SKIP_SIGNATURE"], "`true`: sign nothing, for public buckets", "`false`"),
            variable(&["AWS_CA_BUNDLE"], "a file of certificates to believe as well"),
            variable(&["AWS_PROXY_URL", "HTTPS_PROXY"], "a proxy"),
            variable(&["HADOOP_CONF_DIR", "HADOOP_HOME"], "where Hadoop's configuration is"),
            with_default(
                &["HADOOP_USER_NAME", "HADOOP_PROXY_USER", "HADOOP_TOKEN_FILE_LOCATION"],
                "the user on HDFS, whom it acts for, and its tokens; not tested with Kerberos",
                "who runs the process",
            ),
        ],
    },
    Section {
        title: "The catalog in PostgreSQL, and harrier ctl",
        introduction: "A URL of the catalog, and the options of `harrier ctl`, go before these, as \
                       with PostgreSQL's own clients.",
        variables: &[
            with_default(&["PGHOST", "PGHOSTADDR"], "the server", "as libpq; `127.0.0.1` for `harrier ctl`"),
            with_default(&["PGPORT"], "its port", "5432; 5433 for `harrier ctl`"),
            with_default(&["PGUSER"], "the role", "who runs the process"),
            with_default(&["PGDATABASE"], "the database", "the role's name; `warehouse` for `harrier ctl`"),
            with_default(
                &["PGPASSWORD", "PGPASSFILE"],
                "the password, or the file that has it",
                "`~/.pgpass`",
            ),
            with_default(&["PGSSLMODE", "PGSSLROOTCERT", "PGSSLCERT", "PGSSLKEY"], "TLS", "`prefer`"),
            with_default(
                &["PGAPPNAME", "PGOPTIONS"],
                "name and options of the session",
                "none; `harrier ctl` sets its own",
            ),
        ],
    },
    Section {
        title: "The server",
        introduction: "",
        variables: &[
            variable(&["NOTIFY_SOCKET"], "systemd is told there when the server is ready, reloads or stops"),
            variable(
                &["LDAPTLS_CACERT"],
                "the certificates that are believed of an LDAP server, instead of the system's",
            ),
            variable(
                &["SLURM_JOB_ID"],
                "inside an allocation: `srun` starts the ranks, and the server prints an \
                          `ssh -L` line for clients elsewhere",
            ),
            variable(
                &["SLURM_NTASKS", "SLURM_JOB_CPUS_PER_NODE", "SLURM_JOB_NUM_NODES"],
                "how many ranks, unless the configuration says, and how many of them share a \
                          host",
            ),
            variable(
                &["SLURM_MPI_TYPE"],
                "the kind of MPI that `srun` starts; without it the server says `--mpi=pmix`",
            ),
            variable(
                &["OMPI_MCA_plm_rsh_agent"],
                "what runs programs on other hosts, where `remote_shell` is `ssh`",
            ),
            variable(
                &["OMPI_MCA_btl_vader_backing_directory", "OMPI_MCA_btl_sm_backing_directory"],
                "where Open MPI's shared files go; without them the server has a folder of \
                          its own in `/dev/shm`",
            ),
            variable(
                &["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"],
                "set for the `mpirun` that `harrier doctor` and `harrier bench` try",
            ),
        ],
    },
    Section {
        title: "Programs in keys and values",
        introduction: "The `HARRIER_MPID_…` are in [their reference](keys-and-values.md#variables). \
                       Names that are unknown there, and empty values, are refused. Besides:",
        variables: &[
            variable(&["HARRIER_MPID_LIBRARY"], "the `libmpid.so` that Python loads"),
            variable(
                &["HARRIER_MPID_PROGRAMS"],
                "the `mpid-programs` that `harrier bench` starts; default: the one beside \
                          `harrier`",
            ),
            variable(
                &["HARRIER_MPID_OUTCOME"],
                "a file by which ranks tell `mpidrun` how they ended; set by `mpidrun`",
            ),
        ],
    },
    Section {
        title: FOR_TESTS,
        introduction: "You need these only to work on Harrier itself. `CONTRIBUTING.md` and [How it \
                       is tested](../testing.md) say more.",
        variables: &[
            variable(&["HARRIER_BINARY"], "the `harrier` that tests start"),
            variable(&["HARRIER_SEED"], "the seed of random tests"),
            variable(
                &["HARRIER_SKIP_MPI", "HARRIER_SKIP_SERVERS"],
                "`1`: leave out tests that need MPI, or servers",
            ),
            variable(
                &["HARRIER_REQUIRE_ALL_MPI", "HARRIER_REQUIRE_SERVERS"],
                "`1`: what is missing fails the test",
            ),
            variable(&["HARRIER_SLT_UPDATE"], "write the answers of SQL test files anew"),
            variable(&["HARRIER_REFERENCE_UPDATE"], "write the pages of the reference anew"),
            variable(&["HARRIER_TEST_GANGS"], "`FOLDER:N`: so many gangs may run at a time"),
            variable(
                &["HARRIER_TEST_POSTGRES", "HARRIER_TEST_S3", "HARRIER_TEST_HDFS"],
                "servers that the tests of a run share, as `PORT:…:FOLDER`",
            ),
            variable(&["HARRIER_TEST_S3_SERVER"], "`moto`: use that server of S3"),
            variable(&["HARRIER_PRETEND_BUILD"], "what a rank says its build is"),
            variable(
                &["HARRIER_BENCH_BINARY", "HARRIER_BENCH_DATA", "HARRIER_BENCH_FOLDER"],
                "set by `harrier bench` for the systems that it starts",
            ),
        ],
    },
];

//! Runs the sqllogictest files of `tests/slt` and `tests/warehouse` against the binary in every
//! configuration; the answers must be equal.
//!
//! `HARRIER_SLT=joins` runs only the files with that in their names. `HARRIER_SKIP_MPI=1` leaves out what
//! needs MPI, which otherwise has to be there. Records marked `onlyif unfixed` are known failures;
//! `HARRIER_SLT_UNFIXED=1` runs them too.

use std::env;
use std::path::{Path, PathBuf};

use harrier_launch::Launcher;
use harrier_testkit::session::Configuration;
use harrier_testkit::slt::{self, Run};

/// A query of several rows without an order passes only until batches or ranks return them in another one.
#[test]
fn queries_of_several_rows_have_an_order() {
    let folders = ["tests/slt", "tests/warehouse"].map(|folder| checkout().join(folder));
    let files = folders.iter().flat_map(|folder| slt::files(folder).unwrap());
    let unordered: Vec<String> = files.flat_map(|file| slt::unordered_queries(&file).unwrap()).collect();
    assert!(unordered.is_empty(), "write rowsort or ORDER BY:\n{}", unordered.join("\n"));
}

#[test]
fn embedded() {
    check(Configuration::embedded());
}

/// Every operator gets batches of one row.
#[test]
fn batches_of_one_row() {
    check(
        Configuration::embedded()
            .with_name("batches-of-one-row")
            .with_setting("datafusion.execution.batch_size", "1"),
    );
}

#[test]
fn little_memory() {
    check(Configuration::embedded().with_name("64-MiB").with_memory("64MiB"));
}

/// Plans are split and encoded as for MPI ranks, without starting processes.
#[test]
fn three_ranks_in_one_process() {
    check(
        Configuration::embedded()
            .with_name("3-ranks-in-one-process")
            .with_arguments(["--inprocess-ranks", "3"])
            .with_setting("harrier.interconnect", "inprocess")
            .with_setting("harrier.distribute_bytes_min", "0"),
    );
}

#[test]
fn one_rank() {
    check_gang("1-rank", Launcher::open_mpi(1), &[]);
}

#[test]
fn two_ranks() {
    check_gang("2-ranks", Launcher::open_mpi(2), &[]);
}

#[test]
fn three_ranks() {
    check_gang("3-ranks", Launcher::open_mpi(3), &[]);
}

#[test]
fn seven_ranks() {
    check_gang("7-ranks", Launcher::open_mpi(7), &[]);
}

#[test]
fn three_ranks_without_shared_memory() {
    check_gang("3-ranks-messages", Launcher::open_mpi(3).with_variable("HARRIER_SHARED_MEMORY", "0"), &[]);
}

#[test]
fn three_ranks_over_grpc() {
    check_gang("3-ranks-grpc", Launcher::open_mpi(3), &[("harrier.interconnect", "grpc")]);
}

#[test]
fn three_ranks_of_mpich() {
    check_gang("3-ranks-mpich", Launcher::mpich(3), &[]);
}

#[test]
fn three_ranks_of_the_open_mpi_wheel() {
    check_wheel("3-ranks-openmpi5", Launcher::open_mpi_wheel(3));
}

#[test]
fn three_ranks_of_the_mpich_wheel() {
    check_wheel("3-ranks-mpich5", Launcher::mpich_wheel(3));
}

/// Small batches, many frames.
#[test]
fn two_ranks_with_batches_of_few_rows() {
    check_gang("2-ranks-small-batches", Launcher::open_mpi(2), &[("datafusion.execution.batch_size", "3")]);
}

/// The selection that runs for every change; [`three_ranks`] runs all files.
#[test]
fn nine_files_on_three_ranks() {
    on_gang("3-ranks", Launcher::open_mpi(3), &[], check_nine);
}

/// Selection for a quick check and for other MPI runtimes: every kind of motion, LIMIT, errors of ranks,
/// files written by ranks, and odd batch sizes.
const NINE: [&str; 9] = [
    "aggregates.slt",
    "copy.slt",
    "errors.slt",
    "joins.slt",
    "limits.slt",
    "nested.slt",
    "order_limit.slt",
    "set_operations.slt",
    "windows.slt",
];

/// Files on tables that end with their session: how they are listed, and what needs persistent tables.
const WITHOUT_WAREHOUSE: [&str; 3] = ["catalog.slt", "tables.slt", "unsupported.slt"];

/// The whole suite with persistent tables, and files that need them.
#[test]
fn warehouse() {
    let folder = tempfile::tempdir().unwrap();
    let configuration = Configuration::embedded().with_name("warehouse").with_warehouse(folder.path());
    check_files(configuration.clone(), &checkout().join("tests/warehouse"));
    check(configuration);
}

#[test]
fn warehouse_on_three_ranks() {
    let folder = tempfile::tempdir().unwrap();
    // Read-only files run in a warehouse on one process, and on ranks without one; here are the writing ones.
    on_gang("warehouse-3-ranks", Launcher::open_mpi(3), &[], |configuration| {
        let configuration = configuration.with_warehouse(folder.path());
        check_files(configuration, &checkout().join("tests/warehouse"));
    });
}

/// All files with small batches, so that deleted rows occur at all positions.
#[test]
fn warehouse_with_batches_of_few_rows() {
    let folder = tempfile::tempdir().unwrap();
    let configuration = Configuration::embedded()
        .with_name("warehouse-small-batches")
        .with_warehouse(folder.path())
        .with_setting("datafusion.execution.batch_size", "7");
    check_files(configuration, &checkout().join("tests/warehouse"));
}

fn check_gang(name: &str, launcher: Launcher, settings: &[(&str, &str)]) {
    on_gang(name, launcher, settings, check);
}

/// Part of the suite on an optional MPI wheel: Open MPI 5 and MPICH 5, whatever the system has.
fn check_wheel(name: &str, launcher: Launcher) {
    if let Err(reason) = launcher.words() {
        return harrier_launch::absent(&reason);
    }
    on_gang(name, launcher, &[], check_nine);
}

fn check_nine(configuration: Configuration) {
    let folder = checkout().join("tests/slt");
    check_some(configuration, NINE.map(|file| folder.join(file)).to_vec());
}

fn on_gang(name: &str, launcher: Launcher, settings: &[(&str, &str)], check: impl FnOnce(Configuration)) {
    if harrier_launch::mpi_skipped() {
        eprintln!("skipped: {name} needs MPI, and HARRIER_SKIP_MPI is set");
        return;
    }
    // Distributes the tiny tables.
    let mut configuration =
        Configuration::on_ranks(name, &launcher).unwrap_or_else(|reason| panic!("{reason}"));
    let _turn = harrier_launch::gang_slot();
    // Fails a statement that leaves anything on a rank.
    configuration = configuration.with_setting("harrier.check_ledger", "true");
    for (key, value) in settings {
        configuration = configuration.with_setting(key, value);
    }
    check(configuration);
}

fn check(configuration: Configuration) {
    check_files(configuration, &checkout().join("tests/slt"));
}

fn check_files(configuration: Configuration, folder: &Path) {
    let files = slt::files(folder).unwrap_or_else(|reason| panic!("{reason}"));
    check_some(configuration, files);
}

fn check_some(configuration: Configuration, mut files: Vec<PathBuf>) {
    let data = checkout().join("tests/slt/data");
    let data = data.to_str().expect("the path of the checkout is UTF-8");
    let unfixed = env::var_os("HARRIER_SLT_UNFIXED").map(|_| "unfixed");
    let run = Run { configuration: &configuration, labels: unfixed.as_slice(), variables: &[("DATA", data)] };
    let file_filter = env::var("HARRIER_SLT").unwrap_or_default();
    let is_wanted = |file: &Path| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        file_filter.split(',').any(|part| name.contains(part))
    };
    files.retain(|file| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let fits = configuration.warehouse.is_none() || !WITHOUT_WAREHOUSE.contains(&name.as_ref());
        fits && is_wanted(file)
    });
    if files.is_empty() && !file_filter.is_empty() {
        let folders = ["tests/slt", "tests/warehouse"].map(|folder| checkout().join(folder));
        let all: Vec<PathBuf> = folders.iter().flat_map(|folder| slt::files(folder).unwrap()).collect();
        assert!(all.iter().any(|file| is_wanted(file)), "no file has HARRIER_SLT={file_filter} in its name");
        return;
    }
    if let Err(failures) = run.files(&files) {
        panic!("{failures}");
    }
}

fn checkout() -> PathBuf {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    checkout.canonicalize().expect("the checkout is where it was built")
}

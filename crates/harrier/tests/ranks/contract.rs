//! Runs the exchange contract (`support/exchange_contract.rs`) with the real binary: MPI with and without
//! shared memory, QUIC, and gRPC. `engine/tests/in_process/contract.rs` runs it over the simulated network.

use harrier_launch::Hosts;
use nix::sys::signal::Signal;

use crate::command::Folder;
use crate::exchange_contract::{Answer, Contract, Exceptions, Ranks};
use crate::gang::{Gang, Start, session_by_hosts};

const RANKS: usize = 3;

/// Options of `harrier sql`: distributes even tiny tables, and checks the ledger of each rank after each
/// statement.
const ARGUMENTS: [&str; 8] = [
    "--format",
    "lines",
    "--threads",
    "2",
    "--set",
    "harrier.check_ledger=true",
    "--set",
    "harrier.distribute_bytes_min=0",
];

impl Ranks for Gang {
    fn run(&mut self, sql: &str) -> Answer {
        self.answer(sql)
    }

    fn cancel(&mut self, sql: &str) {
        self.ask(sql);
        self.wait_until_busy(&(0..RANKS).collect::<Vec<_>>());
        self.signal_rank(0, Signal::SIGINT);
        let (state, message) = self.wait_for_answer().expect_err(sql);
        assert_eq!(state, "57014", "{message}");
    }

    fn rest(&mut self) {
        Gang::wait_until_idle(self);
    }
}

fn check(mut gang: Gang, folder: &Folder, exceptions: Exceptions) {
    let contract = Contract::new(folder.path(), exceptions);
    let setup = folder.sql(&["-c", &contract.tables().join(";\n")]);
    assert_eq!(setup.status, Some(0), "{setup:?}");
    contract.check(&mut gang);
    assert_eq!(gang.end().code(), Some(0), "{}", gang.stderr());
    gang.leaves_nothing();
}

fn over_mpi(settings: &[&str], environment: &[(&str, &str)], exceptions: Exceptions) {
    if harrier_launch::mpi_skipped() {
        eprintln!("skipped: needs MPI, and HARRIER_SKIP_MPI is set");
        return;
    }
    let arguments = [&ARGUMENTS[..], settings].concat();
    let gang = Start { ranks: RANKS, arguments: &arguments, environment, ..Start::default() }.gang();
    check(gang, &Folder::new(), exceptions);
}

#[test]
fn mpi() {
    over_mpi(&[], &[], Exceptions::default());
}

#[test]
fn mpi_without_shared_memory() {
    over_mpi(&[], &[("HARRIER_SHARED_MEMORY", "0")], Exceptions::default());
}

#[test]
fn udp() {
    let hosts = Hosts::new(RANKS);
    check(session_by_hosts(&hosts, &ARGUMENTS), &Folder::new(), Exceptions::default());
}

/// The exceptions are datafusion-distributed's: its client has one budget for all streams of a connection,
/// and its server ends the stream of a panicked task like one without more rows.
#[test]
fn grpc() {
    let exceptions = Exceptions {
        merge: Some(
            "all streams of a connection share one budget; merge_streams_do_not_block_each_other shows it",
        ),
        panic: Some("the stream of a task that panicked ends as one that is complete"),
    };
    over_mpi(&["--set", "harrier.interconnect=grpc"], &[], exceptions);
}

//! Ranks on two hosts with low bandwidth and high latency between them (`scripts/hosts.sh`): over MPI's TCP
//! and over QUIC, a statement returns what one process returns. Counters of the network queues confirm
//! bandwidth and delay.
//!
//! Hosts are network namespaces; without permission to create them, the tests print so and pass.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::command::{BINARY, Folder};

/// 2.5 MB/s. A rank sends more at once than the burst of 256 KiB.
const RATE: &str = "20mbit";

/// The rate in the format of `tc`.
const RATE_OF_TC: &str = "rate 20Mbit";

/// One-way delay.
const DELAY_MS: &str = "5";

/// Rows with distinct 32-byte keys that compress badly: half of them go to the other rank.
const ROWS: u64 = 200_000;
const KEY_BYTES: u64 = 32;

const SQL: &str =
    "SELECT count(*), sum(c), min(s), max(s) FROM (SELECT s, count(*) AS c FROM 't/*.parquet' GROUP BY s) g";

/// Report of the script on the link.
struct LinkReport {
    text: String,
}

impl LinkReport {
    /// Sum of the numbers after this word in the counters of both ends.
    fn sum(&self, word: &str) -> u64 {
        let numbers = self.text.split(word).skip(1).filter_map(|rest| {
            let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<u64>().ok()
        });
        numbers.sum()
    }

    /// Delay in milliseconds that the userspace link added to every packet; `None` without one.
    fn delay_ms(&self) -> Option<f64> {
        let line = self.text.lines().find(|line| line.starts_with("held "))?;
        line.split_whitespace().nth(4)?.parse().ok()
    }
}

/// Runs the statement on two ranks, one per host. Returns its output and the link's report; `None` without
/// namespaces.
fn run(folder: &Folder, launch: &str, delay_ms: &str) -> Option<(String, LinkReport)> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/hosts.sh");
    let report = folder.path().join(format!("told-{launch}-{delay_ms}"));
    let data = folder.path().join("t");
    let output = Command::new("sh")
        .arg(script)
        .args(["--rate", RATE, "--delay", delay_ms, "--tell"])
        .arg(&report)
        // A shared PID namespace could make ranks use shared memory instead of the network.
        .args([
            launch,
            "2",
            "env",
            "HARRIER_SHARED_MEMORY=0",
            BINARY,
            "sql",
            "--format",
            "csv",
            "--warehouse",
            ":memory:",
        ])
        .args([
            "--threads",
            "1",
            "--set",
            "harrier.distribute_bytes_min=1",
            "--set",
            "harrier.check_ledger=true",
        ])
        .args(["-c", &SQL.replace("t/", &format!("{}/", data.display()))])
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(77) {
        eprintln!("{stderr}");
        return None;
    }
    assert!(output.status.success(), "{launch}: {stderr}");
    let text = fs::read_to_string(report).unwrap();
    Some((String::from_utf8(output.stdout).unwrap(), LinkReport { text }))
}

fn check(launch: &str) {
    let _turn = (crate::exclusive_cluster(), harrier_launch::gang_slot());
    let folder = Folder::new();
    fs::create_dir(folder.path().join("t")).unwrap();
    let copies = (0..4).map(|file| {
        let (from, to) = (file * ROWS / 4 + 1, (file + 1) * ROWS / 4);
        format!(
            "COPY (SELECT md5(x::text) AS s FROM generate_series({from}, {to}) g(x)) TO 't/{file}.parquet';"
        )
    });
    let setup = folder.sql(&["-c", &copies.collect::<String>()]);
    assert_eq!(setup.status, Some(0), "{setup:?}");
    let alone = folder.sql(&["--format", "csv", "-c", SQL]);
    assert_eq!(alone.status, Some(0), "{alone:?}");
    assert!(alone.stdout.contains(&format!("\n{ROWS},{ROWS},")), "{alone:?}");
    for delay_ms in ["0", DELAY_MS] {
        let Some((answer, report)) = run(&folder, launch, delay_ms) else { return };
        let line = &report.text;
        assert_eq!(answer, alone.stdout, "{launch}, {delay_ms} ms");
        assert_eq!(line.matches(RATE_OF_TC).count(), 2, "{line}");
        // Both directions, allowing for an uneven distribution of keys.
        assert!(report.sum("Sent ") > ROWS * KEY_BYTES / 3, "{line}");
        // Packets that waited for bandwidth; netem does not count them.
        assert!(line.contains("netem") || report.sum("overlimits ") > 0, "{line}");
        if delay_ms != "0" {
            let is_netem = line.matches(&format!("delay {delay_ms}ms")).count() == 2;
            let is_delayed = report.delay_ms().is_some_and(|delay| delay >= delay_ms.parse::<f64>().unwrap());
            assert!(is_netem || is_delayed, "{line}");
        }
    }
}

#[test]
fn over_mpi() {
    if harrier_launch::mpi_skipped() {
        return eprintln!("skipped: needs MPI, and HARRIER_SKIP_MPI is set");
    }
    check("mpirun");
}

#[test]
fn over_quic() {
    check("quic");
}

//! Ranks on two hosts with a line between them that is narrow and long (`scripts/hosts.sh`): over MPI's TCP
//! and over QUIC a statement gives what it gives in one process, and the line was what it should be, by the
//! counters of its queues and of what delays.
//!
//! The hosts are namespaces; where none can be made, the tests say so and do nothing.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::command::{BINARY, Folder};

/// 2.5 MB in a second. In one turn a rank sends more than the 256 KiB that may go beyond the rate.
const RATE: &str = "20mbit";

/// As `tc` writes it.
const RATE_TOLD: &str = "rate 20Mbit";

/// Each way.
const DELAY_MS: &str = "5";

/// Rows, each with a key of its own of 32 bytes that compress badly: half of them have to go to the other
/// rank of two.
const ROWS: u64 = 200_000;
const KEY_BYTES: u64 = 32;

const SQL: &str =
    "SELECT count(*), sum(c), min(s), max(s) FROM (SELECT s, count(*) AS c FROM 't/*.parquet' GROUP BY s) g";

/// What the script has told of the line.
struct Told {
    text: String,
}

impl Told {
    /// The numbers that stand behind this word in the counters of both ends.
    fn sum(&self, word: &str) -> u64 {
        let numbers = self.text.split(word).skip(1).filter_map(|rest| {
            let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<u64>().ok()
        });
        numbers.sum()
    }

    /// Milliseconds for which every packet was held by the process that is the line; `None` if there is none.
    fn held_ms(&self) -> Option<f64> {
        let line = self.text.lines().find(|line| line.starts_with("held "))?;
        line.split_whitespace().nth(4)?.parse().ok()
    }
}

/// Runs the statement on two ranks, one on each host. Returns what it gave and what the line was; `None`
/// where there are no hosts.
fn run(folder: &Folder, launch: &str, delay_ms: &str) -> Option<(String, Told)> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/hosts.sh");
    let told = folder.path().join(format!("told-{launch}-{delay_ms}"));
    let data = folder.path().join("t");
    let output = Command::new("sh")
        .arg(script)
        .args(["--rate", RATE, "--delay", delay_ms, "--tell"])
        .arg(&told)
        // Namespaces that share process ids could share memory, too, whatever the line between them.
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
    let text = fs::read_to_string(told).unwrap();
    Some((String::from_utf8(output.stdout).unwrap(), Told { text }))
}

fn check(launch: &str) {
    let _turn = (crate::turn(), harrier_launch::gang_slot());
    let folder = Folder::new();
    fs::create_dir(folder.path().join("t")).unwrap();
    let copies = (0..4).map(|file| {
        let (from, to) = (file * ROWS / 4 + 1, (file + 1) * ROWS / 4);
        format!(
            "COPY (SELECT md5(x::text) AS s FROM generate_series({from}, {to}) g(x)) TO 't/{file}.parquet';"
        )
    });
    let made = folder.sql(&["-c", &copies.collect::<String>()]);
    assert_eq!(made.status, Some(0), "{made:?}");
    let alone = folder.sql(&["--format", "csv", "-c", SQL]);
    assert_eq!(alone.status, Some(0), "{alone:?}");
    assert!(alone.stdout.contains(&format!("\n{ROWS},{ROWS},")), "{alone:?}");
    for delay_ms in ["0", DELAY_MS] {
        let Some((answer, told)) = run(&folder, launch, delay_ms) else { return };
        let line = &told.text;
        assert_eq!(answer, alone.stdout, "{launch}, {delay_ms} ms");
        assert_eq!(line.matches(RATE_TOLD).count(), 2, "{line}");
        // Both ends together, with some room for how the keys fell.
        assert!(told.sum("Sent ") > ROWS * KEY_BYTES / 3, "{line}");
        // A packet that had to wait for the rate. A queue that delays counts none.
        assert!(line.contains("netem") || told.sum("overlimits ") > 0, "{line}");
        if delay_ms != "0" {
            let is_netem = line.matches(&format!("delay {delay_ms}ms")).count() == 2;
            let held = told.held_ms().is_some_and(|held| held >= delay_ms.parse::<f64>().unwrap());
            assert!(is_netem || held, "{line}");
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

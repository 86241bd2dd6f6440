//! ORC files written by COPY and external tables, read by pyorc and PyArrow (`tests/clients/orc_files.py`):
//! same rows as the Parquet files.

use std::path::Path;
use std::process::Command;

use harrier_launch::Launcher;
use harrier_testkit::session::{Configuration, Session};

/// Rows of all types: NULLs, runs of every encoding, outliers, nested values. The writer cuts runs after 512
/// values and row groups after 10 000.
fn rows(count: u32) -> String {
    format!(
        "SELECT v AS id,
            (1700000000 + v)::int AS side_by_side, (16384 + v % 16000)::smallint AS small,
            (CASE WHEN v % 600 = 17 THEN 1073741824 ELSE v * v % 7 % 2 END)::int AS outlier,
            (v / 700)::int AS long_runs, (v / 4)::int AS short_runs, (v * 31)::bigint AS even,
            (v * v)::bigint AS rising, (9000000000 - v * v)::bigint AS falling,
            CASE WHEN v % 2 = 0 THEN 9223372036854775807 ELSE -9223372036854775807 END AS extremes,
            CASE WHEN v % 600 < 300 THEN 5 ELSE (v * 7919) % 1000003 - 500000 END AS mixed,
            CASE WHEN v % 7 > 0 THEN v * 1103515245 % 2147483647 END AS some_null,
            CASE WHEN v / 1000 % 2 = 0 THEN v::int END AS null_runs, NULL::int AS all_null,
            v % 3 = 0 AS flag, CASE WHEN v % 5 > 0 THEN v / 900 % 2 = 0 END AS flag_runs,
            (v / 8.0)::real AS r, CASE WHEN v % 11 = 0 THEN 'NaN'::double precision ELSE v * 1e-3 END AS x,
            (v * 1.25 - 10000)::decimal(9,2) AS price,
            ((v * 7919) % 1000003 * 12345678901234567.123456789)::decimal(38,9) AS wide,
            CASE WHEN v % 4 > 0 THEN -v::decimal(18,0) END AS whole,
            'text ' || v % 40 AS few, CASE WHEN v % 9 > 0 THEN 'ünique ' || v * 7919 END AS many,
            CASE WHEN v % 600 = 1 THEN repeat('long', 700) ELSE '' END AS long,
            decode(md5(v::text), 'hex') AS bytes,
            DATE '1900-01-01' + (v * 3)::int AS day,
            TIMESTAMP '1969-12-01 00:00:00.25' + v * INTERVAL '7 minutes 1.000001 seconds' AS at,
            CASE WHEN v % 3 > 0
                THEN TIMESTAMPTZ '2024-02-29 00:00:00.5+02' + v * INTERVAL '1 second' END AS zoned,
            CASE WHEN v % 5 > 0 THEN [v, NULL, v * v] ELSE [] END AS list,
            CASE WHEN v % 6 > 0 THEN [[1, v], [], NULL] END AS lists,
            CASE WHEN v % 8 > 0 THEN named_struct('a', v, 'b', 'text ' || v % 10,
                'c', named_struct('d', v / 4.0, 'e', [v % 2 = 0])) END AS struct,
            [named_struct('x', v, 'y', NULL::text), named_struct('x', NULL::bigint, 'y', 'y')] AS structs,
            map(['k' || v, 'l'], [v, NULL]) AS map
        FROM generate_series(1, {count}) AS g(v)"
    )
}

fn run(session: &mut Session, statement: &str) {
    session.run(statement).unwrap_or_else(|error| panic!("{error} of {statement}"));
}

/// `orc`: a file, or a folder of files.
fn check(python: &Path, orc: &Path, parquet: &Path, values_min: u64) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/clients/orc_files.py");
    let output = Command::new(python).arg(script).args([orc, parquet]).output().unwrap();
    let output_text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{}: {output_text}{}",
        orc.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    let value_count: u64 = output_text.trim().parse().unwrap();
    assert!(value_count >= values_min, "{value_count} values were compared");
}

#[test]
fn pyorc_and_pyarrow_read_copied_orc() {
    let Some(python) = harrier_servers::clients_python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut session = Session::start(&Configuration::embedded()).unwrap();
    let codecs = [("zstd", 12_000), ("zlib", 1_500), ("snappy", 1_500), ("lz4", 1_500), ("none", 1_500)];
    for (codec, count) in codecs {
        let parquet = folder.path().join(format!("{codec}.parquet"));
        let orc = folder.path().join(format!("{codec}.orc"));
        run(&mut session, &format!("COPY ({}) TO '{}'", rows(count), parquet.display()));
        let options = format!("OPTIONS ('format.compression' '{codec}')");
        run(&mut session, &format!("COPY ({}) TO '{}' {options}", rows(count), orc.display()));
        check(&python, &orc, &parquet, u64::from(count) * 60);
    }
    // An empty file.
    for name in ["empty.parquet", "empty.orc"] {
        let path = folder.path().join(name);
        run(
            &mut session,
            &format!("COPY (SELECT * FROM ({}) q WHERE id < 0) TO '{}'", rows(1), path.display()),
        );
    }
    check(&python, &folder.path().join("empty.orc"), &folder.path().join("empty.parquet"), 0);
}

#[test]
fn pyorc_and_pyarrow_read_orc_of_ranks() {
    let Some(python) = harrier_servers::clients_python() else { return };
    if harrier_launch::mpi_skipped() {
        eprintln!("skipped: needs MPI, and HARRIER_SKIP_MPI is set");
        return;
    }
    let words = Launcher::open_mpi(3).words().unwrap_or_else(|reason| panic!("{reason}"));
    let configuration = Configuration::embedded()
        .with_name("3-ranks")
        .launched_by(words)
        .with_setting("harrier.distribute_bytes_min", "0");
    let folder = tempfile::tempdir().unwrap();
    let _turn = harrier_launch::gang_slot();
    let mut session = Session::start(&configuration).unwrap();
    let parquet = folder.path().join("rows.parquet");
    run(&mut session, &format!("COPY ({}) TO '{}'", rows(3_000), parquet.display()));
    // The table takes its columns from its first file.
    let orc = folder.path().join("orc");
    std::fs::create_dir(&orc).unwrap();
    run(&mut session, &format!("COPY ({}) TO '{}/first.orc'", rows(500), orc.display()));
    run(&mut session, &format!("CREATE EXTERNAL TABLE t STORED AS ORC LOCATION '{}'", orc.display()));
    run(&mut session, &format!("INSERT INTO t SELECT * FROM ({}) q WHERE id > 500", rows(3_000)));
    check(&python, &orc, &parquet, 3_000 * 60);
}

//! COPY of the binary: FROM STDIN and TO STDOUT with `-c` and in scripts, TO folders, and errors.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const HARRIER: &str = env!("CARGO_BIN_EXE_harrier");

/// Runs `harrier sql` with a warehouse in `folder` and `input` on standard input.
fn sql(folder: &Path, args: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(HARRIER)
        .arg("sql")
        .arg("--warehouse")
        .arg(folder)
        .args(["--format", "csv"])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let feeding = std::thread::spawn(move || {
        // The process may end before it has read all input.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().unwrap();
    feeding.join().unwrap();
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn stdout_of_success(output: Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn copy_from_standard_input() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    stdout_of_success(sql(folder, &["-c", "CREATE TABLE t (a INT, b TEXT)"], b""));
    stdout_of_success(sql(folder, &["-c", "COPY t FROM STDIN"], b"1\tone\n2\t\\N\n3\ta\\tb\n"));
    stdout_of_success(sql(
        folder,
        &["-c", "COPY t FROM STDIN WITH (FORMAT csv, HEADER)"],
        b"a,b\n4,\"x\ny\"\n5,\"\"\n",
    ));
    let rows = stdout_of_success(sql(
        folder,
        &["-c", "SELECT a, b IS NULL AS n, length(b) AS l FROM t ORDER BY a"],
        b"",
    ));
    assert_eq!(rows, "a,n,l\n1,false,3\n2,true,\n3,false,3\n4,false,3\n5,false,0\n");
}

#[test]
fn copy_from_lines_of_the_script() {
    let folder = tempfile::tempdir().unwrap();
    let script = "CREATE TABLE t (a INT, b TEXT);\n\
                  COPY t FROM STDIN;\n1\tone;\n2\ttwo\n\\.\n\
                  INSERT INTO t VALUES (3, 'three');\n\
                  COPY t (a) FROM STDIN CSV;\n4\n\\.\n\
                  SELECT a, b FROM t ORDER BY a;\n";
    let rows = stdout_of_success(sql(folder.path(), &[], script.as_bytes()));
    assert_eq!(rows, "a,b\n1,one;\n2,two\n3,three\n4,\n");
}

/// Wherever the file is among the arguments or includes.
#[test]
fn copy_from_lines_of_an_included_file() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("rows.sql");
    std::fs::write(&script, "COPY t FROM STDIN;\n1\n2\n\\.\n").unwrap();
    let script = script.to_str().unwrap();
    let include = format!("\\i {script}");
    let work_folder = folder.path().join("made");
    stdout_of_success(sql(
        &work_folder,
        &["-c", "CREATE TABLE t (a INT)", "-f", script, "-c", &include, "-f", script],
        b"",
    ));
    stdout_of_success(sql(&work_folder, &["-f", script, "-c", "COPY t FROM STDIN"], b"10\n"));
    let rows = stdout_of_success(sql(&work_folder, &["-c", "SELECT count(*) AS n, sum(a) AS s FROM t"], b""));
    assert_eq!(rows, "n,s\n9,22\n");
}

/// Arrays in PostgreSQL 15's text format, read and written.
#[test]
fn copy_of_arrays() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let table = "CREATE TABLE t (id INT, a TEXT[], n INT[], g INT[][], b BOOLEAN[], d DATE[], x BYTEA[], \
                 m NUMERIC(6,2)[], s TIMESTAMP[])";
    stdout_of_success(sql(folder, &["-c", table], b""));
    let rows = "1\t{a,\"b,c\",NULL,\"NULL\",\"\"}\t{1,NULL,-3}\t{{1,2},{3,4}}\t{t,f}\t{2024-01-02,NULL}\t\
                {\"\\\\\\\\x0102\"}\t{1.50,-2.00}\t{\"2024-01-02 03:04:05.6\"}\n\
                2\t{}\t{}\t{}\t\\N\t{}\t{}\t{}\t{}\n\
                3\t{\"q\\\\\"uote\",\"back\\\\\\\\slash\",\"tab\\t\",\"{x}\"}\t\\N\t\\N\t\\N\t\\N\t\\N\t\\N\t\\N\n";
    stdout_of_success(sql(folder, &["-c", "COPY t FROM STDIN"], rows.as_bytes()));
    let all = "(SELECT * FROM t ORDER BY id)";
    let written = stdout_of_success(sql(folder, &["-c", &format!("COPY {all} TO STDOUT")], b""));
    assert_eq!(written, rows);
    let query =
        "SELECT a[2] AS a, a[3] IS NULL AS n, g[2][1] AS g, x[1] = '\\x0102' AS x FROM t WHERE id = 1";
    assert_eq!(stdout_of_success(sql(folder, &["-c", query], b"")), "a,n,g,x\n\"b,c\",true,3,true\n");
    // The same as CSV, and from a file, whose scan does not know arrays.
    let csv = stdout_of_success(sql(folder, &["-c", &format!("COPY {all} TO STDOUT CSV")], b""));
    let file = folder.join("t.csv");
    std::fs::write(&file, &csv).unwrap();
    let from_file = format!("COPY t FROM '{}' (FORMAT csv, HEADER false)", file.display());
    stdout_of_success(sql(folder, &["-c", "TRUNCATE t", "-c", &from_file], b""));
    assert_eq!(stdout_of_success(sql(folder, &["-c", &format!("COPY {all} TO STDOUT CSV")], b"")), csv);
    let copy_error = |columns: &str, row: &[u8]| {
        let output = sql(folder, &["-c", &format!("COPY t ({columns}) FROM STDIN")], row);
        assert_eq!(output.status.code(), Some(1));
        text(&output.stderr)
    };
    for (columns, row, error) in [
        ("n", &b"{1}\n{1,x}\n"[..], "22P02: invalid input syntax for type integer: \"x\""),
        ("n", b"{1}\n{1,3000000000}\n", "22003: value \"3000000000\" is out of range"),
        ("a", b"{1}\n{a\n", "22P02: malformed array literal: \"{a\""),
        ("a", b"{1}\n1\n", "22P02: malformed array literal: \"1\""),
        ("n", b"{1}\n{{1}}\n", "0A000: array literal has other dimensions"),
        ("n", b"{1}\n[2:3]={1,2}\n", "0A000: array literal with bounds"),
    ] {
        let actual = copy_error(columns, row);
        assert!(actual.starts_with(&format!("ERROR {error}")), "{actual}");
        assert!(actual.contains("COPY t, line 2, column"), "{actual}");
    }
    let ignored = "COPY t (n) FROM STDIN (ON_ERROR ignore)";
    stdout_of_success(sql(folder, &["-c", "TRUNCATE t", "-c", ignored], b"{1}\n{x}\n{2,3}\n{\n"));
    assert_eq!(stdout_of_success(sql(folder, &["-c", "SELECT sum(n[1]) AS s FROM t"], b"")), "s\n3\n");
}

/// Floating-point text as in PostgreSQL 15; out-of-range values are errors.
#[test]
fn copy_of_floats() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    stdout_of_success(sql(
        folder,
        &["-c", "CREATE TABLE t (d DOUBLE PRECISION, r REAL, a DOUBLE PRECISION[])"],
        b"",
    ));
    let rows = "Infinity\t-Infinity\t{NaN,Infinity,5}\n1e+300\t1e+20\t{1e+15,1e-05}\n-0\t0.1\t{100000}\n\
                NaN\t123456.5\t\\N\n";
    stdout_of_success(sql(folder, &["-c", "COPY t FROM STDIN"], rows.as_bytes()));
    assert_eq!(stdout_of_success(sql(folder, &["-c", "COPY t TO STDOUT"], b"")), rows);
    let csv = "Infinity,-Infinity,\"{NaN,Infinity,5}\"\n1e+300,1e+20,\"{1e+15,1e-05}\"\n-0,0.1,{100000}\n\
               NaN,123456.5,\n";
    assert_eq!(stdout_of_success(sql(folder, &["-c", "COPY t TO STDOUT CSV"], b"")), csv);
    for (column, row, error) in [
        ("d", "1e400", "\"1e400\" is out of range for type double precision"),
        ("d", "-1e-400", "\"-1e-400\" is out of range for type double precision"),
        ("r", "1e40", "\"1e40\" is out of range for type real"),
        ("a", "{1,1e400}", "\"1e400\" is out of range for type double precision"),
    ] {
        let output =
            sql(folder, &["-c", &format!("COPY t ({column}) FROM STDIN")], format!("{row}\n").as_bytes());
        let actual = text(&output.stderr);
        assert!(actual.starts_with(&format!("ERROR 22003: {error}")), "{actual}");
    }
}

/// More rows than any buffer holds, into files.
#[test]
fn copy_of_many_rows() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut input = String::new();
    for row in 0..300_000 {
        input.push_str(&format!("{row},text number {row}\n"));
    }
    stdout_of_success(sql(folder, &["-c", "CREATE TABLE t (a INT, b TEXT)"], b""));
    stdout_of_success(sql(folder, &["-c", "COPY t FROM STDIN CSV"], input.as_bytes()));
    let rows = stdout_of_success(sql(folder, &["-c", "SELECT count(*) AS n, sum(a) AS s FROM t"], b""));
    assert_eq!(rows, "n,s\n300000,44999850000\n");
    let copy_output =
        stdout_of_success(sql(folder, &["-c", "COPY (SELECT a, b FROM t ORDER BY a) TO STDOUT CSV"], b""));
    assert!(copy_output == input, "{} and {} bytes", copy_output.len(), input.len());
}

#[test]
fn copy_to_standard_output() {
    let folder = tempfile::tempdir().unwrap();
    let values = "(SELECT * FROM (VALUES (1, 'a,b', true), (2, NULL, false)) AS v(x, y, z) ORDER BY x)";
    let copy = |options: &str| {
        stdout_of_success(sql(folder.path(), &["-c", &format!("COPY {values} TO STDOUT {options}")], b""))
    };
    assert_eq!(copy(""), "1\ta,b\tt\n2\t\\N\tf\n");
    assert_eq!(copy("WITH (FORMAT csv, HEADER)"), "x,y,z\n1,\"a,b\",t\n2,,f\n");
    assert_eq!(copy("(FORMAT csv, DELIMITER '|', NULL '-')"), "1|a,b|t\n2|-|f\n");
    let nothing = "COPY (SELECT NULL AS a, NULL::int AS b, '' AS c) TO STDOUT CSV";
    assert_eq!(stdout_of_success(sql(folder.path(), &["-c", nothing], b"")), ",,\"\"\n");
    assert_eq!(copy("(FORMAT json)"), "{\"x\":1,\"y\":\"a,b\",\"z\":true}\n{\"x\":2,\"z\":false}\n");
}

#[test]
fn failed_copy_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    stdout_of_success(sql(folder, &["-c", "CREATE TABLE t (a INT, b TEXT)"], b""));
    let copy_error = |input: &[u8], options: &str| {
        let output = sql(folder, &["-c", &format!("COPY t FROM STDIN {options}")], input);
        assert_eq!(output.status.code(), Some(1));
        text(&output.stderr)
    };
    let mut many = b"1,x\n".repeat(100_000);
    many.extend_from_slice(b"oops,x\n");
    many.extend_from_slice(&b"1,x\n".repeat(100_000));
    let error = copy_error(&many, "CSV");
    assert!(error.starts_with("ERROR 22P02: invalid input syntax for type integer: \"oops\""), "{error}");
    assert!(error.contains("COPY t, line 100001, column \"a\""), "{error}");
    let error = copy_error(b"1\n", "");
    assert!(error.contains("missing data for column \"b\""), "{error}");
    let rows = stdout_of_success(sql(folder, &["-c", "SELECT count(*) AS n FROM t"], b""));
    assert_eq!(rows, "n\n0\n");
    // Failed statements leave no file.
    let files = walk(folder);
    assert!(files.iter().all(|name| !name.ends_with(".parquet")), "{files:?}");
    let output = sql(folder, &["-c", "COPY t FROM STDIN (FORMAT csv, ON_ERROR ignore)"], b"1,a\nx,b\n3,c\n");
    assert!(text(&output.stderr).contains("NOTICE: 1 row was skipped"), "{}", text(&output.stderr));
}

/// In a script, the rows of a failed COPY are skipped, not parsed as statements.
#[test]
fn failed_copy_skips_its_rows() {
    let folder = tempfile::tempdir().unwrap();
    let script = "COPY nosuch FROM STDIN;\n1\n\\.\nSELECT 1;\n";
    let output = sql(folder.path(), &[], script.as_bytes());
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).starts_with("ERROR 42P01"), "{}", text(&output.stderr));
}

/// Three ranks in one process.
const RANKS: [&str; 6] = [
    "--inprocess-ranks",
    "3",
    "--set",
    "harrier.interconnect=inprocess",
    "--set",
    "harrier.distribute_bytes_min=0",
];

/// Files with 120000 rows, which ranks share.
fn rows_of_files(folder: &Path, last_row: &str) -> String {
    let source = folder.join("source");
    std::fs::create_dir_all(&source).unwrap();
    for file in 0..6 {
        let rows = (file * 20_000..(file + 1) * 20_000).map(|v| format!("{v},\"text, {v}\",{}\n", v % 5));
        let last = if file == 5 { last_row } else { "" };
        let text = "id,t,k\n".to_string() + &rows.collect::<String>() + last;
        std::fs::write(source.join(format!("{file}.csv")), text).unwrap();
    }
    format!("'{}/'", source.display())
}

/// Every rank writes its rows, with every option, and the rows are those that one process writes.
#[test]
fn folders_are_written_by_all_ranks() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    let source = rows_of_files(folder, "");
    let formats = [
        ("parquet", "WITH (FORMAT parquet, COMPRESSION snappy)", ""),
        ("csv", "WITH (FORMAT csv, HEADER, DELIMITER ';', QUOTE '''', COMPRESSION gzip)", ""),
        ("text", "WITH (FORMAT text, NULL 'none', DELIMITER '|')", ""),
        ("json", "WITH (FORMAT json)", "SELECT count(*), sum(id), min(t), count(z) FROM "),
        ("orc", "WITH (FORMAT orc, COMPRESSION zstd)", "SELECT count(*), sum(id), min(t), count(z) FROM "),
        ("avro", "WITH (FORMAT avro)", "SELECT count(*), sum(id), min(t), count(z) FROM "),
        ("other_csv", "STORED AS CSV OPTIONS (null_value 'none', quote '*')", ""),
        (
            "keys",
            "STORED AS PARQUET PARTITIONED BY (k)",
            "SELECT count(*), sum(id), min(t), count(z), count(DISTINCT k) FROM ",
        ),
        (
            "text_keys",
            "STORED AS CSV PARTITIONED BY (k, z)",
            "SELECT count(*), sum(id), min(t), count(DISTINCT k) FROM ",
        ),
    ];
    for (name, options, question) in formats {
        let [one, ranks] = ["one", "ranks"].map(|by| folder.join(format!("{name}-{by}")));
        let copy = |to: &Path| {
            let rows = format!("SELECT id, t, k, nullif(id % 3, 1)::text AS z FROM {source}");
            format!("COPY ({rows}) TO '{}/' {options}", to.display())
        };
        let tag = |output: Output| {
            assert!(output.status.success(), "{name}: {}", text(&output.stderr));
            text(&output.stderr)
        };
        let threads = ["--threads", "1"];
        assert_eq!(tag(sql(folder, &[&threads[..], &["-c", &copy(&one)]].concat(), b"")), "COPY 120000\n");
        let plan = sql(folder, &[&RANKS[..], &["-c", &format!("EXPLAIN {}", copy(&ranks))]].concat(), b"");
        assert!(stdout_of_success(plan).contains("StagedFilesExec: sink="), "{name}");
        assert!(!ranks.exists(), "{name}: EXPLAIN makes no folder");
        let by_ranks = copy(&ranks);
        let arguments = [&threads[..], &RANKS, &["-c", &by_ranks]].concat();
        assert_eq!(tag(sql(folder, &arguments, b"")), "COPY 120000\n");
        let by_ranks = walk(&ranks);
        assert!(by_ranks.iter().all(|file| !file.contains("-ranks/.")), "{by_ranks:?}");
        if name.contains("keys") {
            // A folder is written by one rank.
            assert_eq!(by_ranks.len(), walk(&one).len(), "{name}: {by_ranks:?}");
        } else {
            assert!(walk(&one).len() == 1 && by_ranks.len() >= 3, "{name}: {by_ranks:?}");
        }
        if question.is_empty() && name != "csv" && name != "parquet" {
            let lines = |files: Vec<String>| {
                let read = |file: &String| std::fs::read_to_string(file).unwrap();
                let mut lines: Vec<String> = files
                    .iter()
                    .map(read)
                    .flat_map(|text| text.lines().map(str::to_string).collect::<Vec<_>>())
                    .collect();
                lines.sort();
                lines.dedup();
                lines
            };
            assert!(lines(by_ranks) == lines(walk(&one)), "{name}");
        } else if name == "csv" {
            // Each has a header.
            let table = |to: &Path, number: usize| {
                format!(
                    "CREATE EXTERNAL TABLE e{number} (id INT, t TEXT, k INT, z TEXT) STORED AS CSV LOCATION '{}/' \
                     OPTIONS (delimiter ';', quote '''', has_header true, compression gzip);",
                    to.display()
                )
            };
            let same = "SELECT count(*) FROM (SELECT * FROM e1 EXCEPT ALL SELECT * FROM e2) AS d";
            let all = format!("{}{}{same}", table(&one, 1), table(&ranks, 2));
            let rows = stdout_of_success(sql(folder, &["-c", &all], b""));
            assert!(rows.ends_with("count\n0\n"), "{rows}");
        } else {
            let question = if question.is_empty() {
                "SELECT count(*), sum(id), min(t), count(z) FROM "
            } else {
                question
            };
            let [one, ranks] = [one, ranks].map(|place| {
                let question = format!("{question}'{}/'", place.display());
                stdout_of_success(sql(folder, &["-c", &question], b""))
            });
            assert_eq!(one, ranks, "{name}");
        }
    }
}

/// Neither what a rank has written nor a folder, new or in one that was there, and what was there stays.
#[test]
fn failed_copies_leave_no_folder() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    let source = rows_of_files(folder, "200000,last,7\n");
    let kept = folder.join("kept");
    std::fs::create_dir(&kept).unwrap();
    std::fs::write(kept.join("old.csv"), "id\n1\n").unwrap();
    let none: &[&str] = &[];
    for arguments in [none, &RANKS] {
        for options in ["WITH (FORMAT csv)", "STORED AS PARQUET", "STORED AS PARQUET PARTITIONED BY (k)"] {
            for target in ["new", "new/er", "kept"] {
                let rows = format!("SELECT id, k, 1 / (200000 - id) AS q FROM {source}");
                let copy = format!("COPY ({rows}) TO '{}/' {options}", folder.join(target).display());
                let output = sql(folder, &[arguments, &["-c", &copy]].concat(), b"");
                assert!(text(&output.stderr).contains("ERROR 22012"), "{copy}: {}", text(&output.stderr));
                assert!(!folder.join("new").exists(), "{copy}");
                let names: Vec<_> =
                    std::fs::read_dir(&kept).unwrap().map(|entry| entry.unwrap().file_name()).collect();
                assert_eq!(names, ["old.csv"], "{copy}");
            }
        }
    }
}

/// A value that the files' columns do not have is an error that names the files, on ranks as in one process.
#[test]
fn errors_name_the_files() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    let source = rows_of_files(folder, "no number,last,7\n");
    let question = format!("SELECT sum(id) FROM {source}");
    let none: &[&str] = &[];
    let [one, ranks] = [none, &RANKS].map(|arguments| {
        let output = sql(folder, &[arguments, &["-c", &question]].concat(), b"");
        text(&output.stderr).lines().next().unwrap_or_default().to_string()
    });
    assert!(one.starts_with("ERROR 22P02: one of 6 files such as ") && one.contains("source/0.csv"), "{one}");
    assert_eq!(ranks, one);
}

/// Options that COPY does not have are told with those that it has.
#[test]
fn unknown_options_of_copy() {
    let folder = tempfile::tempdir().unwrap();
    for (options, message, hint) in [
        (
            "WITH (target_file_bytes 1)",
            "ERROR 42601: option \"target_file_bytes\"",
            "FORMAT, HEADER, DELIMITER",
        ),
        (
            "STORED AS CSV OPTIONS (nosuch 1)",
            "ERROR 42704: COPY to files of format csv",
            "delimiter, double_quote",
        ),
        (
            "STORED AS PARQUET OPTIONS (nosuch 1)",
            "ERROR 42704: COPY to files of format parquet",
            "max_row_group_size",
        ),
    ] {
        for explain in ["", "EXPLAIN "] {
            let copy = format!("{explain}COPY (SELECT 1 AS a) TO '{}/x/' {options}", folder.path().display());
            let output = sql(folder.path(), &["-c", &copy], b"");
            let stderr = text(&output.stderr);
            assert!(stderr.starts_with(message) && stderr.contains(hint), "{stderr}");
            assert!(!stderr.contains("SHOW ALL") && !folder.path().join("x").exists(), "{stderr}");
        }
    }
}

fn walk(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => names.extend(walk(&path)),
            false => names.push(path.display().to_string()),
        }
    }
    names
}

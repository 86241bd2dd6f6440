//! Command line of the real binary: exact output, errors and exit statuses.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use crate::command::{BINARY, ENDLESS, Folder, Run, build_preload_library};

/// Compares a failure: SQLSTATE, and a part of the message.
#[track_caller]
fn fails(run: &Run, code: &str, message: &str) {
    assert_eq!(run.status, Some(1), "{run:?}");
    let first = run.stderr.lines().next().unwrap_or_default();
    assert!(first.starts_with(&format!("ERROR {code}: ")), "{run:?}");
    assert!(first.contains(message), "{run:?}");
    for noise in ["panicked", "backtrace", "DataFusion", "Arrow error", "External error"] {
        assert!(!run.stderr.contains(noise), "{run:?}");
    }
}

#[track_caller]
fn prints(run: &Run, stdout: &str) {
    assert_eq!(run.stderr, "", "{run:?}");
    assert_eq!(run.stdout, stdout);
    assert_eq!(run.status, Some(0));
}

#[test]
fn formats() {
    let folder = Folder::new();
    let sql = "select * from (values (1, 'a,b', true), (2, null, false)) t(id, name, ok) order by id";
    let cases = [
        ("table", " id | name |  ok\n----+------+-------\n  1 | a,b  | true\n  2 | NULL | false\n(2 rows)\n"),
        ("csv", "id,name,ok\n1,\"a,b\",true\n2,,false\n"),
        ("json", "{\"id\":1,\"name\":\"a,b\",\"ok\":true}\n{\"id\":2,\"name\":null,\"ok\":false}\n"),
        (
            "vertical",
            "-[ RECORD 1 ]\nid   | 1\nname | a,b\nok   | true\n-[ RECORD 2 ]\nid   | 2\nname | NULL\nok   | false\n",
        ),
    ];
    for (format, expected) in cases {
        prints(&folder.sql(&["-c", sql, "--format", format]), expected);
    }
    prints(&folder.sql(&["-c", "select 1 as one"]), " one\n-----\n   1\n(1 row)\n");
}

#[test]
fn values_of_every_kind_in_csv() {
    let folder = Folder::new();
    let sql = "select 1.50::decimal(10,2) as d, date '2024-02-29' as day, \
               timestamp '2024-02-29 12:30:00.5' as at, '' as empty, 'x\"y' as quote, \
               null as nothing, 1e20::double as big, array[1,2] as list, true as yes";
    prints(
        &folder.sql(&["-c", sql, "--format", "csv"]),
        "d,day,at,empty,quote,nothing,big,list,yes\n\
         1.50,2024-02-29,2024-02-29 12:30:00.500,\"\",\"x\"\"y\",,1e20,\"[1, 2]\",true\n",
    );
}

#[test]
fn unnamed_columns() {
    let folder = Folder::new();
    prints(
        &folder.sql(&["--format", "csv", "-c", "select 1, 'x', 1, a, a::text from (values (2)) t(a)"]),
        "?column?,?column?,?column?,a,a\n1,x,1,2,2\n",
    );
    // In all formats; duplicate keys of an object are distinguished.
    let sql =
        "select sum(a), count(*), sum(b), case when a = 2 then 1 end from (values (2, 3)) t(a, b) group by a";
    for (format, expected) in [
        (
            "table",
            " sum | count | sum | case\n-----+-------+-----+------\n   2 |     1 |   3 |    1\n(1 row)\n",
        ),
        ("csv", "sum,count,sum,case\n2,1,3,1\n"),
        ("json", "{\"sum\":2,\"count\":1,\"sum_1\":3,\"case\":1}\n"),
        ("vertical", "-[ RECORD 1 ]\nsum   | 2\ncount | 1\nsum   | 3\ncase  | 1\n"),
    ] {
        prints(&folder.sql(&["--format", format, "-c", sql]), expected);
    }
    prints(
        &folder.sql(&[
            "--format",
            "csv",
            "-c",
            "select * from (select max(a), max(b), a + b from (values (2, 3)) t(a, b) group by a + b) s",
        ]),
        "max,max,?column?\n2,3,5\n",
    );
}

#[test]
fn unnamed_columns_of_prepared_statements() {
    let folder = Folder::new();
    let prepare =
        "prepare p (int) as select count(*), $1 + 1, 1, max(a), a::text from (values (1)) t(a) group by a";
    let run = folder.sql(&["-q", "--format", "csv", "-c", prepare, "-c", "execute p (1)"]);
    prints(&run, "count,?column?,?column?,max,a\n1,2,1,1,1\n");
}

#[test]
fn unnamed_columns_in_files() {
    let folder = Folder::new();
    let query = "select sum(a), sum(b), 1, a + b from (values (2, 3)) t(a, b) group by a + b";
    for name in ["x.parquet", "x.csv", "x.json", "x.orc", "x.arrow"] {
        let copy = format!("copy ({query}) to '{name}'");
        let read = format!("select sum, sum_1, \"?column?\", \"?column?_1\" from '{name}'");
        let run = folder.sql(&["-q", "--format", "csv", "-c", &copy, "-c", &read]);
        prints(&run, "sum,sum_1,?column?,?column?_1\n2,3,1,5\n");
    }
    let run = folder.sql(&[
        "-q",
        "--format",
        "csv",
        "-c",
        &format!("copy ({query}) to stdout (format csv, header)"),
    ]);
    prints(&run, "sum,sum_1,?column?,?column?_1\n2,3,1,5\n");
    let create_sql = "create table u as select max(a), a + 1 from (values (1)) t(a) group by a";
    let run = folder.sql(&[
        "-q",
        "--warehouse",
        ":memory:",
        "--format",
        "csv",
        "-c",
        create_sql,
        "-c",
        "select * from u",
    ]);
    prints(&run, "max,?column?\n1,2\n");
}

#[test]
fn command_tags() {
    let folder = Folder::new();
    let sql = "create table t (a int); insert into t values (1), (2), (3); update t set a = 5 where a > 1; \
               delete from t where a = 1 returning a; copy t to 't.csv'; copy t to stdout; \
               create table u as select a from t; begin; commit; set timezone = 'UTC'";
    let tags = "CREATE TABLE\nINSERT 0 3\nUPDATE 2\n a\n---\n 1\n(1 row)\nDELETE 1\nCOPY 2\n5\n5\nSELECT 2\nBEGIN\nCOMMIT\nSET\n";
    prints(&folder.sql(&["-c", sql]), tags);
    let folder = Folder::new();
    prints(&folder.sql(&["-q", "-c", sql]), " a\n---\n 1\n(1 row)\n5\n5\n");
    // Only rows, for programs that parse them.
    let folder = Folder::new();
    let run = folder.sql(&["--format", "csv", "-c", sql]);
    assert_eq!(run.stdout, "a\n1\n5\n5\n");
    assert_eq!(
        run.stderr,
        "CREATE TABLE\nINSERT 0 3\nUPDATE 2\nDELETE 1\nCOPY 2\nSELECT 2\nBEGIN\nCOMMIT\nSET\n"
    );
    let run = folder.sql(&["-c", "check table t"]);
    assert!(run.stdout.ends_with("(0 rows)\n"), "{run:?}");
    assert_eq!(run.stderr, "NOTICE: nothing is wrong with the table\n");
}

#[test]
fn closed_standard_output_fails() {
    let folder = Folder::new();
    let run = folder.shell("exec >&-; $HARRIER sql -c 'select 1'");
    fails(&run, "58030", "standard output is closed");
    let run = folder.shell("$HARRIER sql -c 'select 1' >/dev/null");
    assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""));
}

/// Output to a file is flushed at the latest on close.
#[test]
fn full_disk_of_piped_output_fails() {
    let folder = Folder::new();
    for closed in ["\\o\n", "\\o other\n"] {
        folder.write("full.sql", &format!("\\o /dev/full\nselect 1;\n{closed}\\echo after\n"));
        let run = folder.sql(&["-f", "full.sql"]);
        fails(&run, "53100", "could not write");
        assert_eq!(run.stdout, "", "{closed:?}: {run:?}");
    }
    // Also at the end of the script, and with \g for one result.
    for script in ["\\o /dev/full\nselect 1;\n", "select 1 \\g /dev/full\n"] {
        folder.write("full.sql", script);
        fails(&folder.sql(&["-f", "full.sql"]), "53100", "could not write");
    }
}

#[test]
fn misplaced_window_functions_are_errors() {
    let folder = Folder::new();
    let run = folder.sql(&["-c", "select 1 from (values (1)) t(a) where rank() over () = 1"]);
    fails(&run, "42P20", "window functions are not allowed here");
    assert!(!run.stderr.contains("WindowUDF"), "{run:?}");
}

#[test]
fn named_pipes_are_refused() {
    let folder = Folder::new();
    let mkfifo_status = std::process::Command::new("mkfifo").arg(folder.path().join("p.csv")).status();
    assert!(mkfifo_status.expect("mkfifo is one of the core utilities").success());
    for sql in [
        "select * from 'p.csv'",
        "create external table e (a int) stored as csv location 'p.csv'",
        "create external table e (a int) stored as csv location '/dev/stdin'",
        "create table t (a int); copy t from '/dev/stdin'",
        "copy (select 1 as a) to 'p.csv'",
        "copy (select 1 as a) to '/dev/stdout' (format csv)",
    ] {
        fails(&folder.sql(&["-q", "-c", sql]), "42809", "pipe or a device");
    }
}

#[test]
fn script_variables_and_meta_commands() {
    let folder = Folder::new();
    let script = "\\set n 41\n\\set who 'O''Hara'\n\\echo :n :'who' 'as it is'\n\
                  select :n + 1 as a, :'who' as :\"who\", '::n' as c, '5'::int as d\n\\g\n\
                  select 1 as e \\g out.csv\nselect 2 as f \\g |tr 2 3\n\\unset n\nselect 4 as g \\gx\n";
    folder.write("s.sql", script);
    prints(
        &folder.sql(&["--format", "csv", "-f", "s.sql"]),
        "41 'O''Hara' as it is\na,O'Hara,c,d\n42,O'Hara,::n,5\nf\n3\ng\n4\n",
    );
    assert_eq!(std::fs::read_to_string(folder.path().join("out.csv")).unwrap(), "e\n1\n");
    prints(&folder.sql(&["--format", "csv", "-v", "x=7", "-c", "select :x as x"]), "x\n7\n");
    let run = folder.sql(&["-c", "select 1\n\\nope"]);
    fails(&run, "42601", "invalid command \\nope");
    folder.write("rows.csv", "1,a\n2,b\n");
    prints(
        &folder.sql(&[
            "-q",
            "--format",
            "csv",
            "-c",
            "create table t (a int, b text)",
            "-c",
            "\\copy t from rows.csv with (format csv, header false)",
            "-c",
            "\\copy (select a from t order by a) to 'back.csv' csv header",
            "-c",
            "select * from 'back.csv'",
            "-c",
            "\\watch i=0.01 c=2",
        ]),
        "a\n1\n2\na\n1\n2\na\n1\n2\n",
    );
    // Timing is printed above the result, for people.
    let run = folder.sql(&["-c", "select 5 as five", "-c", "\\watch 0.01 c=2"]);
    let lines: Vec<&str> = run.stdout.lines().collect();
    let titles: Vec<&str> = lines.iter().filter_map(|line| line.strip_suffix(" (every 0.01s)")).collect();
    assert_eq!((run.status, titles.len()), (Some(0), 2), "{run:?}");
    for title in titles {
        let time = chrono::NaiveDateTime::parse_from_str(title, "%a %b %e %H:%M:%S %Y");
        assert!(time.is_ok_and(|time| time.to_string().as_str() > "2020"), "{title}");
    }
    let at = lines.iter().position(|line| line.ends_with("(every 0.01s)")).unwrap();
    assert_eq!(lines[at + 1..at + 5], ["", " five", "------", "    5"], "{run:?}");
    let run = folder.sql(&["-c", "\\l", "-c", "\\du", "-c", "\\conninfo"]);
    assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    assert!(run.stdout.contains("Role name") && run.stdout.contains("warehouse"), "{run:?}");
}

#[test]
fn wide_plans_have_no_table_border() {
    let folder = Folder::new();
    let sql = "explain select a + 1, count(*) from generate_series(1, 10) g(a) group by a + 1 having count(*) > 0 order by 2, 1 limit 5";
    let run = folder.sql(&["-c", sql]);
    let lines: Vec<&str> = run.stdout.lines().take(2).collect();
    assert!(lines[0].trim() == "QUERY PLAN" && lines[0].len() <= 100, "{run:?}");
    assert!(lines[1].chars().all(|c| c == '-') && lines[1].len() <= 100, "{run:?}");
}

#[test]
fn command_and_file_options_run_in_order() {
    let folder = Folder::new();
    folder.write("b.sql", "select 'b' as x; select 'c' as x");
    let run =
        folder.sql(&["--format", "csv", "-c", "select 'a' as x", "-f", "b.sql", "-c", "select 'd' as x;"]);
    prints(&run, "x\na\nx\nb\nx\nc\nx\nd\n");
}

#[test]
fn standard_input() {
    let folder = Folder::new();
    let sql = "-- a comment; with a semicolon\nselect ';' as x;\nselect\n  2 as y";
    for args in [&["--format", "csv"][..], &["--format", "csv", "-f", "-"]] {
        prints(&folder.sql_with_stdin(args, sql), "x\n;\ny\n2\n");
    }
    prints(&folder.sql_with_stdin(&[], ""), "");
}

#[test]
fn statements_run_before_standard_input_ends() {
    let folder = Folder::new();
    let mut child =
        folder.command(&["--format", "csv"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
    for i in 0..3 {
        writeln!(stdin, "select {i} as i;").unwrap();
        let mut lines = String::new();
        for _ in 0..2 {
            std::io::BufRead::read_line(&mut stdout, &mut lines).unwrap();
        }
        assert_eq!(lines, format!("i\n{i}\n"));
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

#[test]
fn first_failure_ends_the_script() {
    let folder = Folder::new();
    let run =
        folder.sql(&["--format", "csv", "-c", "select 1 as a; select nope; select 2 as b", "-c", "select 3"]);
    assert_eq!(run.stdout, "a\n1\n");
    fails(&run, "42703", "column \"nope\" does not exist");
}

#[test]
fn error_positions_are_marked() {
    let folder = Folder::new();
    let run = folder.sql(&["-c", "select 1;\nselect a,\n       from t"]);
    assert_eq!(run.status, Some(1));
    let run = folder.sql(&["-c", "select 1 frm x y z"]);
    assert_eq!(
        run.stderr.lines().take(3).collect::<Vec<_>>(),
        [
            "ERROR 42601: syntax error at or near \"x\"",
            "LINE 1: select 1 frm x y z",
            "                     ^",
        ],
        "{run:?}"
    );
    let run = folder.sql(&["-c", "select *\n  from missing"]);
    assert_eq!(
        run.stderr,
        "ERROR 42P01: relation \"missing\" does not exist\nLINE 2:   from missing\n               ^\n"
    );
    let run = folder.sql(&["-c", "select id, nme from (values (1, 'x')) t(id, name)"]);
    assert_eq!(
        run.stderr,
        "ERROR 42703: column \"nme\" does not exist\n\
         LINE 1: select id, nme from (values (1, 'x')) t(id, name)\n\
         \x20                  ^\n\
         HINT: perhaps you meant to reference the column t.name\n"
    );
}

#[test]
fn script_errors_have_line_numbers() {
    let folder = Folder::new();
    folder.write("inner.sql", "select 1 as x;\n\nselect\n nope;\n");
    folder.write("outer.sql", "\\echo start\n\\i inner.sql\nselect 3 as never;\n");
    let run = folder.sql(&["--format", "csv", "-f", "outer.sql"]);
    assert_eq!(run.stdout, "start\nx\n1\n");
    fails(&run, "42703", "nope");
    assert!(run.stderr.contains("\nCONTEXT: file \"inner.sql\", line 3\n"), "{run:?}");
    fails(&folder.sql(&["-f", "missing.sql"]), "58P01", "file \"missing.sql\" does not exist");
    folder.write("circle.sql", "\\i circle.sql\n");
    fails(&folder.sql(&["-f", "circle.sql"]), "54000", "include one another");
    fails(&folder.sql(&["-c", "\\nope"]), "42601", "invalid command \\nope");
}

#[test]
fn script_read_errors_fail() {
    let library = build_preload_library("sql/failing_read.c", &[]);
    let folder = Folder::new();
    // Larger than the read buffer.
    let rest = "-- this line is nothing\n".repeat(10_000);
    folder.write("long.sql", &format!("select 1 as x;\n{rest}select 2 as y;\n"));
    let script = folder.path().join("long.sql").canonicalize().unwrap();
    for arguments in [&["-f", "long.sql"][..], &["-f", "-"], &["-c", "\\i long.sql"], &[]] {
        let mut command = folder.command(&["--format", "csv"]);
        command.args(arguments).stdin(fs::File::open(&script).unwrap());
        command.env("LD_PRELOAD", &library).env("FAILING_READ", &script);
        let run: Run = command.output().unwrap().into();
        assert_eq!(run.stdout, "x\n1\n", "{arguments:?}: {run:?}");
        fails(&run, "58030", "could not read");
    }
}

#[test]
fn wrong_usage() {
    let folder = Folder::new();
    for (args, expected) in [
        (&["--nope"][..], "unexpected argument"),
        (&["--memory", "8Gibs"], "invalid memory size"),
        (&["--threads", "0"], "0"),
        (&["--format", "xml"], "invalid value"),
        (&["--set", "nothing"], "expected KEY=VALUE"),
        (
            &["--set", "no.such=1", "-c", "select 1"],
            "ERROR 42704: unrecognized configuration parameter \"no.such\"",
        ),
        (
            &["--set", "harrier.interconnect=tcp", "-c", "select 1"],
            "ERROR 22023: invalid value for parameter",
        ),
        (
            &["--set", "datafusion.execution.batch_size=x", "-c", "select 1"],
            "ERROR 22023: invalid value for parameter",
        ),
        (
            &["--set", "nosuch=1", "-c", "select 1"],
            "ERROR 42704: unrecognized configuration parameter \"nosuch\"",
        ),
        (
            &["--set", "timezone=Mars/Base", "-c", "select 1"],
            "ERROR 22023: invalid value for parameter \"TimeZone\"",
        ),
        (&["--spill-dir", "/proc/nowhere", "-c", "select 1"], "cannot write temporary files to folder"),
    ] {
        let run = folder.sql(args);
        assert_eq!(run.status, Some(2), "{run:?}");
        assert!(run.stderr.contains(expected), "{run:?}");
        assert_eq!(run.stdout, "");
    }
}

#[test]
fn invalid_harrier_log_is_reported() {
    let folder = Folder::new();
    let mut command = folder.command(&["-c", "select 1"]);
    let run: Run = command.env("HARRIER_LOG", "harrier_engine=loud").output().unwrap().into();
    assert_eq!(run.status, Some(0), "{run:?}");
    let expected_text = "WARNING: invalid value for HARRIER_LOG: \"harrier_engine=loud\"";
    assert_eq!(run.stderr.matches(expected_text).count(), 1, "{run:?}");
}

#[test]
fn settings() {
    let folder = Folder::new();
    let run = folder.sql(&[
        "--format",
        "csv",
        "--threads",
        "3",
        "--set",
        "harrier.interconnect=grpc",
        "-c",
        "show harrier.interconnect; show datafusion.execution.target_partitions;
         set harrier.interconnect = 'mpi'; show harrier.interconnect;
         reset harrier.interconnect; show harrier.interconnect;
         set datafusion.execution.target_partitions = 7; reset all;
         show datafusion.execution.target_partitions;",
    ]);
    let values: Vec<_> = run
        .stdout
        .lines()
        .filter_map(|line| line.split(',').nth(1).filter(|value| *value != "value"))
        .collect();
    assert_eq!(values, ["grpc", "3", "mpi", "grpc", "3"], "{run:?}");
    let run = folder.sql(&[
        "--format",
        "csv",
        "--set",
        "timezone=Europe/Oslo",
        "--set",
        "work_mem=5MB",
        "-c",
        "show timezone; show work_mem; select timestamptz '2024-07-01 00:00:00+00';
         set timezone = 'UTC'; reset timezone; show timezone;",
    ]);
    let expected = "TimeZone\nEurope/Oslo\nwork_mem\n5MB\ntimestamptz\n2024-07-01 02:00:00+02:00\n\
                    TimeZone\nEurope/Oslo\n";
    assert_eq!(run.stdout.replace("SET\n", "").replace("RESET\n", ""), expected, "{run:?}");
    for (sql, code) in [
        ("set nosuch = 1", "42704"),
        ("set harrier.nosuch = 1", "42704"),
        ("set datafusion.nosuch.x = 1", "42704"),
        ("set datafusion.runtime.nosuch = 1", "42704"),
        ("show nosuch", "42704"),
        ("reset nosuch", "42704"),
        ("set harrier.interconnect = 'tcp'", "22023"),
        ("set datafusion.execution.batch_size = 'x'", "22023"),
    ] {
        fails(&folder.sql(&["-c", sql]), code, "");
    }
}

#[test]
fn sql_errors() {
    let folder = Folder::new();
    for (sql, code) in [
        ("selec 1", "42601"),
        ("select regexp_replace('a', '(', 'b')", "2201B"),
        ("select 1 group by 2", "42P10"),
        ("select * from generate_series()", "42883"),
        ("select sum('x')", "42883"),
        ("select 'open", "42601"),
        ("select * from nosuch", "42P01"),
        ("select * from nosuch.t", "42P01"),
        ("select nosuch", "42703"),
        ("select t.nosuch from (values (1)) t(a)", "42703"),
        ("select a from (values (1)) t(a), (values (2)) u(a)", "42702"),
        ("select nosuch(1)", "42883"),
        ("select abs('x', 1, 2)", "42883"),
        ("select true + 1", "42883"),
        ("select 1/0", "22012"),
        ("select 300::tinyint", "22003"),
        ("select 'x'::int", "22P02"),
        ("select 300::smallint::tinyint", "22003"),
        ("select date '2024-13-01'", "22008"),
        ("select a, sum(b) from (values (1, 2)) t(a, b)", "42803"),
        ("select 1 union select 1, 2", "42601"),
        ("create table t (a int); create table t (a int)", "42P07"),
        ("drop table nosuch", "42P01"),
        ("savepoint a", "25P01"),
        ("execute nosuch", "26000"),
        ("select * from (values (1)) t(a) limit -1", "2201W"),
        ("create view v as select 1; create view v as select 2", "42P07"),
    ] {
        fails(&folder.sql(&["-c", sql]), code, "");
    }
}

#[test]
fn files_are_tables() {
    let folder = Folder::new();
    folder.write("a.csv", "id,name\n1,x\n2,y\n");
    folder.write("b.tsv", "id\tname\n3\tz\n");
    folder.write("c.ndjson", "{\"id\":4,\"name\":\"w\"}\n");
    folder.write("hive/year=2023/p.csv", "v\n10\n");
    folder.write("hive/year=2024/p.csv", "v\n20\n");
    folder.write("deep/x/1.csv", "v\n1\n");
    folder.write("deep/y/z/2.csv", "v\n2\n");
    let copies = "copy (select * from 'a.csv') to 'p/one.parquet'; \
                  copy (select id + 10 as id, name from 'a.csv') to 'p/two.parquet'; \
                  copy (select * from 'a.csv') to 'a.arrow'";
    prints(&folder.sql(&["-c", copies]), "COPY 2\nCOPY 2\nCOPY 2\n");
    for (sql, expected) in [
        ("select * from 'a.csv' order by id", "id,name\n1,x\n2,y\n"),
        ("select * from \"a.csv\" order by id", "id,name\n1,x\n2,y\n"),
        ("select * from './a.csv' where id = 2", "id,name\n2,y\n"),
        ("select * from 'b.tsv'", "id,name\n3,z\n"),
        ("select * from 'c.ndjson'", "id,name\n4,w\n"),
        ("select * from 'a.arrow' order by id", "id,name\n1,x\n2,y\n"),
        ("select sum(id) as s from 'p/*.parquet'", "s\n26\n"),
        ("select sum(id) as s from 'p/t*.parquet'", "s\n23\n"),
        ("select sum(id) as s from 'p'", "s\n26\n"),
        ("select sum(id) as s from 'p/'", "s\n26\n"),
        ("select sum(v) as s from 'deep/*/1.csv'", "s\n1\n"),
        ("select sum(v) as s from 'deep/**/*.csv'", "s\n3\n"),
        ("select year, v from 'hive' order by year", "year,v\n2023,10\n2024,20\n"),
        ("select v from 'hive' where year = '2024'", "v\n20\n"),
    ] {
        let run = folder.sql(&["--format", "csv", "-c", sql]);
        assert_eq!((run.stdout.as_str(), run.stderr.as_str()), (expected, ""), "{sql}");
    }
}

#[test]
fn external_tables() {
    let folder = Folder::new();
    folder.write("a.csv", "id,name\n1,x\n2,y\n");
    folder.write("hive/year=2023/p.csv", "v\n10\n");
    folder.write("hive/year=2024/p.csv", "v\n20\n");
    let sql = "create external table a stored as csv location 'a.csv';
               select count(*) as n from a;
               create external table h stored as csv partitioned by (year) location 'hive';
               select year, v from h order by 1;
               create external table w (id int, name varchar) stored as parquet location 'w/';
               insert into w select * from a;
               insert into w values (3, 'z');
               select count(*) as n, max(name) as m from w;";
    let run = folder.sql(&["-q", "--format", "csv", "-c", sql]);
    prints(&run, "n\n2\nyear,v\n2023,10\n2024,20\nn,m\n3,z\n");
}

#[test]
fn bad_files() {
    let folder = Folder::new();
    folder.write("good.csv", "id,name\n1,x\n");
    folder.write("late.csv", &format!("id,name\n{}oops,y\n", "1,x\n".repeat(2000)));
    folder.write("ragged.csv", "id,name\n1,x\n1,x,extra\n");
    folder.write("junk.parquet", "this is no parquet file, whatever its name says");
    folder.write("empty/readme.txt", "");
    folder.write("nothing.parquet", "");
    prints(
        &folder.sql(&["-c", "copy (select * from generate_series(1, 100000)) to 'whole.parquet'"]),
        "COPY 100000\n",
    );
    let whole = fs::read(folder.path().join("whole.parquet")).unwrap();
    fs::write(folder.path().join("cut.parquet"), &whole[..whole.len() / 2]).unwrap();
    let mut rotten = whole.clone();
    let length = rotten.len();
    rotten[4..length / 2].fill(0x5a);
    fs::write(folder.path().join("rotten.parquet"), &rotten).unwrap();
    for (sql, code, message) in [
        ("select * from 'missing.parquet'", "58P01", "file \"missing.parquet\" does not exist"),
        ("select * from 'no/where/'", "58P01", "file \"no/where/\" does not exist"),
        ("select * from 'nosuch'", "58P01", "nosuch\" does not exist"),
        ("select * from '*.orc'", "58P01", "no files match \"*.orc\""),
        ("select * from 'nosuch/*.parquet'", "58P01", "nosuch"),
        ("select * from '**/*.avro'", "58P01", "no files match \"**/*.avro\""),
        ("select * from 'empty'", "42809", "empty"),
        ("select * from 'junk.parquet'", "XX001", "junk.parquet"),
        ("select * from 'cut.parquet'", "XX001", "cut.parquet"),
        ("select count(*) from '*.parquet'", "XX001", ".parquet"),
        ("select sum(value) from 'rotten.parquet'", "XX001", "rotten.parquet"),
        ("select * from 'nothing.parquet'", "XX001", "nothing.parquet"),
        ("select sum(id) from 'late.csv'", "22P02", "late.csv"),
        ("select * from 'ftp://host/x.parquet'", "0A000", "ftp"),
        ("copy (select 1 as x) to 'good.csv/x.csv'", "42809", "good.csv/x.csv"),
        ("select * from 'ragged.csv'", "22P04", "ragged.csv"),
        (
            "create external table t stored as parquet location 'missing.parquet'",
            "58P01",
            "file \"missing.parquet\" does not exist",
        ),
        ("create external table t stored as csv location 'x*.csv'", "58P01", "no files match"),
        ("create external table t stored as parquet location 'cut.parquet'", "XX001", "cut.parquet"),
        ("create external table t stored as parquet location 'empty/'", "58P01", "empty"),
        ("create external table t stored as nosuch location 'good.csv'", "42704", ""),
    ] {
        fails(&folder.sql(&["--format", "csv", "-c", sql]), code, message);
    }
}

#[test]
fn permissions() {
    let folder = Folder::new();
    folder.write("secret.csv", "id\n1\n");
    let path = folder.path().join("secret.csv");
    let mut permissions = fs::metadata(&path).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0);
    fs::set_permissions(&path, permissions).unwrap();
    // The superuser may read every file.
    if fs::File::open(&path).is_err() {
        let run = folder.sql(&["-c", "select * from 'secret.csv'"]);
        fails(&run, "42501", "permission denied for file \"secret.csv\"");
    }
    // Even root may not create files there.
    for (target, code) in [("/sys/harrier.csv", "42501"), ("/proc/harrier/out.csv", "58P01")] {
        let run = folder.sql(&["-c", &format!("copy (select 1 as x) to '{target}'")]);
        assert_eq!(run.status, Some(1), "{run:?}");
        fails(&run, code, target);
    }
}

#[test]
fn memory_and_disk() {
    let folder = Folder::new();
    folder.write("spill/keep", "");
    let spill = folder.path().join("spill");
    let spill = spill.to_str().unwrap();
    let sort = "select max(r) as n from (select row_number() over (order by s, v) as r from \
                (select value as v, repeat(value::varchar, 4) as s from generate_series(1, 2000000)))";
    let small = &["--format", "csv", "--memory", "64MiB", "--spill-dir", spill, "-c"];
    prints(&folder.sql(&[small, &[sort][..]].concat()), "n\n2000000\n");

    // Hash tables of distinct aggregates cannot spill.
    let run = folder.sql(&[
        "--memory",
        "2MiB",
        "-c",
        "select cardinality(array_agg(value)) from generate_series(1, 3000000)",
    ]);
    fails(&run, "53200", "out of memory");
    assert!(run.stderr.contains("\nDETAIL: "), "{run:?}");

    let run = folder.shell(&format!(
        "trap '' XFSZ; ulimit -f 200; exec \"$HARRIER\" sql --memory 16MiB --spill-dir '{spill}' -c \"{sort}\""
    ));
    fails(&run, "53100", "");
    let leftovers: Vec<_> = fs::read_dir(spill).unwrap().flatten().map(|e| e.file_name()).collect();
    assert_eq!(leftovers, ["keep"]);
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let folder = Folder::new();
    for format in ["csv", "json", "table", "vertical"] {
        let run = folder.shell(&format!(
            "\"$HARRIER\" sql --format {format} -c 'select * from generate_series(1, 3000000)' | head -n 3 | wc -l"
        ));
        assert_eq!(run.stderr, "", "{format}");
        assert_eq!(run.stdout.trim(), "3", "{format}");
    }
}

/// Standard output that has been closed by its reader, so that the first byte fails.
#[test]
fn every_command_ends_quietly_on_a_closed_pipe() {
    let folder = Folder::new();
    assert_eq!(folder.sql(&["--warehouse", "w", "-c", "CREATE TABLE t (a INT)"]).status, Some(0));
    for command in [
        "doctor",
        "completions bash",
        "man",
        "serve --example-config",
        "sql -c 'select 1'",
        "backup there --warehouse w",
        "--help",
        "sql --help",
    ] {
        let run = folder.shell(&format!(
            "mkfifo pipe; exec 3<>pipe 4>pipe; rm pipe; exec 3<&-; \"$HARRIER\" {command} >&4"
        ));
        assert_eq!(run.stderr, "", "{command}");
        assert!(run.status.is_some_and(|status| status <= 3), "{command}: {:?}", run.status);
    }
}

#[test]
fn ctrl_c_cancels() {
    let folder = Folder::new();
    folder.write("spill/keep", "");
    let mut child = folder
        .command(&["--spill-dir", "spill", "-c", "\\echo started", "-c", ENDLESS, "-c", "select 2"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
    assert_eq!(line, "started\n");
    let pid = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "ERROR 57014: canceling statement due to user request\n"
    );
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(fs::read_dir(folder.path().join("spill")).unwrap().count(), 1);
}

#[test]
fn a_canceled_copy_leaves_no_file() {
    let folder = Folder::new();
    let out = folder.path().join("out");
    for signal in ["-INT", "-TERM"] {
        let mut child = folder
            .command(&[
                "-c",
                "copy (select a.value from generate_series(1, 100000) a, generate_series(1, 1000000) b) to 'out/x.csv'",
            ])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // The copy has started once its file exists.
        let has_begun = || {
            let has_bytes = |file: fs::DirEntry| file.metadata().is_ok_and(|metadata| metadata.len() > 0);
            fs::read_dir(&out).is_ok_and(|files| files.flatten().any(has_bytes))
        };
        while !has_begun() {
            assert!(child.try_wait().unwrap().is_none(), "the copy ended by itself");
            std::thread::yield_now();
        }
        let pid = child.id().to_string();
        assert!(std::process::Command::new("kill").args([signal, &pid]).status().unwrap().success());
        assert!(!child.wait().unwrap().success());
        assert!(!out.exists(), "{signal}: neither the file nor its folder");
    }
}

#[test]
fn doctor_reports_the_machine() {
    let folder = Folder::new();
    let run = folder.run(&["doctor"]);
    let is_wrong = run.stdout.contains("\nWRONG: ");
    assert_eq!(run.status, Some(if is_wrong { 3 } else { 0 }), "{run:?}");
    assert_ne!(is_wrong, run.stdout.ends_with("everything found is in order\n"), "{run:?}");
    for finding in
        ["version", "cores", "memory", "shared memory", "temporary files", "launched", "MPI library"]
    {
        assert!(run.stdout.lines().any(|line| line.starts_with(finding)), "{finding}: {run:?}");
    }
    assert!(run.stdout.lines().any(|line| line.starts_with("memory of a rank ")), "{run:?}");
    let run = folder.shell("ulimit -n 300; ulimit -f 4000000; $HARRIER doctor");
    let has_line =
        |name: &str, text: &str| run.stdout.lines().any(|line| line.starts_with(name) && line.contains(text));
    assert!(has_line("open files", " 300 at most"), "{run:?}");
    assert!(has_line("size of a file", "GiB at most"), "{run:?}");
    assert!(has_line("NOTE: 300 open files", "ulimit -n 1024"), "{run:?}");
}

/// qemu emulates a processor of 2008, which lacks the required instructions.
#[test]
fn unsupported_processor_is_reported() {
    let Some(qemu) = ["qemu-x86_64", "qemu-x86_64-static"].into_iter().find(|name| on_path(name)) else {
        return eprintln!("skipped: qemu-x86_64 (Debian: qemu-user) is not installed");
    };
    let output = Command::new(qemu).args(["-cpu", "Nehalem", BINARY, "--version"]).output().unwrap();
    let error_output = String::from_utf8_lossy(&output.stderr);
    if cfg!(target_feature = "avx2") {
        assert_eq!(output.status.code(), Some(3), "{error_output}");
        assert!(error_output.starts_with("ERROR 55000: this processor has no AVX2"), "{error_output}");
    } else {
        assert!(output.status.success(), "{error_output}");
    }
}

fn on_path(name: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join(name).is_file())
}

#[test]
fn doctor_suggests_fixes() {
    let folder = Folder::new();
    let doctor = |variables: &[(&str, &str)]| -> Run {
        let mut command = std::process::Command::new(BINARY);
        command.arg("doctor").envs(variables.iter().copied()).current_dir(folder.path());
        command.output().unwrap().into()
    };
    let run = doctor(&[("PATH", "/nowhere"), ("HARRIER_MPI_LIBRARY", "/nowhere/libmpi.so")]);
    for expected in [
        "MPI library      none\n",
        "NOTE: statements run in one process only: no MPI library found; tried: /nowhere/libmpi.so",
        "NOTE: neither mpirun nor mpiexec nor srun is in PATH; install",
    ] {
        assert!(run.stdout.contains(expected), "{expected}: {run:?}");
    }
    let run = doctor(&[("TMPDIR", "/proc/nowhere")]);
    assert_eq!(run.status, Some(3), "{run:?}");
    assert!(
        run.stdout.contains("WRONG: cannot write temporary files to folder \"/proc/nowhere\""),
        "{run:?}"
    );
    // A rank whose launcher exists and whose MPI library does not.
    let run = doctor(&[
        ("OMPI_COMM_WORLD_SIZE", "2"),
        ("OMPI_COMM_WORLD_RANK", "1"),
        ("HARRIER_MPI_LIBRARY", "/nowhere/libmpi.so"),
    ]);
    assert_eq!(run.status, Some(3), "{run:?}");
    let problem = "WRONG: rank 1: this rank cannot load an MPI library: no MPI library found";
    assert!(run.stdout.starts_with(problem), "{run:?}");
    // The only rank of a launcher, which does not start another launcher inside.
    folder.write("bin/mpirun", "#!/bin/sh\nexit 7\n");
    let alone = "OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0 PATH=$PWD/bin";
    let run = folder.shell(&format!("/bin/chmod +x bin/mpirun; {alone} {BINARY} doctor"));
    assert!(
        run.stdout.contains("launched         as the only rank of a launcher (OMPI_COMM_WORLD_"),
        "{run:?}"
    );
    assert!(run.stdout.contains("launchers        not tried within one (OMPI_COMM_WORLD_"), "{run:?}");
    assert!(!run.stdout.contains("starts no rank"), "{run:?}");
    // A launcher that starts nothing.
    folder.write("bin/mpirun", "#!/bin/sh\necho ---- >&2\necho no hosts >&2\nexit 7\n");
    let script = format!("chmod +x bin/mpirun; PATH=$PWD/bin {BINARY} doctor");
    let run = folder.shell(&script.replace("chmod", "/bin/chmod"));
    assert_eq!(run.status, Some(3), "{run:?}");
    assert!(
        run.stdout.contains("/bin/mpirun) starts no rank that could join a gang: it ended with"),
        "{run:?}"
    );
    assert!(run.stdout.contains("no hosts"), "{run:?}");
}

/// The README's example: the TPC-H tables in a warehouse, with the benchmark's row counts.
#[test]
fn load_tpch_tables() {
    const LOAD: [&str; 5] = ["generate", "tpch", "--scale", "0.01", "--load"];
    const TABLES: &str = "customer,1500\nlineitem,60175\nnation,25\norders,15000\npart,2000\npartsupp,8000\nregion,5\n\
                          supplier,100\n";
    let folder = Folder::new();
    let run_load = |more: &[&str]| folder.run(&[&LOAD[..], more].concat());
    let tables = || {
        let counts = "SELECT table_name, rows FROM sys.tables ORDER BY table_name";
        prints(&folder.sql(&["--format", "csv", "-c", counts]), &format!("table_name,rows\n{TABLES}"));
    };
    let run = run_load(&[]);
    assert_eq!(run.status, Some(0), "{run:?}");
    assert!(run.stderr.contains("lineitem: 60175 rows"), "{run:?}");
    tables();
    // Foreign keys match, and the catalog's row counts are right.
    let sql = "SELECT (SELECT count(*) FROM lineitem), (SELECT count(*) FROM lineitem JOIN orders ON l_orderkey = o_orderkey), \
               (SELECT count(*) FROM orders JOIN customer ON o_custkey = c_custkey JOIN nation ON c_nationkey = n_nationkey), \
               (SELECT count(*) FROM partsupp JOIN part ON ps_partkey = p_partkey JOIN supplier ON ps_suppkey = s_suppkey)";
    let run = folder.sql(&["--format", "csv", "-c", sql]);
    assert_eq!(run.stdout.lines().nth(1), Some("60175,60175,15000,8000"), "{run:?}");
    // A second load is refused and changes nothing.
    fails(&run_load(&[]), "42P07", "relation \"lineitem\" already exists");
    tables();
    folder.sql(&["-c", "DELETE FROM nation WHERE n_nationkey > 3", "-c", "DROP TABLE region"]);
    fails(&run_load(&["--tables", "region,nation"]), "42P07", "relation \"nation\" already exists");
    // --overwrite replaces the named tables, or all.
    let run = run_load(&["--tables", "nation,region", "--overwrite"]);
    assert_eq!(run.status, Some(0), "{run:?}");
    tables();
    let run = run_load(&["--overwrite"]);
    assert_eq!(run.status, Some(0), "{run:?}");
    tables();
}

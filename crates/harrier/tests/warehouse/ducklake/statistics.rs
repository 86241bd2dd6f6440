//! Column statistics in the catalog, written by Harrier and DuckDB in turn and read by both: a table with a
//! column of every type that has bounds goes through random steps of either, and a table in DuckDB's memory
//! through the same. After each step all three answer queries that use bounds alike: filters, `min`, `max`,
//! counts.
//!
//! The steps cover the special states of statistics: no rows, only NULLs, texts too long for a bound,
//! infinities and NaN, columns added and widened, rows deleted, inlined rows, files merged by either. A seed
//! is one history; `HARRIER_SEED` runs another one.

use super::*;

/// Column name, type, widened type, and value of row `{n}`.
const COLUMNS: [(&str, &str, Option<&str>, &str); 13] = [
    ("i", "INT", Some("BIGINT"), "{n} * 7 - 50"),
    ("w", "SMALLINT", Some("INT"), "({n} % 100)::SMALLINT"),
    ("b", "BIGINT", None, "({n})::BIGINT * 1000000000"),
    ("r", "REAL", Some("DOUBLE PRECISION"), "({n} * 0.1)::REAL"),
    ("d", "DOUBLE PRECISION", None, "({n} * 0.1)::DOUBLE PRECISION"),
    ("m", "NUMERIC(8,2)", Some("NUMERIC(12,2)"), "({n} * 1.25)::NUMERIC(8,2)"),
    ("s", "TEXT", None, "'v' || {n}"),
    ("l", "TEXT", None, "'{long}' || {n}"),
    ("dt", "DATE", None, "DATE '2020-01-01' + ({n})::INT"),
    ("ts", "TIMESTAMP", None, "TIMESTAMP '2020-01-01 00:00:00' + ({n}) * INTERVAL '1 hour'"),
    ("tz", "TIMESTAMPTZ", None, "TIMESTAMPTZ '2020-01-01 00:00:00+00' + ({n}) * INTERVAL '1 hour'"),
    ("tm", "TIME", None, "TIME '00:00:00' + ({n}) * INTERVAL '1 minute'"),
    ("o", "BOOLEAN", None, "({n}) % 2 = 0"),
];

/// DuckDB and Harrier inline at most ten rows in the catalog.
const FEW: i64 = 2;
const MANY: i64 = 15;
const STEPS: usize = 8;
/// One more than the greatest row number.
const NUMBERS: i64 = 1000;

/// Random numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// A table of the lake and its copy in DuckDB's memory.
struct History<'a> {
    harrier: &'a mut Session,
    duck: &'a mut Duck,
    table: String,
    random: Random,
    columns: Vec<(&'static str, &'static str)>,
    is_widened: bool,
    steps: Vec<String>,
}

impl History<'_> {
    fn is_by_duck(&mut self) -> bool {
        self.random.below(2) == 0
    }

    /// Runs one statement on the table `{t}`.
    fn step(&mut self, is_by_duck: bool, sql: &str) {
        let lake = sql.replace("{t}", &self.table);
        self.steps.push(format!("{}: {lake}", if is_by_duck { "DuckDB" } else { "Harrier" }));
        match is_by_duck {
            true => drop(self.duck.run(&lake)),
            false => run(self.harrier, &lake),
        }
        self.duck.run(&sql.replace("{t}", &format!("memory.main.{}", self.table)));
    }

    fn value(expression: &str, long: bool, n: i64) -> String {
        let long = if long { "é".repeat(45) } else { "é".to_string() };
        expression.replace("{n}", &n.to_string()).replace("{long}", &long)
    }

    /// Inserts rows from `from` on; `nulls`: columns that are all NULL.
    fn insert(&mut self, from: i64, count: i64, nulls: &dyn Fn(&str) -> bool, long: bool) {
        let names: Vec<&str> = self.columns.iter().map(|(name, _)| *name).collect();
        let row = |n: i64| {
            let value = |(name, expression): &(&str, &str)| match nulls(name) {
                true => "NULL".to_string(),
                false => Self::value(expression, long, n),
            };
            format!("({})", self.columns.iter().map(value).collect::<Vec<_>>().join(", "))
        };
        let rows: Vec<String> = (from..from + count).map(row).collect();
        let is_by_duck = self.is_by_duck();
        self.step(
            is_by_duck,
            &format!("INSERT INTO {{t}} ({}) VALUES {}", names.join(", "), rows.join(", ")),
        );
    }

    fn next_step(&mut self) {
        let from = self.random.below(NUMBERS as u64 - MANY as u64) as i64;
        let count = if self.random.below(2) == 0 { FEW } else { MANY };
        match self.random.below(10) {
            0 => self.insert(from, count, &|_| true, false),
            1 => self.insert(from, count, &|name| name != "i", false),
            2 | 3 => self.insert(from, count, &|_| false, false),
            4 => {
                let some = self.random.below(4) as usize;
                self.insert(from, count, &|name| name.len() % 2 == some % 2 && name != "i", true);
            }
            5 => {
                let float = ["'Infinity'", "'-Infinity'", "'NaN'"][self.random.below(3) as usize];
                let is_by_duck = self.is_by_duck();
                let row = format!("({from}, {float}::DOUBLE PRECISION, 'infinity'::DATE)");
                let rows = vec![row; count as usize].join(", ");
                self.step(is_by_duck, &format!("INSERT INTO {{t}} (i, d, dt) VALUES {rows}"));
            }
            6 => {
                let is_by_duck = self.is_by_duck();
                let condition = ["i > {}", "i < {}", "b IS NULL OR i = {}"][self.random.below(3) as usize];
                let condition = condition.replace("{}", &(from * 7 - 50).to_string());
                self.step(is_by_duck, &format!("DELETE FROM {{t}} WHERE {condition}"));
            }
            7 => self.compact(),
            8 if !self.is_widened => {
                self.is_widened = true;
                // DuckDB writes formerly inlined rows as REAL, and reads their bounds as DOUBLE PRECISION.
                run(self.harrier, &format!("OPTIMIZE {}", self.table));
                for (name, _, wider, _) in COLUMNS {
                    let Some(wider) = wider else { continue };
                    // DuckDB reads bounds of REAL as DOUBLE PRECISION where it has widened the column itself,
                    let is_by_duck = name != "r" && self.is_by_duck();
                    self.step(is_by_duck, &format!("ALTER TABLE {{t}} ALTER COLUMN {name} TYPE {wider}"));
                }
            }
            9 if self.columns.len() == COLUMNS.len() => {
                let is_by_duck = self.is_by_duck();
                self.step(is_by_duck, "ALTER TABLE {t} ADD COLUMN z INT DEFAULT 77");
                self.columns.push(("z", "{n} - 3"));
            }
            _ => self.insert(from, count, &|_| false, false),
        }
    }

    fn compact(&mut self) {
        let calls = match self.is_by_duck() {
            false => {
                self.steps.push("Harrier: OPTIMIZE".to_string());
                return run(self.harrier, &format!("OPTIMIZE {}", self.table));
            }
            true => [
                "CALL ducklake_flush_inlined_data('lake')",
                "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)",
                "CALL ducklake_merge_adjacent_files('lake')",
            ],
        };
        for call in calls {
            self.steps.push(format!("DuckDB: {call}"));
            self.duck.run(call);
        }
    }

    /// Compares queries on `columns` columns.
    fn check(&mut self, columns: usize) {
        let first = self.random.below(self.columns.len() as u64) as usize;
        let pivot = self.random.below(NUMBERS as u64) as i64;
        let mut counts = vec!["SELECT '' AS q, count(*) AS n FROM {t}".to_string()];
        for (name, expression) in self.columns.iter().cycle().skip(first).take(columns) {
            let mut count = |condition: String| {
                let label = condition.replace('\'', "").replace("{t}", "t");
                counts.push(format!("SELECT '{label}' AS q, count(*) AS n FROM {{t}} WHERE {condition}"));
            };
            count(format!("{name} IS NULL"));
            for extreme in ["min", "max"] {
                count(format!("{name} = (SELECT {extreme}({name}) FROM {{t}})"));
            }
            let value = Self::value(expression, false, pivot);
            for comparison in ["=", "<", ">"] {
                count(format!("{name} {comparison} ({value})"));
            }
        }
        let sql = format!("SELECT q, n FROM ({}) AS c ORDER BY q, n", counts.join(" UNION ALL "));
        let model = self.duck.run(&sql.replace("{t}", &format!("memory.main.{}", self.table)));
        let sql = sql.replace("{t}", &self.table);
        for (who, answer) in [("DuckDB", self.duck.run(&sql)), ("Harrier", rows(self.harrier, &sql))] {
            let wrong: Vec<_> = answer.iter().zip(&model).filter(|(answer, model)| answer != model).collect();
            assert!(wrong.is_empty(), "{who} says {wrong:?} after\n{}", self.steps.join(";\n"));
        }
    }
}

/// Runs one history.
fn run_history(harrier: &mut Session, duck: &mut Duck, seed: u64) {
    let columns: Vec<String> = COLUMNS.iter().map(|(name, kind, ..)| format!("{name} {kind}")).collect();
    let mut history = History {
        harrier,
        duck,
        table: format!("t{seed}"),
        random: Random(seed),
        columns: COLUMNS.iter().map(|(name, _, _, value)| (*name, *value)).collect(),
        is_widened: false,
        steps: vec![format!("seed {seed}")],
    };
    let is_by_duck = history.is_by_duck();
    history.step(is_by_duck, &format!("CREATE TABLE {{t}} ({})", columns.join(", ")));
    for _ in 0..STEPS {
        history.next_step();
        history.check(2);
    }
    history.check(5);
}

/// Bounds exclude NaN, and DuckDB prunes row groups by the bounds of their files.
#[test]
fn duckdb_finds_nan() {
    if is_skipped() {
        return;
    }
    let lake = Lake::new();
    let mut harrier = lake.harrier();
    let (rows, nan) =
        ("FROM generate_series(1, 100) AS g(v)", "CASE WHEN v = 50 THEN 'NaN' ELSE v::TEXT END");
    run(&mut harrier, "CREATE TABLE n (id INT, r REAL, d DOUBLE PRECISION)");
    run(&mut harrier, &format!("INSERT INTO n SELECT v, ({nan})::REAL, ({nan})::DOUBLE PRECISION {rows}"));
    run(&mut harrier, &format!("INSERT INTO n SELECT v, v, v {rows}"));
    let mut duck = Duck::attach(&lake);
    for column in ["r", "d"] {
        for condition in ["> 1000", ">= 100", "= 'NaN'", "< 3", "= 50", "= (SELECT max({}) FROM n)"] {
            let sql = format!("SELECT count(*) FROM n WHERE {column} {}", condition.replace("{}", column));
            assert_equal_answers(&mut harrier, &mut duck, &[&sql]);
        }
        let sql = format!("SELECT count(*) FROM n WHERE {column} > 1000");
        assert_eq!(duck.run(&sql), [[Some("1".to_string())]], "{sql}");
    }
}

/// Histories for some seconds; the soak runs more seeds.
const SEEDS: std::ops::Range<u64> = 0..4;

#[test]
fn column_statistics_written_by_either() {
    if is_skipped() {
        return;
    }
    let lake = Lake::new();
    let mut harrier = lake.harrier();
    run(&mut harrier, "CREATE TABLE other (id INT)");
    let mut duck = Duck::attach(&lake);
    let seed = std::env::var("HARRIER_SEED").ok().and_then(|seed| seed.parse().ok());
    for seed in seed.map_or(SEEDS, |seed| seed..seed + SEEDS.end) {
        run_history(&mut harrier, &mut duck, seed);
    }
}

/// Columns that start with NULLs or long texts have bounds that DuckDB knows. So do those that an earlier
/// version left without bounds.
#[test]
fn statistics_of_existing_rows_reach_duckdb() {
    if is_skipped() {
        return;
    }
    let lake = Lake::new();
    let mut harrier = lake.harrier();
    run(&mut harrier, "CREATE TABLE t (a INT, b BIGINT, c TEXT, d INT) ORDER BY (b)");
    run(&mut harrier, "INSERT INTO t (a, c) VALUES (1, 'm')");
    run(
        &mut harrier,
        "INSERT INTO t SELECT g, g * 1000000000, repeat('z', 70), g FROM generate_series(1, 20) AS x(g)",
    );
    run(&mut harrier, "INSERT INTO t VALUES (5, -23, 'n', NULL), (6, 700, 'o', NULL)");
    let mut duck = Duck::attach(&lake);
    duck.run(&format!("ATTACH '{}' AS tables (TYPE sqlite)", lake.catalog()));
    let statistics_query =
        "SELECT column_id, min_value, max_value FROM tables.ducklake_table_column_stats ORDER BY 1";
    let row = |id: &str, min: &str, max: &str| [id, min, max].map(|value| Some(value.to_string())).to_vec();
    assert_eq!(
        duck.run(statistics_query),
        [row("1", "1", "20"), row("2", "-23", "20000000000"), row("4", "1", "20")],
        "there is no row for texts of 70 bytes"
    );
    // State as an earlier version would have left it.
    duck.run("UPDATE tables.ducklake_table_column_stats SET min_value = NULL, max_value = NULL WHERE column_id = 4");
    duck.run("DETACH tables");
    run(&mut harrier, "INSERT INTO t VALUES (7, 1, 'p', 5)");
    duck.run("INSERT INTO t VALUES (7, 36, 'q', 7)");
    let questions = [
        "SELECT count(*) FROM t WHERE b > 1000",
        "SELECT count(*) FROM t WHERE c > 'x'",
        "SELECT count(*) FROM t WHERE d > 10",
        "SELECT min(b), max(b), sum(b), count(b), min(d), max(d), length(max(c)) FROM t",
    ];
    assert_equal_answers(&mut harrier, &mut duck, &questions);
    assert_eq!(rows(&mut harrier, questions[0]), [[Some("20".to_string())]]);
    duck.run("CALL ducklake_flush_inlined_data('lake')");
    duck.run("DELETE FROM t WHERE a = 3");
    duck.run("CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)");
    assert_equal_answers(&mut harrier, &mut duck, &questions);
    assert_eq!(rows(&mut harrier, "SELECT max(b), count(*) FROM t")[0][1].as_deref(), Some("24"));
}

/// DuckDB widens columns to types to which Harrier does not, whose values have another text or another order
/// of texts.
#[test]
fn pruning_on_columns_widened_by_duckdb() {
    if is_skipped() {
        return;
    }
    let lake = Lake::new();
    let mut harrier = lake.harrier();
    run(&mut harrier, "CREATE TABLE other (id INT)");
    let mut duck = Duck::attach(&lake);
    for (at, (old, new, values, pivot)) in [
        (
            "DATE",
            "TIMESTAMP",
            ["DATE '2020-01-01'", "DATE '2020-01-31'", "NULL"],
            "TIMESTAMP '2020-01-01 00:00:01'",
        ),
        ("DECIMAL(8,2)", "DOUBLE", ["0.1", "0.7", "12.5"], "0.1::DOUBLE PRECISION"),
        ("INTEGER", "DOUBLE", ["9", "10", "-1"], "9.5::DOUBLE PRECISION"),
        ("FLOAT", "DOUBLE", ["0.1", "0.7", "NULL"], "0.1::DOUBLE PRECISION"),
        ("SMALLINT", "DECIMAL(12,2)", ["9", "10", "-1"], "9.5"),
        ("DECIMAL(8,2)", "DECIMAL(12,4)", ["0.1", "0.7", "12.5"], "0.1"),
    ]
    .into_iter()
    .enumerate()
    {
        for count in [FEW, MANY] {
            let (table, model) = (format!("w{at}_{count}"), format!("memory.main.w{at}_{count}"));
            let all: Vec<String> =
                (0..count).map(|n| format!("({n}, {})", values[n as usize % values.len()])).collect();
            for name in [&table, &model] {
                duck.run(&format!("CREATE TABLE {name} (id INTEGER, v {old})"));
                duck.run(&format!("INSERT INTO {name} VALUES {}", all.join(", ")));
                duck.run(&format!("ALTER TABLE {name} ALTER v TYPE {new}"));
            }
            for comparison in ["<", ">", "=", "<>"] {
                let sql = |name: &str| format!("SELECT count(*) FROM {name} WHERE v {comparison} {pivot}");
                let expected = duck.run(&sql(&model));
                assert_eq!(rows(&mut harrier, &sql(&table)), expected, "{old} as {new}: {}", sql(&table));
            }
        }
    }
}

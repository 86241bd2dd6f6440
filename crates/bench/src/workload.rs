//! Workloads: the queries of a benchmark, their published answers, and the tables they read.

use std::fs;
use std::path::Path;
use std::str::FromStr;

use harrier_error::{SqlError, SqlState};

/// Tables of TPC-H, in alphabetical order.
const TABLES: [&str; 8] =
    ["customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier"];

/// Tables of TPC-DS that queries read, in alphabetical order.
const TPCDS_TABLES: [&str; 24] = [
    "call_center",
    "catalog_page",
    "catalog_returns",
    "catalog_sales",
    "customer",
    "customer_address",
    "customer_demographics",
    "date_dim",
    "household_demographics",
    "income_band",
    "inventory",
    "item",
    "promotion",
    "reason",
    "ship_mode",
    "store",
    "store_returns",
    "store_sales",
    "time_dim",
    "warehouse",
    "web_page",
    "web_returns",
    "web_sales",
    "web_site",
];

/// Tables of the join orders, in alphabetical order; see `duel/films.rs`.
const JOINS_TABLES: [&str; 11] = [
    "cast_info",
    "company",
    "film",
    "film_company",
    "film_info",
    "film_keyword",
    "info_type",
    "keyword",
    "kind",
    "person",
    "role",
];

/// Tables of the page visits; see `duel/visits.rs`.
const VISITS_TABLES: [&str; 1] = ["visits"];

macro_rules! tpch {
    ($($number:literal)*) => {
        [$((
            concat!("q", $number),
            include_str!(concat!("../../../tests/tpch/q", $number, ".sql")),
            include_str!(concat!("../../../tests/tpch/answers/q", $number, ".csv")),
        )),*]
    };
}

/// Name, text and published answer at scale 1.
const TPCH: [(&str, &str, &str); 22] = tpch!("01" "02" "03" "04" "05" "06" "07" "08" "09" "10" "11"
    "12" "13" "14" "15" "16" "17" "18" "19" "20" "21" "22");

macro_rules! statements {
    ($folder:literal $($name:literal)*) => {
        [$((
            concat!("q", $name),
            include_str!(concat!("../../../tests/", $folder, "/q", $name, ".sql")),
        )),*]
    };
}

/// Name and text of the 99 queries, and of the second statements of four of them.
static TPCDS: [(&str, &str); 103] = statements!("tpcds" "01" "02" "03" "04" "05" "06" "07" "08" "09" "10"
    "11" "12" "13" "14" "14b" "15" "16" "17" "18" "19" "20" "21" "22" "23" "23a" "24" "24b" "25" "26" "27"
    "28" "29" "30" "31" "32" "33" "34" "35" "36" "37" "38" "39" "39b" "40" "41" "42" "43" "44" "45" "46"
    "47" "48" "49" "50" "51" "52" "53" "54" "55" "56" "57" "58" "59" "60" "61" "62" "63" "64" "65" "66" "67"
    "68" "69" "70" "71" "72" "73" "74" "75" "76" "77" "78" "79" "80" "81" "82" "83" "84" "85" "86" "87" "88"
    "89" "90" "91" "92" "93" "94" "95" "96" "97" "98" "99");

/// Name and text of 15 statements over up to 11 tables, each with its tables in three orders.
static JOINS: [(&str, &str); 45] = statements!("joins" "01a" "01b" "01c" "02a" "02b" "02c" "03a" "03b" "03c"
    "04a" "04b" "04c" "05a" "05b" "05c" "06a" "06b" "06c" "07a" "07b" "07c" "08a" "08b" "08c" "09a" "09b"
    "09c" "10a" "10b" "10c" "11a" "11b" "11c" "12a" "12b" "12c" "13a" "13b" "13c" "14a" "14b" "14c" "15a"
    "15b" "15c");

/// Name and text of 43 statements over one wide table.
static VISITS: [(&str, &str); 43] = statements!("visits" "01" "02" "03" "04" "05" "06" "07" "08" "09" "10"
    "11" "12" "13" "14" "15" "16" "17" "18" "19" "20" "21" "22" "23" "24" "25" "26" "27" "28" "29" "30" "31"
    "32" "33" "34" "35" "36" "37" "38" "39" "40" "41" "42" "43");

/// Query 11 keeps parts worth more than this fraction of all, divided by the scale factor (TPC-H 2.4.11.3).
const Q11_FRACTION: &str = "0.0001";

/// Queries dominated by redistribution: every row crosses a motion by a key with about as many values as
/// there are rows, with little other work. Groups that do not shrink, a window, and a join of two large
/// tables on a column by which neither is ordered.
const SHUFFLE: [(&str, &str); 4] = [
    (
        "narrow",
        "select count(*), sum(quantity) from (
           select l_orderkey, l_linenumber, sum(l_quantity) as quantity from lineitem group by l_orderkey, l_linenumber)",
    ),
    (
        "wide",
        "select count(*), max(comment), sum(price), min(shipped), max(mode) from (
           select l_orderkey, l_linenumber, max(l_comment) as comment, sum(l_extendedprice) as price,
             min(l_shipdate) as shipped, max(l_shipmode) as mode
           from lineitem group by l_orderkey, l_linenumber)",
    ),
    (
        "window",
        "select sum(number), max(o_comment) from (
           select o_comment, row_number() over (partition by o_custkey order by o_orderkey) as number from orders)",
    ),
    (
        "join",
        "select count(*), max(l_comment), max(ps_comment) from lineitem, partsupp
         where l_partkey = ps_partkey and l_suppkey = ps_suppkey",
    ),
];

/// A benchmark at one scale.
#[derive(Debug, Clone)]
pub struct Workload {
    /// Name on the command line.
    pub name: &'static str,
    /// Title, such as `TPC-H`.
    pub title: &'static str,
    pub scale: f64,
    pub queries: Vec<Query>,
}

/// One statement.
#[derive(Debug, Clone)]
pub struct Query {
    /// From 1; statements of the same query share it.
    pub number: usize,
    pub name: &'static str,
    pub sql: String,
    /// As CSV with a header line, if one is published for this scale.
    pub answer: Option<&'static str>,
}

impl Workload {
    /// `name`: `tpch`, `tpcds`, `joins`, `visits` or `shuffle`.
    pub fn new(name: &str, scale: f64) -> Self {
        let numbered = |(index, (name, sql, answer)): (usize, (&'static str, &str, Option<&'static str>))| {
            Query { number: index + 1, name, sql: sql.to_owned(), answer }
        };
        if name == "shuffle" {
            let queries = SHUFFLE.into_iter().map(|(name, sql)| (name, sql, None)).enumerate().map(numbered);
            return Self {
                name: "shuffle",
                title: "Shuffles of TPC-H data",
                scale,
                queries: queries.collect(),
            };
        }
        let plain: [(&'static str, &'static str, &[(&'static str, &'static str)]); 3] = [
            ("tpcds", "TPC-DS", &TPCDS),
            ("joins", "Join orders", &JOINS),
            ("visits", "Page visits", &VISITS),
        ];
        if let Some((name, title, statements)) = plain.into_iter().find(|(known, ..)| *known == name) {
            let query = |&(name, sql): &(&'static str, &str)| Query {
                number: number_of(name),
                name,
                sql: sql.to_owned(),
                answer: None,
            };
            return Self { name, title, scale, queries: statements.iter().map(query).collect() };
        }
        let published = |answer| (scale == 1.0).then_some(answer);
        let queries = TPCH.into_iter().map(|(name, sql, answer)| (name, sql, published(answer)));
        let mut queries: Vec<Query> = queries.enumerate().map(numbered).collect();
        if scale != 1.0 {
            let (one, scaled) = (format!("* {Q11_FRACTION}\n"), format!("* {:.12}\n", 0.0001 / scale));
            queries[10].sql = queries[10].sql.replace(&one, &scaled);
        }
        Self { name: "tpch", title: "TPC-H", scale, queries }
    }

    /// Keeps only these queries. Errors: an unknown number.
    pub fn retain(&mut self, numbers: &Numbers) -> Result<(), String> {
        let count = self.queries.iter().map(|query| query.number).max().unwrap_or(0);
        if let Some(number) = numbers.0.iter().find(|number| !(1..=count).contains(number)) {
            return Err(format!("there is no query {number}: {} has queries 1 to {count}", self.name));
        }
        self.queries.retain(|query| numbers.0.contains(&query.number));
        Ok(())
    }
}

/// Returns 14 for `q14` and for `q14b`.
fn number_of(name: &str) -> usize {
    name.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(0)
}

/// Query numbers, from a list such as `1,5-9`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Numbers(Vec<usize>);

impl FromStr for Numbers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number =
            |text: &str| text.trim().parse::<usize>().map_err(|_| format!("\"{text}\" is not a number"));
        let mut numbers = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            // No benchmark has more queries; a larger number is a typo.
            if first > last || last > 999 {
                return Err(format!("\"{part}\" is not a range"));
            }
            numbers.extend(first..=last);
        }
        Ok(Self(numbers))
    }
}

/// Returns the tables of TPC-H in a folder: names and absolute paths of `<table>/` or `<table>.parquet`.
///
/// Errors: a table is missing.
pub fn tables(data: &Path) -> Result<Vec<(String, String)>, SqlError> {
    find(&TABLES, data, "harrier generate tpch --scale F --out DIR makes the tables of TPC-H")
}

/// Returns the tables of TPC-DS in a folder, see [`tables`].
pub fn tpcds_tables(data: &Path) -> Result<Vec<(String, String)>, SqlError> {
    find(&TPCDS_TABLES, data, "harrier generate tpcds --scale F --out DIR makes the tables of TPC-DS")
}

/// Returns the tables of the join orders in a folder, see [`tables`].
pub fn joins_tables(data: &Path) -> Result<Vec<(String, String)>, SqlError> {
    find(&JOINS_TABLES, data, "harrier bench duel --sets joins makes them where the folder is missing")
}

/// Returns the table of page visits in a folder, see [`tables`].
pub fn visits_tables(data: &Path) -> Result<Vec<(String, String)>, SqlError> {
    find(&VISITS_TABLES, data, "harrier bench duel --sets visits makes it where the folder is missing")
}

fn find(tables: &[&str], data: &Path, hint: &str) -> Result<Vec<(String, String)>, SqlError> {
    let missing = |table: &str| {
        SqlError::new(
            SqlState::UNDEFINED_FILE,
            format!("no table \"{table}\" in folder \"{}\"", data.display()),
        )
        .with_hint(hint)
    };
    tables
        .iter()
        .map(|&table| {
            let candidates = [data.join(table), data.join(format!("{table}.parquet"))];
            let path = candidates.iter().find(|path| path.exists()).ok_or_else(|| missing(table))?;
            let absolute = fs::canonicalize(path).map_err(|_| missing(table))?;
            // Engines distinguish a folder from a file by its trailing slash.
            let slash = if absolute.is_dir() { "/" } else { "" };
            Ok((table.to_owned(), format!("{}{slash}", absolute.display())))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_11_follows_the_scale() {
        let sql = |scale| Workload::new("tpch", scale).queries[10].sql.clone();
        assert!(sql(1.0).contains("* 0.0001\n"), "{}", sql(1.0));
        assert!(sql(10.0).contains("* 0.000010000000\n"), "{}", sql(10.0));
    }

    #[test]
    fn answers_are_for_scale_1() {
        assert!(Workload::new("tpch", 1.0).queries.iter().all(|query| query.answer.is_some()));
        assert!(Workload::new("tpch", 10.0).queries.iter().all(|query| query.answer.is_none()));
        assert_eq!(Workload::new("shuffle", 1.0).queries.len(), SHUFFLE.len());
    }

    #[test]
    fn statements_of_one_query_have_its_number() {
        let mut workload = Workload::new("tpcds", 0.01);
        assert!(workload.retain(&"1-99".parse().unwrap()).is_ok() && workload.queries.len() == 103);
        assert!(workload.retain(&"100".parse().unwrap()).is_err());
        workload.retain(&"23,99".parse().unwrap()).unwrap();
        assert_eq!(
            workload.queries.iter().map(|query| query.name).collect::<Vec<_>>(),
            ["q23", "q23a", "q99"]
        );
    }

    /// Columns, tables and conditions of a statement, each sorted.
    fn parts(sql: &str) -> [Vec<String>; 3] {
        let text = sql.lines().skip(1).collect::<Vec<_>>().join("\n");
        let (columns, rest) = text.split_once("\nfrom ").unwrap();
        let (tables, conditions) = rest.split_once("\nwhere ").unwrap();
        let list = |text: &str, separator: &str| {
            let mut list: Vec<String> =
                text.trim_end_matches([';', '\n']).split(separator).map(str::to_owned).collect();
            list.sort();
            list
        };
        [list(columns, ", "), list(tables, ", "), list(conditions, "\n  and ")]
    }

    #[test]
    fn three_orders_ask_the_same() {
        let queries = Workload::new("joins", 1.0).queries;
        assert_eq!(queries.len(), 45);
        for orders in queries.chunks(3) {
            let number = orders[0].number;
            let names = ["a", "b", "c"].map(|order| format!("q{number:02}{order}"));
            assert!(orders.iter().map(|query| query.name).eq(names.iter().map(String::as_str)));
            let from =
                |query: &Query| query.sql.lines().find(|line| line.starts_with("from")).map(str::to_owned);
            for pair in [(0, 1), (0, 2), (1, 2)] {
                let (one, other) = (&orders[pair.0], &orders[pair.1]);
                assert_eq!(parts(&one.sql), parts(&other.sql), "{} {}", one.name, other.name);
                assert_ne!(from(one), from(other), "{} {}", one.name, other.name);
            }
        }
    }

    #[test]
    fn all_statements_parse() {
        for (set, count) in [("joins", 45), ("visits", 43)] {
            let queries = Workload::new(set, 1.0).queries;
            assert_eq!(queries.len(), count);
            for query in queries {
                let statements = datafusion::sql::parser::DFParser::parse_sql(&query.sql);
                assert_eq!(statements.map(|all| all.len()).unwrap_or(0), 1, "{set} {}", query.name);
            }
        }
    }

    #[test]
    fn lists_of_queries() {
        assert_eq!("1,5-7".parse(), Ok(Numbers(vec![1, 5, 6, 7])));
        for text in ["", "a", "3-1", "1-", "1-100000"] {
            assert!(text.parse::<Numbers>().is_err(), "{text}");
        }
        let mut workload = Workload::new("tpch", 1.0);
        workload.retain(&"22,1".parse().unwrap()).unwrap();
        assert_eq!(workload.queries.iter().map(|query| query.name).collect::<Vec<_>>(), ["q01", "q22"]);
        assert!(workload.retain(&"23".parse().unwrap()).is_err());
    }

    #[test]
    fn tables_are_folders_or_files() {
        let folder = tempfile::tempdir().unwrap();
        assert!(tables(folder.path()).is_err());
        for table in TABLES {
            fs::create_dir(folder.path().join(table)).unwrap();
        }
        fs::remove_dir(folder.path().join("region")).unwrap();
        fs::write(folder.path().join("region.parquet"), "").unwrap();
        let tables = tables(folder.path()).unwrap();
        assert!(tables[0].1.ends_with("/customer/"), "{tables:?}");
        assert!(tables[6].1.ends_with("/region.parquet"), "{tables:?}");
    }
}

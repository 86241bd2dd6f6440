//! Plans before and after, and random joins whose rows do not depend on the rule.

use std::sync::Arc;

use datafusion::arrow::array::{Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::{HashMap, Result};
use datafusion::datasource::MemTable;
use datafusion::execution::SessionStateBuilder;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::displayable;
use datafusion::prelude::{SessionConfig, SessionContext};

/// A session with tables `t0` … of `rows` rows, with columns `a` to `c`, prefixed by the number of the table.
fn session(rows: &[usize], random: &mut Random) -> Result<SessionContext> {
    let mut rules = PhysicalOptimizer::new().rules;
    super::insert(&mut rules);
    let config = SessionConfig::new().with_target_partitions(2);
    let state = SessionStateBuilder::new()
        .with_default_features()
        .with_config(config)
        .with_physical_optimizer_rules(rules)
        .build();
    let session = SessionContext::new_with_state(state);
    for (number, rows) in rows.iter().enumerate() {
        let names = ["a", "b", "c"].map(|column| format!("{column}{number}"));
        let fields = names.iter().map(|name| Field::new(name, DataType::Int64, true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let column = |random: &mut Random| {
            let value = |_| (random.below(8) > 0).then(|| random.below(6) as i64);
            Arc::new((0..*rows).map(value).collect::<Int64Array>())
        };
        let columns = names.iter().map(|_| column(random) as _).collect();
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns)?;
        let table = MemTable::try_new(schema, vec![vec![batch]])?;
        session.register_table(format!("t{number}"), Arc::new(table))?;
    }
    Ok(session)
}

/// Numbers that are the same in every run: a linear congruential generator.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % bound as u64) as usize
    }
}

async fn plan(session: &SessionContext, sql: &str) -> Result<String> {
    let plan = session.sql(sql).await?.create_physical_plan().await?;
    Ok(displayable(plan.as_ref()).indent(false).to_string())
}

/// The joins and scans of a plan, by the scans' first columns.
async fn joins(session: &SessionContext, sql: &str) -> Result<Vec<String>> {
    let frame = session.sql(sql).await?;
    let plan = frame.create_physical_plan().await?;
    let mut lines = Vec::new();
    let mut rest = vec![(plan, 0)];
    while let Some((plan, depth)) = rest.pop() {
        let is_join = plan.name() == "HashJoinExec";
        let is_scan = plan.name() == "DataSourceExec";
        let text = displayable(plan.as_ref()).one_line().to_string();
        if is_join {
            let kind = text.split("join_type=").nth(1).and_then(|rest| rest.split(',').next()).unwrap_or("");
            lines.push(format!("{}{kind}", "  ".repeat(depth)));
        } else if is_scan {
            lines.push(format!("{}{}", "  ".repeat(depth), plan.schema().field(0).name()));
        }
        let below = depth + usize::from(is_join);
        rest.extend(plan.children().into_iter().rev().map(|child| (Arc::clone(child), below)));
    }
    Ok(lines)
}

#[tokio::test]
async fn small_relations_are_joined_first_and_built() -> Result<()> {
    let session = session(&[1000, 2000, 5], &mut Random(1))?;
    let sql = "SELECT count(*) FROM t0, t1, t2 WHERE a0 = a1 AND b1 = b2 AND c2 = 1";
    let expected = ["Inner", "  Inner", "    b2", "    a1", "  a0"];
    let ordered = joins(&session, sql).await?;
    assert_eq!(ordered, expected, "{}", plan(&session, sql).await?);
    let reversed = "SELECT count(*) FROM t2, t1, t0 WHERE a0 = a1 AND b1 = b2 AND c2 = 1";
    assert_eq!(joins(&session, reversed).await?, expected);
    session.sql("SET datafusion.optimizer.join_reordering = false").await?;
    assert_eq!(joins(&session, sql).await?, ["Inner", "  Inner", "    a0", "    a1", "  b2"]);
    Ok(())
}

#[tokio::test]
async fn outer_joins_build_the_smaller_side() -> Result<()> {
    let session = session(&[10, 1000], &mut Random(1))?;
    let left = "SELECT a0, b1 FROM t0 LEFT JOIN t1 ON a0 = a1";
    assert_eq!(joins(&session, left).await?, ["Left", "  a0", "  a1"]);
    let right = "SELECT a0, b1 FROM t1 LEFT JOIN t0 ON a0 = a1";
    assert_eq!(joins(&session, right).await?, ["Right", "  a0", "  a1"]);
    Ok(())
}

#[tokio::test]
async fn conditions_that_may_fail_stay_where_they_are() -> Result<()> {
    let session = session(&[1000, 2000, 5], &mut Random(1))?;
    let sql = "SELECT count(*) FROM t0 JOIN t1 ON a0 = a1 AND 10 / b0 > b1 JOIN t2 ON b1 = b2";
    let ordered = joins(&session, sql).await?;
    let (a0, a1) =
        (ordered.iter().position(|line| line == "    a0"), ordered.iter().position(|line| line == "    a1"));
    assert!(a0.is_some() && a1.is_some(), "{ordered:?}");
    Ok(())
}

/// A random join of the tables from `first` to `last`, and the columns that it gives.
fn random_join(first: usize, last: usize, random: &mut Random) -> (String, Vec<String>) {
    if first == last {
        let columns = ["a", "b", "c"].map(|column| format!("{column}{first}")).to_vec();
        return (format!("t{first}"), columns);
    }
    let middle = first + random.below(last - first);
    let (left, left_columns) = random_join(first, middle, random);
    let (right, right_columns) = random_join(middle + 1, last, random);
    let kinds =
        ["JOIN", "JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"];
    let kind = kinds[random.below(kinds.len())];
    let pick = |columns: &[String], random: &mut Random| columns[random.below(columns.len())].clone();
    let mut on = vec![format!("{} = {}", pick(&left_columns, random), pick(&right_columns, random))];
    if random.below(3) == 0 {
        on.push(format!("{} = {}", pick(&left_columns, random), pick(&right_columns, random)));
    }
    if random.below(3) == 0 {
        let operator = ["<", ">=", "<>", "IS DISTINCT FROM"][random.below(4)];
        on.push(format!("{} {operator} {}", pick(&left_columns, random), pick(&right_columns, random)));
    }
    let mut columns = left_columns;
    if !kind.contains("SEMI") && !kind.contains("ANTI") {
        columns.extend(right_columns);
    }
    let text = format!("({left} {kind} {right} ON {})", on.join(" AND "));
    (text, columns)
}

/// The rows of a statement, each as text with its number.
async fn rows(session: &SessionContext, sql: &str) -> Result<HashMap<Vec<String>, usize>> {
    let options = FormatOptions::default().with_null("NULL");
    let mut rows = HashMap::new();
    for batch in session.sql(sql).await?.collect().await? {
        let columns = batch.columns().iter().map(|column| ArrayFormatter::try_new(column.as_ref(), &options));
        let columns = columns.collect::<std::result::Result<Vec<_>, _>>()?;
        for row in 0..batch.num_rows() {
            let row = columns.iter().map(|column| column.value(row).to_string()).collect();
            *rows.entry(row).or_insert(0) += 1;
        }
    }
    Ok(rows)
}

#[tokio::test]
async fn random_joins_return_the_same_rows() -> Result<()> {
    let mut random = Random(42);
    let mut reordered = 0;
    for _ in 0..200 {
        let tables = 2 + random.below(4);
        let sizes: Vec<usize> = (0..tables).map(|_| [1, 3, 12, 40][random.below(4)]).collect();
        let session = session(&sizes, &mut random)?;
        let (joins, columns) = random_join(0, tables - 1, &mut random);
        let filter = match random.below(3) {
            0 => format!(" WHERE {} < {}", columns[random.below(columns.len())], random.below(6)),
            _ => String::new(),
        };
        let selected: Vec<String> = columns.iter().filter(|_| random.below(2) == 0).cloned().collect();
        let list = if selected.is_empty() { "count(*)".to_string() } else { selected.join(", ") };
        let sql = format!("SELECT {list} FROM {joins}{filter}");
        let (answer, ordered) = (rows(&session, &sql).await?, plan(&session, &sql).await?);
        session.sql("SET datafusion.optimizer.join_reordering = false").await?;
        assert_eq!(answer, rows(&session, &sql).await?, "{sql}\n{ordered}");
        reordered += usize::from(ordered != plan(&session, &sql).await?);
    }
    assert!(reordered > 100, "only {reordered} plans were changed");
    Ok(())
}

#[tokio::test]
async fn long_chains_are_several_islands() -> Result<()> {
    let session = session(&[3], &mut Random(1))?;
    let joins = (1..150).map(|at| format!("JOIN t0 AS s{at} ON s{at}.a0 = s{}.a0", at - 1));
    let sql =
        format!("SELECT count(*) FROM t0 AS s0 {} WHERE s0.b0 = 1", joins.collect::<Vec<_>>().join(" "));
    let answer = rows(&session, &sql).await?;
    session.sql("SET datafusion.optimizer.join_reordering = false").await?;
    assert_eq!(answer, rows(&session, &sql).await?);
    Ok(())
}

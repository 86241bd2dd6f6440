//! A plan as PostgreSQL's EXPLAIN tree with costs, for clients that parse its first line (`postgres_fdw`) or
//! visualize its JSON, XML or YAML.
//!
//! Costs use PostgreSQL's default units: one per eight kilobytes read, a hundredth per row that an operator
//! outputs, a quarter of that per input row. Row counts are the planner's estimates; where they are unknown
//! or must stay hidden, PostgreSQL's default estimate is used.

use std::fmt::Write;
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::logical_expr::JoinType;
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::{ExecutionPlan, displayable};
use harrier_exec::data_files::VisibleRowsExec;
use harrier_exec::monitor::slice_tree;
use harrier_planner::cardinality::filter_selectivity;
use harrier_sql::tokens::explain_options::Format;

const PAGE_COST: f64 = 1.0;
const PAGE_BYTES: f64 = 8192.0;
const OUTPUT_ROW_COST: f64 = 0.01;
const INPUT_ROW_COST: f64 = 0.0025;
/// Default row estimate.
const ROWS_DEFAULT: f64 = 1000.0;
/// Estimated bytes of a variable-length value.
const VALUE_BYTES_DEFAULT: usize = 32;

/// An operator and its inputs.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    kind: String,
    details: String,
    join: Option<&'static str>,
    startup_cost: f64,
    total_cost: f64,
    rows: f64,
    width: usize,
    columns: Vec<String>,
    plans: Vec<Node>,
}

impl Node {
    pub(crate) fn of(plan: &Arc<dyn ExecutionPlan>) -> Self {
        let plan = slice_tree::one_rank_plan(plan);
        let fields = plan.schema();
        let fields = fields.fields();
        let width = fields.iter().map(|field| bytes_of(field.data_type())).sum::<usize>();
        // Below a row filter, row counts must not leak.
        let is_guarded = plan.is::<VisibleRowsExec>();
        let plans: Vec<Node> = match is_guarded {
            true => vec![],
            false => plan.children().into_iter().map(Node::of).collect(),
        };
        let input_rows = sum(plans.iter().map(|node| node.rows));
        let most = plans.iter().map(|node| node.rows).fold(f64::NAN, f64::max);
        let rows = filter_selectivity::rows(&plan).map(|rows| rows as f64).filter(|_| !is_guarded);
        let rows = rows.unwrap_or(if most.is_nan() { ROWS_DEFAULT } else { most });
        let below = sum(plans.iter().map(|node| node.total_cost));
        let read = if plans.is_empty() { (rows * width as f64 / PAGE_BYTES).ceil() * PAGE_COST } else { 0.0 };
        let total_cost = below + read + input_rows * INPUT_ROW_COST + rows * OUTPUT_ROW_COST;
        let name = plan.name();
        let startup_cost = match name {
            // Blocking operators: no output before all input is read.
            "SortExec" | "AggregateExec" => below + input_rows * INPUT_ROW_COST,
            "HashJoinExec" => {
                let built = plans.first().map_or(0.0, |node| node.total_cost);
                built + plans.get(1).map_or(0.0, |node| node.startup_cost)
            }
            _ => sum(plans.iter().map(|node| node.startup_cost)),
        };
        Self {
            kind: kind(name),
            details: displayable(plan.as_ref()).one_line().to_string().trim().to_string(),
            join: join(&plan),
            startup_cost: startup_cost.min(total_cost),
            total_cost,
            rows,
            width,
            columns: fields.iter().map(|field| field.name().clone()).collect(),
            plans,
        }
    }

    /// First line of PostgreSQL's EXPLAIN.
    pub(crate) fn headline(&self) -> String {
        format!(
            "{}  (cost={:.2}..{:.2} rows={:.0} width={})",
            self.kind, self.startup_cost, self.total_cost, self.rows, self.width
        )
    }

    /// The whole tree as text. `verbose`: with the output columns of each operator.
    pub(crate) fn render(&self, format: Format, verbose: bool) -> String {
        let value = Value::Group(vec![("Plan", self.value(verbose))]);
        let mut text = String::new();
        match format {
            Format::Xml => {
                text += "<explain xmlns=\"http://www.postgresql.org/2009/explain\">\n";
                xml(&mut text, "Query", &value, 1);
                text += "</explain>";
            }
            Format::Yaml => yaml(&mut text, &Value::List(vec![value]), 0),
            Format::Text | Format::Json => json(&mut text, &Value::List(vec![value]), 0),
        }
        text.trim_end().to_string()
    }

    fn value(&self, verbose: bool) -> Value {
        let text = |text: &str| Value::Text(text.to_string());
        let mut all = vec![("Node Type", text(&self.kind))];
        all.extend(self.join.map(|join| ("Join Type", text(join))));
        all.extend([
            ("Startup Cost", Value::Number(format!("{:.2}", self.startup_cost))),
            ("Total Cost", Value::Number(format!("{:.2}", self.total_cost))),
            ("Plan Rows", Value::Number(format!("{:.0}", self.rows))),
            ("Plan Width", Value::Number(self.width.to_string())),
        ]);
        if verbose {
            let columns = self.columns.iter().map(|column| text(column)).collect();
            all.push(("Output", Value::List(columns)));
        }
        all.push(("Details", text(&self.details)));
        if !self.plans.is_empty() {
            all.push(("Plans", Value::List(self.plans.iter().map(|node| node.value(verbose)).collect())));
        }
        Value::Group(all)
    }
}

/// The sum of no values is 0.0; `Iterator::sum` would give -0.0.
fn sum(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, |sum, value| sum + value)
}

/// PostgreSQL's name for an equivalent operator.
fn kind(name: &str) -> String {
    match name {
        "DataSourceExec" | "VisibleRowsExec" | "LiveRowsExec" => "Seq Scan",
        "HashJoinExec" => "Hash Join",
        "SortMergeJoinExec" => "Merge Join",
        "NestedLoopJoinExec" | "CrossJoinExec" => "Nested Loop",
        "SortExec" => "Sort",
        "SortPreservingMergeExec" => "Gather Merge",
        "CoalescePartitionsExec" => "Gather",
        "AggregateExec" => "Aggregate",
        "GlobalLimitExec" | "LocalLimitExec" => "Limit",
        "WindowAggExec" | "BoundedWindowAggExec" => "WindowAgg",
        "UnionExec" | "InterleaveExec" => "Append",
        "RecursiveQueryExec" => "Recursive Union",
        "WorkTableExec" => "WorkTable Scan",
        "UnnestExec" => "ProjectSet",
        "ProjectionExec" | "FilterExec" | "PlaceholderRowExec" | "EmptyExec" => "Result",
        other => return other.trim_end_matches("Exec").to_string(),
    }
    .to_string()
}

fn join(plan: &Arc<dyn ExecutionPlan>) -> Option<&'static str> {
    let join = plan.downcast_ref::<HashJoinExec>().map(|join| *join.join_type());
    let join = join.or_else(|| plan.downcast_ref::<NestedLoopJoinExec>().map(|join| *join.join_type()));
    let join = join.or_else(|| plan.downcast_ref::<SortMergeJoinExec>().map(|join| join.join_type()));
    Some(match join? {
        JoinType::Inner => "Inner",
        JoinType::Left => "Left",
        JoinType::Right => "Right",
        JoinType::Full => "Full",
        JoinType::LeftSemi | JoinType::RightSemi => "Semi",
        JoinType::LeftAnti | JoinType::RightAnti => "Anti",
        _ => "Mark",
    })
}

fn bytes_of(data_type: &DataType) -> usize {
    match data_type {
        DataType::Boolean => 1,
        other => other.primitive_width().unwrap_or(VALUE_BYTES_DEFAULT),
    }
}

enum Value {
    Text(String),
    Number(String),
    List(Vec<Value>),
    Group(Vec<(&'static str, Value)>),
}

fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            control if u32::from(control) < 0x20 => quoted += &format!("\\u{:04x}", u32::from(control)),
            other => quoted.push(other),
        }
    }
    quoted + "\""
}

fn json(text: &mut String, value: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Text(of) => *text += &quote(of),
        Value::Number(number) => *text += number,
        Value::List(values) if values.iter().all(|value| matches!(value, Value::Text(_))) => {
            text.push('[');
            for (at, value) in values.iter().enumerate() {
                text.push_str(if at == 0 { "" } else { ", " });
                json(text, value, depth);
            }
            text.push(']');
        }
        Value::List(values) => {
            text.push('[');
            for (at, value) in values.iter().enumerate() {
                let _ = write!(text, "{}\n{indent}  ", if at == 0 { "" } else { "," });
                json(text, value, depth + 1);
            }
            let _ = write!(text, "\n{indent}]");
        }
        Value::Group(members) => {
            text.push('{');
            for (at, (name, value)) in members.iter().enumerate() {
                let _ = write!(text, "{}\n{indent}  {}: ", if at == 0 { "" } else { "," }, quote(name));
                json(text, value, depth + 1);
            }
            let _ = write!(text, "\n{indent}}}");
        }
    }
}

fn yaml(text: &mut String, value: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Text(of) => *text += &quote(of),
        Value::Number(number) => *text += number,
        Value::List(values) => {
            for (at, value) in values.iter().enumerate() {
                if at > 0 || depth > 0 {
                    let _ = write!(text, "\n{indent}");
                }
                text.push_str("- ");
                yaml(text, value, depth + 1);
            }
        }
        Value::Group(members) => {
            for (at, (name, value)) in members.iter().enumerate() {
                if at > 0 {
                    let _ = write!(text, "\n{indent}");
                }
                let _ = write!(text, "{name}: ");
                if let Value::Group(_) = value {
                    let _ = write!(text, "\n{indent}  ");
                }
                yaml(text, value, depth + 1);
            }
        }
    }
}

/// Names are elements; list items are `Plan` in `Plans`, and `Item` elsewhere.
fn xml(text: &mut String, name: &str, value: &Value, depth: usize) {
    let (indent, element) = ("  ".repeat(depth), name.replace(' ', "-"));
    match value {
        Value::Text(of) => {
            let escaped = of.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            let _ = writeln!(text, "{indent}<{element}>{escaped}</{element}>");
        }
        Value::Number(number) => {
            let _ = writeln!(text, "{indent}<{element}>{number}</{element}>");
        }
        Value::List(values) => {
            let _ = writeln!(text, "{indent}<{element}>");
            let item = if name == "Plans" { "Plan" } else { "Item" };
            values.iter().for_each(|value| xml(text, item, value, depth + 1));
            let _ = writeln!(text, "{indent}</{element}>");
        }
        Value::Group(members) => {
            let _ = writeln!(text, "{indent}<{element}>");
            members.iter().for_each(|(name, value)| xml(text, name, value, depth + 1));
            let _ = writeln!(text, "{indent}</{element}>");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(kind: &str, plans: Vec<Node>) -> Node {
        Node {
            kind: kind.to_string(),
            details: "a < \"b\"".to_string(),
            join: None,
            startup_cost: 0.0,
            total_cost: 12.345,
            rows: 7.0,
            width: 8,
            columns: vec!["a".to_string(), "b".to_string()],
            plans,
        }
    }

    #[test]
    fn trees_are_written_as_postgresql_does() {
        let tree = node("Sort", vec![node("Seq Scan", vec![])]);
        assert_eq!(tree.headline(), "Sort  (cost=0.00..12.35 rows=7 width=8)");
        assert_eq!(
            node("Result", vec![]).render(Format::Json, true),
            "[\n  {\n    \"Plan\": {\n      \"Node Type\": \"Result\",\n      \"Startup Cost\": 0.00,\n      \
             \"Total Cost\": 12.35,\n      \"Plan Rows\": 7,\n      \"Plan Width\": 8,\n      \
             \"Output\": [\"a\", \"b\"],\n      \"Details\": \"a < \\\"b\\\"\"\n    }\n  }\n]"
        );
        let xml = tree.render(Format::Xml, true);
        for part in [
            "<explain xmlns=\"http://www.postgresql.org/2009/explain\">\n  <Query>\n    <Plan>\n      <Node-Type>Sort</Node-Type>",
            "      <Plans>\n        <Plan>\n          <Node-Type>Seq Scan</Node-Type>",
            "<Output>\n        <Item>a</Item>\n        <Item>b</Item>\n      </Output>",
            "<Details>a &lt; \"b\"</Details>",
        ] {
            assert!(xml.contains(part), "{xml}");
        }
        assert_eq!(
            tree.render(Format::Yaml, false),
            "- Plan: \n    Node Type: \"Sort\"\n    Startup Cost: 0.00\n    Total Cost: 12.35\n    Plan Rows: 7\n    \
             Plan Width: 8\n    Details: \"a < \\\"b\\\"\"\n    Plans: \n      - Node Type: \"Seq Scan\"\n        \
             Startup Cost: 0.00\n        Total Cost: 12.35\n        Plan Rows: 7\n        Plan Width: 8\n        \
             Details: \"a < \\\"b\\\"\""
        );
    }
}

//! `EXPLAIN` and `EXPLAIN ANALYZE`: plans a statement, or runs it and discards the rows, and returns lines of
//! text.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use datafusion::arrow::array::{RecordBatch, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, SessionState, TaskContext};
use datafusion::logical_expr::{ExplainFormat, LogicalPlan};
use datafusion::physical_plan::memory::MemoryStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::StreamExt;
use harrier_error::{SqlError, SqlState};
use harrier_exec::Gang;
use harrier_exec::formats::atomic_sinks::AtomicSinkFiles;
use harrier_exec::frontend::admission::Admission;
use harrier_exec::frontend::client::{ExplainedPlan, on_gang};
use harrier_exec::frontend::protocol::RequestKind;
use harrier_exec::monitor::resource_usage::UsageBaseline;
use harrier_exec::monitor::slice_tree::{
    copy_descriptions, copy_estimates, slices, slices_expecting, with_metrics,
};
use harrier_exec::monitor::statement_history::StatementHistory;
use harrier_exec::operators::cancelable_joins;
use harrier_exec::transport::clock_offset::now_ns;
use harrier_pgcatalog::TYPE_KEY;
use harrier_planner::cardinality::filter_selectivity;
use harrier_sql::tokens::explain_options::{ExplainOptions, Format};
use harrier_sqlstate::IntoDataFusionError;

use crate::runtime::explain_text;
use crate::runtime::panic_guard::catch_stream_panic;
use crate::runtime::progress::PlanProgress;
use crate::statement::explain_tree::Node;
use crate::statement::outcome::Outcome;

/// Output of EXPLAIN, and the rows if the plan ran.
pub(crate) struct Answer {
    pub lines: Vec<String>,
    /// Empty unless `keeps_rows` was set.
    pub batches: Vec<RecordBatch>,
}

/// Answers `plan` if it is an EXPLAIN in the default format or JSON; DataFusion answers the other formats. If
/// it runs the plan, in `context`, it discards the rows unless `keeps_rows`. `history`: statement history and
/// the statement's text. The options give the format of the operator tree and whether it is verbose.
pub(crate) async fn answer(
    state: &SessionState,
    plan: &LogicalPlan,
    gang: Option<&Gang>,
    context: impl FnOnce() -> Result<Arc<TaskContext>>,
    keeps_rows: bool,
    history: Option<(&StatementHistory, &str)>,
    ExplainOptions { format, is_verbose }: ExplainOptions,
) -> Result<Option<Answer>> {
    match plan {
        LogicalPlan::Analyze(_) if matches!(format, Format::Xml | Format::Yaml) => {
            let name = if format == Format::Xml { "XML" } else { "YAML" };
            let message = format!("EXPLAIN ANALYZE with FORMAT {name} is not supported");
            Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .with_hint("FORMAT JSON and FORMAT TEXT are there")
                .into_datafusion())
        }
        LogicalPlan::Explain(explain) if explain.explain_format == ExplainFormat::Indent => {
            let (logical, physical) = plan_physical(state, &explain.plan).await?;
            let headline = tree(&physical).headline();
            if let Some(gang) = on_gang(&physical) {
                let mut explained = gang.explain(RequestKind::Explain, explain.verbose, false, None).await?;
                let mut lines = vec![headline];
                lines.extend(explain_text::logical(&logical));
                lines.append(&mut explained.lines);
                return Ok(Some(Answer { lines, batches: vec![] }));
            }
            let planned = slices_expecting(&physical, &filter_selectivity::rows);
            let mut lines = vec![headline];
            lines.extend(explain_text::explain(&logical, &planned, explain.verbose));
            Ok(Some(Answer { lines, batches: vec![] }))
        }
        // One text value, as plan visualizers expect.
        LogicalPlan::Explain(explain) if explain.explain_format == ExplainFormat::PostgresJSON => {
            let (_, physical) = plan_physical(state, &explain.plan).await?;
            Ok(Some(Answer { lines: vec![tree(&physical).render(format, is_verbose)], batches: vec![] }))
        }
        LogicalPlan::Analyze(explain) if explain.format == ExplainFormat::Indent => {
            let (_, physical) = plan_physical(state, &explain.input).await?;
            if let Some(gang) = on_gang(&physical) {
                let admission = state.config().get_extension::<Admission>();
                let ExplainedPlan { lines, batches, .. } =
                    gang.explain(RequestKind::Analyze, explain.verbose, keeps_rows, admission).await?;
                return Ok(Some(Answer { lines, batches }));
            }
            let before = UsageBaseline::of(gang).await?;
            let began_ns = now_ns();
            let started = Instant::now();
            let planned = slices_expecting(&physical, &filter_selectivity::rows);
            let context = context()?;
            let physical = cancelable_joins::cancelable_in(physical, &context)?;
            let (context, files) = AtomicSinkFiles::of(&physical, context)?;
            let rows = catch_stream_panic(execute_stream(Arc::clone(&physical), context)?);
            let mut rows = match files {
                Some(files) => files.publish_after(rows),
                None => rows,
            };
            let mut batches = Vec::new();
            while let Some(batch) = rows.next().await {
                let batch = batch?;
                if keeps_rows {
                    batches.push(batch);
                }
            }
            drop(rows);
            let wall = started.elapsed();
            let measured = with_metrics(physical).await?;
            let totals = before.usage(gang, wall).await?;
            let mut measured = slices(&measured);
            copy_descriptions(&mut measured, &planned);
            copy_estimates(&mut measured, &planned);
            if let Some((history, text)) = history {
                history.add(text, began_ns, gang, &measured).await;
            }
            let lines = explain_text::analyze(&measured, &totals, explain.verbose);
            Ok(Some(Answer { lines, batches }))
        }
        _ => Ok(None),
    }
}

/// The operator tree, also of a plan that runs on ranks.
fn tree(physical: &Arc<dyn ExecutionPlan>) -> Node {
    match on_gang(physical) {
        Some(gang) => gang.children().into_iter().map(Node::of).next().unwrap_or_else(|| Node::of(physical)),
        None => Node::of(physical),
    }
}

async fn plan_physical(
    state: &SessionState,
    plan: &LogicalPlan,
) -> Result<(LogicalPlan, Arc<dyn ExecutionPlan>)> {
    let logical = state.optimize(plan)?;
    let physical = state.query_planner().create_physical_plan(&logical, state).await?;
    Ok((logical, physical))
}

/// Whether DataFusion answers `plan` in JSON, with the kind of plan in a column of its own.
pub(crate) fn is_json_analysis(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Analyze(analyze) if analyze.format == ExplainFormat::PostgresJSON)
}

/// The texts of DataFusion's answer alone, in the column of [`query_plan`].
pub(crate) fn plan_column(answer: SendableRecordBatchStream, format: Format) -> SendableRecordBatchStream {
    let schema = query_plan(format);
    let of_answer = Arc::clone(&schema);
    let texts = answer.map(move |batch| {
        let batch = batch?;
        let text = cast(batch.column(batch.num_columns() - 1), &DataType::Utf8)?;
        Ok(RecordBatch::try_new(Arc::clone(&of_answer), vec![text])?)
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, texts))
}

/// The answer's single column, named as psql users expect.
pub(crate) fn query_plan(format: Format) -> SchemaRef {
    let field = Field::new("QUERY PLAN", DataType::Utf8, false);
    Arc::new(Schema::new(vec![match format {
        Format::Json => field.with_metadata(HashMap::from([(TYPE_KEY.to_string(), "json".to_string())])),
        _ => field,
    }]))
}

/// Converts lines to rows.
pub(crate) fn rows(lines: Vec<String>, format: Format) -> Result<Outcome> {
    let schema = query_plan(format);
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(StringArray::from(lines))])?;
    let stream = Box::pin(MemoryStream::try_new(vec![batch], Arc::clone(&schema), None)?);
    Ok(Outcome::Rows { schema, stream, progress: PlanProgress::none() })
}

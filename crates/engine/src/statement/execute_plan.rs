//! Executes a logical plan: physical planning, memory, cancellation, progress, history.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, SessionState};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::execute_stream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::TryStreamExt;
use harrier_exec::formats::atomic_sinks::AtomicSinkFiles;
use harrier_exec::operators::cancelable_joins;
use harrier_resources::statement_limits::Scope;
use harrier_sql::tokens::explain_options::ExplainOptions;

use crate::external::hive::read_validation::ReadSet;
use crate::external::{file_tables, store_urls};
use crate::object_stores::options::{self, TableOptions};
use crate::runtime::limits;
use crate::runtime::panic_guard::catch_stream_panic;
use crate::runtime::progress::PlanProgress;
use crate::session::Session;
use crate::statement::copy::check::CopyCheck;
use crate::statement::copy::target;
use crate::statement::explain;
use crate::statement::outcome::Outcome;
use crate::statement::write::{AbortGuard, Write};
use crate::warehouse::sequences;

impl Session {
    pub(crate) async fn execute_plan(
        &self,
        state: &SessionState,
        plan: &LogicalPlan,
        verb: Option<&'static str>,
        text: &str,
        explain: ExplainOptions,
    ) -> Result<Outcome> {
        let with_sequences = sequences::settings(state, plan)?;
        let state = with_sequences.as_ref().unwrap_or(state);
        let target = match plan {
            LogicalPlan::Copy(copy) => Some(copy.output_url.clone()),
            _ => None,
        };
        // COPY may stand below the root: EXPLAIN ANALYZE writes files, too.
        let with_options;
        let plan = if plan.exists(|node| Ok(matches!(node, LogicalPlan::Copy(_))))? {
            self.check_files()?;
            with_options = with_store_options(state, plan.clone())?;
            &with_options
        } else {
            plan
        };
        let history = self.engine().history();
        let record = history.map(|history| (history, text));
        if let Some(answer) = explain::answer(
            state,
            plan,
            self.engine().gang(),
            || self.task_ctx(state),
            false,
            record,
            explain,
        )
        .await?
        {
            return explain::rows(answer.lines, explain.format);
        }
        let folder = target.as_deref().map(target::check).transpose()?;
        let is_json = explain::is_json_analysis(plan);
        let plan = state.create_physical_plan(plan).await?;
        let watched = state.config().get_extension::<ReadSet>();
        let task_context = self.task_ctx(state)?;
        let plan = cancelable_joins::cancelable_in(plan, &task_context)?;
        let progress =
            PlanProgress::of(&plan, Scope::of(state.config()).map(|scope| Arc::clone(&scope.memory)));
        let scanned = file_tables::scanned_files(&plan);
        let (task_context, files) = AtomicSinkFiles::of(&plan, task_context)?;
        let stream = catch_stream_panic(execute_stream(Arc::clone(&plan), task_context)?);
        let stream = match watched {
            Some(watched) => watched.validate_stream(stream),
            None => stream,
        };
        let stream = match verb {
            // A write's stream returns file records, to which no row limit applies.
            Some(_) => stream,
            None => limits::limit_rows(stream, self.limits().rows),
        };
        let stream = match self.engine().gang() {
            Some(gang) => gang.fail_on_rank_loss(&plan, stream),
            None => stream,
        };
        let stream = match history {
            Some(history) => history.watch(text, &plan, self.engine().gang(), stream),
            None => stream,
        };
        // Publish last, after everything that may fail.
        let stream = match files {
            Some(files) => files.publish_after(stream),
            None => stream,
        };
        let stream = match is_json {
            true => explain::plan_column(stream, explain.format),
            false => stream,
        };
        let schema = stream.schema();
        let explained = stream.map_err(move |error| match &target {
            Some(target) => target::explain(file_tables::with_scanned_files(error, &scanned), target),
            None => file_tables::with_scanned_files(error, &scanned),
        });
        let stream: SendableRecordBatchStream = Box::pin(RecordBatchStreamAdapter::new(schema, explained));
        let stream = match folder {
            Some(folder) => folder.keep_after(stream),
            None => stream,
        };
        Ok(match verb {
            Some(verb) => Outcome::Write(Write {
                verb,
                text: text.to_string(),
                stream,
                folder: None,
                progress,
                pending: None,
                auto_analyze: None,
                check: CopyCheck::default(),
                abort_guard: AbortGuard(None),
            }),
            None => Outcome::Rows { schema: stream.schema(), stream, progress },
        })
    }
}

/// Adds the session's object store options to the targets that `plan` writes to.
fn with_store_options(state: &SessionState, plan: LogicalPlan) -> Result<LogicalPlan> {
    let with_options = plan.transform_up(|node| match node {
        LogicalPlan::Copy(mut copy) => {
            let target = store_urls::target_url(&copy.output_url);
            target::check_options(state, &copy)?;
            copy.output_url = options::location_with_options(state, target, &TableOptions::default())?;
            if copy.file_type.get_ext() == "parquet" {
                copy.input = Arc::new(target::with_file_types(Arc::unwrap_or_clone(copy.input))?);
            }
            let keeps = target::keeps_keys(state, &copy);
            if !copy.partition_by.is_empty() && !keeps {
                let input = Arc::unwrap_or_clone(copy.input);
                copy.input = Arc::new(target::with_folder_names(input, &copy.partition_by)?);
            }
            Ok(Transformed::yes(LogicalPlan::Copy(copy)))
        }
        node => Ok(Transformed::no(node)),
    })?;
    Ok(with_options.data)
}

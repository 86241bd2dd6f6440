//! Logical plan node for writing files, so that planning distributes it like any operator; and the planners
//! of all extension nodes.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::catalog::Session;
use datafusion::common::{DFSchema, DFSchemaRef, Result, internal_err};
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{
    Expr, Extension, LogicalPlan, UserDefinedLogicalNode, UserDefinedLogicalNodeCore,
};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner};
use futures::FutureExt;
use futures::future::{BoxFuture, ready};

use crate::data_files::barrier::Barrier;
use crate::data_files::row_filter::VisibleRowsExec;
use crate::data_files::write_files::{WriteFilesExec, output_schema};
use crate::data_files::write_spec::WriteSpec;
use crate::distribution::colocated_joins::colocate;
use crate::distribution::runtime_filters::{self, RuntimeFilters};
use crate::operators::shared_rows::{SharedRows, SharedRowsExec};
use crate::operators::shared_subplan::join_readers;
use harrier_resources::value_account::Account;

/// Writes the rows of its input; see [`WriteFilesExec`].
#[derive(Clone, Debug)]
pub struct WriteFiles {
    input: LogicalPlan,
    spec: Arc<WriteSpec>,
    schema: DFSchemaRef,
}

impl WriteFiles {
    /// Wraps `input` in a node that writes its rows.
    pub fn plan(input: LogicalPlan, spec: Arc<WriteSpec>) -> Result<LogicalPlan> {
        let schema = Arc::new(DFSchema::try_from(output_schema().as_ref().clone())?);
        Ok(LogicalPlan::Extension(Extension { node: Arc::new(Self { input, spec, schema }) }))
    }
}

impl PartialEq for WriteFiles {
    fn eq(&self, other: &Self) -> bool {
        self.input == other.input && self.spec == other.spec
    }
}

impl Eq for WriteFiles {}

impl Hash for WriteFiles {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.input.hash(state);
        self.spec.name.hash(state);
    }
}

impl PartialOrd for WriteFiles {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self == other).then_some(Ordering::Equal)
    }
}

impl UserDefinedLogicalNodeCore for WriteFiles {
    fn name(&self) -> &str {
        "WriteFiles"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        vec![]
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WriteFiles: {}", self.spec.table)
    }

    fn with_exprs_and_inputs(&self, _: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        match (inputs.pop(), inputs.is_empty()) {
            (Some(input), true) => Ok(Self { input, ..self.clone() }),
            _ => internal_err!("WriteFiles has one input"),
        }
    }
}

/// Installs the one-process planner of extension nodes, [`WriteFiles`] and [`Barrier`] included.
pub fn install(builder: SessionStateBuilder) -> SessionStateBuilder {
    builder.with_query_planner(Arc::new(OneProcess))
}

/// Makes the one-process physical plan of a statement that `ranks` will run.
pub fn physical_plan<'a>(
    plan: &'a LogicalPlan,
    session: &'a dyn Session,
    ranks: usize,
) -> BoxFuture<'a, Result<Arc<dyn ExecutionPlan>>> {
    async move {
        let planner = DefaultPhysicalPlanner::with_extension_planners(vec![Arc::new(OwnNodes)]);
        // Uses the memory account of the statement from here on.
        let accounted = session.as_any().downcast_ref::<SessionState>().map(Account::in_session);
        let session = accounted.as_ref().map_or(session, |state| state as &dyn Session);
        let colocated = colocate(planner.create_physical_plan(plan, session).await?, ranks)?;
        let filtered = match session.config().get_extension::<RuntimeFilters>().as_deref() {
            Some(RuntimeFilters(false)) => colocated,
            _ => runtime_filters::apply_to_rows(colocated)?,
        };
        join_readers(filtered)
    }
    .boxed()
}

#[derive(Debug)]
struct OneProcess;

// Methods are written out for the compiler's sake: docs/decisions/0025-boxed-futures-behind-traits.md
impl QueryPlanner for OneProcess {
    fn create_physical_plan<'a: 'f, 'b: 'f, 'c: 'f, 'f>(
        &'a self,
        plan: &'b LogicalPlan,
        session: &'c dyn Session,
    ) -> BoxFuture<'f, Result<Arc<dyn ExecutionPlan>>> {
        physical_plan(plan, session, 1)
    }
}

struct OwnNodes;

// Methods are written out for the compiler's sake: docs/decisions/0025-boxed-futures-behind-traits.md
impl ExtensionPlanner for OwnNodes {
    fn plan_extension<'a: 'f, 'b: 'f, 'c: 'f, 'd: 'f, 'e: 'f, 'g: 'f, 'h: 'f, 'i: 'f, 'f>(
        &'a self,
        _: &'b dyn PhysicalPlanner,
        node: &'c dyn UserDefinedLogicalNode,
        _: &'d [&'e LogicalPlan],
        inputs: &'g [Arc<dyn ExecutionPlan>],
        _: &'h dyn Session,
        _: &'i PhysicalPlanningContext,
    ) -> BoxFuture<'f, Result<Option<Arc<dyn ExecutionPlan>>>> {
        if let (Some(node), [input, body]) = (node.as_any().downcast_ref::<SharedRows>(), inputs) {
            let planned = SharedRowsExec::try_new(&node.name, Arc::clone(input), Arc::clone(body));
            return ready(planned.map(|planned| Some(Arc::new(planned) as Arc<dyn ExecutionPlan>))).boxed();
        }
        let [input] = inputs else { return ready(Ok(None)).boxed() };
        let (input, node) = (Arc::clone(input), node.as_any());
        let planned: Option<Arc<dyn ExecutionPlan>> = match node.downcast_ref::<WriteFiles>() {
            Some(node) => Some(Arc::new(WriteFilesExec::new(input, Arc::clone(&node.spec)))),
            None if node.is::<Barrier>() => Some(Arc::new(VisibleRowsExec::new(input))),
            None => None,
        };
        ready(Ok(planned)).boxed()
    }
}

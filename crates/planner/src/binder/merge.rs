//! Planner of MERGE, and of `INSERT … ON CONFLICT DO UPDATE`, which becomes one: computes the rows of the
//! table to delete, insert and update.

use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::{Column, ScalarValue, TableReference};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::conditional_expressions::CaseBuilder;
use datafusion::logical_expr::dml::{MergeIntoAction, MergeIntoClauseKind, MergeIntoOp};
use datafusion::logical_expr::{
    Expr, JoinType, LogicalPlan, LogicalPlanBuilder, TableSource, cast, lit, when,
};
use std::sync::Arc;

use harrier_functions::guard::repeated_key;

use crate::binder::on_conflict::Repeats;

/// The column that flags rows to write; the others are only deleted.
pub const IS_WRITTEN: &str = "_harrier_write";

/// The index of the WHEN clause that applies to a row.
const CLAUSE: &str = "_harrier_clause";
/// The prefix of the source's columns, followed by their index.
const SOURCE_COLUMN: &str = "_harrier_source_";
const IN_SOURCE: &str = "_harrier_in_source";

/// The target table of a MERGE.
pub struct Target<'a> {
    pub name: &'a TableReference,
    pub schema: SchemaRef,
    /// Its rows and their locations.
    pub rows: Arc<dyn TableSource>,
    /// The columns of `rows` that locate a row: NULL in the first one for a row that is not in the table.
    pub places: &'a [&'a str],
    /// The default value of a column, if not NULL.
    pub default: &'a dyn Fn(&str) -> Option<Expr>,
    /// Whether RETURNING is used: deleted rows keep their old values, and all rows carry the source columns.
    pub returns: bool,
}

impl Target<'_> {
    /// Joins the source with the table; the first matching clause decides the action for each pair. Output
    /// columns: those of the table, those of the source if returned, [`IS_WRITTEN`], and the location of the
    /// row to delete.
    ///
    /// Errors: no clause; an action that cannot be planned.
    pub fn plan(&self, source: LogicalPlan, merge: &MergeIntoOp) -> Result<LogicalPlan> {
        let own = LogicalPlanBuilder::scan(self.name.clone(), Arc::clone(&self.rows), None)?.build()?;
        let of_source = source.schema().columns();
        let marked: Vec<Expr> = columns_of(&source).chain([lit(true).alias(IN_SOURCE)]).collect();
        let source = LogicalPlanBuilder::from(source).project(marked)?.build()?;
        let joined = LogicalPlanBuilder::from(own).join_on(source, join_type(merge), [merge.on.clone()])?;
        let joined = joined.build()?;
        let all: Vec<Expr> = columns_of(&joined).chain([self.clause(merge)?.alias(CLAUSE)]).collect();
        let decided = LogicalPlanBuilder::from(joined).project(all)?.build()?;
        let (decided, repeats) = Repeats::find(decided, merge, &column(CLAUSE))?;
        let no_ops = clauses_where(merge, does_nothing);
        let is_taken = match no_ops.is_empty() {
            true => column(CLAUSE).is_not_null(),
            // This also filters out NULL.
            false => column(CLAUSE).in_list(no_ops, true),
        };
        // A repeated key fails, whether or not something would be done.
        let is_taken = match &repeats.is_repeated {
            Some(is_repeated) => is_taken.or(is_repeated.clone()),
            None => is_taken,
        };
        let applicable = LogicalPlanBuilder::from(decided).filter(is_taken)?;
        let applicable = match &repeats.order {
            Some(order) => applicable.sort([order.clone().sort(true, false)])?,
            None => applicable,
        };
        let mut written = Vec::with_capacity(self.schema.fields().len() + 1 + self.places.len());
        for (at, field) in self.schema.fields().iter().enumerate() {
            let value = self.value(at, merge)?;
            let value = match &repeats.is_repeated {
                Some(is_repeated) if at == 0 => repeated_key::enforce(is_repeated.clone(), value),
                _ => value,
            };
            written.push(value.alias(field.name()));
        }
        if self.returns {
            let named = of_source.into_iter().enumerate();
            written.extend(named.map(|(at, own)| Expr::Column(own).alias(format!("{SOURCE_COLUMN}{at}"))));
        }
        let deletes = clauses_where(merge, |action| matches!(action, MergeIntoAction::Delete));
        written.push(column(CLAUSE).in_list(deletes, true).alias(IS_WRITTEN));
        written.extend(self.places.iter().map(|place| column(place).alias(*place)));
        applicable.project(written)?.build()
    }

    /// The index of the first clause that applies to a pair; NULL for none.
    fn clause(&self, merge: &MergeIntoOp) -> Result<Expr> {
        let in_target = column(self.places[0]).is_not_null();
        let in_source = column(IN_SOURCE).is_not_null();
        let mut applicable: Option<CaseBuilder> = None;
        for (at, clause) in merge.clauses.iter().enumerate() {
            let fits = match clause.kind {
                MergeIntoClauseKind::Matched => in_target.clone().and(in_source.clone()),
                MergeIntoClauseKind::NotMatched | MergeIntoClauseKind::NotMatchedByTarget => {
                    in_target.clone().is_not_true()
                }
                MergeIntoClauseKind::NotMatchedBySource => in_source.clone().is_not_true(),
            };
            let fits = match &clause.predicate {
                Some(predicate) => fits.and(predicate.clone()),
                None => fits,
            };
            applicable = Some(or_when(applicable, fits, lit(at as i64)));
        }
        let applicable =
            applicable.ok_or_else(|| DataFusionError::Plan("MERGE needs a WHEN clause".to_string()))?;
        applicable.end()
    }

    /// The new value of the column at index `at`, by the clause that applies to the row.
    fn value(&self, at: usize, merge: &MergeIntoOp) -> Result<Expr> {
        let field = self.schema.field(at);
        let present = Expr::Column(Column::new(Some(self.name.clone()), field.name().clone()));
        let mut case: Option<CaseBuilder> = None;
        for (number, clause) in merge.clauses.iter().enumerate() {
            let value = match &clause.action {
                MergeIntoAction::Delete if self.returns => present.clone(),
                MergeIntoAction::Delete => continue,
                action if does_nothing(action) => continue,
                MergeIntoAction::Update(assignments) => {
                    let assigned = assignments.iter().find(|(column, _)| column == field.name());
                    assigned.map_or_else(|| present.clone(), |(_, value)| value.clone())
                }
                MergeIntoAction::Insert { columns, values } => {
                    let place = match columns.is_empty() {
                        true => Some(at),
                        false => columns.iter().position(|column| column == field.name()),
                    };
                    match place.and_then(|place| values.get(place)) {
                        Some(value) => value.clone(),
                        None => match (self.default)(field.name()) {
                            Some(default) => default,
                            None => null(field.data_type())?,
                        },
                    }
                }
            };
            let value = cast(value, field.data_type().clone());
            case = Some(or_when(case, column(CLAUSE).eq(lit(number as i64)), value));
        }
        match case {
            Some(case) => case.end(),
            None => null(field.data_type()),
        }
    }
}

/// The join type that keeps all rows that the clauses need.
fn join_type(merge: &MergeIntoOp) -> JoinType {
    let has = |kinds: &[MergeIntoClauseKind]| merge.clauses.iter().any(|clause| kinds.contains(&clause.kind));
    let keeps_source = has(&[MergeIntoClauseKind::NotMatched, MergeIntoClauseKind::NotMatchedByTarget]);
    let keeps_target = has(&[MergeIntoClauseKind::NotMatchedBySource]);
    match (keeps_target, keeps_source) {
        (true, true) => JoinType::Full,
        (true, false) => JoinType::Left,
        (false, true) => JoinType::Right,
        (false, false) => JoinType::Inner,
    }
}

/// The indexes of the clauses whose action satisfies `fits`.
fn clauses_where(merge: &MergeIntoOp, fits: fn(&MergeIntoAction) -> bool) -> Vec<Expr> {
    let numbered = merge.clauses.iter().enumerate();
    numbered.filter(|(_, clause)| fits(&clause.action)).map(|(at, _)| lit(at as i64)).collect()
}

/// DO NOTHING is represented as an UPDATE of no columns.
fn does_nothing(action: &MergeIntoAction) -> bool {
    matches!(action, MergeIntoAction::Update(assignments) if assignments.is_empty())
}

fn or_when(case: Option<CaseBuilder>, fits: Expr, then: Expr) -> CaseBuilder {
    match case {
        Some(mut case) => case.when(fits, then),
        None => when(fits, then),
    }
}

fn column(name: &str) -> Expr {
    Expr::Column(Column::new_unqualified(name))
}

fn columns_of(plan: &LogicalPlan) -> impl Iterator<Item = Expr> {
    plan.schema().columns().into_iter().map(Expr::Column)
}

fn null(kind: &DataType) -> Result<Expr> {
    Ok(lit(ScalarValue::try_new_null(kind)?))
}

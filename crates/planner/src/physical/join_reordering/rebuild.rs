//! Builds the plan of an island from a tree of joins.

use std::sync::Arc;

use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{JoinSide, JoinType, Result, internal_err};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column as PhysicalColumn};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};
use datafusion::physical_plan::joins::{HashJoinExecBuilder, NestedLoopJoinExec, PartitionMode};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};

use super::Model;
use super::expression::{RelationExpression, map_columns};
use super::island::{Condition, Island};
use crate::join_order::{AppliedPredicate, Column, JoinKind, JoinTree, RelationSet, Side};

/// Builds one island.
pub struct Rebuild<'a> {
    pub island: &'a Island,
    pub relations: &'a [Arc<dyn ExecutionPlan>],
    pub model: &'a Model,
    pub config: &'a ConfigOptions,
}

/// A plan with the columns that it gives.
struct Built {
    plan: Arc<dyn ExecutionPlan>,
    columns: Vec<Column>,
}

/// The conditions of a join.
#[derive(Default)]
struct JoinConditions {
    /// Of the left side, of the right side.
    keys: Vec<(RelationExpression, RelationExpression)>,
    others: Vec<RelationExpression>,
}

impl JoinConditions {
    fn columns(&self) -> impl Iterator<Item = Column> {
        let keys = self.keys.iter().flat_map(|(left, right)| [left, right]);
        keys.chain(&self.others).flat_map(|expression| expression.columns.iter().copied())
    }
}

impl Rebuild<'_> {
    /// The plan of a tree, with the columns of `schema`; `None`: operators cannot execute the tree.
    pub fn plan(&self, tree: &JoinTree, schema: &SchemaRef) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let output = &self.island.output;
        let Some(Built { plan, columns }) = self.build(tree, output)? else {
            return Ok(None);
        };
        let is_same = columns == *output
            && plan
                .schema()
                .fields()
                .iter()
                .zip(schema.fields())
                .all(|(own, field)| own.name() == field.name());
        if is_same {
            return Ok(Some(plan));
        }
        let mut projected = Vec::with_capacity(output.len());
        for (column, field) in output.iter().zip(schema.fields()) {
            let Some(at) = columns.iter().position(|known| known == column) else { return Ok(None) };
            let expr = Arc::new(PhysicalColumn::new(plan.schema().field(at).name(), at));
            projected.push(ProjectionExpr { expr, alias: field.name().clone() });
        }
        Ok(Some(Arc::new(ProjectionExec::try_new(projected, plan)?)))
    }

    /// `needed`: the columns that are read above.
    fn build(&self, tree: &JoinTree, needed: &[Column]) -> Result<Option<Built>> {
        let (kind, predicates, left, right, build) = match tree {
            JoinTree::Leaf(relation) => {
                let plan = Arc::clone(&self.relations[*relation]);
                let numbers = 0..plan.schema().fields().len();
                let columns = numbers.map(|number| Column { relation: *relation, number }).collect();
                return Ok(Some(Built { plan, columns }));
            }
            JoinTree::Join { kind, predicates, left, right, build, .. } => {
                (*kind, predicates, left, right, *build)
            }
        };
        let (left_set, right_set) = (left.relations(), right.relations());
        let conditions = self.conditions(predicates, left_set, right_set)?;
        let below = |side: RelationSet| {
            let mut columns: Vec<Column> = Vec::new();
            for column in needed.iter().copied().chain(conditions.columns()) {
                if side.contains(column.relation) && !columns.contains(&column) {
                    columns.push(column);
                }
            }
            columns
        };
        let sides = (self.build(left, &below(left_set))?, self.build(right, &below(right_set))?);
        let (Some(left), Some(right)) = sides else {
            return Ok(None);
        };
        let (first, second, built_set) = match build {
            Side::Left => (left, right, left_set),
            Side::Right => (right, left, right_set),
        };
        let Some(join_type) = join_type(kind, build) else {
            return Ok(None);
        };
        self.join(join_type, &conditions, build, (first, second), built_set, needed)
    }

    fn join(
        &self,
        join_type: JoinType,
        conditions: &JoinConditions,
        build: Side,
        (first, second): (Built, Built),
        built_set: RelationSet,
        needed: &[Column],
    ) -> Result<Option<Built>> {
        let mut on = Vec::with_capacity(conditions.keys.len());
        for (left, right) in &conditions.keys {
            let (one, other) = if build == Side::Left { (left, right) } else { (right, left) };
            let one = one.over(&first.columns, &first.plan.schema())?;
            let other = other.over(&second.columns, &second.plan.schema())?;
            let (Some(one), Some(other)) = (one, other) else {
                return Ok(None);
            };
            on.push((one, other));
        }
        let filter = join_filter(&conditions.others, &first, &second)?;
        let mut columns = Vec::new();
        columns.extend(first.columns.iter().filter(|_| keeps_first(join_type)));
        columns.extend(second.columns.iter().filter(|_| keeps_second(join_type)));
        let kept: Vec<usize> = (0..columns.len()).filter(|at| needed.contains(&columns[*at])).collect();
        let projection = (kept.len() < columns.len()).then(|| kept.clone());
        let columns = kept.into_iter().map(|at| columns[at]).collect();
        let plan: Arc<dyn ExecutionPlan> = if on.is_empty() {
            // Without keys there are inner joins only.
            if join_type != JoinType::Inner || filter.is_none() {
                return Ok(None);
            }
            Arc::new(NestedLoopJoinExec::try_new(first.plan, second.plan, filter, &join_type, projection)?)
        } else {
            HashJoinExecBuilder::new(first.plan, second.plan, on, join_type)
                .with_filter(filter)
                .with_partition_mode(self.mode(built_set))
                .with_projection(projection)
                .build_exec()?
        };
        Ok(Some(Built { plan, columns }))
    }

    /// As in DataFusion's choice, by this rule's estimates.
    fn mode(&self, built_set: RelationSet) -> PartitionMode {
        let ConfigOptions { optimizer, execution, .. } = self.config;
        let is_small = self.model.bytes(built_set) < optimizer.hash_join_single_partition_threshold as f64;
        match is_small || !optimizer.repartition_joins || execution.target_partitions == 1 {
            true => PartitionMode::CollectLeft,
            false => PartitionMode::Partitioned,
        }
    }

    /// Splits predicates into keys, which compare one side with the other, and other conditions.
    fn conditions(
        &self,
        predicates: &[AppliedPredicate],
        left: RelationSet,
        right: RelationSet,
    ) -> Result<JoinConditions> {
        let mut conditions = JoinConditions::default();
        for predicate in predicates {
            let (one, other) = match predicate {
                AppliedPredicate::Written(id) => match &self.island.conditions[*id] {
                    Condition::Other(condition) => {
                        conditions.others.push(condition.clone());
                        continue;
                    }
                    Condition::Equal(one, other) => (one.clone(), other.clone()),
                },
                AppliedPredicate::Implied(one, other) => (self.column(*one), self.column(*other)),
            };
            let (one_set, other_set) = (one.relations(), other.relations());
            if one_set.is_subset(left) && other_set.is_subset(right) {
                conditions.keys.push((one, other));
            } else if one_set.is_subset(right) && other_set.is_subset(left) {
                conditions.keys.push((other, one));
            } else {
                conditions.others.push(equality(&one, &other)?);
            }
        }
        Ok(conditions)
    }

    fn column(&self, column: Column) -> RelationExpression {
        let schema = self.relations[column.relation].schema();
        let expression = Arc::new(PhysicalColumn::new(schema.field(column.number).name(), 0));
        RelationExpression { expression, columns: vec![column] }
    }
}

/// `one = other` as a condition.
fn equality(one: &RelationExpression, other: &RelationExpression) -> Result<RelationExpression> {
    let first = one.columns.len();
    let moved = map_columns(&other.expression, |column| column.index() + first)?;
    let expression = Arc::new(BinaryExpr::new(Arc::clone(&one.expression), Operator::Eq, moved));
    let columns = one.columns.iter().chain(&other.columns).copied().collect();
    Ok(RelationExpression { expression, columns })
}

/// The conjunction of conditions over two inputs.
fn join_filter(
    conditions: &[RelationExpression],
    first: &Built,
    second: &Built,
) -> Result<Option<JoinFilter>> {
    let mut indices: Vec<ColumnIndex> = Vec::new();
    let mut fields = Vec::new();
    let mut all: Option<Arc<dyn PhysicalExpr>> = None;
    for condition in conditions {
        let mut places = Vec::with_capacity(condition.columns.len());
        for column in &condition.columns {
            let at = |built: &Built| built.columns.iter().position(|known| known == column);
            let (index, side, built) = match (at(first), at(second)) {
                (Some(index), _) => (index, JoinSide::Left, first),
                (None, Some(index)) => (index, JoinSide::Right, second),
                (None, None) => return internal_err!("a column of no side of a join"),
            };
            let known = indices.iter().position(|known| known.index == index && known.side == side);
            places.push(known.unwrap_or_else(|| {
                indices.push(ColumnIndex { index, side });
                fields.push(Arc::clone(&built.plan.schema().fields()[index]));
                indices.len() - 1
            }));
        }
        let condition = map_columns(&condition.expression, |column| places[column.index()])?;
        all = Some(match all {
            None => condition,
            Some(before) => Arc::new(BinaryExpr::new(before, Operator::And, condition)),
        });
    }
    Ok(all.map(|condition| JoinFilter::new(condition, indices, Arc::new(Schema::new(fields)))))
}

/// The type of a join that builds one side, which comes first.
fn join_type(kind: JoinKind, build: Side) -> Option<JoinType> {
    Some(match (kind, build) {
        (JoinKind::Inner, _) => JoinType::Inner,
        (JoinKind::Full, _) => JoinType::Full,
        (JoinKind::Left, Side::Left) => JoinType::Left,
        (JoinKind::Left, Side::Right) => JoinType::Right,
        (JoinKind::LeftSemi, Side::Left) => JoinType::LeftSemi,
        (JoinKind::LeftSemi, Side::Right) => JoinType::RightSemi,
        (JoinKind::LeftAnti, Side::Left) => JoinType::LeftAnti,
        (JoinKind::LeftAnti, Side::Right) => JoinType::RightAnti,
        (JoinKind::LeftMark | JoinKind::Single, _) => return None,
    })
}

fn keeps_first(join_type: JoinType) -> bool {
    !matches!(join_type, JoinType::RightSemi | JoinType::RightAnti)
}

fn keeps_second(join_type: JoinType) -> bool {
    !matches!(join_type, JoinType::LeftSemi | JoinType::LeftAnti)
}

//! Islands: joins that may change places, as the algorithms of [`crate::join_order`] see them.

use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{JoinSide, JoinType, NullEquality, Result};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column as PhysicalColumn;
use datafusion::physical_expr::utils::split_conjunction;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;

use super::expression::{RelationExpression, is_total};
use crate::join_order::{Column, JoinKind, Predicate, RelationSet, WrittenTree};

/// An island has at most so many relations; joins of more are several islands.
const RELATIONS_MAX: usize = 100;

/// A condition of a join.
#[derive(Debug, Clone)]
pub enum Condition {
    /// Both are equal, and not NULL.
    Equal(RelationExpression, RelationExpression),
    Other(RelationExpression),
}

impl Condition {
    fn relations(&self) -> RelationSet {
        match self {
            Self::Equal(left, right) => left.relations() | right.relations(),
            Self::Other(condition) => condition.relations(),
        }
    }
}

/// A tree of joins.
#[derive(Debug)]
pub struct Island {
    pub written: WrittenTree,
    /// What is joined, by number.
    pub relations: Vec<Arc<dyn ExecutionPlan>>,
    /// By the identifiers of predicates.
    pub conditions: Vec<Condition>,
    /// The columns of the output.
    pub output: Vec<Column>,
}

impl Island {
    /// The island that has `plan` on top; `None`: `plan` is not a join of one.
    pub fn below(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Self>> {
        if !is_part(plan) {
            return Ok(None);
        }
        let mut reader = IslandReader::default();
        let (written, output) = reader.visit(plan)?;
        let IslandReader { relations, conditions, .. } = reader;
        Ok((relations.len() > 1).then_some(Self { written, relations, conditions, output }))
    }
}

/// Replaces the relations of an island, in their order.
pub fn replace_relations(
    plan: Arc<dyn ExecutionPlan>,
    relations: &mut dyn Iterator<Item = Arc<dyn ExecutionPlan>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let mut join_count = 0;
    replace(plan, relations, &mut join_count)
}

fn replace(
    plan: Arc<dyn ExecutionPlan>,
    relations: &mut dyn Iterator<Item = Arc<dyn ExecutionPlan>>,
    join_count: &mut usize,
) -> Result<Arc<dyn ExecutionPlan>> {
    if *join_count + 1 < RELATIONS_MAX && is_part(&plan) {
        *join_count += usize::from(plan.is::<HashJoinExec>());
        let children =
            plan.children().into_iter().map(|child| replace(Arc::clone(child), relations, join_count));
        let children = children.collect::<Result<Vec<_>>>()?;
        return replace_children_if_necessary(plan, children);
    }
    Ok(relations.next().unwrap_or(plan))
}

/// Whether `plan` is a join that may change its place, or a projection of columns above one.
fn is_part(plan: &Arc<dyn ExecutionPlan>) -> bool {
    match plan.downcast_ref::<ProjectionExec>() {
        Some(projection) => projected_columns(projection).is_some() && is_part(projection.input()),
        None => plan.downcast_ref::<HashJoinExec>().is_some_and(|join| kind_of(join).is_some()),
    }
}

fn projected_columns(projection: &ProjectionExec) -> Option<Vec<usize>> {
    let column =
        |expression: &Arc<dyn PhysicalExpr>| Some(expression.downcast_ref::<PhysicalColumn>()?.index());
    projection.expr().iter().map(|projected| column(&projected.expr)).collect()
}

/// What a join keeps, and whether its right side is the preserved one; `None`: it stays where it is.
fn kind_of(join: &HashJoinExec) -> Option<(JoinKind, bool)> {
    let kind = match join.join_type() {
        JoinType::Inner => (JoinKind::Inner, false),
        JoinType::Left => (JoinKind::Left, false),
        JoinType::Right => (JoinKind::Left, true),
        JoinType::Full => (JoinKind::Full, false),
        JoinType::LeftSemi => (JoinKind::LeftSemi, false),
        JoinType::RightSemi => (JoinKind::LeftSemi, true),
        JoinType::LeftAnti => (JoinKind::LeftAnti, false),
        JoinType::RightAnti => (JoinKind::LeftAnti, true),
        JoinType::LeftMark | JoinType::RightMark => return None,
    };
    let (left, right) = (join.left().schema(), join.right().schema());
    let has_total_keys = join.on().iter().all(|(one, other)| is_total(one, &left) && is_total(other, &right));
    let has_total_filter = join.filter().is_none_or(|filter| is_total(filter.expression(), filter.schema()));
    let may_move = !join.null_aware
        && join.fetch().is_none()
        && join.null_equality() == NullEquality::NullEqualsNothing
        && has_total_keys
        && has_total_filter;
    may_move.then_some(kind)
}

/// Reads an island from its top, relations from left to right.
#[derive(Default)]
struct IslandReader {
    relations: Vec<Arc<dyn ExecutionPlan>>,
    conditions: Vec<Condition>,
    /// Joins down to here; the island has one relation more.
    join_count: usize,
}

impl IslandReader {
    /// Returns the tree, and the columns that `plan` gives.
    fn visit(&mut self, plan: &Arc<dyn ExecutionPlan>) -> Result<(WrittenTree, Vec<Column>)> {
        if self.join_count + 1 < RELATIONS_MAX && is_part(plan) {
            if let Some(projection) = plan.downcast_ref::<ProjectionExec>()
                && let Some(columns) = projected_columns(projection)
            {
                let (tree, input) = self.visit(projection.input())?;
                return Ok((tree, columns.into_iter().map(|at| input[at]).collect()));
            }
            if let Some(join) = plan.downcast_ref::<HashJoinExec>()
                && let Some((kind, is_swapped)) = kind_of(join)
            {
                self.join_count += 1;
                return self.read_join(join, kind, is_swapped);
            }
        }
        let relation = self.relations.len();
        self.relations.push(Arc::clone(plan));
        let columns = (0..plan.schema().fields().len()).map(|number| Column { relation, number });
        Ok((WrittenTree::Leaf(relation), columns.collect()))
    }

    fn read_join(
        &mut self,
        join: &HashJoinExec,
        kind: JoinKind,
        is_swapped: bool,
    ) -> Result<(WrittenTree, Vec<Column>)> {
        let (left_tree, left) = self.visit(join.left())?;
        let (right_tree, right) = self.visit(join.right())?;
        let mut predicates = Vec::new();
        for (one, other) in join.on() {
            let is_transitive = has_plain_equality(one, &join.left().schema())
                && has_plain_equality(other, &join.right().schema());
            let (one, other) =
                (RelationExpression::new(one, &left)?, RelationExpression::new(other, &right)?);
            let equality = one.column().zip(other.column()).filter(|_| is_transitive);
            predicates.push(self.predicate(Condition::Equal(one, other), equality));
        }
        if let Some(filter) = join.filter() {
            let columns = filter.column_indices().iter().filter_map(|column| match column.side {
                JoinSide::Left => left.get(column.index).copied(),
                JoinSide::Right => right.get(column.index).copied(),
                JoinSide::None => None,
            });
            let columns: Vec<Column> = columns.collect();
            for condition in split_conjunction(filter.expression()) {
                let condition = RelationExpression::new(condition, &columns)?;
                predicates.push(self.predicate(Condition::Other(condition), None));
            }
        }
        let keeps_left = !matches!(join.join_type(), JoinType::RightSemi | JoinType::RightAnti);
        let keeps_right = !matches!(join.join_type(), JoinType::LeftSemi | JoinType::LeftAnti);
        let mut columns = Vec::new();
        columns.extend(left.iter().filter(|_| keeps_left));
        columns.extend(right.iter().filter(|_| keeps_right));
        if let Some(kept) = &join.projection {
            columns = kept.iter().map(|at| columns[*at]).collect();
        }
        let tree = match is_swapped {
            false => WrittenTree::join(kind, predicates, left_tree, right_tree),
            true => WrittenTree::join(kind, predicates, right_tree, left_tree),
        };
        Ok((tree, columns))
    }

    fn predicate(&mut self, condition: Condition, equality: Option<(Column, Column)>) -> Predicate {
        let relations = condition.relations();
        // An equality of columns rejects NULLs of both; a cast or another condition may make values of them.
        let null_rejecting = match &condition {
            Condition::Equal(one, other) if one.column().is_some() && other.column().is_some() => relations,
            _ => RelationSet::EMPTY,
        };
        self.conditions.push(condition);
        Predicate { id: self.conditions.len() - 1, relations, null_rejecting, equality }
    }
}

/// Whether equality of the expression's values is transitive: they have one representation each.
fn has_plain_equality(expression: &Arc<dyn PhysicalExpr>, schema: &SchemaRef) -> bool {
    expression.data_type(schema).is_ok_and(|kind| !kind.is_floating() && !kind.is_nested())
}

//! Infers the types of a statement's parameters as PostgreSQL does: from casts, comparisons, set operations,
//! the function or clause that takes the parameter as an argument, or the column it is written to. The
//! default is text.
//!
//! The first place that determines a type wins, as in PostgreSQL; types declared by the client take
//! precedence.

use crate::types::names;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef, IntervalUnit, TimeUnit};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::datasource::source_as_provider;
use datafusion::error::Result;
use datafusion::logical_expr::dml::{MergeIntoAction, MergeIntoOp};
use datafusion::logical_expr::expr::{
    AggregateFunction, BinaryExpr, Case, InList, Like, ScalarFunction, WindowFunction,
};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Operator, WriteOp};
use datafusion::sql::sqlparser::ast;
use harrier_error::{SqlError, SqlState};
use harrier_pgcatalog::{TYPE_KEY, cast_type};
use harrier_sqlstate::IntoDataFusionError;

use crate::binder::declared_types::{declared_fields, declared_schema};
use crate::types::names::plain_type;
use harrier_planner::binder::on_conflict::inserted_rows;
use harrier_planner::binder::table_functions;
use harrier_planner::rewrite::input_schema;

/// Most parameters of one statement, as in PostgreSQL's protocol.
const PARAMETERS_MAX: usize = 65_535;

/// NUMERIC without a fixed precision.
pub(crate) const NUMERIC: DataType = DataType::Decimal128(38, 10);

/// Inferred type of a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parameter {
    pub data_type: DataType,
    /// PostgreSQL's name of the type, if the Arrow type does not determine it.
    pub name: Option<String>,
}

impl Parameter {
    fn of(field: &Field) -> Self {
        let data_type = match plain_type(field.data_type().clone()) {
            // Extra fractional digits are rounded when the value is written.
            DataType::Timestamp(TimeUnit::Second | TimeUnit::Millisecond, zone) => {
                DataType::Timestamp(TimeUnit::Microsecond, zone)
            }
            kind if kind.is_decimal() => NUMERIC,
            other => other,
        };
        let name = field.metadata().get(TYPE_KEY);
        // A value may be longer than the column it is written to or compared with.
        let name = name.and_then(|name| names::without_size(name.clone()));
        Self { data_type, name }
    }

    fn text() -> Self {
        Self { data_type: DataType::Utf8, name: None }
    }
}

/// Types of the parameters `$1`, `$2`, … of a statement's plans. `original`: the statement as the client sent
/// it; `known`: types declared by the client.
///
/// Errors: a parameter name is not a valid number (42P02).
pub(crate) fn of(
    plans: &[&LogicalPlan],
    original: Option<&ast::Statement>,
    known: &[Option<DataType>],
) -> Result<Vec<Parameter>> {
    let mut inference = Inference::default();
    original.into_iter().for_each(|original| inference.in_casts(original));
    for plan in plans {
        inference.in_plan(plan)?;
    }
    let last = inference.planned.keys().next_back().copied().unwrap_or(0);
    let count = last.max(inference.types.keys().next_back().copied().unwrap_or(0)).max(known.len());
    Ok((1..=count)
        .map(|number| {
            if let Some(Some(data_type)) = known.get(number - 1) {
                return Parameter { data_type: data_type.clone(), name: None };
            }
            let planned = || inference.planned.get(&number).cloned().flatten();
            let found = inference.types.get(&number).cloned().or_else(planned);
            found.filter(|found| found.data_type != DataType::Null).unwrap_or_else(Parameter::text)
        })
        .collect())
}

/// Types inferred so far, by parameter number.
#[derive(Default)]
struct Inference {
    types: BTreeMap<usize, Parameter>,
    /// All parameters of the statement, with the planner's types.
    planned: BTreeMap<usize, Option<Parameter>>,
}

/// The number of a parameter name such as `$1`.
fn number_of(name: &str) -> Option<usize> {
    let number = name.strip_prefix('$')?.parse().ok()?;
    (1..=PARAMETERS_MAX).contains(&number).then_some(number)
}

impl Inference {
    fn infer(&mut self, id: &str, parameter: impl FnOnce() -> Parameter) {
        if let Some(number) = number_of(id) {
            self.types.entry(number).or_insert_with(parameter);
        }
    }

    /// Collects types from casts, whose PostgreSQL names plans do not keep, and from parameters of table
    /// functions in FROM, which plans do not contain.
    fn in_casts(&mut self, statement: &ast::Statement) {
        for (id, cast) in table_functions::parameters(statement) {
            if let Some(number) = number_of(&id) {
                let data_type = match cast {
                    Some(cast) => type_of_cast(&cast),
                    None => Some(DataType::Int32),
                };
                let parameter = data_type.map(|data_type| Parameter { data_type, name: None });
                self.planned.entry(number).or_insert(parameter);
            }
        }
        let _ = ast::visit_expressions(statement, |expr| {
            if let ast::Expr::Cast { expr, data_type, .. } = expr
                && let ast::Expr::Value(value) = without_parentheses(expr)
                && let ast::Value::Placeholder(id) = &value.value
                && let Some((data_type, name)) = cast_type(data_type)
            {
                self.infer(id, || Parameter { data_type, name: Some(name) });
            }
            ControlFlow::<()>::Continue(())
        });
    }

    fn in_plan(&mut self, plan: &LogicalPlan) -> Result<()> {
        if let LogicalPlan::Dml(dml) = plan
            && matches!(dml.op, WriteOp::Insert(_) | WriteOp::Update | WriteOp::MergeInto(_))
        {
            let fields = match source_as_provider(&dml.target) {
                Ok(table) => declared_fields(table.as_ref()),
                Err(_) => dml.target.schema().fields().iter().cloned().collect(),
            };
            match (&dml.op, inserted_rows(&dml.input)) {
                (_, Some(rows)) => self.in_rows(rows, &fields),
                (WriteOp::MergeInto(_), None) => {}
                (_, None) => self.in_rows(&dml.input, &fields),
            }
            if let WriteOp::MergeInto(merge) = &dml.op {
                self.in_merge(merge, &fields);
            }
        }
        plan.apply_with_subqueries(|node| {
            self.in_node(node)?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(())
    }

    /// Values that a MERGE sets and inserts.
    fn in_merge(&mut self, merge: &MergeIntoOp, fields: &[FieldRef]) {
        let wanted = |name: &str| fields.iter().find(|field| field.name() == name);
        let mut in_value = |value: &Expr, wanted: Option<&FieldRef>| {
            if let (Expr::Placeholder(placeholder), Some(wanted)) = (without_casts(value), wanted) {
                self.infer(&placeholder.id, || Parameter::of(wanted));
            }
        };
        for clause in &merge.clauses {
            match &clause.action {
                MergeIntoAction::Update(assignments) => {
                    assignments.iter().for_each(|(column, value)| in_value(value, wanted(column)));
                }
                MergeIntoAction::Insert { columns, values } if columns.is_empty() => {
                    values.iter().zip(fields).for_each(|(value, field)| in_value(value, Some(field)));
                }
                MergeIntoAction::Insert { columns, values } => {
                    columns.iter().zip(values).for_each(|(column, value)| in_value(value, wanted(column)));
                }
                MergeIntoAction::Delete => {}
            }
        }
    }

    /// Rows written to the columns `wanted`, through any nodes that the planner puts between.
    fn in_rows(&mut self, plan: &LogicalPlan, wanted: &[FieldRef]) {
        match plan {
            LogicalPlan::Projection(projection) => {
                let input = projection.input.schema();
                let mut below: Vec<Option<FieldRef>> = vec![None; input.fields().len()];
                for (expr, wanted) in projection.expr.iter().zip(wanted) {
                    match without_casts(expr) {
                        Expr::Placeholder(placeholder) => {
                            self.infer(&placeholder.id, || Parameter::of(wanted))
                        }
                        Expr::Column(column) => {
                            if let Some(at) = input.maybe_index_of_column(column) {
                                below[at] = Some(Arc::clone(wanted));
                            }
                        }
                        _ => {}
                    }
                }
                if below.iter().any(Option::is_some) {
                    let unknown = || Arc::new(Field::new("", DataType::Null, true));
                    let below: Vec<FieldRef> =
                        below.into_iter().map(|field| field.unwrap_or_else(unknown)).collect();
                    self.in_rows(&projection.input, &below);
                }
            }
            LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::Union(_)
            | LogicalPlan::Distinct(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Limit(_)
            | LogicalPlan::Filter(_) => {
                plan.inputs().into_iter().for_each(|input| self.in_rows(input, wanted));
            }
            _ => {}
        }
    }

    fn in_node(&mut self, node: &LogicalPlan) -> Result<()> {
        let schema = input_schema(node).unwrap_or_else(|_| DFSchema::empty());
        let schema = declared_schema(node, schema);
        if let LogicalPlan::Limit(limit) = node {
            let bigint = Arc::new(Field::new("", DataType::Int64, true));
            for expr in limit.skip.iter().chain(&limit.fetch) {
                self.in_expr(expr, Some(&bigint), &schema)?;
            }
            return Ok(());
        }
        if let LogicalPlan::Union(union) = node {
            // One input may determine the types of the other.
            let fields: Vec<FieldRef> = union.schema.fields().iter().cloned().collect();
            union.inputs.iter().for_each(|input| self.in_rows(input, &fields));
        }
        let wanted = match node {
            LogicalPlan::Filter(_) | LogicalPlan::Join(_) => {
                Some(Arc::new(Field::new("", DataType::Boolean, true)))
            }
            _ => None,
        };
        node.apply_expressions(|expr| {
            self.in_expr(expr, wanted.as_ref().filter(|_| !is_key(node, expr)), &schema)?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(())
    }

    /// `wanted`: the type required of the value.
    fn in_expr(&mut self, expr: &Expr, wanted: Option<&FieldRef>, schema: &DFSchema) -> Result<()> {
        match expr {
            Expr::Placeholder(placeholder) => {
                let Some(number) = number_of(&placeholder.id) else {
                    let message = format!("there is no parameter {}", placeholder.id);
                    return Err(SqlError::new(SqlState::UNDEFINED_PARAMETER, message).into_datafusion());
                };
                let planned = placeholder.field.as_ref().map(|field| Parameter::of(field));
                let entry = self.planned.entry(number).or_default();
                if entry.is_none() {
                    *entry = planned;
                }
                if let Some(wanted) = wanted.filter(|wanted| !wanted.data_type().is_null()) {
                    self.infer(&placeholder.id, || Parameter::of(wanted));
                }
                return Ok(());
            }
            Expr::Alias(alias) => return self.in_expr(&alias.expr, wanted, schema),
            Expr::Negative(inner) => return self.in_expr(inner, wanted, schema),
            Expr::Cast(cast) => {
                let sent = client_type(&cast.field);
                return self.in_expr(&cast.expr, for_parameter(&cast.expr, &sent), schema);
            }
            Expr::TryCast(cast) => {
                let sent = client_type(&cast.field);
                return self.in_expr(&cast.expr, for_parameter(&cast.expr, &sent), schema);
            }
            Expr::Not(inner)
            | Expr::IsTrue(inner)
            | Expr::IsFalse(inner)
            | Expr::IsUnknown(inner)
            | Expr::IsNotTrue(inner)
            | Expr::IsNotFalse(inner)
            | Expr::IsNotUnknown(inner) => {
                return self.in_expr(inner, Some(&field(DataType::Boolean)), schema);
            }
            Expr::BinaryExpr(binary) => return self.in_binary(binary, schema),
            Expr::Between(between) => {
                let sides = [between.expr.as_ref(), &between.low, &between.high];
                return self.infer_common(&sides, None, schema);
            }
            Expr::InList(InList { expr, list, .. }) => {
                let sides: Vec<&Expr> = std::iter::once(expr.as_ref()).chain(list).collect();
                return self.infer_common(&sides, None, schema);
            }
            Expr::Like(Like { expr, pattern, .. }) | Expr::SimilarTo(Like { expr, pattern, .. }) => {
                return self.infer_common(&[expr.as_ref(), pattern], Some(&field(DataType::Utf8)), schema);
            }
            Expr::InSubquery(query) => {
                let other = query.subquery.subquery.schema().fields().first().cloned();
                return self.in_expr(&query.expr, other.as_ref(), schema);
            }
            Expr::SetComparison(comparison) => {
                let other = comparison.subquery.subquery.schema().fields().first().cloned();
                return self.in_expr(&comparison.expr, other.as_ref(), schema);
            }
            Expr::Case(case) => return self.in_case(case, wanted, schema),
            Expr::ScalarFunction(function) => return self.in_function(function, wanted, schema),
            Expr::AggregateFunction(AggregateFunction { func, params }) => {
                let types = function_arguments(func.name());
                for (at, argument) in params.args.iter().enumerate() {
                    self.in_expr(argument, types.get(at).map(|kind| field(kind.clone())).as_ref(), schema)?;
                }
                if let Some(filter) = &params.filter {
                    self.in_expr(filter, Some(&field(DataType::Boolean)), schema)?;
                }
                return params.order_by.iter().try_for_each(|by| self.in_expr(&by.expr, None, schema));
            }
            Expr::WindowFunction(function) => return self.in_window(function, schema),
            _ => {}
        }
        let mut done = Ok(());
        expr.apply_children(|child| {
            done = self.in_expr(child, None, schema);
            Ok(if done.is_ok() { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
        })?;
        done
    }

    /// Expressions of a common type: that of the first typed one, or `otherwise`.
    fn infer_common(
        &mut self,
        sides: &[&Expr],
        otherwise: Option<&FieldRef>,
        schema: &DFSchema,
    ) -> Result<()> {
        let common = sides.iter().find_map(|side| own_type(side, schema));
        let common = common.as_ref().or(otherwise);
        sides.iter().try_for_each(|side| self.in_expr(side, common, schema))
    }

    fn in_binary(&mut self, binary: &BinaryExpr, schema: &DFSchema) -> Result<()> {
        let BinaryExpr { left, op, right } = binary;
        if matches!(op, Operator::And | Operator::Or) {
            let boolean = field(DataType::Boolean);
            self.in_expr(left, Some(&boolean), schema)?;
            return self.in_expr(right, Some(&boolean), schema);
        }
        // `x < ANY ($1)` is planned as a comparison with the minimum or maximum of the array.
        for (side, other) in [(left, right), (right, left)] {
            if let Expr::ScalarFunction(function) = side.as_ref()
                && matches!(function.name(), "array_min" | "array_max")
                && let [Expr::Placeholder(placeholder)] = function.args.as_slice()
                && let Some(item) = own_type(other, schema)
            {
                self.infer(&placeholder.id, || array_of(&item));
            }
        }
        let (of_left, of_right) = (own_type(left, schema), own_type(right, schema));
        let wanted = |other: &Option<FieldRef>| match other {
            Some(other) => Some(operand_type(*op, other)),
            None => match op {
                Operator::StringConcat | Operator::Eq | Operator::NotEq => Some(field(DataType::Utf8)),
                _ => None,
            },
        };
        self.in_expr(left, wanted(&of_right).as_ref(), schema)?;
        self.in_expr(right, wanted(&of_left).as_ref(), schema)
    }

    fn in_case(&mut self, case: &Case, wanted: Option<&FieldRef>, schema: &DFSchema) -> Result<()> {
        let whens: Vec<&Expr> = case.when_then_expr.iter().map(|(when, _)| when.as_ref()).collect();
        match &case.expr {
            Some(base) => {
                let sides: Vec<&Expr> = std::iter::once(base.as_ref()).chain(whens).collect();
                self.infer_common(&sides, Some(&field(DataType::Utf8)), schema)?;
            }
            None => {
                let boolean = field(DataType::Boolean);
                whens.iter().try_for_each(|when| self.in_expr(when, Some(&boolean), schema))?;
            }
        }
        let results = case.when_then_expr.iter().map(|(_, then)| then.as_ref());
        let results: Vec<&Expr> = results.chain(case.else_expr.as_deref()).collect();
        self.infer_common(&results, wanted, schema)
    }

    fn in_function(
        &mut self,
        function: &ScalarFunction,
        wanted: Option<&FieldRef>,
        schema: &DFSchema,
    ) -> Result<()> {
        let arguments = &function.args;
        match (function.name(), arguments.as_slice()) {
            ("coalesce" | "nvl" | "ifnull" | "greatest" | "least" | "nullif" | "mod" | "gcd" | "lcm", _) => {
                let sides: Vec<&Expr> = arguments.iter().collect();
                return self.infer_common(&sides, wanted, schema);
            }
            ("make_array", _) => {
                let sides: Vec<&Expr> = arguments.iter().collect();
                return self.infer_common(&sides, None, schema);
            }
            // `x = ANY (array)`.
            ("array_has", [array, item]) => {
                if let (Expr::Placeholder(placeholder), Some(item)) = (array, own_type(item, schema)) {
                    self.infer(&placeholder.id, || array_of(&item));
                }
                let item_of = own_type(array, schema).and_then(|array| match array.data_type() {
                    DataType::List(item) => Some(Arc::clone(item)),
                    _ => None,
                });
                let texts = field(DataType::new_list(DataType::Utf8, true));
                self.in_expr(array, Some(&texts), schema)?;
                return self.in_expr(item, item_of.as_ref(), schema);
            }
            _ => {}
        }
        let types = match (function.name(), arguments.len()) {
            (name, 2) if name.contains("_advisory_") => &[DataType::Int32, DataType::Int32],
            (name, _) => function_arguments(name),
        };
        for (at, argument) in arguments.iter().enumerate() {
            let kind = types.get(at).map(|kind| field(kind.clone()));
            self.in_expr(argument, kind.as_ref(), schema)?;
        }
        Ok(())
    }

    fn in_window(&mut self, function: &WindowFunction, schema: &DFSchema) -> Result<()> {
        let params = &function.params;
        let first = params.args.first().and_then(|first| own_type(first, schema));
        for (at, argument) in params.args.iter().enumerate() {
            let wanted = match (function.fun.name(), at) {
                ("ntile", 0) | ("lag" | "lead" | "nth_value", 1) => Some(field(DataType::Int32)),
                ("lag" | "lead", 2) => first.clone(),
                _ => None,
            };
            self.in_expr(argument, wanted.as_ref(), schema)?;
        }
        params.partition_by.iter().try_for_each(|by| self.in_expr(by, None, schema))?;
        params.order_by.iter().try_for_each(|by| self.in_expr(&by.expr, None, schema))
    }
}

/// Types parameters beside an operator before the planner gives them the type of the other side.
#[derive(Debug)]
pub(crate) struct TypedParameters;

impl ExprPlanner for TypedParameters {
    fn plan_binary_op(
        &self,
        mut expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let op = match expr.op {
            ast::BinaryOperator::Plus => Operator::Plus,
            ast::BinaryOperator::Minus => Operator::Minus,
            ast::BinaryOperator::Multiply => Operator::Multiply,
            ast::BinaryOperator::Divide => Operator::Divide,
            ast::BinaryOperator::StringConcat => Operator::StringConcat,
            _ => return Ok(PlannerResult::Original(expr)),
        };
        // The type of the other side is expensive in long chains: compute it only for parameters.
        let set_type = |side: &mut Expr, other: &Expr| {
            if let Expr::Placeholder(placeholder) = side
                && placeholder.field.is_none()
            {
                placeholder.field = match own_type(other, schema) {
                    Some(other) => Some(operand_type(op, &other)),
                    None => (op == Operator::StringConcat).then(|| field(DataType::Utf8)),
                };
            }
        };
        set_type(&mut expr.left, &expr.right);
        set_type(&mut expr.right, &expr.left);
        Ok(PlannerResult::Original(expr))
    }
}

fn field(data_type: DataType) -> FieldRef {
    Arc::new(Field::new("", data_type, true))
}

/// Whether an expression is an equi-join key; keys may have any type.
fn is_key(node: &LogicalPlan, expr: &Expr) -> bool {
    match node {
        LogicalPlan::Join(join) => join.on.iter().any(|(left, right)| left == expr || right == expr),
        _ => false,
    }
}

/// Type that an expression has by itself, without context.
fn own_type(expr: &Expr, schema: &DFSchema) -> Option<FieldRef> {
    if let Expr::Placeholder(_) | Expr::Negative(_) = expr
        && is_open(expr)
    {
        return None;
    }
    // PostgreSQL types integer literals that fit as four bytes.
    if let Expr::Literal(ScalarValue::Int64(Some(number)), _) = expr
        && i32::try_from(*number).is_ok()
    {
        return Some(field(DataType::Int32));
    }
    let found = expr.to_field(schema).ok().map(|(_, field)| field);
    found.filter(|field| !field.data_type().is_null())
}

/// Whether the type depends on a parameter alone.
fn is_open(expr: &Expr) -> bool {
    match expr {
        Expr::Placeholder(_) => true,
        Expr::Negative(inner) => is_open(inner),
        _ => false,
    }
}

/// `sent` if `inner` is a parameter, otherwise nothing.
fn for_parameter<'f>(inner: &Expr, sent: &'f FieldRef) -> Option<&'f FieldRef> {
    matches!(inner, Expr::Placeholder(_)).then_some(sent)
}

/// Type that a client sends for a parameter below a cast: at full precision; the cast rounds it.
fn client_type(cast: &Field) -> FieldRef {
    let data_type = match plain_type(cast.data_type().clone()) {
        kind if kind.is_decimal() => NUMERIC,
        DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone),
        DataType::Time32(_) | DataType::Time64(_) => DataType::Time64(TimeUnit::Microsecond),
        other => other,
    };
    Arc::new(Field::new("", data_type, true).with_metadata(cast.metadata().clone()))
}

/// Type of a parameter opposite an operand of type `other`.
fn operand_type(op: Operator, other: &FieldRef) -> FieldRef {
    const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);
    let kind = other.data_type();
    field(match (op, kind) {
        (Operator::Plus, DataType::Date32) => DataType::Int32,
        (Operator::Plus, DataType::Timestamp(..) | DataType::Time64(_)) => INTERVAL,
        (Operator::Multiply | Operator::Divide, DataType::Interval(_)) => DataType::Float64,
        (Operator::StringConcat, _) if !matches!(kind, DataType::List(_)) => DataType::Utf8,
        (
            Operator::LikeMatch
            | Operator::ILikeMatch
            | Operator::NotLikeMatch
            | Operator::NotILikeMatch
            | Operator::RegexMatch
            | Operator::RegexIMatch
            | Operator::RegexNotMatch
            | Operator::RegexNotIMatch,
            _,
        ) => DataType::Utf8,
        (Operator::BitwiseShiftLeft | Operator::BitwiseShiftRight, _) => DataType::Int32,
        (_, kind) if kind.is_decimal() => NUMERIC,
        _ => return Arc::clone(other),
    })
}

/// Array of `item`, for the array side of a comparison.
fn array_of(item: &Field) -> Parameter {
    let item = Parameter::of(item);
    let data_type = DataType::List(Arc::new(Field::new_list_field(item.data_type, true)));
    Parameter { data_type, name: item.name.map(|name| format!("_{name}")) }
}

fn without_casts(expr: &Expr) -> &Expr {
    match expr {
        Expr::Cast(cast) if !matches!(*cast.expr, Expr::Placeholder(_)) => without_casts(&cast.expr),
        // Cast inserted by the planner to the column's type; explicit casts were collected before.
        Expr::Cast(cast) => &cast.expr,
        Expr::Alias(alias) => without_casts(&alias.expr),
        other => other,
    }
}

/// Types that `generate_series` takes as bounds.
fn type_of_cast(data_type: &ast::DataType) -> Option<DataType> {
    use ast::DataType as Sql;
    Some(match data_type {
        Sql::SmallInt(_) | Sql::Int2(_) => DataType::Int16,
        Sql::Int(_) | Sql::Integer(_) | Sql::Int4(_) => DataType::Int32,
        Sql::BigInt(_) | Sql::Int8(_) => DataType::Int64,
        Sql::Date => DataType::Date32,
        Sql::Timestamp(_, ast::TimezoneInfo::None | ast::TimezoneInfo::WithoutTimeZone) => {
            DataType::Timestamp(TimeUnit::Microsecond, None)
        }
        Sql::Timestamp(..) => DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into())),
        Sql::Interval { .. } => DataType::Interval(IntervalUnit::MonthDayNano),
        Sql::Text | Sql::Varchar(_) => DataType::Utf8,
        _ => return None,
    })
}

fn without_parentheses(expr: &ast::Expr) -> &ast::Expr {
    match expr {
        ast::Expr::Nested(inner) => without_parentheses(inner),
        other => other,
    }
}

/// Argument types of a function that PostgreSQL fixes even if all arguments are untyped.
fn function_arguments(name: &str) -> &'static [DataType] {
    use DataType::{Boolean, Float64, Int32, Int64, Utf8};
    const MOMENT: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);
    match name {
        "lower" | "upper" | "initcap" | "length" | "char_length" | "character_length" | "octet_length"
        | "bit_length" | "reverse" | "ascii" | "md5" | "quote_ident" | "quote_literal" | "btrim"
        | "ltrim" | "rtrim" | "trim" | "starts_with" | "strpos" | "position" | "replace" | "translate"
        | "regexp_replace" | "regexp_match" | "regexp_like" | "regexp_count" | "concat_ws"
        | "string_to_array" | "current_setting" | "to_regclass" | "to_regtype" | "to_regproc"
        | "to_regnamespace" | "pg_any_text" | "harrier_pattern" => &[Utf8, Utf8, Utf8, Utf8],
        "substr" | "substring" => &[Utf8, Int32, Int32],
        "left" | "right" | "repeat" => &[Utf8, Int32],
        "lpad" | "rpad" => &[Utf8, Int32, Utf8],
        "split_part" => &[Utf8, Utf8, Int32],
        "chr" => &[Int32],
        "set_config" => &[Utf8, Utf8, Boolean],
        "round" | "trunc" => &[Float64, Int32],
        "abs" | "ceil" | "floor" | "signum" | "sqrt" | "cbrt" | "exp" | "ln" | "log" | "log10" | "power"
        | "pow" | "sin" | "cos" | "tan" | "asin" | "acos" | "atan" | "degrees" | "radians" | "pg_sleep" => {
            &[Float64, Float64]
        }
        "to_timestamp" => &[Float64],
        "date_trunc" | "date_part" => &[Utf8, MOMENT],
        "make_date" => &[Int32, Int32, Int32],
        "array_to_string" => &[DataType::Null, Utf8, Utf8],
        "pg_advisory_lock"
        | "pg_advisory_lock_shared"
        | "pg_advisory_xact_lock"
        | "pg_advisory_xact_lock_shared"
        | "pg_try_advisory_lock"
        | "pg_try_advisory_lock_shared"
        | "pg_try_advisory_xact_lock"
        | "pg_try_advisory_xact_lock_shared"
        | "pg_advisory_unlock"
        | "pg_advisory_unlock_shared"
        | "pg_size_pretty" => &[Int64],
        "to_char" | "harrier_to_char" => &[DataType::Null, Utf8],
        "string_agg" => &[Utf8, Utf8],
        "bool_and" | "bool_or" => &[Boolean],
        "pg_cancel_backend" | "pg_terminate_backend" => &[Int32],
        "to_date" | "harrier_to_date" | "harrier_to_timestamp" | "harrier_to_number" => &[Utf8, Utf8],
        _ => &[],
    }
}

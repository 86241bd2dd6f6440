//! Of which types the parameters of a statement are, as PostgreSQL tells them: by what a parameter is cast
//! to, compared or put together with, by the function or clause that it is an argument of, by the column that
//! it goes into. What nothing tells is text.
//!
//! The first place that says a type is right, as in PostgreSQL; what a client has said of a parameter comes
//! before all.

use crate::types::names;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef, IntervalUnit, TimeUnit};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::datasource::source_as_provider;
use datafusion::error::Result;
use datafusion::logical_expr::expr::{
    AggregateFunction, BinaryExpr, Case, InList, Like, ScalarFunction, WindowFunction,
};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Operator, WriteOp};
use datafusion::sql::sqlparser::ast;
use harrier_error::{SqlError, SqlState};
use harrier_pgcatalog::{TYPE_KEY, cast_type};
use harrier_sqlstate::IntoDataFusionError;

use crate::binder::declared_types::{told_fields, told_schema};
use crate::types::names::plain_type;
use harrier_planner::binder::table_functions;
use harrier_planner::rewrite::input_schema;

/// Parameters of a statement, at most, as in PostgreSQL's protocol.
const PARAMETERS_MAX: usize = 65_535;

/// A number of as many digits as it has.
const NUMERIC: DataType = DataType::Decimal128(38, 10);

/// What is known of a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parameter {
    pub data_type: DataType,
    /// PostgreSQL's name of the type, where the Arrow type does not say it.
    pub name: Option<String>,
}

impl Parameter {
    fn of(field: &Field) -> Self {
        let data_type = match plain_type(field.data_type().clone()) {
            // What has more digits than the column is rounded as it is written.
            DataType::Timestamp(TimeUnit::Second | TimeUnit::Millisecond, zone) => {
                DataType::Timestamp(TimeUnit::Microsecond, zone)
            }
            kind if kind.is_decimal() => NUMERIC,
            other => other,
        };
        let name = field.metadata().get(TYPE_KEY);
        // A value may be longer than what it is put into or compared with.
        let name = name.and_then(|name| names::without_size(name.clone()));
        Self { data_type, name }
    }

    fn text() -> Self {
        Self { data_type: DataType::Utf8, name: None }
    }
}

/// The parameters `$1`, `$2`, … of the plans of a statement. `asked`: the statement as it was sent; `known`:
/// what a client says of them.
///
/// Errors: there is no parameter of a name (42P02).
pub(crate) fn of(
    plans: &[&LogicalPlan],
    asked: Option<&ast::Statement>,
    known: &[Option<DataType>],
) -> Result<Vec<Parameter>> {
    let mut found = Found::default();
    asked.into_iter().for_each(|asked| found.in_casts(asked));
    for plan in plans {
        found.in_plan(plan)?;
    }
    let last = found.planned.keys().next_back().copied().unwrap_or(0);
    let count = last.max(found.said.keys().next_back().copied().unwrap_or(0)).max(known.len());
    Ok((1..=count)
        .map(|number| {
            if let Some(Some(data_type)) = known.get(number - 1) {
                return Parameter { data_type: data_type.clone(), name: None };
            }
            let planned = || found.planned.get(&number).cloned().flatten();
            let said = found.said.get(&number).cloned().or_else(planned);
            said.filter(|said| said.data_type != DataType::Null).unwrap_or_else(Parameter::text)
        })
        .collect())
}

/// What was found out so far, by the numbers of parameters.
#[derive(Default)]
struct Found {
    said: BTreeMap<usize, Parameter>,
    /// All that there are, with what the planner says of them.
    planned: BTreeMap<usize, Option<Parameter>>,
}

/// The number of a parameter by its name.
fn number_of(name: &str) -> Option<usize> {
    let number = name.strip_prefix('$')?.parse().ok()?;
    (1..=PARAMETERS_MAX).contains(&number).then_some(number)
}

impl Found {
    fn say(&mut self, id: &str, parameter: impl FnOnce() -> Parameter) {
        if let Some(number) = number_of(id) {
            self.said.entry(number).or_insert_with(parameter);
        }
    }

    /// What casts say, which plans do not know by PostgreSQL's names. And parameters of functions in FROM,
    /// which plans have not at all.
    fn in_casts(&mut self, statement: &ast::Statement) {
        for (id, cast) in table_functions::parameters(statement) {
            if let Some(number) = number_of(&id) {
                let data_type = match cast {
                    Some(cast) => type_of_cast(&cast),
                    None => Some(DataType::Int32),
                };
                let told = data_type.map(|data_type| Parameter { data_type, name: None });
                self.planned.entry(number).or_insert(told);
            }
        }
        let _ = ast::visit_expressions(statement, |expr| {
            if let ast::Expr::Cast { expr, data_type, .. } = expr
                && let ast::Expr::Value(value) = without_parentheses(expr)
                && let ast::Value::Placeholder(id) = &value.value
                && let Some((data_type, name)) = cast_type(data_type)
            {
                self.say(id, || Parameter { data_type, name: Some(name) });
            }
            ControlFlow::<()>::Continue(())
        });
    }

    fn in_plan(&mut self, plan: &LogicalPlan) -> Result<()> {
        if let LogicalPlan::Dml(dml) = plan
            && matches!(dml.op, WriteOp::Insert(_) | WriteOp::Update)
        {
            let fields = match source_as_provider(&dml.target) {
                Ok(table) => told_fields(table.as_ref()),
                Err(_) => dml.target.schema().fields().iter().cloned().collect(),
            };
            self.in_rows(&dml.input, &fields);
        }
        plan.apply_with_subqueries(|node| {
            self.in_node(node)?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(())
    }

    /// Rows whose columns go into others, whatever the planner has put between them.
    fn in_rows(&mut self, plan: &LogicalPlan, wanted: &[FieldRef]) {
        match plan {
            LogicalPlan::Projection(projection) => {
                let input = projection.input.schema();
                let mut below: Vec<Option<FieldRef>> = vec![None; input.fields().len()];
                for (expr, wanted) in projection.expr.iter().zip(wanted) {
                    match without_casts(expr) {
                        Expr::Placeholder(placeholder) => self.say(&placeholder.id, || Parameter::of(wanted)),
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
        let schema = told_schema(node, schema);
        if let LogicalPlan::Limit(limit) = node {
            let bigint = Arc::new(Field::new("", DataType::Int64, true));
            for expr in limit.skip.iter().chain(&limit.fetch) {
                self.in_expr(expr, Some(&bigint), &schema)?;
            }
            return Ok(());
        }
        if let LogicalPlan::Union(union) = node {
            // What one side does not say the other does.
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

    /// `wanted`: what the value has to be.
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
                    self.say(&placeholder.id, || Parameter::of(wanted));
                }
                return Ok(());
            }
            Expr::Alias(alias) => return self.in_expr(&alias.expr, wanted, schema),
            Expr::Negative(inner) => return self.in_expr(inner, wanted, schema),
            Expr::Cast(cast) => {
                let sent = sent_as(&cast.field);
                return self.in_expr(&cast.expr, only_for(&cast.expr, &sent), schema);
            }
            Expr::TryCast(cast) => {
                let sent = sent_as(&cast.field);
                return self.in_expr(&cast.expr, only_for(&cast.expr, &sent), schema);
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
                return self.alike(&sides, None, schema);
            }
            Expr::InList(InList { expr, list, .. }) => {
                let sides: Vec<&Expr> = std::iter::once(expr.as_ref()).chain(list).collect();
                return self.alike(&sides, None, schema);
            }
            Expr::Like(Like { expr, pattern, .. }) | Expr::SimilarTo(Like { expr, pattern, .. }) => {
                return self.alike(&[expr.as_ref(), pattern], Some(&field(DataType::Utf8)), schema);
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

    /// Expressions that have one type, that of the first which says one; `otherwise` where none does.
    fn alike(&mut self, sides: &[&Expr], otherwise: Option<&FieldRef>, schema: &DFSchema) -> Result<()> {
        let told = sides.iter().find_map(|side| told(side, schema));
        let told = told.as_ref().or(otherwise);
        sides.iter().try_for_each(|side| self.in_expr(side, told, schema))
    }

    fn in_binary(&mut self, binary: &BinaryExpr, schema: &DFSchema) -> Result<()> {
        let BinaryExpr { left, op, right } = binary;
        if matches!(op, Operator::And | Operator::Or) {
            let boolean = field(DataType::Boolean);
            self.in_expr(left, Some(&boolean), schema)?;
            return self.in_expr(right, Some(&boolean), schema);
        }
        // `x < ANY ($1)` is planned as a comparison with the least or the largest of the array.
        for (side, other) in [(left, right), (right, left)] {
            if let Expr::ScalarFunction(function) = side.as_ref()
                && matches!(function.name(), "array_min" | "array_max")
                && let [Expr::Placeholder(placeholder)] = function.args.as_slice()
                && let Some(item) = told(other, schema)
            {
                self.say(&placeholder.id, || array_of(&item));
            }
        }
        let (of_left, of_right) = (told(left, schema), told(right, schema));
        let wanted = |other: &Option<FieldRef>| match other {
            Some(other) => Some(beside(*op, other)),
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
                self.alike(&sides, Some(&field(DataType::Utf8)), schema)?;
            }
            None => {
                let boolean = field(DataType::Boolean);
                whens.iter().try_for_each(|when| self.in_expr(when, Some(&boolean), schema))?;
            }
        }
        let results = case.when_then_expr.iter().map(|(_, then)| then.as_ref());
        let results: Vec<&Expr> = results.chain(case.else_expr.as_deref()).collect();
        self.alike(&results, wanted, schema)
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
                return self.alike(&sides, wanted, schema);
            }
            ("make_array", _) => {
                let sides: Vec<&Expr> = arguments.iter().collect();
                return self.alike(&sides, None, schema);
            }
            // `x = ANY (array)`.
            ("array_has", [array, item]) => {
                if let (Expr::Placeholder(placeholder), Some(item)) = (array, told(item, schema)) {
                    self.say(&placeholder.id, || array_of(&item));
                }
                let item_of = told(array, schema).and_then(|array| match array.data_type() {
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
        let first = params.args.first().and_then(|first| told(first, schema));
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

/// Says of parameters beside an operator what they are, before the planner takes them for what the other side
/// is.
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
        // What the other side is, which takes a while to find out in long chains, is asked only where that
        // matters.
        let say = |side: &mut Expr, other: &Expr| {
            if let Expr::Placeholder(placeholder) = side
                && placeholder.field.is_none()
            {
                placeholder.field = match told(other, schema) {
                    Some(other) => Some(beside(op, &other)),
                    None => (op == Operator::StringConcat).then(|| field(DataType::Utf8)),
                };
            }
        };
        say(&mut expr.left, &expr.right);
        say(&mut expr.right, &expr.left);
        Ok(PlannerResult::Original(expr))
    }
}

fn field(data_type: DataType) -> FieldRef {
    Arc::new(Field::new("", data_type, true))
}

/// Whether an expression of a join is one of its keys, which are values of any type.
fn is_key(node: &LogicalPlan, expr: &Expr) -> bool {
    match node {
        LogicalPlan::Join(join) => join.on.iter().any(|(left, right)| left == expr || right == expr),
        _ => false,
    }
}

/// What an expression says of its type by itself.
fn told(expr: &Expr, schema: &DFSchema) -> Option<FieldRef> {
    if let Expr::Placeholder(_) | Expr::Negative(_) = expr
        && is_open(expr)
    {
        return None;
    }
    // A whole number is one of four bytes, if it is no larger.
    if let Expr::Literal(ScalarValue::Int64(Some(number)), _) = expr
        && i32::try_from(*number).is_ok()
    {
        return Some(field(DataType::Int32));
    }
    let found = expr.to_field(schema).ok().map(|(_, field)| field);
    found.filter(|field| !field.data_type().is_null())
}

/// Whether nothing but a parameter says what an expression is.
fn is_open(expr: &Expr) -> bool {
    match expr {
        Expr::Placeholder(_) => true,
        Expr::Negative(inner) => is_open(inner),
        _ => false,
    }
}

/// The type of the cast for a parameter below it, and nothing for others.
fn only_for<'f>(inner: &Expr, sent: &'f FieldRef) -> Option<&'f FieldRef> {
    matches!(inner, Expr::Placeholder(_)).then_some(sent)
}

/// What a client sends for a value that is cast to a type: all that the value has, of which the cast takes
/// what fits.
fn sent_as(cast: &Field) -> FieldRef {
    let data_type = match plain_type(cast.data_type().clone()) {
        kind if kind.is_decimal() => NUMERIC,
        DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone),
        DataType::Time32(_) | DataType::Time64(_) => DataType::Time64(TimeUnit::Microsecond),
        other => other,
    };
    Arc::new(Field::new("", data_type, true).with_metadata(cast.metadata().clone()))
}

/// The type of a parameter on the other side of an operator.
fn beside(op: Operator, other: &FieldRef) -> FieldRef {
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

/// An array of values as the other side of a comparison has them.
fn array_of(item: &Field) -> Parameter {
    let item = Parameter::of(item);
    let data_type = DataType::List(Arc::new(Field::new_list_field(item.data_type, true)));
    Parameter { data_type, name: item.name.map(|name| format!("_{name}")) }
}

fn without_casts(expr: &Expr) -> &Expr {
    match expr {
        Expr::Cast(cast) if !matches!(*cast.expr, Expr::Placeholder(_)) => without_casts(&cast.expr),
        // The planner's own, to the type of the column: what a statement says itself was found before.
        Expr::Cast(cast) => &cast.expr,
        Expr::Alias(alias) => without_casts(&alias.expr),
        other => other,
    }
}

/// Types that bounds of series are of.
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

/// The types of a function's arguments, where PostgreSQL tells them of one whose arguments say nothing
/// themselves.
fn function_arguments(name: &str) -> &'static [DataType] {
    use DataType::{Boolean, Float64, Int32, Int64, Utf8};
    const MOMENT: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);
    match name {
        "lower" | "upper" | "initcap" | "length" | "char_length" | "character_length" | "octet_length"
        | "bit_length" | "reverse" | "ascii" | "md5" | "quote_ident" | "quote_literal" | "btrim"
        | "ltrim" | "rtrim" | "trim" | "starts_with" | "strpos" | "position" | "replace" | "translate"
        | "regexp_replace" | "regexp_match" | "regexp_like" | "regexp_count" | "concat_ws"
        | "string_to_array" | "current_setting" | "to_regclass" | "to_regtype" | "to_regproc"
        | "to_regnamespace" | "pg_any_text" => &[Utf8, Utf8, Utf8, Utf8],
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

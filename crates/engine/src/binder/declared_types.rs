//! Declared column types: `varchar(n)`, `char(n)`, `uuid`, `time(n)`. Arrow types have no lengths: a
//! warehouse column carries its declared type in field metadata, casts become functions that truncate, and
//! writes check the values (`docs/decisions/0038-declared-types.md`).

use crate::types::declared::UUID_ARRAY;
use crate::types::declared::of_field;
use crate::types::declared::with_declared_type;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column as ColumnName, DFSchema, ScalarValue, ToDFSchema};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Cast, TryCast};
use datafusion::logical_expr::{
    DdlStatement, EmptyRelation, Expr, ExprSchemable, LogicalPlan, Projection, Union, lit,
};
use datafusion::optimizer::AnalyzerRule;
use harrier_functions::cast::declared_type::{
    DeclaredType, cast_to_declared, pad_for_display, try_cast_to_declared,
};
use harrier_pgcatalog::{TYPE_KEY, named_field};

use crate::binder::type_names;
use crate::planning::unknown_literals::with_column;
use crate::warehouse::table::WarehouseTable;
use harrier_planner::rewrite::{input_schema, map_comparison_sides, rewrite_expressions};

/// The columns of a table, with their declared types in the field metadata.
pub(crate) fn declared_fields(table: &dyn TableProvider) -> Vec<FieldRef> {
    let own = table.downcast_ref::<WarehouseTable>().map(|own| own.table());
    let with_type = |(at, field): (usize, &FieldRef)| match own.and_then(|own| own.columns.get(at)) {
        Some(column) => Arc::new(with_declared_type(Field::clone(field), column)),
        None => Arc::clone(field),
    };
    table.schema().fields().iter().enumerate().map(with_type).collect()
}

/// Adds the declared types to `schema`, the input columns of a node's expressions.
pub(crate) fn declared_schema(node: &LogicalPlan, schema: DFSchema) -> DFSchema {
    let names: Vec<Option<String>> = node.inputs().into_iter().flat_map(type_names::of).collect();
    if names.len() != schema.fields().len() || names.iter().all(Option::is_none) {
        return schema;
    }
    let fields = schema.iter().zip(names).map(|((table, field), name)| {
        let field = match name {
            Some(name) => Arc::new(named_field(Field::clone(field), &name)),
            None => Arc::clone(field),
        };
        (table.cloned(), field)
    });
    DFSchema::new_with_metadata(fields.collect(), schema.metadata().clone()).unwrap_or(schema)
}

/// Removes declared types from a plan that creates a temporary or external table: these do not store lengths.
pub(crate) fn strip_from_ddl(plan: LogicalPlan) -> Result<LogicalPlan> {
    let LogicalPlan::Ddl(ddl) = plan else { return Ok(plan) };
    Ok(LogicalPlan::Ddl(match ddl {
        DdlStatement::CreateMemoryTable(mut create) => {
            create.input = Arc::new(strip_from_input(Arc::unwrap_or_clone(create.input))?);
            DdlStatement::CreateMemoryTable(create)
        }
        DdlStatement::CreateExternalTable(mut create) => {
            if has_declared_type(create.schema.inner()) {
                create.schema = Arc::new(plain(create.schema.inner()).to_dfschema()?);
            }
            DdlStatement::CreateExternalTable(create)
        }
        other => other,
    }))
}

/// Removes declared types from the columns of a table that is created without rows.
pub(crate) fn strip_from_input(plan: LogicalPlan) -> Result<LogicalPlan> {
    Ok(match plan {
        LogicalPlan::EmptyRelation(empty) if has_declared_type(empty.schema.inner()) => {
            let schema = Arc::new(plain(empty.schema.inner()).to_dfschema()?);
            LogicalPlan::EmptyRelation(EmptyRelation { schema, ..empty })
        }
        other => other,
    })
}

fn has_declared_type(schema: &Schema) -> bool {
    schema.fields().iter().any(|field| of_field(field).is_some())
}

fn plain(schema: &SchemaRef) -> SchemaRef {
    let plain = |field: &FieldRef| match of_field(field) {
        Some(_) => {
            let mut metadata = field.metadata().clone();
            metadata.remove(TYPE_KEY);
            Arc::new(Field::clone(field).with_metadata(metadata))
        }
        None => Arc::clone(field),
    };
    Arc::new(Schema::new(schema.fields().iter().map(plain).collect::<Vec<_>>()))
}

/// Analyzer rule: casts to declared types truncate and round, and literals beside a `char(n)` or a UUID are
/// normalized to it. Must run before type coercion.
#[derive(Debug)]
pub(crate) struct DeclaredTypes;

impl AnalyzerRule for DeclaredTypes {
    fn name(&self) -> &str {
        "declared_types"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(rewrite_node)?.data)
    }
}

/// Applies the rule to one node.
///
/// Errors: a literal beside a UUID is not a valid one (22P02).
pub(crate) fn rewrite_node(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let plan = match plan {
        LogicalPlan::Union(union) => return normalize_union(union),
        other => other,
    };
    rewrite_expressions_of(plan)
}

/// Writes literals beside UUIDs in the columns of a UNION as UUIDs.
fn normalize_union(mut union: Union) -> Result<Transformed<LogicalPlan>> {
    let names: Vec<Vec<Option<String>>> = union.inputs.iter().map(|input| type_names::of(input)).collect();
    let is_uuid = |name: Option<&Option<String>>| {
        let declared = name.and_then(|name| name.as_ref()?.parse().ok());
        matches!(declared, Some(DeclaredType::Uuid))
    };
    let mut is_changed = false;
    for at in 0..union.schema.fields().len() {
        if !names.iter().any(|names| is_uuid(names.get(at))) {
            continue;
        }
        for input in &mut union.inputs {
            if let Some(changed) =
                with_column(input, at, &|literal| normalize_literal(literal, DeclaredType::Uuid))?
            {
                *input = Arc::new(changed);
                is_changed = true;
            }
        }
    }
    Ok(Transformed::new_transformed(LogicalPlan::Union(union), is_changed))
}

fn rewrite_expressions_of(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let mut has_texts = false;
    let mut has_casts = false;
    let mut asks = false;
    plan.apply_expressions(|expr| {
        expr.apply(|part| {
            has_texts |= literal_text(part).is_some();
            has_casts |= cast_of(part).is_some();
            asks |= pg_typeof_argument(part).is_some();
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    if !has_texts && !has_casts && !asks {
        return Ok(Transformed::no(plan));
    }
    let schema = input_schema(&plan)?;
    let below: Vec<Option<String>> = match has_texts || asks {
        true => plan.inputs().into_iter().flat_map(type_names::of).collect(),
        false => vec![],
    };
    let has_declared = below.iter().flatten().any(|name| name.parse::<DeclaredType>().is_ok());
    rewrite_expressions(plan, |mut expr| {
        if let Some((to, kind)) = cast_of(&expr) {
            return Ok(Transformed::yes(cast_to(expr, to, kind, &schema)));
        }
        let named = |expr: &Expr| type_names::of_expr(expr, &schema, &below);
        if let Some(argument) = pg_typeof_argument(&expr) {
            return Ok(match shown_type(argument, named(argument)) {
                Some(name) => Transformed::yes(lit(name)),
                None => Transformed::no(expr),
            });
        }
        if !has_texts || !has_declared && !has_casts {
            return Ok(Transformed::no(expr));
        }
        let mut changed = Ok(false);
        let mut level = |sides: &mut [&mut Expr]| {
            let own = normalize_literals(sides, named);
            let is_changed = matches!(own, Ok(true));
            // The operand of a CASE and its results are compared one after the other.
            if let Ok(before) = changed {
                changed = own.map(|own| own | before);
            }
            is_changed
        };
        map_comparison_sides(&mut expr, &mut level);
        match &mut expr {
            Expr::ScalarFunction(function)
                if matches!(function.name(), "coalesce" | "nullif" | "greatest" | "least" | "make_array") =>
            {
                level(&mut function.args.iter_mut().collect::<Vec<_>>());
            }
            Expr::Case(case) => {
                let results = case.when_then_expr.iter_mut().map(|(_, then)| then.as_mut());
                level(&mut results.chain(case.else_expr.as_deref_mut()).collect::<Vec<_>>());
            }
            _ => {}
        }
        Ok(if changed? { Transformed::yes(expr) } else { Transformed::no(expr) })
    })
}

/// What `pg_typeof` shows of an expression whose Arrow type does not tell, by its type's name.
fn shown_type(argument: &Expr, name: Option<String>) -> Option<String> {
    if literal_text(argument).is_some() {
        return Some("unknown".to_string());
    }
    let name = name?;
    let (item, brackets) = match name.strip_prefix('_') {
        Some(item) => (item, "[]"),
        None => (name.as_str(), ""),
    };
    let shown = match item.parse() {
        Ok(DeclaredType::Varchar(_)) => DeclaredType::Varchar(None).to_string(),
        Ok(DeclaredType::Char(_)) => "character".to_string(),
        Ok(uuid @ DeclaredType::Uuid) => uuid.to_string(),
        _ if matches!(item, "json" | "jsonb") => item.to_string(),
        _ => return None,
    };
    Some(format!("{shown}{brackets}"))
}

/// The argument of `pg_typeof`, if the expression is a call of it.
fn pg_typeof_argument(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::ScalarFunction(function) if function.name() == "pg_typeof" => function.args.first(),
        _ => None,
    }
}

/// The declared type and the Arrow type of a cast; `None` for other expressions.
fn cast_of(expr: &Expr) -> Option<(DeclaredType, DataType)> {
    let (Expr::Cast(Cast { field, .. }) | Expr::TryCast(TryCast { field, .. })) = expr else { return None };
    let kind = field.data_type().clone();
    match field.metadata().get(TYPE_KEY)?.as_str() {
        UUID_ARRAY => matches!(kind, DataType::List(_)).then_some((DeclaredType::Uuid, kind)),
        name => {
            let to: DeclaredType = name.parse().ok()?;
            to.is_of(&kind).then_some((to, kind))
        }
    }
}

fn cast_to(expr: Expr, to: DeclaredType, kind: DataType, schema: &DFSchema) -> Expr {
    let is_same = |inner: &Expr| inner.get_type(schema).is_ok_and(|own| own == kind);
    if !to.limits() {
        return match expr {
            Expr::TryCast(TryCast { expr, .. }) => Expr::TryCast(TryCast::new(expr, kind)),
            Expr::Cast(Cast { expr, .. }) => Expr::Cast(Cast::new(expr, kind)),
            other => other,
        };
    }
    match expr {
        Expr::TryCast(TryCast { expr, .. }) => try_cast_to_declared(
            if is_same(&expr) { *expr } else { Expr::TryCast(TryCast::new(expr, kind)) },
            to,
        ),
        Expr::Cast(Cast { expr, .. }) => {
            cast_to_declared(if is_same(&expr) { *expr } else { Expr::Cast(Cast::new(expr, kind)) }, to)
        }
        other => other,
    }
}

/// Normalizes literals to the declared type of the values beside them. Returns whether any changed.
fn normalize_literals(sides: &mut [&mut Expr], name: impl Fn(&Expr) -> Option<String>) -> Result<bool> {
    if !sides.iter().any(|side| literal_text(side).is_some()) {
        return Ok(false);
    }
    let declared = sides.iter().find_map(|side| match name(side)?.parse() {
        Ok(declared @ (DeclaredType::Char(_) | DeclaredType::Uuid)) => Some(declared),
        _ => None,
    });
    let Some(declared) = declared else { return Ok(false) };
    let to = match declared {
        DeclaredType::Char(_) => DeclaredType::Char(None),
        other => other,
    };
    let mut is_changed = false;
    for side in sides {
        is_changed |= normalize_literal(side, to)?;
    }
    Ok(is_changed)
}

/// Writes a literal as a declared type has it. Returns whether that changed it.
fn normalize_literal(expr: &mut Expr, to: DeclaredType) -> Result<bool> {
    let Expr::Literal(ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)), _) = expr else {
        return Ok(false);
    };
    let normal = to.normal(text)?.into_owned();
    let is_changed = normal != *text;
    *text = normal;
    Ok(is_changed)
}

fn literal_text(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)), _) => Some(text),
        _ => None,
    }
}

/// Pads the columns of type `char(n)` of a query with blanks; leaves other plans unchanged.
pub(crate) fn pad_char_columns(plan: LogicalPlan) -> Result<LogicalPlan> {
    if matches!(
        plan,
        LogicalPlan::Dml(_)
            | LogicalPlan::Ddl(_)
            | LogicalPlan::Copy(_)
            | LogicalPlan::Statement(_)
            | LogicalPlan::Explain(_)
            | LogicalPlan::Analyze(_)
            | LogicalPlan::DescribeTable(_)
    ) {
        return Ok(plan);
    }
    let of_name = |name: Option<String>| match name?.parse() {
        Ok(declared @ DeclaredType::Char(Some(_))) => Some(declared),
        _ => None,
    };
    let chars: Vec<Option<DeclaredType>> = type_names::of(&plan).into_iter().map(of_name).collect();
    if chars.iter().all(Option::is_none) {
        return Ok(plan);
    }
    let values = plan.schema().columns().into_iter().zip(chars).map(|(column, declared)| match declared {
        Some(declared) => {
            let ColumnName { relation, name, .. } = column.clone();
            pad_for_display(Expr::Column(column), declared).alias_qualified(relation, name)
        }
        None => Expr::Column(column),
    });
    let values = values.collect();
    Ok(LogicalPlan::Projection(Projection::try_new(values, Arc::new(plan))?))
}

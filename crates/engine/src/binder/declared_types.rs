//! Types as columns are declared with them: `varchar(n)`, `char(n)`, `uuid`, `time(n)`. Plans know no
//! lengths: a column of a warehouse has its declared type in a tag, casts become functions that cut off, and
//! what is written into a column is checked (`docs/decisions/0038-declared-types.md`).

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit};
use datafusion::catalog::TableProvider;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column as ColumnName, DFSchema, ScalarValue, TableReference, ToDFSchema};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::dml::{MergeIntoAction, MergeIntoOp};
use datafusion::logical_expr::expr::{Cast, TryCast};
use datafusion::logical_expr::{
    DdlStatement, EmptyRelation, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Projection, cast, lit,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{self, VisitMut, VisitorMut};
use harrier_catalog::state::{Column, DECLARED_TYPE_TAG as TAG, Table};
use harrier_catalog::types::ColumnType;
use harrier_error::{SqlError, SqlState};
use harrier_functions::cast::declared_type::{
    DIGITS_MAX, DeclaredType, LENGTH_MAX, assigned, declared, padded, try_declared,
};
use harrier_pgcatalog::{TYPE_KEY, named_field};
use harrier_sqlstate::IntoDataFusionError;

use crate::binder::type_names;
use crate::warehouse::WarehouseTable;
use harrier_planner::analyzer::session_time_zone::UTC;
use harrier_planner::rewrite::{level_sides, rewritten, schema_below};

/// The declared type that SQL writes; `None`: it is none.
///
/// Errors: there is no such length (22023).
pub(crate) fn of_sql(sql_type: &ast::DataType) -> Result<Option<DeclaredType>> {
    use ast::DataType::{
        Char, CharVarying, Character, CharacterVarying, Custom, Nvarchar, Time, Timestamp, Varchar,
    };
    Ok(match sql_type {
        ast::DataType::Uuid => Some(DeclaredType::Uuid),
        Time(Some(digits), zone) if !has_zone(zone) => digits_of(*digits).map(DeclaredType::Time),
        // Those of seconds and milliseconds are types of their own.
        // Six are those of all, and how a literal of the planner's says it.
        Timestamp(Some(6), _) => None,
        Timestamp(Some(digits @ (1 | 2 | 4..)), zone) if !has_zone(zone) => {
            digits_of(*digits).map(DeclaredType::Timestamp)
        }
        Timestamp(Some(digits), zone) if has_zone(zone) => digits_of(*digits).map(DeclaredType::TimestampTz),
        Varchar(length) | CharacterVarying(length) | CharVarying(length) | Nvarchar(length) => {
            Some(DeclaredType::Varchar(length_of(length.as_ref(), "varchar")?))
        }
        Char(length) | Character(length) => {
            Some(DeclaredType::Char(Some(length_of(length.as_ref(), "char")?.unwrap_or(1))))
        }
        Custom(name, sizes) => {
            let is_named = matches!(
                name.0.as_slice(),
                [name] if name.as_ident().is_some_and(|name| name.value.eq_ignore_ascii_case("bpchar"))
            );
            match sizes.as_slice() {
                [] if is_named => Some(DeclaredType::Char(None)),
                [size] if is_named => match size.parse() {
                    Ok(size) => Some(DeclaredType::Char(Some(checked_length(size, "char")?))),
                    Err(_) => None,
                },
                _ => None,
            }
        }
        _ => None,
    })
}

fn has_zone(zone: &ast::TimezoneInfo) -> bool {
    matches!(zone, ast::TimezoneInfo::Tz | ast::TimezoneInfo::WithTimeZone)
}

/// `None`: more than are kept.
fn digits_of(digits: u64) -> Option<u32> {
    (digits <= DIGITS_MAX).then_some(digits as u32)
}

fn length_of(length: Option<&ast::CharacterLength>, name: &str) -> Result<Option<u32>> {
    match length {
        Some(ast::CharacterLength::IntegerLength { length, .. }) => checked_length(*length, name).map(Some),
        Some(ast::CharacterLength::Max) | None => Ok(None),
    }
}

fn checked_length(length: u64, name: &str) -> Result<u32> {
    let message = match length {
        0 => format!("length for type {name} must be at least 1"),
        1..=LENGTH_MAX => return Ok(length as u32),
        _ => format!("length for type {name} cannot exceed {LENGTH_MAX}"),
    };
    Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message).into_datafusion())
}

/// The field of a value of this type.
pub(crate) fn field_of(declared: DeclaredType) -> FieldRef {
    Arc::new(named_field(Field::new("", kind_of(declared), true), &declared.name()))
}

fn kind_of(declared: DeclaredType) -> DataType {
    match declared {
        DeclaredType::Varchar(_) | DeclaredType::Char(_) | DeclaredType::Uuid => DataType::Utf8View,
        DeclaredType::Time(_) => DataType::Time64(TimeUnit::Microsecond),
        DeclaredType::Timestamp(_) => DataType::Timestamp(TimeUnit::Microsecond, None),
        DeclaredType::TimestampTz(_) => DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into())),
    }
}

/// The field of arrays of a declared type, `None` of others: lengths of what is in an array are not kept.
pub(crate) fn field_of_array(sql_type: &ast::DataType) -> Option<FieldRef> {
    let (kind, item) = of_array(sql_type)?;
    let field = Field::new("", kind, true);
    Some(Arc::new(match item {
        DeclaredType::Uuid => named_field(field, UUIDS),
        _ => field,
    }))
}

fn of_array(sql_type: &ast::DataType) -> Option<(DataType, DeclaredType)> {
    use ast::ArrayElemTypeDef::{AngleBracket, SquareBracket};
    let item = |inner: &ast::DataType| {
        let (kind, declared) = match of_sql(inner).ok().flatten() {
            Some(declared) => (kind_of(declared), declared),
            None => of_array(inner)?,
        };
        Some((Arc::new(Field::new_list_field(kind, true)), declared))
    };
    match sql_type {
        ast::DataType::Array(SquareBracket(inner, Some(size))) => {
            let (item, declared) = item(inner)?;
            Some((DataType::FixedSizeList(item, (*size).try_into().ok()?), declared))
        }
        ast::DataType::Array(SquareBracket(inner, None) | AngleBracket(inner)) => {
            let (item, declared) = item(inner)?;
            Some((DataType::List(item), declared))
        }
        _ => None,
    }
}

/// PostgreSQL's name of arrays of UUIDs.
const UUIDS: &str = "_uuid";

/// What a field says itself.
pub(crate) fn of_field(field: &Field) -> Option<DeclaredType> {
    field.metadata().get(TYPE_KEY)?.parse().ok()
}

/// The declared type of a column, if it has one that its values are of.
pub(crate) fn of_column(column: &Column) -> Option<DeclaredType> {
    match column.kind {
        ColumnType::Uuid => return Some(DeclaredType::Uuid),
        ColumnType::TimestampS => return Some(DeclaredType::Timestamp(0)),
        ColumnType::TimestampMs => return Some(DeclaredType::Timestamp(3)),
        _ => {}
    }
    let declared: DeclaredType = column.tags.get(TAG)?.parse().ok()?;
    // Other programs may have made the column another one.
    let kind = crate::warehouse::type_of(column, false).ok()?;
    declared.is_of(&kind).then_some(declared)
}

/// Has a column be of a declared type, or of none.
pub(crate) fn declare(column: &mut Column, declared: Option<DeclaredType>) {
    match declared {
        Some(DeclaredType::Uuid) if column.kind == ColumnType::Varchar => column.kind = ColumnType::Uuid,
        // Their types say it.
        Some(_) if matches!(column.kind, ColumnType::TimestampS | ColumnType::TimestampMs) => {}
        Some(declared) => drop(column.tags.insert(TAG.to_string(), declared.to_string())),
        None => drop(column.tags.remove(TAG)),
    }
}

/// The same for the columns of a new table, of what its plan says of them.
///
/// Errors: there is an array of UUIDs (0A000).
pub(crate) fn declare_all(columns: &mut [Column], plan: &LogicalPlan) -> Result<()> {
    for (column, name) in columns.iter_mut().zip(type_names::of(plan)) {
        if name.as_deref() == Some(UUIDS) {
            return Err(no_arrays(&column.name));
        }
        let told = name.and_then(|name| name.parse().ok());
        declare(column, told);
        if of_column(column).is_none() {
            declare(column, None);
        }
    }
    Ok(())
}

/// The declared type that SQL writes of a column.
///
/// Errors: those of [`of_sql`]; it is an array of UUIDs (0A000).
pub(crate) fn of_definition(sql_type: &ast::DataType, column: &str) -> Result<Option<DeclaredType>> {
    match of_array(sql_type) {
        Some((_, DeclaredType::Uuid)) => Err(no_arrays(column)),
        _ => of_sql(sql_type),
    }
}

fn no_arrays(column: &str) -> DataFusionError {
    let message = format!("column \"{column}\" of type uuid[] is not supported");
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).with_hint("text[] keeps them").into_datafusion()
}

/// The field of a column, with its declared type.
pub(crate) fn told_field(field: Field, column: &Column) -> Field {
    match of_column(column) {
        Some(declared) => named_field(field, &declared.name()),
        None => field,
    }
}

/// The columns of a table, with the types that they were declared as.
pub(crate) fn told_fields(table: &dyn TableProvider) -> Vec<FieldRef> {
    let own = table.downcast_ref::<WarehouseTable>().map(|own| own.table());
    let told = |(at, field): (usize, &FieldRef)| match own.and_then(|own| own.columns.get(at)) {
        Some(column) => Arc::new(told_field(Field::clone(field), column)),
        None => Arc::clone(field),
    };
    table.schema().fields().iter().enumerate().map(told).collect()
}

/// The columns that the expressions of a node speak of, `schema`, with what they were declared as.
pub(crate) fn told_schema(node: &LogicalPlan, schema: DFSchema) -> DFSchema {
    let names: Vec<Option<String>> = node.inputs().into_iter().flat_map(type_names::of).collect();
    if names.len() != schema.fields().len() || names.iter().all(Option::is_none) {
        return schema;
    }
    let told = schema.iter().zip(names).map(|((table, field), name)| {
        let field = match name {
            Some(name) => Arc::new(named_field(Field::clone(field), &name)),
            None => Arc::clone(field),
        };
        (table.cloned(), field)
    });
    DFSchema::new_with_metadata(told.collect(), schema.metadata().clone()).unwrap_or(schema)
}

/// A plan that makes a table of the session alone, or over files: nobody keeps lengths there.
pub(crate) fn forgotten(plan: LogicalPlan) -> Result<LogicalPlan> {
    let LogicalPlan::Ddl(ddl) = plan else { return Ok(plan) };
    Ok(LogicalPlan::Ddl(match ddl {
        DdlStatement::CreateMemoryTable(mut create) => {
            create.input = Arc::new(without_names(Arc::unwrap_or_clone(create.input))?);
            DdlStatement::CreateMemoryTable(create)
        }
        DdlStatement::CreateExternalTable(mut create) => {
            if has_any(create.schema.inner()) {
                create.schema = Arc::new(plain(create.schema.inner()).to_dfschema()?);
            }
            DdlStatement::CreateExternalTable(create)
        }
        other => other,
    }))
}

/// The columns of a table that is made without rows, without their declared types.
pub(crate) fn without_names(plan: LogicalPlan) -> Result<LogicalPlan> {
    Ok(match plan {
        LogicalPlan::EmptyRelation(empty) if has_any(empty.schema.inner()) => {
            let schema = Arc::new(plain(empty.schema.inner()).to_dfschema()?);
            LogicalPlan::EmptyRelation(EmptyRelation { schema, ..empty })
        }
        other => other,
    })
}

fn has_any(schema: &Schema) -> bool {
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

/// The rows of an INSERT, which has the table's columns in their order, as they are written.
pub(crate) fn assigned_rows(table: &Table, input: LogicalPlan) -> Result<LogicalPlan> {
    let limits: Vec<_> = table.columns.iter().map(limit_of).collect();
    if limits.iter().all(Option::is_none) {
        return Ok(input);
    }
    let columns = input.schema().columns().into_iter().enumerate();
    let values = columns.map(|(at, column)| match limits.get(at).cloned().flatten() {
        Some(limit) => {
            let ColumnName { relation, name, .. } = column.clone();
            limit.put(Expr::Column(column)).alias_qualified(relation, name)
        }
        None => Expr::Column(column),
    });
    let values: Vec<Expr> = values.collect();
    LogicalPlanBuilder::from(input).project(values)?.build()
}

/// What an UPDATE of the table `name` sets, as it is written: columns stay what they are.
pub(crate) fn assigned_values(table: &Table, name: &TableReference, values: &mut [Expr]) {
    for (column, value) in table.columns.iter().zip(values) {
        let Some(limit) = limit_of(column) else { continue };
        let (inner, relation, called) = match std::mem::take(value) {
            Expr::Alias(alias) => (*alias.expr, alias.relation, alias.name),
            other => {
                let (relation, called) = other.qualified_name();
                (other, relation, called)
            }
        };
        let stays = matches!(&inner, Expr::Column(own)
            if own.name == column.name && own.relation.as_ref() == Some(name));
        let written = if stays { inner } else { limit.put(inner) };
        *value = written.alias_qualified(relation, called);
    }
}

/// What a MERGE sets and inserts, as it is written.
pub(crate) fn assigned_merge(table: &Table, merge: &MergeIntoOp) -> MergeIntoOp {
    let mut merge = merge.clone();
    let put_into = |name: &str, value: &mut Expr| {
        let column = table.columns.iter().find(|column| column.name == name);
        if let Some(limit) = column.and_then(limit_of) {
            *value = limit.put(std::mem::take(value));
        }
    };
    for clause in &mut merge.clauses {
        match &mut clause.action {
            MergeIntoAction::Update(values) => {
                values.iter_mut().for_each(|(column, value)| put_into(column, value));
            }
            MergeIntoAction::Insert { columns, values } if columns.is_empty() => {
                let own = table.columns.iter().map(|column| column.name.as_str());
                own.zip(values).for_each(|(column, value)| put_into(column, value));
            }
            MergeIntoAction::Insert { columns, values } => {
                columns.iter().zip(values).for_each(|(column, value)| put_into(column, value));
            }
            MergeIntoAction::Delete => {}
        }
    }
    merge
}

/// The default of a column as it is written.
pub(crate) fn assigned_default(table: &Table, column: &str, value: &Expr) -> Expr {
    let column = table.columns.iter().find(|own| own.name == column);
    match column.and_then(limit_of) {
        Some(limit) => limit.put(value.clone()),
        None => value.clone(),
    }
}

/// A text that all rows of a new column have.
///
/// Errors: it is too long (22001).
pub(crate) fn assigned_text(column: &Column, text: Option<String>) -> Result<Option<String>> {
    match (of_column(column), text) {
        (
            Some(declared @ (DeclaredType::Varchar(_) | DeclaredType::Char(_) | DeclaredType::Uuid)),
            Some(text),
        ) => declared.assigned(&text).map(|text| Some(text.to_string())),
        (_, text) => Ok(text),
    }
}

/// What the values of a column are brought to.
#[derive(Clone)]
struct Limit {
    declared: DeclaredType,
    kind: DataType,
}

impl Limit {
    fn put(&self, value: Expr) -> Expr {
        assigned(cast(value, self.kind.clone()), self.declared)
    }
}

fn limit_of(column: &Column) -> Option<Limit> {
    let declared = of_column(column).filter(|declared| declared.limits())?;
    let kind = crate::warehouse::type_of(column, false).ok()?;
    declared.is_of(&kind).then_some(Limit { declared, kind })
}

/// Which rows of a table keep a column from becoming another type, as a condition of SQL on the column's name
/// in quotes, with the error that they are; `None`: no rows can.
pub(crate) fn in_the_way(
    before: Option<DeclaredType>,
    after: Option<DeclaredType>,
    column: &str,
) -> Option<(String, SqlError)> {
    use DeclaredType::{Char, Time, Timestamp, TimestampTz, Uuid, Varchar};
    let too_long = |size: u32, to: DeclaredType| {
        let message = format!("value too long for type {to}");
        (
            format!("character_length({column}) > {size}"),
            SqlError::new(SqlState::STRING_DATA_RIGHT_TRUNCATION, message),
        )
    };
    let blanks = |to: DeclaredType| {
        let message = format!("rows with blanks at the end of column {column} cannot be made {to}");
        (
            format!("{column} LIKE '% '"),
            SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .with_hint(format!("UPDATE … SET {column} = rtrim({column})")),
        )
    };
    match (before, after?) {
        (Some(Varchar(Some(old)) | Char(Some(old))), Varchar(Some(new))) if old <= new => None,
        (Some(Char(Some(old))), Char(Some(new))) if old <= new => None,
        (_, to @ Varchar(Some(new))) => Some(too_long(new, to)),
        (Some(Char(_)), to @ Char(Some(new))) => Some(too_long(new, to)),
        (_, to @ Char(Some(new))) => {
            let ((long, error), (blank, _)) = (too_long(new, to), blanks(to));
            Some((format!("{long} OR {blank}"), error))
        }
        (Some(Char(_)), Char(None)) | (_, Varchar(None)) => None,
        (_, to @ Char(None)) => Some(blanks(to)),
        (Some(Time(old)), Time(new))
        | (Some(Timestamp(old)), Timestamp(new))
        | (Some(TimestampTz(old)), TimestampTz(new))
            if old <= new =>
        {
            None
        }
        (_, to @ (Time(_) | Timestamp(_) | TimestampTz(_))) => {
            let message = format!("rows with more digits in column {column} cannot be made {to}");
            let error = SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .with_hint(format!("UPDATE … SET {column} = CAST({column} AS {to})"));
            Some((format!("{column} <> CAST({column} AS {to})"), error))
        }
        (_, Uuid) => None,
    }
}

/// The rule: casts to declared types cut off and round, and literals beside a `char(n)` or a UUID are written
/// as these are. To stand before the coercion of types.
#[derive(Debug)]
pub(crate) struct DeclaredTypes;

impl AnalyzerRule for DeclaredTypes {
    fn name(&self) -> &str {
        "declared_types"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(typed)?.data)
    }
}

/// One node with the rule applied.
///
/// Errors: a literal beside a UUID is none (22P02).
pub(crate) fn typed(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let mut has_texts = false;
    let mut has_casts = false;
    let mut asks = false;
    plan.apply_expressions(|expr| {
        expr.apply(|part| {
            has_texts |= literal_text(part).is_some();
            has_casts |= cast_of(part).is_some();
            asks |= asked_type(part).is_some();
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    if !has_texts && !has_casts && !asks {
        return Ok(Transformed::no(plan));
    }
    let schema = schema_below(&plan)?;
    let below: Vec<Option<String>> = match has_texts || asks {
        true => plan.inputs().into_iter().flat_map(type_names::of).collect(),
        false => vec![],
    };
    let has_declared = below.iter().flatten().any(|name| name.parse::<DeclaredType>().is_ok());
    rewritten(plan, |mut expr| {
        if let Some((to, kind)) = cast_of(&expr) {
            return Ok(Transformed::yes(cast_to(expr, to, kind, &schema)));
        }
        let named = |expr: &Expr| type_names::of_expr(expr, &schema, &below);
        if let Some(name) = asked_type(&expr).and_then(|argument| named(argument)?.parse().ok()) {
            let name = match name {
                DeclaredType::Varchar(_) => DeclaredType::Varchar(None).to_string(),
                DeclaredType::Char(_) => "character".to_string(),
                DeclaredType::Uuid => name.to_string(),
                _ => return Ok(Transformed::no(expr)),
            };
            return Ok(Transformed::yes(lit(name)));
        }
        if !has_texts || !has_declared && !has_casts {
            return Ok(Transformed::no(expr));
        }
        let mut changed = Ok(false);
        let mut level = |sides: &mut [&mut Expr]| {
            changed = level_literals(sides, named);
            matches!(changed, Ok(true))
        };
        level_sides(&mut expr, &mut level);
        match &mut expr {
            Expr::ScalarFunction(function)
                if matches!(function.name(), "coalesce" | "nullif" | "greatest" | "least") =>
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

/// The value whose type an expression asks for, if it does.
fn asked_type(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::ScalarFunction(function) if function.name() == "pg_typeof" => function.args.first(),
        _ => None,
    }
}

/// Has casts to declared types be functions already in lists of VALUES and in WITH RECURSIVE, whose rows the
/// planner wants to have fields that are the same in all that they say.
pub(crate) fn settle(statement: &mut Statement) {
    match statement {
        Statement::Statement(statement) => {
            // No hook of the visitor ever breaks off.
            let _ = VisitMut::visit(statement.as_mut(), &mut Settled::default());
        }
        Statement::Explain(explain) => settle(&mut explain.statement),
        _ => {}
    }
}

#[derive(Default)]
struct Settled {
    /// How many queries around are such.
    depth: usize,
    /// Whether each query around is one.
    within: Vec<bool>,
}

impl VisitorMut for Settled {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut ast::Query) -> ControlFlow<()> {
        let is_recursive = query.with.as_ref().is_some_and(|with| with.recursive);
        let is_within = is_recursive || matches!(query.body.as_ref(), ast::SetExpr::Values(_));
        self.within.push(is_within);
        self.depth += usize::from(is_within);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut ast::Query) -> ControlFlow<()> {
        self.depth -= usize::from(self.within.pop() == Some(true));
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut ast::Expr) -> ControlFlow<()> {
        let ast::Expr::Cast { kind, data_type, .. } = &mut *expr else { return ControlFlow::Continue(()) };
        if self.depth == 0 {
            return ControlFlow::Continue(());
        }
        let Ok(Some(declared)) = of_sql(data_type) else { return ControlFlow::Continue(()) };
        let name = match kind {
            ast::CastKind::TryCast | ast::CastKind::SafeCast => {
                harrier_functions::cast::declared_type::TRY_CAST
            }
            _ => harrier_functions::cast::declared_type::CAST,
        };
        *data_type = match declared {
            DeclaredType::Varchar(_) | DeclaredType::Char(_) | DeclaredType::Uuid => ast::DataType::Text,
            DeclaredType::Time(_) => ast::DataType::Time(None, ast::TimezoneInfo::None),
            DeclaredType::Timestamp(_) => ast::DataType::Timestamp(None, ast::TimezoneInfo::None),
            DeclaredType::TimestampTz(_) => ast::DataType::Timestamp(Some(6), ast::TimezoneInfo::Tz),
        };
        if declared.limits() {
            let cast = std::mem::replace(expr, ast::Expr::value(ast::Value::Null));
            let to = ast::Expr::value(ast::Value::SingleQuotedString(declared.name()));
            *expr = ast::Expr::Function(harrier_sql::ast_builder::function_call(name, vec![cast, to]));
        }
        ControlFlow::Continue(())
    }
}

/// The declared type and the Arrow type that an expression casts to, if it does.
fn cast_of(expr: &Expr) -> Option<(DeclaredType, DataType)> {
    let (Expr::Cast(Cast { field, .. }) | Expr::TryCast(TryCast { field, .. })) = expr else { return None };
    let kind = field.data_type().clone();
    match field.metadata().get(TYPE_KEY)?.as_str() {
        UUIDS => matches!(kind, DataType::List(_)).then_some((DeclaredType::Uuid, kind)),
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
        Expr::TryCast(TryCast { expr, .. }) => {
            try_declared(if is_same(&expr) { *expr } else { Expr::TryCast(TryCast::new(expr, kind)) }, to)
        }
        Expr::Cast(Cast { expr, .. }) => {
            declared(if is_same(&expr) { *expr } else { Expr::Cast(Cast::new(expr, kind)) }, to)
        }
        other => other,
    }
}

/// Has literals be written as values of the declared type beside them are; tells whether that changed
/// anything.
fn level_literals(sides: &mut [&mut Expr], name: impl Fn(&Expr) -> Option<String>) -> Result<bool> {
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
        let Expr::Literal(ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)), _) = &mut **side
        else {
            continue;
        };
        let normal = to.normal(text)?.into_owned();
        is_changed |= normal != *text;
        *text = normal;
    }
    Ok(is_changed)
}

fn literal_text(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)), _) => Some(text),
        _ => None,
    }
}

/// A query whose columns of type `char(n)` are filled up with blanks; other plans stay what they are.
pub(crate) fn shown(plan: LogicalPlan) -> Result<LogicalPlan> {
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
            padded(Expr::Column(column), declared).alias_qualified(relation, name)
        }
        None => Expr::Column(column),
    });
    let values = values.collect();
    Ok(LogicalPlan::Projection(Projection::try_new(values, Arc::new(plan))?))
}

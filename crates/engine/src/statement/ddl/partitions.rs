//! Table partitions by range and list: evaluation of their clauses, and changes of partitions.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::Array;
use datafusion::arrow::compute::{CastOptions, cast_with_options, kernels::numeric};
use datafusion::arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalUnit};
use datafusion::common::ScalarValue;
use datafusion::datasource::provider_as_source;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{LogicalPlanBuilder, lit};
use datafusion::sql::sqlparser::ast;
use harrier_catalog::access::Object;
use harrier_catalog::state::{Column, TABLE_PARTITIONS_OPTION, Table};
use harrier_catalog::types::ColumnType;
use harrier_error::{SqlError, SqlState};
use harrier_exec::data_files::{
    Cut, DividedBy, Holds, InvalidPartitions, TABLE_PARTITIONS_MAX, TablePartition, TablePartitions, text_of,
};
use harrier_functions::datetime::time_zone::is_local;
use harrier_sqlstate::{IntoDataFusionError, error};

use super::Ddl;
use crate::settings::time_reading;
use crate::types::columns::type_of;
use crate::warehouse::dml::{Dml, PendingWrite, column as row_value};
use crate::warehouse::relation::reference;
use crate::warehouse::table::WarehouseTable;
use crate::warehouse::table::partitions::{NoPartition, column_of, of_rows, partitions_of};
use crate::warehouse::table::stored_values::parse_one;
use harrier_planner::analyzer::session_time_zone::session_zone;
use harrier_planner::analyzer::text_constants::{TimeReading, readable};
use harrier_sql::parser::table_clauses::{
    self, BoundClause, Division, HoldsClause, PartitionChange, PartitionClause, PartitionRef, TableClauses,
};

/// A range bound as a value.
#[derive(Debug, Clone, PartialEq)]
struct Bound {
    value: ScalarValue,
    after: bool,
}

impl Bound {
    fn order(&self, other: &Self) -> Ordering {
        let values = self.value.partial_cmp(&other.value).unwrap_or(Ordering::Equal);
        values.then(self.after.cmp(&other.after))
    }

    fn encode(&self) -> Result<Cut> {
        Ok(Cut { value: text(&self.value)?, after: self.after })
    }
}

type Interval = (Option<Bound>, Option<Bound>);

/// Name and options of a table partition.
struct Label {
    name: Option<String>,
    options: BTreeMap<String, String>,
}

fn text(value: &ScalarValue) -> Result<String> {
    Ok(text_of(&value.to_array()?)?.value(0).to_string())
}

fn invalid_definition(message: impl Into<String>) -> DataFusionError {
    error(SqlState::INVALID_OBJECT_DEFINITION, message)
}

fn too_many() -> DataFusionError {
    error(
        SqlState::PROGRAM_LIMIT_EXCEEDED,
        format!("a table is divided into no more than {TABLE_PARTITIONS_MAX} ranges or listed values"),
    )
}

impl Ddl<'_> {
    /// Evaluates a partitioning clause; returns its catalog encoding.
    pub(super) async fn evaluate_division(&self, columns: &[Column], division: &Division) -> Result<String> {
        let name = &division.column;
        let column = columns.iter().find(|column| column.name == *name).ok_or_else(|| {
            let message = format!("column \"{name}\" named in a partition key does not exist");
            error(SqlState::UNDEFINED_COLUMN, message)
        })?;
        let by = match division.by {
            table_clauses::DividedBy::Range => DividedBy::Range,
            table_clauses::DividedBy::List => DividedBy::List,
        };
        check_key(column, by)?;
        let mut partitions = TablePartitions { column: column.id, by, partitions: vec![], next: 1 };
        self.add(&mut partitions, column, &division.partitions).await?;
        partitions.text()
    }

    /// Adds table partitions.
    ///
    /// Errors: they overlap others, are empty or have a taken name (42P17, 42710), or their bounds have other
    /// types.
    async fn add(
        &self,
        partitions: &mut TablePartitions,
        column: &Column,
        clauses: &[PartitionClause],
    ) -> Result<()> {
        let kind = type_of(column, false)?;
        let mut others: Vec<(Label, Holds)> = Vec::new();
        let mut intervals: Vec<(Label, Interval)> = Vec::new();
        for clause in clauses {
            let label = Label { name: clause.name.clone(), options: clause.options.clone() };
            match (&clause.holds, partitions.by) {
                (HoldsClause::Rest, _) => {
                    let rest = others.iter().find(|(_, holds)| *holds == Holds::Rest);
                    if rest.is_some() || partitions.rest().is_some() {
                        return Err(invalid_definition("a table has one default partition at most"));
                    }
                    others.push((label, Holds::Rest));
                }
                (HoldsClause::Values(values), DividedBy::List) => {
                    let mut listed = Vec::with_capacity(values.len());
                    for value in values {
                        let value = self.constant(value, column, &kind).await?;
                        listed.push(if value.is_null() { None } else { Some(text(&value)?) });
                    }
                    others.push((label, Holds::Values(listed)));
                }
                (HoldsClause::Range { start, end, every }, DividedBy::Range) => {
                    let start = self.evaluate_bound(start.as_ref(), column, &kind).await?;
                    let end = self.evaluate_bound(end.as_ref(), column, &kind).await?;
                    let Some(every) = every else {
                        intervals.push((label, (start, end)));
                        continue;
                    };
                    let (Some(start), Some(end)) = (start, end) else {
                        return Err(invalid_definition("EVERY needs a START and an END"));
                    };
                    let step = self.evaluate(every).await?;
                    let zone = session_zone(&self.context.state());
                    for (at, interval) in (1..).zip(steps(start, end, &step, &kind, &zone)?) {
                        let name = label.name.as_ref().map(|name| format!("{name}_{at}"));
                        intervals.push((Label { name, options: label.options.clone() }, interval));
                    }
                }
                (HoldsClause::Values(_), DividedBy::Range) => {
                    return Err(invalid_definition(
                        "a table that is partitioned by range has no lists of VALUES",
                    ));
                }
                (HoldsClause::Range { .. }, DividedBy::List) => {
                    return Err(invalid_definition(
                        "a table that is partitioned by list has no START, END and EVERY",
                    ));
                }
            }
        }
        let mut made = Vec::with_capacity(intervals.len() + others.len());
        for (label, interval) in fill_bounds(intervals, partitions, &kind)? {
            let cut = |bound: Option<Bound>| bound.map(|bound| bound.encode()).transpose();
            made.push((label, Holds::Range(cut(interval.0)?, cut(interval.1)?)));
        }
        made.extend(others);
        for (label, holds) in made {
            push(partitions, label, holds)?;
        }
        if partitions.size() > TABLE_PARTITIONS_MAX {
            return Err(too_many());
        }
        check(partitions, &kind)?;
        sort(partitions, &kind)
    }

    async fn evaluate_bound(
        &self,
        clause: Option<&BoundClause>,
        column: &Column,
        kind: &DataType,
    ) -> Result<Option<Bound>> {
        let Some(clause) = clause else { return Ok(None) };
        let value = self.constant(&clause.value, column, kind).await?;
        match value.is_null() {
            true => Err(invalid_definition("cannot specify NULL in range bound")),
            false => Ok(Some(Bound { value, after: clause.after })),
        }
    }

    /// Evaluates a constant expression as a value of `column`.
    async fn constant(&self, sql: &str, column: &Column, kind: &DataType) -> Result<ScalarValue> {
        coerce_bound(&self.evaluate(sql).await?, column, kind, &time_reading(&self.context.state()))
    }

    async fn evaluate(&self, sql: &str) -> Result<ScalarValue> {
        let batches = self.context.sql(&format!("SELECT ({sql})")).await?.collect().await?;
        let rows: usize = batches.iter().map(|batch| batch.num_rows()).sum();
        match batches.iter().find(|batch| batch.num_rows() > 0) {
            Some(batch) if rows == 1 && batch.num_columns() == 1 => {
                ScalarValue::try_from_array(batch.column(0), 0)
            }
            _ => Err(error(SqlState::SYNTAX_ERROR, format!("{sql} is not one value"))),
        }
    }

    /// The rows that a change of table partitions deletes one by one: those in files and inlined rows written
    /// by other programs, which may mix several table partitions.
    pub(crate) async fn rows_to_delete(
        &self,
        alter: &ast::AlterTable,
        clauses: Option<&TableClauses>,
    ) -> Result<Option<Dml>> {
        let change = clauses.and_then(|clauses| clauses.change.as_ref());
        let Some(PartitionChange::Drop { which, .. } | PartitionChange::Truncate(which)) = change else {
            return Ok(None);
        };
        let Some(table) = self.names.table(&reference(&alter.name)?) else { return Ok(None) };
        self.check_owner(Object::Table(table.id))?;
        let partitions = division_of(&table)?;
        let Some(place) = self.place(&table, &partitions, which).await? else { return Ok(None) };
        let id = partitions.partitions[place].id;
        let target =
            WarehouseTable::try_new(self.context.state(), &self.names.snapshot(), Arc::clone(&table))?;
        let elsewhere = target.contents().await?.sources_outside_partitions();
        if elsewhere.is_empty() {
            return Ok(None);
        }
        let (_, column) = column_of(&table, &partitions)?;
        let of_row = of_rows(&table, &partitions, row_value(&column.name), lit(true), NoPartition::Null)?;
        Dml::delete_where(target.with_sources(elsewhere), of_row.eq(lit(id))).map(Some)
    }

    /// Changes the table partitions of `table`. Rows that [`Self::rows_to_delete`] finds have been deleted
    /// before.
    pub(super) async fn change_partitions(&self, table: &mut Table, change: &PartitionChange) -> Result<()> {
        let mut partitions = division_of(table)?;
        match change {
            PartitionChange::Add(clause) => {
                let (_, column) = column_of(table, &partitions)?;
                let column = column.clone();
                let before = partitions.clone();
                self.add(&mut partitions, &column, std::slice::from_ref(clause)).await?;
                self.check_rest(table, &before, &partitions).await?;
            }
            PartitionChange::Drop { which, if_exists } => {
                let Some(place) = self.place(table, &partitions, which).await? else {
                    return if *if_exists { Ok(()) } else { Err(no_partition(table, which)) };
                };
                if partitions.partitions.len() == 1 {
                    let name = &partitions.partitions[place].name;
                    let message =
                        format!("cannot drop partition \"{name}\" of \"{}\" -- only one remains", table.name);
                    return Err(SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
                        .with_hint("DROP TABLE drops the table with it")
                        .into_datafusion());
                }
                let dropped = partitions.partitions.remove(place);
                self.empty(table, dropped.id).await?;
            }
            PartitionChange::Truncate(which) => {
                let place = self.place(table, &partitions, which).await?;
                let place = place.ok_or_else(|| no_partition(table, which))?;
                return self.empty(table, partitions.partitions[place].id).await;
            }
            PartitionChange::Rename(which, name) => {
                let place = self.place(table, &partitions, which).await?;
                let place = place.ok_or_else(|| no_partition(table, which))?;
                check_name(&partitions, name)?;
                partitions.partitions[place].name = name.clone();
            }
        }
        table.options.insert(TABLE_PARTITIONS_OPTION.to_string(), partitions.text()?);
        Ok(())
    }

    /// Index of an existing table partition in the list.
    async fn place(
        &self,
        table: &Table,
        partitions: &TablePartitions,
        which: &PartitionRef,
    ) -> Result<Option<usize>> {
        let all = &partitions.partitions;
        Ok(match which {
            PartitionRef::Name(name) => all.iter().position(|partition| partition.name == *name),
            PartitionRef::Default => all.iter().position(|partition| partition.holds == Holds::Rest),
            PartitionRef::Of(value) => {
                let (_, column) = column_of(table, partitions)?;
                let value = self.constant(value, column, &type_of(column, false)?).await?;
                let ids = partitions.of(&value.to_array()?)?;
                let id = ids.is_valid(0).then(|| ids.value(0));
                if id.is_some() && partitions.rest().map(|rest| rest.id) == id {
                    let message = format!(
                        "FOR expression matches DEFAULT partition for specified value of relation \"{}\"",
                        table.name
                    );
                    return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message)
                        .with_hint("DEFAULT PARTITION names it")
                        .into_datafusion());
                }
                all.iter().position(|partition| Some(partition.id) == id)
            }
        })
    }

    /// Removes the files of a table partition.
    async fn empty(&self, table: &Table, id: i64) -> Result<()> {
        let target =
            WarehouseTable::try_new(self.context.state(), &self.names.snapshot(), Arc::new(table.clone()))?;
        PendingWrite::remove_partition(target, id, self.transactions).await
    }

    /// Fails if the default partition contains rows that now belong to others.
    async fn check_rest(
        &self,
        table: &Table,
        before: &TablePartitions,
        after: &TablePartitions,
    ) -> Result<()> {
        let Some(rest) = before.rest() else { return Ok(()) };
        let target =
            WarehouseTable::try_new(self.context.state(), &self.names.snapshot(), Arc::new(table.clone()))?;
        let contents = target.contents().await?;
        let mut sources = contents.sources_outside_partitions();
        sources.extend(contents.of_partition(rest.id).map(|file| file.source));
        let (_, column) = column_of(table, after)?;
        let value = row_value(&column.name);
        let is_moved = of_rows(table, before, value.clone(), lit(true), NoPartition::Null)?
            .eq(lit(rest.id))
            .and(of_rows(table, after, value, lit(true), NoPartition::Null)?.not_eq(lit(rest.id)));
        let source = provider_as_source(Arc::new(target.with_sources(sources)));
        let plan = LogicalPlanBuilder::scan(table.name.as_str(), source, None)?
            .filter(is_moved)?
            .limit(0, Some(1))?
            .build()?;
        let found = self.context.execute_logical_plan(plan).await?.collect().await?;
        match found.iter().all(|batch| batch.num_rows() == 0) {
            true => Ok(()),
            false => {
                let message = format!(
                    "updated partition constraint for default partition \"{}\" would be violated by some row",
                    rest.name
                );
                Err(SqlError::new(SqlState::CHECK_VIOLATION, message)
                    .with_hint("DELETE these rows before, and INSERT them again afterwards")
                    .into_datafusion())
            }
        }
    }
}

/// Errors: the table is not partitioned by range or list (42809).
fn division_of(table: &Table) -> Result<TablePartitions> {
    partitions_of(table)?.ok_or_else(|| {
        let message = format!("table \"{}\" is not partitioned by range or list", table.name);
        error(SqlState::WRONG_OBJECT_TYPE, message)
    })
}

fn no_partition(table: &Table, which: &PartitionRef) -> DataFusionError {
    let what = match which {
        PartitionRef::Name(name) => format!("partition \"{name}\""),
        PartitionRef::Default => "a default partition".to_string(),
        PartitionRef::Of(value) => format!("a partition for {value}"),
    };
    error(SqlState::UNDEFINED_OBJECT, format!("{what} of relation \"{}\" does not exist", table.name))
}

/// Errors: the column's type does not support ranges or lists (42804).
fn check_key(column: &Column, by: DividedBy) -> Result<()> {
    let fits = match column.kind {
        ColumnType::Boolean => by == DividedBy::List,
        ColumnType::Json | ColumnType::Interval | ColumnType::Uuid => false,
        // Floating-point bounds change when the column's type is widened.
        ColumnType::Float32 | ColumnType::Float64 => false,
        kind => {
            !kind.is_nested()
                && !matches!(type_of(column, false)?, DataType::BinaryView | DataType::FixedSizeBinary(_))
        }
    };
    let by = if by == DividedBy::Range { "range" } else { "list" };
    match fits {
        true => Ok(()),
        false => Err(error(
            SqlState::DATATYPE_MISMATCH,
            format!("column \"{}\" of type {} cannot be partitioned by {by}", column.name, column.kind),
        )),
    }
}

/// Converts `value` to the column's type without loss.
///
/// Errors: another type (42804); text does not parse (22P02, 22007); out of range (22003).
fn coerce_bound(
    value: &ScalarValue,
    column: &Column,
    kind: &DataType,
    reading: &TimeReading,
) -> Result<ScalarValue> {
    let from = value.data_type();
    if from == *kind || value.is_null() {
        return value.cast_to(kind);
    }
    let is_date = |kind: &DataType| matches!(kind, DataType::Date32 | DataType::Timestamp(..));
    let is_time = |kind: &DataType| matches!(kind, DataType::Time32(_) | DataType::Time64(_));
    let is_alike = from.is_string()
        || from.is_numeric() && kind.is_numeric()
        || is_date(&from) && is_date(kind)
        || is_time(&from) && is_time(kind);
    if !is_alike {
        let message = format!(
            "a value of type {from} cannot be a bound of column \"{}\", whose type is {}",
            column.name, column.kind
        );
        return Err(error(SqlState::DATATYPE_MISMATCH, message));
    }
    let exact = CastOptions { safe: false, ..CastOptions::default() };
    let there = |value: &ScalarValue, kind: &DataType| -> Option<ScalarValue> {
        let array = cast_with_options(&value.to_array().ok()?, kind, &exact).ok()?;
        ScalarValue::try_from_array(&array, 0).ok()
    };
    let fitted = readable(value.clone(), kind, reading).ok().and_then(|value| there(&value, kind));
    if from.is_string() {
        return fitted.ok_or_else(|| {
            let state = match kind.is_temporal() {
                true => SqlState::INVALID_DATETIME_FORMAT,
                false => SqlState::INVALID_TEXT_REPRESENTATION,
            };
            error(state, format!("invalid input syntax for type {}: \"{value}\"", column.kind))
        });
    }
    let gets_zone = matches!(kind, DataType::Timestamp(_, Some(_))) && is_local(&from);
    fitted.filter(|fitted| gets_zone || there(fitted, &from).as_ref() == Some(value)).ok_or_else(|| {
        let message =
            format!("{value} is no value of column \"{}\", whose type is {}", column.name, column.kind);
        error(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message)
    })
}

/// Splits start..end into steps; the last may be shorter.
fn steps(start: Bound, end: Bound, step: &ScalarValue, kind: &DataType, zone: &str) -> Result<Vec<Interval>> {
    let mut intervals = Vec::new();
    let mut lower = start.clone();
    for times in 1.. {
        if intervals.len() >= TABLE_PARTITIONS_MAX {
            return Err(too_many());
        }
        // A bound that overflows the type is beyond the end.
        let upper = step_bound(&start.value, &lower.value, step, times, kind, zone)?
            .map(|value| Bound { value, after: false })
            .filter(|upper| upper.order(&end).is_lt());
        let Some(upper) = upper else { break };
        if upper.value.partial_cmp(&lower.value) != Some(Ordering::Greater) {
            return Err(invalid_definition("EVERY does not step forward"));
        }
        intervals.push((Some(lower), Some(upper.clone())));
        lower = upper;
    }
    intervals.push((Some(lower), Some(end)));
    Ok(intervals)
}

/// The bound after `times` steps; `last` is the previous one. Days and months are those of time zone `zone`.
/// `None`: it overflows the type.
///
/// Errors: the step does not apply to this type (42804).
fn step_bound(
    start: &ScalarValue,
    last: &ScalarValue,
    step: &ScalarValue,
    times: i32,
    kind: &DataType,
    zone: &str,
) -> Result<Option<ScalarValue>> {
    let exact = CastOptions { safe: false, ..CastOptions::default() };
    let unfit = || {
        let message = format!("a range of type {kind} has no steps of type {}", step.data_type());
        error(SqlState::DATATYPE_MISMATCH, message)
    };
    if step.is_null() {
        return Err(invalid_definition("EVERY is NULL"));
    }
    let is_time = matches!(kind, DataType::Date32 | DataType::Timestamp(..));
    let step_kind = match step.data_type() {
        DataType::Interval(_) if is_time => DataType::Interval(IntervalUnit::MonthDayNano),
        from if from.is_string() && is_time => DataType::Interval(IntervalUnit::MonthDayNano),
        from if from.is_integer() && *kind == DataType::Date32 => DataType::Int32,
        from if from.is_numeric() && kind.is_numeric() => kind.clone(),
        _ => return Err(unfit()),
    };
    let given = step.to_array()?;
    let step = cast_with_options(&given, &step_kind, &exact).map_err(|_| unfit())?;
    if given.data_type().is_numeric()
        && cast_with_options(&step, given.data_type(), &exact).ok().as_ref() != Some(&given)
    {
        let message =
            format!("a range of type {kind} has no steps of {}", ScalarValue::try_from_array(&given, 0)?);
        return Err(error(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message));
    }
    let (from, step) = match ScalarValue::try_from_array(&step, 0)? {
        // Step from the start: days missing in a month are cut once, not cumulatively.
        ScalarValue::IntervalMonthDayNano(Some(one)) => (start, multiply_interval(one, times)),
        ScalarValue::Int32(Some(days)) if *kind == DataType::Date32 => {
            (start, multiply_interval(IntervalMonthDayNano { months: 0, days, nanoseconds: 0 }, times))
        }
        step => (last, Some(step)),
    };
    let Some(step) = step else { return Ok(None) };
    let from = match kind {
        DataType::Timestamp(unit, Some(_)) => from.cast_to(&DataType::Timestamp(*unit, Some(zone.into())))?,
        _ => from.clone(),
    };
    let sum = numeric::add(&from.to_scalar()?, &step.to_scalar()?);
    let fitted = sum.and_then(|sum| cast_with_options(&sum, kind, &exact));
    fitted.ok().map(|sum| ScalarValue::try_from_array(&sum, 0)).transpose()
}

fn multiply_interval(one: IntervalMonthDayNano, times: i32) -> Option<ScalarValue> {
    Some(ScalarValue::IntervalMonthDayNano(Some(IntervalMonthDayNano {
        months: one.months.checked_mul(times)?,
        days: one.days.checked_mul(times)?,
        nanoseconds: one.nanoseconds.checked_mul(times.into())?,
    })))
}

/// Fills in omitted bounds: a range ends where the next begins, and begins where the previous one ends.
fn fill_bounds(
    mut intervals: Vec<(Label, Interval)>,
    partitions: &TablePartitions,
    kind: &DataType,
) -> Result<Vec<(Label, Interval)>> {
    let bound = |cut: &Option<Cut>| -> Result<Option<Bound>> {
        let Some(cut) = cut else { return Ok(None) };
        let value = parse_one(&cut.value, kind)?;
        Ok(Some(Bound { value, after: cut.after }))
    };
    let (mut starts, mut ends) = (Vec::new(), Vec::new());
    for partition in &partitions.partitions {
        if let Holds::Range(start, end) = &partition.holds {
            starts.extend(bound(start)?);
            ends.extend(bound(end)?);
        }
    }
    starts.extend(intervals.iter().filter_map(|(_, (start, _))| start.clone()));
    ends.extend(intervals.iter().filter_map(|(_, (_, end))| end.clone()));
    for (_, (start, end)) in &mut intervals {
        match (&start, &end) {
            (Some(from), None) => {
                let beyond = starts.iter().filter(|other| other.order(from).is_gt());
                *end = beyond.min_by(|a, b| a.order(b)).cloned();
            }
            (None, Some(to)) => {
                let before = ends.iter().filter(|other| other.order(to).is_lt());
                *start = before.max_by(|a, b| a.order(b)).cloned();
            }
            _ => {}
        }
    }
    Ok(intervals)
}

fn push(partitions: &mut TablePartitions, label: Label, holds: Holds) -> Result<()> {
    let Label { name, options } = label;
    let id = partitions.next;
    let is_taken = |name: &String| partitions.partitions.iter().any(|partition| partition.name == *name);
    let name = match name {
        Some(name) => name,
        None => (id..).map(|number| format!("prt_{number}")).find(|name| !is_taken(name)).unwrap_or_default(),
    };
    check_name(partitions, &name)?;
    partitions.partitions.push(TablePartition { id, name, holds, options });
    partitions.next += 1;
    Ok(())
}

fn check_name(partitions: &TablePartitions, name: &str) -> Result<()> {
    match partitions.partitions.iter().any(|partition| partition.name == name) {
        true => Err(error(SqlState::DUPLICATE_OBJECT, format!("partition \"{name}\" already exists"))),
        false => Ok(()),
    }
}

fn check(partitions: &TablePartitions, kind: &DataType) -> Result<()> {
    let name = |at: usize| partitions.partitions[at].name.as_str();
    // NULL has no order.
    let of_null = |partition: &&TablePartition| match &partition.holds {
        Holds::Values(values) => values.contains(&None),
        _ => false,
    };
    let with_null: Vec<_> = partitions.partitions.iter().filter(of_null).collect();
    if let [one, other, ..] = &with_null[..] {
        let message = format!("partition \"{}\" would overlap partition \"{}\"", other.name, one.name);
        return Err(invalid_definition(message));
    }
    match partitions.fault(kind)? {
        None => Ok(()),
        Some(InvalidPartitions::Empty(at)) => {
            let message = format!("empty range bound specified for partition \"{}\"", name(at));
            Err(SqlError::new(SqlState::INVALID_OBJECT_DEFINITION, message)
                .with_detail("Its lower bound is greater than or equal to its upper bound.")
                .into_datafusion())
        }
        Some(InvalidPartitions::Overlap(one, other)) if one == other => {
            Err(invalid_definition(format!("partition \"{}\" lists a value more than once", name(one))))
        }
        Some(InvalidPartitions::Overlap(one, other)) => Err(invalid_definition(format!(
            "partition \"{}\" would overlap partition \"{}\"",
            name(other),
            name(one)
        ))),
    }
}

/// Sorts ranges by bound for display; others last.
fn sort(partitions: &mut TablePartitions, kind: &DataType) -> Result<()> {
    if partitions.by == DividedBy::List {
        return Ok(());
    }
    let mut keyed = Vec::with_capacity(partitions.partitions.len());
    for partition in partitions.partitions.drain(..) {
        let key = match &partition.holds {
            Holds::Range(Some(cut), _) => {
                let value = parse_one(&cut.value, kind)?;
                (1, Some(Bound { value, after: cut.after }))
            }
            Holds::Range(None, _) => (0, None),
            _ => (2, None),
        };
        keyed.push((key, partition));
    }
    keyed.sort_by(|((a, one), _), ((b, other), _)| {
        a.cmp(b).then(match (one, other) {
            (Some(one), Some(other)) => one.order(other),
            _ => Ordering::Equal,
        })
    });
    partitions.partitions = keyed.into_iter().map(|(_, partition)| partition).collect();
    Ok(())
}

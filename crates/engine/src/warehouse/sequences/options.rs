//! Definition of sequences by CREATE and ALTER: PostgreSQL's defaults and rules.

use datafusion::error::{DataFusionError, Result};
use harrier_catalog::sequences::{self as catalog, Sequence, SequenceValue};
use harrier_catalog::state::ObjectId;
use harrier_error::SqlState;
use harrier_sqlstate::error;
use uuid::Uuid;

use harrier_sql::parser::sequence::{SequenceOptions, SequenceType};

fn invalid(message: String) -> DataFusionError {
    error(SqlState::INVALID_PARAMETER_VALUE, message)
}

/// Converts a type to the catalog's.
pub(crate) fn catalog_type(kind: SequenceType) -> catalog::SequenceType {
    match kind {
        SequenceType::SmallInt => catalog::SequenceType::SmallInt,
        SequenceType::Integer => catalog::SequenceType::Integer,
        SequenceType::BigInt => catalog::SequenceType::BigInt,
    }
}

/// Defines a new sequence. `kind`: the default type.
///
/// Errors: contradictory options (22023).
pub(crate) fn new_sequence(
    schema: ObjectId,
    name: String,
    options: &SequenceOptions,
    kind: SequenceType,
) -> Result<Sequence> {
    let sequence = Sequence {
        id: -1,
        uuid: Uuid::new_v4().to_string(),
        schema,
        name,
        kind: catalog_type(options.kind.unwrap_or(kind)),
        start: 0,
        increment: options.increment.unwrap_or(1),
        min: 0,
        max: 0,
        cache: 1,
        cycles: false,
        owner: None,
        comment: None,
    };
    let all = SequenceOptions {
        min: Some(options.min.flatten()),
        max: Some(options.max.flatten()),
        ..options.clone()
    };
    let (mut sequence, _) = with(sequence, &all, false)?;
    if options.start.is_none() {
        sequence.start = if sequence.increment > 0 { sequence.min } else { sequence.max };
    }
    check_start(&sequence)?;
    Ok(sequence)
}

/// Applies options to a sequence; also returns its new value if they change it. `value`: the current one.
///
/// Errors: the options contradict each other or the current value (22023).
pub(crate) fn alter_sequence(
    sequence: &Sequence,
    options: &SequenceOptions,
    value: SequenceValue,
) -> Result<(Sequence, Option<SequenceValue>)> {
    let (sequence, restart) = with(sequence.clone(), options, true)?;
    check_start(&sequence)?;
    let last = restart.map_or(value.last, |restart| restart.last);
    if last < sequence.min {
        return Err(invalid(format!(
            "RESTART value ({last}) cannot be less than MINVALUE ({})",
            sequence.min
        )));
    }
    if last > sequence.max {
        return Err(invalid(format!(
            "RESTART value ({last}) cannot be greater than MAXVALUE ({})",
            sequence.max
        )));
    }
    Ok((sequence, restart))
}

fn check_start(sequence: &Sequence) -> Result<()> {
    let Sequence { start, min, max, .. } = sequence;
    if start < min {
        return Err(invalid(format!("START value ({start}) cannot be less than MINVALUE ({min})")));
    }
    if start > max {
        return Err(invalid(format!("START value ({start}) cannot be greater than MAXVALUE ({max})")));
    }
    Ok(())
}

fn with(
    mut sequence: Sequence,
    options: &SequenceOptions,
    is_there: bool,
) -> Result<(Sequence, Option<SequenceValue>)> {
    let (mut min, mut max) = (options.min, options.max);
    if let Some(kind) = options.kind.filter(|_| is_there) {
        // Bounds equal to those of the old type follow the new type.
        let (least, greatest) = sequence.kind.bounds();
        if sequence.max == greatest {
            max = max.or(Some(None));
        }
        if sequence.min == least {
            min = min.or(Some(None));
        }
        sequence.kind = catalog_type(kind);
    }
    if let Some(increment) = options.increment {
        if increment == 0 {
            return Err(invalid("INCREMENT must not be zero".to_string()));
        }
        sequence.increment = increment;
    }
    let ascends = sequence.increment > 0;
    let (least, greatest) = sequence.kind.bounds();
    if let Some(max) = max {
        sequence.max = max.unwrap_or(if ascends { greatest } else { -1 });
    }
    if let Some(min) = min {
        sequence.min = min.unwrap_or(if ascends { 1 } else { least });
    }
    for (word, value) in [("MAXVALUE", sequence.max), ("MINVALUE", sequence.min)] {
        if !(least..=greatest).contains(&value) {
            let kind = sequence.kind.name();
            return Err(invalid(format!("{word} ({value}) is out of range for sequence data type {kind}")));
        }
    }
    if sequence.min >= sequence.max {
        let Sequence { min, max, .. } = sequence;
        return Err(invalid(format!("MINVALUE ({min}) must be less than MAXVALUE ({max})")));
    }
    if let Some(start) = options.start {
        sequence.start = start;
    }
    if let Some(cache) = options.cache {
        if cache < 1 {
            return Err(invalid(format!("CACHE ({cache}) must be greater than zero")));
        }
        sequence.cache = cache;
    }
    if let Some(cycles) = options.cycles {
        sequence.cycles = cycles;
    }
    let restart =
        options.restart.map(|at| SequenceValue { last: at.unwrap_or(sequence.start), is_called: false });
    Ok((sequence, restart))
}

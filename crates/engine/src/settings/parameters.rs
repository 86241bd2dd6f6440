//! PostgreSQL's session parameters, for clients that set and show them. Some have an effect, some are only
//! stored, and some have one fixed value.
//!
//! # Transactions
//! A rollback undoes the effects of SET within its transaction; those of SET LOCAL end with the transaction
//! in any case.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::error::Result;
use datafusion::sql::parser::{ResetStatement, Statement};
use datafusion::sql::sqlparser::ast::{
    self, ContextModifier, DateTimeField, Expr, Ident, ObjectName, UnaryOperator, Value,
};
use harrier_error::{SqlError, SqlState};
use harrier_functions::parse::datetime::DateOrder;
use harrier_functions::parse::interval::{self, IntervalStyle};
use harrier_sqlstate::IntoDataFusionError;
use parking_lot::Mutex;

use crate::settings::{SetBy, SettingFacts};
use harrier_sql::identifier::plain;

/// The version of PostgreSQL whose catalogs and behaviour are presented to clients.
pub const SERVER_VERSION: &str = "15.0";

/// The allowed values of a parameter.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Text,
    Boolean,
    Integer(i64, i64),
    /// Milliseconds, or a number with a unit.
    Time,
    OneOf(&'static [&'static str]),
    /// Set only when the session begins.
    Fixed,
    Encoding,
    DateStyle,
    Zone,
    SearchPath,
}

struct Definition {
    name: &'static str,
    default: &'static str,
    kind: Kind,
    description: &'static str,
}

const fn parameter(
    name: &'static str,
    default: &'static str,
    kind: Kind,
    description: &'static str,
) -> Definition {
    Definition { name, default, kind, description }
}

const LEVELS: &[&str] = &["read committed", "read uncommitted", "repeatable read", "serializable"];
const MESSAGES: &[&str] =
    &["debug5", "debug4", "debug3", "debug2", "debug1", "debug", "log", "notice", "warning", "error"];

/// Sorted by name, ignoring case.
const DEFINITIONS: &[Definition] = &[
    parameter("application_name", "", Kind::Text, "The name of the client's program"),
    parameter("block_size", "8192", Kind::Fixed, "What clients reckon sizes in"),
    parameter("bytea_output", "hex", Kind::OneOf(&["hex"]), "How bytes are written"),
    parameter("check_function_bodies", "on", Kind::Boolean, "Remembered only"),
    parameter(
        "client_encoding",
        "UTF8",
        Kind::Encoding,
        "The encoding of text: UTF8, or SQL_ASCII for the same bytes",
    ),
    parameter("client_min_messages", "notice", Kind::OneOf(MESSAGES), "Remembered only"),
    parameter(
        "DateStyle",
        "ISO, MDY",
        Kind::DateStyle,
        "How dates are written, and the order of numbers in those that are read",
    ),
    parameter("default_table_access_method", "heap", Kind::Text, "Remembered only"),
    parameter("default_tablespace", "", Kind::Text, "Remembered only"),
    parameter(
        "default_transaction_isolation",
        "read committed",
        Kind::OneOf(LEVELS),
        "Of transactions that come",
    ),
    parameter("default_transaction_read_only", "off", Kind::Boolean, "Of transactions that come"),
    parameter("escape_string_warning", "on", Kind::Boolean, "Remembered only"),
    parameter(
        "extra_float_digits",
        "1",
        Kind::Integer(-15, 3),
        "Remembered only: all digits that matter are written",
    ),
    parameter("geqo", "on", Kind::Boolean, "Remembered only"),
    parameter(
        "idle_in_transaction_session_timeout",
        "0",
        Kind::Time,
        "How long a session may be idle in a transaction",
    ),
    parameter("idle_session_timeout", "0", Kind::Time, "How long a session may be idle"),
    parameter("in_hot_standby", "off", Kind::Fixed, "Whether this is a standby"),
    parameter("integer_datetimes", "on", Kind::Fixed, "Times are whole numbers in binary form"),
    parameter("IntervalStyle", "postgres", Kind::OneOf(IntervalStyle::NAMES), "How intervals are written"),
    parameter("is_superuser", "on", Kind::Fixed, "Whether the role may do everything"),
    parameter("jit", "off", Kind::Boolean, "Remembered only"),
    parameter("lc_collate", "C", Kind::Fixed, "How texts are ordered: by their bytes"),
    parameter("lc_ctype", "C", Kind::Fixed, "What a letter is"),
    parameter("lc_messages", "C", Kind::Text, "Remembered only"),
    parameter("lc_monetary", "C", Kind::Text, "Remembered only"),
    parameter("lc_numeric", "C", Kind::Text, "Remembered only"),
    parameter("lc_time", "C", Kind::Text, "Remembered only"),
    parameter("lock_timeout", "0", Kind::Time, "How long a statement may wait for an advisory lock"),
    parameter("max_connections", "1024", Kind::Fixed, "How many sessions there may be"),
    parameter("max_index_keys", "32", Kind::Fixed, "Columns of an index, of which there are none"),
    parameter("max_identifier_length", "63", Kind::Fixed, "Bytes of a name that clients may rely on"),
    parameter(
        "password_encryption",
        "scram-sha-256",
        Kind::OneOf(&["scram-sha-256"]),
        "How passwords are kept, which clients ask for before they send one",
    ),
    parameter("row_security", "on", Kind::Boolean, "Remembered only"),
    parameter(
        "search_path",
        "\"$user\", public",
        Kind::SearchPath,
        "Where names without a schema are looked for",
    ),
    parameter("server_encoding", "UTF8", Kind::Fixed, "The encoding of stored text"),
    parameter("server_version", SERVER_VERSION, Kind::Fixed, "The version of PostgreSQL that clients find"),
    parameter("server_version_num", "150000", Kind::Fixed, "The same as a number"),
    parameter("session_authorization", "", Kind::Fixed, "The role of the session"),
    parameter(
        "standard_conforming_strings",
        "on",
        Kind::OneOf(&["on"]),
        "A backslash in a string is a character",
    ),
    parameter("statement_timeout", "0", Kind::Time, "How long a statement may run"),
    parameter("synchronize_seqscans", "on", Kind::Boolean, "Remembered only"),
    parameter("synchronous_commit", "on", Kind::Text, "Remembered only: every commit is on disk"),
    parameter(
        "TimeZone",
        "UTC",
        Kind::Zone,
        "The time zone of points in time that are written without one, and in which they are shown",
    ),
    parameter("transaction_isolation", "read committed", Kind::Fixed, "Of the present transaction"),
    parameter("transaction_read_only", "off", Kind::Fixed, "Of the present transaction"),
    parameter("work_mem", "4MB", Kind::Text, "Remembered only: see --memory"),
    parameter("xmloption", "content", Kind::Text, "Remembered only"),
];

/// Parameters reported to clients at start-up and at every change (PostgreSQL's GUC_REPORT).
const REPORTED: [&str; 13] = [
    "application_name",
    "client_encoding",
    "DateStyle",
    "default_transaction_read_only",
    "in_hot_standby",
    "integer_datetimes",
    "IntervalStyle",
    "is_superuser",
    "server_encoding",
    "server_version",
    "session_authorization",
    "standard_conforming_strings",
    "TimeZone",
];

/// A statement's effect on parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    Set {
        name: &'static str,
        value: String,
        is_local: bool,
    },
    /// SET … TO DEFAULT.
    SetDefault {
        name: &'static str,
        is_local: bool,
    },
    /// USE: the schema in which names without one are looked for; it has to exist.
    Use(String),
    Reset(&'static str),
    ResetAll,
    Show(&'static str),
    ShowAll,
    /// SET LOCAL of a setting that is no parameter of PostgreSQL's, or SET … TO DEFAULT (`None`). Other SET
    /// and RESET of them have plans of DataFusion's.
    Setting {
        name: String,
        value: Option<String>,
        is_local: bool,
    },
}

impl Change {
    /// The result's columns, if the statement returns rows.
    pub(crate) fn columns(&self) -> Option<SchemaRef> {
        let names: &[&str] = match self {
            Self::Show(name) => &[name],
            Self::ShowAll => &["name", "setting", "description"],
            Self::Set { .. }
            | Self::SetDefault { .. }
            | Self::Setting { .. }
            | Self::Use(_)
            | Self::Reset(_)
            | Self::ResetAll => return None,
        };
        let columns = names.iter().map(|name| Field::new(*name, DataType::Utf8, false));
        Some(Arc::new(Schema::new(columns.collect::<Vec<_>>())))
    }
}

type Values = BTreeMap<&'static str, String>;

/// The parameters of one session.
#[derive(Debug, Default)]
pub(crate) struct Parameters {
    inner: Mutex<Inner>,
    version: AtomicU64,
    /// The version that the planner's settings reflect.
    planned_version: AtomicU64,
}

#[derive(Debug, Default)]
struct Inner {
    /// Values that differ from the defaults.
    values: Values,
    /// Values that RESET restores: those the session began with.
    initial: Values,
    /// Within a transaction: the values before it, and the names changed by SET LOCAL.
    before: Option<Values>,
    local: Vec<&'static str>,
}

impl Inner {
    fn reset(&mut self, name: &'static str) {
        match self.initial.get(name).cloned() {
            Some(value) => drop(self.values.insert(name, value)),
            None => drop(self.values.remove(name)),
        }
    }
}

impl Parameters {
    /// The value of a parameter; the name's case does not matter.
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        let definition = definition(name)?;
        let inner = self.inner.lock();
        Some(inner.values.get(definition.name).map_or(definition.default, String::as_str).to_string())
    }

    /// All parameters: names, values and descriptions.
    pub(crate) fn all(&self) -> Vec<(&'static str, String, &'static str)> {
        let inner = self.inner.lock();
        let value = |definition: &Definition| {
            inner.values.get(definition.name).map_or(definition.default, String::as_str).to_string()
        };
        DEFINITIONS
            .iter()
            .map(|definition| (definition.name, value(definition), definition.description))
            .collect()
    }

    /// The parameters reported to clients, with the present version, if any may have changed since `version`.
    pub(crate) fn reported_since(&self, version: u64) -> Option<(u64, Vec<(&'static str, String)>)> {
        let present = self.version.load(Ordering::Acquire) + 1;
        if present == version {
            return None;
        }
        Some((present, REPORTED.iter().filter_map(|name| Some((*name, self.get(name)?))).collect()))
    }

    /// Checks a value and sets it; returns the normalized value.
    ///
    /// Errors: invalid value (22023), or the parameter cannot be changed (55P02).
    pub(crate) fn set(&self, name: &'static str, value: &str, is_local: bool) -> Result<String> {
        let Some(definition) = definition(name) else {
            return Err(unknown(name).into_datafusion());
        };
        // The style alone keeps the present order.
        let order = matches!(definition.kind, Kind::DateStyle)
            .then(|| self.get(name))
            .flatten()
            .and_then(|present| DateOrder::of_style(&present))
            .filter(|_| value.trim().eq_ignore_ascii_case("iso"));
        let value = match order {
            Some(order) => definition.check(order.name())?,
            None => definition.check(value)?,
        };
        let mut inner = self.inner.lock();
        // Outside of a transaction, SET LOCAL has no effect.
        if is_local && inner.before.is_none() {
            return Ok(value);
        }
        if is_local && !inner.local.contains(&definition.name) {
            inner.local.push(definition.name);
        }
        inner.values.insert(definition.name, value.clone());
        drop(inner);
        self.bump_version();
        Ok(value)
    }

    /// Sets a parameter that SET cannot change, and the value that RESET restores.
    pub(crate) fn fix(&self, name: &'static str, value: String) {
        let mut inner = self.inner.lock();
        inner.initial.insert(name, value.clone());
        inner.values.insert(name, value);
        drop(inner);
        self.bump_version();
    }

    /// Makes the present values those that RESET restores.
    pub(crate) fn save_initial(&self) {
        let mut inner = self.inner.lock();
        inner.initial = inner.values.clone();
    }

    pub(crate) fn reset(&self, name: Option<&'static str>) {
        let mut inner = self.inner.lock();
        match name {
            None => inner.values = inner.initial.clone(),
            Some(name) => inner.reset(name),
        }
        drop(inner);
        self.bump_version();
    }

    /// SET … TO DEFAULT: as [`Self::reset`], or until the end of the transaction only.
    pub(crate) fn set_default(&self, name: &'static str, is_local: bool) {
        let mut inner = self.inner.lock();
        // Outside of a transaction, SET LOCAL has no effect.
        if is_local && inner.before.is_none() {
            return;
        }
        if is_local && !inner.local.contains(&name) {
            inner.local.push(name);
        }
        inner.reset(name);
        drop(inner);
        self.bump_version();
    }

    /// Saves the values. To be called after BEGIN.
    pub(crate) fn begin(&self) {
        let mut inner = self.inner.lock();
        if inner.before.is_none() {
            inner.before = Some(inner.values.clone());
        }
    }

    /// Restores values after COMMIT or ROLLBACK. Returns whether values have changed.
    pub(crate) fn end(&self, is_committed: bool) -> bool {
        let mut inner = self.inner.lock();
        let Some(before) = inner.before.take() else {
            return false;
        };
        let local = std::mem::take(&mut inner.local);
        let after = match is_committed {
            false => before,
            true => {
                let mut after = inner.values.clone();
                for name in local {
                    match before.get(name) {
                        Some(value) => drop(after.insert(name, value.clone())),
                        None => drop(after.remove(name)),
                    }
                }
                after
            }
        };
        let has_changed = after != inner.values;
        inner.values = after;
        drop(inner);
        if has_changed {
            self.bump_version();
        }
        has_changed
    }

    fn bump_version(&self) {
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Whether a parameter may have changed since the last call.
    pub(crate) fn has_changed(&self) -> bool {
        let version = self.version.load(Ordering::Acquire);
        self.planned_version.swap(version, Ordering::AcqRel) != version
    }

    /// A parameter's value as a duration; `None` for 0.
    pub(crate) fn time(&self, name: &str) -> Option<std::time::Duration> {
        let ms = self.get(name).and_then(|value| milliseconds(&value)).filter(|ms| *ms > 0)?;
        Some(std::time::Duration::from_millis(ms))
    }

    /// The schemas of the search path in order.
    pub(crate) fn search_path(&self) -> Vec<String> {
        let path = self.get("search_path").unwrap_or_default();
        path.split(',').map(|part| unquote(part.trim())).filter(|part| !part.is_empty()).collect()
    }
}

fn unquote(name: &str) -> String {
    match name.strip_prefix('"').and_then(|name| name.strip_suffix('"')) {
        Some(quoted) => quoted.replace("\"\"", "\""),
        None => name.to_ascii_lowercase(),
    }
}

/// Looks up a definition by name, ignoring case.
fn definition(name: &str) -> Option<&'static Definition> {
    DEFINITIONS.iter().find(|definition| definition.name.eq_ignore_ascii_case(name))
}

/// The canonical spelling of a parameter's name, ignoring the case of `name`.
pub(crate) fn name_of(name: &str) -> Option<&'static str> {
    definition(name).map(|definition| definition.name)
}

/// Descriptions of all parameters, sorted by name.
pub(crate) fn facts() -> impl Iterator<Item = SettingFacts> {
    DEFINITIONS.iter().map(|definition| SettingFacts {
        name: definition.name.to_string(),
        default: definition.default.to_string(),
        allowed: definition.kind.allowed_values(),
        by: if matches!(definition.kind, Kind::Fixed) { SetBy::Nobody } else { SetBy::Everybody },
        description: definition.description.to_string(),
    })
}

impl Kind {
    /// As text for users.
    fn allowed_values(&self) -> String {
        match self {
            Self::Text => "any text".to_string(),
            Self::Boolean => "on, off".to_string(),
            Self::Integer(min, max) => format!("a number from {min} to {max}"),
            Self::Time => "a time in us, ms (also without a unit), s, min, h or d; 0: no limit".to_string(),
            Self::OneOf(allowed) => allowed.join(", "),
            Self::Fixed => String::new(),
            Self::Encoding => "UTF8, SQL_ASCII".to_string(),
            Self::DateStyle => "ISO, with MDY, DMY or YMD".to_string(),
            Self::Zone => "a name such as Europe/Berlin, or a difference such as +02:00".to_string(),
            Self::SearchPath => "names of schemas".to_string(),
        }
    }
}

/// The normalized value of a parameter.
///
/// Errors: as [`Parameters::set`].
pub(crate) fn check_value(name: &'static str, value: &str) -> Result<String> {
    definition(name).ok_or_else(|| unknown(name)).map_err(harrier_sqlstate::external)?.check(value)
}

pub(crate) fn unknown(name: &str) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_OBJECT, format!("unrecognized configuration parameter \"{name}\""))
}

impl Definition {
    fn check(&self, value: &str) -> Result<String> {
        let name = self.name;
        let invalid = || {
            SqlError::new(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("invalid value for parameter \"{name}\": \"{value}\""),
            )
        };
        let lower = value.trim().to_ascii_lowercase();
        Ok(match self.kind {
            Kind::Text | Kind::SearchPath => value.to_string(),
            Kind::Boolean => match lower.as_str() {
                "on" | "true" | "t" | "yes" | "y" | "1" => "on".to_string(),
                "off" | "false" | "f" | "no" | "n" | "0" => "off".to_string(),
                _ => return Err(invalid().with_hint("available values: on, off").into_datafusion()),
            },
            Kind::Integer(min, max) => match lower.parse::<i64>() {
                Ok(number) if (min..=max).contains(&number) => number.to_string(),
                _ => {
                    return Err(invalid()
                        .with_hint(format!("a number from {min} to {max} is expected"))
                        .into_datafusion());
                }
            },
            Kind::Time => match milliseconds(&lower) {
                Some(ms) => time_text(ms),
                None => {
                    let hint = "Valid units for this parameter are \"us\", \"ms\", \"s\", \"min\", \"h\", and \"d\".";
                    return Err(invalid().with_hint(hint).into_datafusion());
                }
            },
            Kind::OneOf(allowed) => {
                let is_on = allowed == ["on"] && matches!(lower.as_str(), "true" | "t" | "yes" | "1");
                match allowed.iter().find(|allowed| **allowed == lower || is_on) {
                    Some(value) => value.to_string(),
                    None => {
                        return Err(invalid()
                            .with_hint(format!("available values: {}", allowed.join(", ")))
                            .into_datafusion());
                    }
                }
            }
            Kind::Fixed => {
                let message = format!("parameter \"{name}\" cannot be changed");
                return Err(SqlError::new(SqlState::CANT_CHANGE_RUNTIME_PARAM, message).into_datafusion());
            }
            Kind::Encoding => match lower.replace(['-', '_', '\''], "").as_str() {
                "utf8" | "unicode" => "UTF8".to_string(),
                // Nothing is converted.
                "sqlascii" => "SQL_ASCII".to_string(),
                _ => return Err(invalid().with_hint("available values: UTF8, SQL_ASCII").into_datafusion()),
            },
            Kind::DateStyle => {
                let parts: Vec<&str> = lower.split(',').map(str::trim).collect();
                let mut order = "MDY";
                for part in parts {
                    order = match part {
                        "iso" | "default" => order,
                        "mdy" | "us" | "noneuropean" => "MDY",
                        "dmy" | "euro" | "european" => "DMY",
                        "ymd" => "YMD",
                        _ => {
                            return Err(invalid()
                                .with_hint("available values: ISO, with MDY, DMY or YMD")
                                .into_datafusion());
                        }
                    };
                }
                format!("ISO, {order}")
            }
            Kind::Zone => zone(value.trim())
                .ok_or_else(|| {
                    invalid()
                        .with_hint("a name such as Europe/Berlin or a difference such as +02:00 is expected")
                })
                .map_err(harrier_sqlstate::external)?,
        })
    }
}

/// Normalizes a time zone to a name or offset that Arrow accepts.
fn zone(name: &str) -> Option<String> {
    let is_known = |name: &str| name.parse::<datafusion::arrow::array::timezone::Tz>().is_ok();
    let upper = name.to_ascii_uppercase();
    if matches!(upper.as_str(), "UTC" | "GMT" | "Z" | "ZULU" | "DEFAULT" | "LOCAL") {
        return Some("UTC".to_string());
    }
    if is_known(name) {
        return Some(name.to_string());
    }
    // Hours, as in SET TIME ZONE -5.
    let hours: f64 = name.parse().ok().filter(|hours: &f64| hours.abs() < 16.0)?;
    let minutes = (hours * 60.0).round() as i64;
    let sign = if minutes < 0 { '-' } else { '+' };
    Some(format!("{sign}{:02}:{:02}", minutes.abs() / 60, minutes.abs() % 60))
}

/// Whether this name in RESET means TIME ZONE, which DataFusion has spelled in several ways.
fn is_time_zone(name: &str) -> bool {
    let letters: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    matches!(letters.to_ascii_lowercase().as_str(), "timezone" | "datafusionexecutiontimezone")
}

/// The offset of `SET TIME ZONE INTERVAL`, such as `+02:00`. Hours and minutes only.
fn zone_of_interval(interval: &ast::Interval) -> Option<String> {
    let Expr::Value(value) = interval.value.as_ref() else { return None };
    let Value::SingleQuotedString(text) = &value.value else { return None };
    let text = match interval.leading_field {
        Some(DateTimeField::Hour) if !text.contains(':') => format!("{text}:00"),
        _ => text.clone(),
    };
    // Rewrites before planning may already have normalized its units.
    let units = interval::normal(&text).unwrap_or(text);
    let nanoseconds = units.strip_prefix("0 months 0 days ")?.strip_suffix(" nanoseconds")?;
    let minutes = nanoseconds.parse::<i64>().ok().filter(|ns| ns % 60_000_000_000 == 0)? / 60_000_000_000;
    let sign = if minutes < 0 { '-' } else { '+' };
    Some(format!("{sign}{:02}:{:02}", minutes.abs() / 60, minutes.abs() % 60))
}

fn milliseconds(text: &str) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().ok()?;
    let unit = match unit.trim() {
        "" | "ms" => 1.0,
        "us" => 0.001,
        "s" => 1000.0,
        "min" => 60_000.0,
        "h" => 3_600_000.0,
        "d" => 86_400_000.0,
        _ => return None,
    };
    let ms = (number * unit).round();
    (0.0..=2_147_483_647.0).contains(&ms).then_some(ms as u64)
}

/// Formats in the largest unit that gives a whole number.
fn time_text(ms: u64) -> String {
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s")];
    match units.iter().find(|(size, _)| ms >= *size && ms.is_multiple_of(*size)) {
        _ if ms == 0 => "0".to_string(),
        Some((size, unit)) => format!("{}{unit}", ms / size),
        None => format!("{ms}ms"),
    }
}

impl Change {
    /// The effect of `statement` on a parameter known here, if it has one.
    pub(crate) fn of(statement: &Statement) -> Option<Self> {
        let parsed = match statement {
            // RESET TIME ZONE.
            Statement::Reset(ResetStatement::Variable(name)) if is_time_zone(&name.to_string()) => {
                return Some(Self::Reset("TimeZone"));
            }
            Statement::Reset(ResetStatement::Variable(name)) => {
                return match single_part(name)?.to_ascii_lowercase().as_str() {
                    "all" => Some(Self::ResetAll),
                    name => Some(Self::Reset(name_of(name)?)),
                };
            }
            Statement::Statement(parsed) => parsed.as_ref(),
            _ => return None,
        };
        match parsed {
            ast::Statement::Set(ast::Set::SingleAssignment { scope, variable, values, hivevar: false }) => {
                let is_local = matches!(scope, Some(ContextModifier::Local));
                match single_part(variable).and_then(|name| name_of(&name)) {
                    Some(name) => Some(Self::of_set(name, values, is_local)),
                    None => Self::of_setting(variable, values, is_local),
                }
            }
            ast::Statement::Set(ast::Set::SetTimeZone { local, value }) => {
                // SET TIME ZONE INTERVAL '+02:00' HOUR TO MINUTE.
                if let Expr::Interval(interval) = value
                    && let Some(zone) = zone_of_interval(interval)
                {
                    return Some(Self::Set { name: "TimeZone", value: zone, is_local: *local });
                }
                Some(Self::of_set("TimeZone", std::slice::from_ref(value), *local))
            }
            ast::Statement::Set(ast::Set::SetNames { charset_name, .. }) => Some(Self::Set {
                name: "client_encoding",
                value: charset_name.value.clone(),
                is_local: false,
            }),
            ast::Statement::Set(ast::Set::SetNamesDefault {}) => Some(Self::Reset("client_encoding")),
            ast::Statement::Use(ast::Use::Object(name)) => single_part(name).map(Self::Use),
            ast::Statement::ShowVariable { variable } => Self::of_show(variable),
            _ => None,
        }
    }

    fn of_set(name: &'static str, values: &[Expr], is_local: bool) -> Self {
        match is_default(values) {
            true => Self::SetDefault { name, is_local },
            false => {
                let value = values.iter().map(|value| text_of(value, name)).collect::<Vec<_>>().join(", ");
                Self::Set { name, value, is_local }
            }
        }
    }

    fn of_setting(variable: &ObjectName, values: &[Expr], is_local: bool) -> Option<Self> {
        let words = variable.0.iter().map(|part| part.as_ident().map(|part| part.value.clone()));
        let name = words.collect::<Option<Vec<_>>>()?.join(".");
        let value = match values {
            values if is_default(values) => None,
            [value] if is_local => Some(text_of(value, &name)),
            _ => return None,
        };
        Some(Self::Setting { name, value, is_local })
    }

    fn of_show(variable: &[Ident]) -> Option<Self> {
        let words: Vec<String> = variable.iter().map(|word| word.value.to_ascii_lowercase()).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let name = match words[..] {
            ["transaction", "isolation", "level"] => "transaction_isolation",
            ["time", "zone"] => "TimeZone",
            ["session", "authorization"] => "session_authorization",
            ["all"] => return Some(Self::ShowAll),
            [name] => name_of(name)?,
            _ => return None,
        };
        Some(Self::Show(name))
    }
}

/// Whether a setting is set to DEFAULT, the keyword.
fn is_default(values: &[Expr]) -> bool {
    matches!(values, [Expr::Identifier(word)]
        if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("default"))
}

fn single_part(name: &ObjectName) -> Option<String> {
    match &name.0[..] {
        [part] => part.as_ident().map(|part| part.value.clone()),
        _ => None,
    }
}

/// The text of a SET value. In a search path, names keep their quotes, since the path is itself a list of
/// names.
fn text_of(value: &Expr, name: &str) -> String {
    match value {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::DoubleQuotedString(text) => match name {
                "search_path" if text.is_empty() => "\"\"".to_string(),
                _ => text.clone(),
            },
            Value::Boolean(value) => if *value { "on" } else { "off" }.to_string(),
            other => other.to_string(),
        },
        Expr::Identifier(word) if name == "search_path" => match word.quote_style {
            Some(_) => format!("\"{}\"", word.value.replace('"', "\"\"")),
            None => plain(word),
        },
        Expr::Identifier(word) => plain(word),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => format!("-{}", text_of(expr, name)),
        Expr::UnaryOp { op: UnaryOperator::Plus, expr } => text_of(expr, name),
        other => other.to_string(),
    }
}

/// Whether DataFusion answers the statement with rows, such as SHOW TABLES.
pub(crate) fn shows_rows(statement: &ast::Statement) -> bool {
    matches!(
        statement,
        ast::Statement::ShowTables { .. }
            | ast::Statement::ShowVariable { .. }
            | ast::Statement::ShowColumns { .. }
            | ast::Statement::ShowFunctions { .. }
            | ast::Statement::ShowCreate { .. }
    )
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParserBuilder;
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;

    use super::*;

    fn change(sql: &str) -> Option<Change> {
        let dialect = PostgreSqlDialect {};
        let mut parser = DFParserBuilder::new(sql).with_dialect(&dialect).build().unwrap();
        Change::of(&parser.parse_statements().unwrap().pop_front().unwrap())
    }

    fn setting(name: &str, value: Option<&str>, is_local: bool) -> Option<Change> {
        Some(Change::Setting { name: name.to_string(), value: value.map(str::to_string), is_local })
    }

    fn set(parameters: &Parameters, sql: &str) -> Result<String, String> {
        let Some(Change::Set { name, value, is_local }) = change(sql) else {
            return Err("no SET".to_string());
        };
        parameters.set(name, &value, is_local).map_err(|error| harrier_sqlstate::of(&error).to_string())
    }

    #[test]
    fn values_are_checked() {
        let cases = [
            ("SET extra_float_digits = 3", Ok("3")),
            ("SET extra_float_digits = 4", Err("22023")),
            ("SET DateStyle TO 'ISO'", Ok("ISO, MDY")),
            ("SET DateStyle TO 'ISO, DMY'", Ok("ISO, DMY")),
            ("SET DateStyle = YMD", Ok("ISO, YMD")),
            ("SET datestyle = German", Err("22023")),
            ("SET password_encryption = 'scram-sha-256'", Ok("scram-sha-256")),
            ("SET password_encryption = md5", Err("22023")),
            ("SET client_encoding TO 'utf-8'", Ok("UTF8")),
            ("SET NAMES 'latin1'", Err("22023")),
            ("SET statement_timeout = 60000", Ok("1min")),
            ("SET statement_timeout = '1500'", Ok("1500ms")),
            ("SET statement_timeout = -1", Err("22023")),
            ("SET TIME ZONE 'Europe/Berlin'", Ok("Europe/Berlin")),
            ("SET TIME ZONE -5", Ok("-05:00")),
            ("SET TIME ZONE INTERVAL '+00:00' HOUR TO MINUTE", Ok("+00:00")),
            ("SET LOCAL TIME ZONE INTERVAL '-05:30' HOUR TO MINUTE", Ok("-05:30")),
            ("SET TIME ZONE INTERVAL '2' HOUR", Ok("+02:00")),
            ("SET TIME ZONE INTERVAL '1 day'", Err("22023")),
            ("SET intervalstyle = iso_8601", Ok("iso_8601")),
            ("SET IntervalStyle TO 'SQL_STANDARD'", Ok("sql_standard")),
            ("SET intervalstyle = german", Err("22023")),
            ("SET client_encoding = 'SQL_ASCII'", Ok("SQL_ASCII")),
            ("SET client_encoding = 'WIN1252'", Err("22023")),
            ("SET timezone = 'Nowhere'", Err("22023")),
            ("SET search_path = a, \"B\", 'c'", Ok("a, \"B\", c")),
            ("SET standard_conforming_strings = off", Err("22023")),
            ("SET server_version = '9'", Err("55P02")),
            ("SET application_name = 'x y'", Ok("x y")),
        ];
        for (sql, expected) in cases {
            let expected = expected.map(str::to_string).map_err(str::to_string);
            assert_eq!(set(&Parameters::default(), sql), expected, "{sql}");
        }
    }

    #[test]
    fn a_style_of_dates_leaves_their_order() {
        let parameters = Parameters::default();
        for (style, expected) in
            [("YMD", "ISO, YMD"), ("iso", "ISO, YMD"), ("default", "ISO, MDY"), ("ISO", "ISO, MDY")]
        {
            let set = set(&parameters, &format!("SET DateStyle = '{style}'"));
            assert_eq!(set.as_deref(), Ok(expected), "{style}");
        }
    }

    #[test]
    fn parameter_statements_are_recognized() {
        let cases = [
            ("SHOW ALL", Some(Change::ShowAll)),
            ("SHOW search_path", Some(Change::Show("search_path"))),
            ("SHOW TRANSACTION ISOLATION LEVEL", Some(Change::Show("transaction_isolation"))),
            ("SHOW datafusion.execution.batch_size", None),
            ("RESET ALL", Some(Change::ResetAll)),
            ("RESET timezone", Some(Change::Reset("TimeZone"))),
            ("RESET TIME ZONE", Some(Change::Reset("TimeZone"))),
            ("SET work_mem TO DEFAULT", Some(Change::SetDefault { name: "work_mem", is_local: false })),
            ("SET harrier.progress = off", None),
            ("SET LOCAL harrier.progress = off", setting("harrier.progress", Some("off"), true)),
            ("SET LOCAL harrier.progress = DEFAULT", setting("harrier.progress", None, true)),
            ("SET harrier.progress TO DEFAULT", setting("harrier.progress", None, false)),
            ("SET harrier.progress TO 'default'", None),
            ("SELECT 1", None),
        ];
        for (sql, expected) in cases {
            assert_eq!(change(sql), expected, "{sql}");
        }
    }

    #[test]
    fn rollback_restores_settings() {
        let parameters = Parameters::default();
        set(&parameters, "SET work_mem = '1MB'").unwrap();
        parameters.begin();
        set(&parameters, "SET LOCAL work_mem = '2MB'").unwrap();
        set(&parameters, "SET application_name = 'a'").unwrap();
        assert_eq!(parameters.get("work_mem").as_deref(), Some("2MB"));
        assert!(parameters.end(true));
        assert_eq!(parameters.get("work_mem").as_deref(), Some("1MB"));
        assert_eq!(parameters.get("application_name").as_deref(), Some("a"));
        parameters.begin();
        set(&parameters, "SET application_name = 'b'").unwrap();
        assert!(parameters.end(false));
        assert_eq!(parameters.get("application_name").as_deref(), Some("a"));
        set(&parameters, "SET LOCAL application_name = 'c'").unwrap();
        assert_eq!(parameters.get("application_name").as_deref(), Some("a"));
    }
}

//! The table of functions, continued: transactions, replication, locks, and features that do not exist here
//! but are queried.

use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;

use super::call::Argument::{Either, Int, Ints, Text};
use super::definitions::{NOTHING, object_in, object_out};
use super::lookups::{by_name, text_of_system, type_text};
use crate::catalog::{quote_identifier, split_name};
use crate::functions::call::{Call, Definition, Value, int, text};

pub(super) const DEFINITIONS: &[Definition] = &[
    // Transactions. The system columns of catalogs contain the id of the current snapshot:
    // `rewrite/system_columns.rs`.
    ("xid_of_catalog", "xid", 0, &[], |call, _| Ok(call.catalog.source.transaction_id().to_string().into())),
    ("xidin", "xid", 1, &[Text], |_, values| match text(&values[0]).trim().parse::<u32>() {
        Ok(xid) => Ok(xid.to_string().into()),
        Err(_) => exec_err!("invalid input syntax for type xid: \"{}\"", text(&values[0])),
    }),
    ("xid_age", "int4", 1, &[Text], |call, values| {
        let Ok(xid) = text(&values[0]).trim().parse::<u32>() else {
            return exec_err!("invalid input syntax for type xid: \"{}\"", text(&values[0]));
        };
        // The first three are permanent and older than all others.
        match xid {
            0..3 => Ok(Value::Int(i32::MAX)),
            // Transaction ids wrap around.
            _ => Ok(Value::Int((call.catalog.source.transaction_id() as u32).wrapping_sub(xid) as i32)),
        }
    }),
    ("txid_current_if_assigned", "int8", 0, &[], NOTHING),
    ("pg_current_xact_id_if_assigned", "int8", 0, &[], NOTHING),
    ("txid_current_snapshot", "text", 0, &[], snapshot),
    ("pg_current_snapshot", "text", 0, &[], snapshot),
    ("txid_snapshot_xmin", "int8", 1, &[Text], |_, values| part_of_snapshot(&values[0], 0)),
    ("pg_snapshot_xmin", "int8", 1, &[Text], |_, values| part_of_snapshot(&values[0], 0)),
    ("txid_snapshot_xmax", "int8", 1, &[Text], |_, values| part_of_snapshot(&values[0], 1)),
    ("pg_snapshot_xmax", "int8", 1, &[Text], |_, values| part_of_snapshot(&values[0], 1)),
    // Replication, which does not exist here, and recovery.
    ("pg_is_wal_replay_paused", "bool", 0, &[], |call, _| match call.catalog.source.in_recovery() {
        true => Ok(Value::Bool(false)),
        false => exec_err!("recovery is not in progress"),
    }),
    ("pg_get_wal_replay_pause_state", "text", 0, &[], |call, _| match call.catalog.source.in_recovery() {
        true => Ok("not paused".into()),
        false => exec_err!("recovery is not in progress"),
    }),
    ("pg_last_wal_receive_lsn", "pg_lsn", 0, &[], NOTHING),
    ("pg_last_wal_replay_lsn", "pg_lsn", 0, &[], NOTHING),
    ("pg_last_xact_replay_timestamp", "timestamptz", 0, &[], NOTHING),
    // Sessions never wait for each other's locks.
    ("pg_blocking_pids", "_int4", 1, &[Int], |_, _| Ok(Value::Ints(vec![]))),
    ("pg_safe_snapshot_blocking_pids", "_int4", 1, &[Int], |_, _| Ok(Value::Ints(vec![]))),
    ("pg_notification_queue_usage", "float8", 0, &[], |_, _| Ok(Value::Big(0))),
    ("pg_trigger_depth", "int4", 0, &[], |_, _| Ok(Value::Int(0))),
    ("pg_jit_available", "bool", 0, &[], |_, _| Ok(Value::Bool(false))),
    // There are no indexes, no partitions, and no row security policies.
    ("pg_index_column_has_property", "bool", 3, &[Either, Int, Text], NOTHING),
    ("pg_index_has_property", "bool", 2, &[Either, Text], NOTHING),
    ("pg_indexam_has_property", "bool", 2, &[Int, Text], NOTHING),
    ("pg_partition_root", "regclass", 1, &[Either], NOTHING),
    ("pg_partition_ancestors", "_oid", 1, &[Either], |_, _| Ok(Value::Ints(vec![]))),
    ("row_security_active", "bool", 1, &[Either], |_, _| Ok(Value::Bool(false))),
    ("pg_collation_actual_version", "text", 1, &[Int], NOTHING),
    ("pg_database_collation_actual_version", "text", 1, &[Int], NOTHING),
    // Addresses.
    ("host", "text", 1, &[Text], |_, values| {
        Ok(text(&values[0]).split('/').next().unwrap_or_default().into())
    }),
    ("family", "int4", 1, &[Text], |_, values| {
        Ok(Value::Int(if text(&values[0]).contains(':') { 6 } else { 4 }))
    }),
    // Object name types for built-in objects only.
    ("regcollationin", "oid", 1, &[Either], |_, values| {
        system_in("collation", "pg_collation", "collname", &values[0])
    }),
    ("regcollationout", "text", 1, &[Either], |_, values| system_out("pg_collation", "collname", &values[0])),
    ("regconfigin", "oid", 1, &[Either], |_, values| {
        system_in("text search configuration", "pg_ts_config", "cfgname", &values[0])
    }),
    ("regconfigout", "text", 1, &[Either], |_, values| system_out("pg_ts_config", "cfgname", &values[0])),
    ("regdictionaryin", "oid", 1, &[Either], |_, values| {
        system_in("text search dictionary", "pg_ts_dict", "dictname", &values[0])
    }),
    ("regdictionaryout", "text", 1, &[Either], |_, values| system_out("pg_ts_dict", "dictname", &values[0])),
    ("regoperin", "oid", 1, &[Either], |_, values| {
        system_in("operator", "pg_operator", "oprname", &values[0])
    }),
    ("regoperout", "text", 1, &[Either], |_, values| {
        object_out(&values[0], |oid| text_of_system("pg_operator", oid, "oprname"))
    }),
    // Functions in the definitions of `information_schema`.
    ("_pg_char_max_length", "int4", 2, &[Int, Int], |_, values| {
        Ok(char_length(int(&values[0]), int(&values[1])).into())
    }),
    ("_pg_char_octet_length", "int4", 2, &[Int, Int], |_, values| {
        let (type_oid, modifier) = (int(&values[0]), int(&values[1]));
        Ok(match type_oid {
            25 | 1042 | 1043 if modifier == -1 => Some(1 << 30),
            25 | 1042 | 1043 => char_length(type_oid, modifier).map(|length| 4 * length),
            _ => None,
        }
        .into())
    }),
    ("_pg_numeric_precision", "int4", 2, &[Int, Int], |_, values| {
        let modifier = int(&values[1]);
        Ok(match int(&values[0]) {
            21 => Some(16),
            23 => Some(32),
            20 => Some(64),
            700 => Some(24),
            701 => Some(53),
            1700 if modifier >= 0 => Some((modifier - 4) >> 16 & 0xffff),
            _ => None,
        }
        .into())
    }),
    ("_pg_numeric_precision_radix", "int4", 2, &[Int, Int], |_, values| {
        Ok(match int(&values[0]) {
            20 | 21 | 23 | 700 | 701 => Some(2),
            1700 => Some(10),
            _ => None,
        }
        .into())
    }),
    ("_pg_numeric_scale", "int4", 2, &[Int, Int], |_, values| {
        let modifier = int(&values[1]);
        Ok(match int(&values[0]) {
            20 | 21 | 23 => Some(0),
            1700 if modifier >= 0 => Some((((modifier - 4) & 0x7ff) ^ 1024) - 1024),
            _ => None,
        }
        .into())
    }),
    ("_pg_datetime_precision", "int4", 2, &[Int, Int], |_, values| {
        let modifier = int(&values[1]);
        Ok(match int(&values[0]) {
            1082 => Some(0),
            1083 | 1114 | 1184 | 1266 if modifier < 0 => Some(6),
            1083 | 1114 | 1184 | 1266 => Some(modifier),
            1186 if modifier < 0 || modifier & 0xffff == 0xffff => Some(6),
            1186 => Some(modifier & 0xffff),
            _ => None,
        }
        .into())
    }),
    ("nameconcatoid", "name", 2, &[Text, Int], |_, values| {
        Ok(format!("{}_{}", text(&values[0]), int(&values[1])).into())
    }),
    ("oidvectortypes", "text", 1, &[Ints], |_, values| {
        let Value::Ints(types) = &values[0] else { return Ok("".into()) };
        let name = |oid: &i32| type_text(*oid).unwrap_or_else(|| "???".to_string());
        Ok(types.iter().map(name).collect::<Vec<_>>().join(", ").into())
    }),
    ("bpchar", "text", 1, &[Text], |_, values| Ok(values[0].clone())),
    // `name` has zero-based subscripts: `typname[0] = '_'`.
    ("name_letter", "char", 2, &[Text, Int], |_, values| {
        let Value::Int(place) = values[1] else { return Ok(Value::Null) };
        let letter = usize::try_from(place).ok().and_then(|place| text(&values[0]).chars().nth(place));
        Ok(letter.map(|letter| letter.to_string()).unwrap_or_default().into())
    }),
];

/// The maximum length of a text type, if declared.
fn char_length(type_oid: i32, modifier: i32) -> Option<i32> {
    match type_oid {
        1042 | 1043 if modifier != -1 => Some(modifier - 4),
        1560 | 1562 if modifier != -1 => Some(modifier),
        _ => None,
    }
}

fn snapshot(call: &Call<'_>, _: &[Value]) -> Result<Value> {
    let next = call.catalog.source.transaction_id();
    Ok(format!("{next}:{next}:").into())
}

/// `10:20:10,14` is xmin, xmax, and the transactions in progress.
fn part_of_snapshot(snapshot: &Value, place: usize) -> Result<Value> {
    let part = text(snapshot).split(':').nth(place).and_then(|part| part.parse().ok());
    match part {
        Some(number) => Ok(Value::Big(number)),
        None => plan_err!("invalid input syntax for type pg_snapshot: \"{}\"", text(snapshot)),
    }
}

fn system_in(kind: &str, relation: &str, column: &str, value: &Value) -> Result<Value> {
    object_in(kind, value, |name| by_name(relation, column, &split_name(name)?.pop()?))
}

fn system_out(relation: &str, column: &str, value: &Value) -> Result<Value> {
    object_out(value, |oid| text_of_system(relation, oid, column).map(|name| quote_identifier(&name)))
}

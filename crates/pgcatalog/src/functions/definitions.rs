//! The table of functions: name, arguments, result and implementation of each.

use crate::functions::formats::quote_literal;
use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Int32Type;
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;

use super::call::Argument::{Any, Big, Bool, Either, Int, Ints, Text, Texts};
use super::formats::format_values;
use super::lookups::{
    argument_types, array_bound, comment, function_arguments, function_result, of_system, proc_by_text,
    proc_text, procedure_by_text, system_comment, type_by_text, type_text,
};
use crate::catalog::{DATABASE_OID, Found, quote_identifier, split_name};
use crate::functions::call::{Call, Definition, Evaluate, Value, int, is_true, text};
use crate::source::{Kind, Object, Relation, Schema, oid};
use crate::system::elements;
use crate::types::format_type;
use crate::view_texts::definition;

/// Visibility of objects by unqualified name: all of these kinds are built in, so the path needs only the
/// schema.
pub(super) const VISIBLE: [Definition; 11] = [
    ("pg_type_is_visible", "bool", 1, &[Int], |call, values| {
        is_visible(call, "pg_type", "typnamespace", &values[0])
    }),
    ("pg_function_is_visible", "bool", 1, &[Int], |call, values| {
        is_visible(call, "pg_proc", "pronamespace", &values[0])
    }),
    ("pg_operator_is_visible", "bool", 1, &[Int], |call, values| {
        is_visible(call, "pg_operator", "oprnamespace", &values[0])
    }),
    ("pg_opclass_is_visible", "bool", 1, &[Int], |call, values| {
        is_visible(call, "pg_opclass", "opcnamespace", &values[0])
    }),
    ("pg_opfamily_is_visible", "bool", 1, &[Int], |call, values| {
        is_visible(call, "pg_opfamily", "opfnamespace", &values[0])
    }),
    ("pg_collation_is_visible", "bool", 1, &[Int], |call, values| {
        is_visible(call, "pg_collation", "collnamespace", &values[0])
    }),
    ("pg_conversion_is_visible", "bool", 1, &[Int], |call, values| {
        is_visible(call, "pg_conversion", "connamespace", &values[0])
    }),
    ("pg_ts_config_is_visible", "bool", 1, &[Int], |call, values| {
        is_visible(call, "pg_ts_config", "cfgnamespace", &values[0])
    }),
    ("pg_ts_dict_is_visible", "bool", 1, &[Int], |call, values| {
        is_visible(call, "pg_ts_dict", "dictnamespace", &values[0])
    }),
    ("pg_ts_parser_is_visible", "bool", 1, &[Int], |call, values| {
        is_visible(call, "pg_ts_parser", "prsnamespace", &values[0])
    }),
    ("pg_ts_template_is_visible", "bool", 1, &[Int], |call, values| {
        is_visible(call, "pg_ts_template", "tmplnamespace", &values[0])
    }),
];

pub(super) fn is_visible(call: &Call<'_>, relation: &str, namespace: &str, object: &Value) -> Result<Value> {
    let Some((namespaces, row)) = of_system(relation, "oid", int(object), namespace) else {
        return Ok(Value::Null);
    };
    let schema = call.index.schema_name(namespaces.as_primitive::<Int32Type>().value(row));
    Ok(schema.map(|schema| call.path.contains(&schema)).into())
}

/// Privilege checks: an optional role, an object, and privileges.
pub(super) const PRIVILEGES: [Definition; 13] = [
    ("has_table_privilege", "bool", 2, &[Either, Either, Text], |call, values| {
        let (role, rest) = call.role(values, 2)?;
        let relation = call.existing_relation(&rest[0])?;
        Ok(call.relation_object(relation).map(|object| call.may(&role, &object, text(&rest[1]))).into())
    }),
    ("has_any_column_privilege", "bool", 2, &[Either, Either, Text], |call, values| {
        let (role, rest) = call.role(values, 2)?;
        let relation = call.existing_relation(&rest[0])?;
        let Some(object) = call.relation_object(relation) else { return Ok(Value::Null) };
        let columns = call.index.user_relation(relation);
        let any = columns.is_some_and(|relation| {
            let mut columns = relation.columns.iter();
            columns.any(|c| call.may(&role, &Object::Column(relation.id, c.field.name()), text(&rest[1])))
        });
        Ok(Value::Bool(any || call.may(&role, &object, text(&rest[1]))))
    }),
    ("has_column_privilege", "bool", 3, &[Either, Either, Either, Text], |call, values| {
        let (role, rest) = call.role(values, 3)?;
        let relation = call.existing_relation(&rest[0])?;
        let Some(object) = call.relation_object(relation) else { return Ok(Value::Null) };
        let Some(relation) = call.index.user_relation(relation) else {
            return Ok(Value::Bool(call.may(&role, &object, text(&rest[2]))));
        };
        let column = relation.columns.iter().zip(1..).find(|(column, number)| match &rest[1] {
            Value::Text(name) => column.field.name() == name,
            other => int(other) == *number,
        });
        let Some((column, _)) = column else {
            return match &rest[1] {
                Value::Text(name) => {
                    plan_err!("column \"{name}\" of relation \"{}\" does not exist", relation.name)
                }
                _ => Ok(Value::Null),
            };
        };
        let object = Object::Column(relation.id, column.field.name());
        Ok(Value::Bool(call.may(&role, &object, text(&rest[2]))))
    }),
    ("has_schema_privilege", "bool", 2, &[Either, Either, Text], |call, values| {
        let (role, rest) = call.role(values, 2)?;
        let schema = match &rest[0] {
            Value::Text(name) => match call.index.schema_oid(name) {
                Some(schema) => schema,
                None => return plan_err!("schema \"{name}\" does not exist"),
            },
            other => int(other),
        };
        if call.index.schema_name(schema).is_none() {
            return Ok(Value::Null);
        }
        let object = call.index.schema(schema).map_or(Object::System, |schema| Object::Schema(schema.id));
        Ok(Value::Bool(call.may(&role, &object, text(&rest[1]))))
    }),
    ("has_database_privilege", "bool", 2, &[Either, Either, Text], |call, values| {
        let (role, rest) = call.role(values, 2)?;
        match &rest[0] {
            Value::Text(name) if *name != call.catalog.source.database() => {
                return plan_err!("database \"{name}\" does not exist");
            }
            Value::Int(oid) if *oid != DATABASE_OID => return Ok(Value::Null),
            _ => {}
        }
        Ok(Value::Bool(call.may(&role, &Object::Database, text(&rest[1]))))
    }),
    ("has_function_privilege", "bool", 2, &[Either, Either, Text], system_privilege),
    ("has_language_privilege", "bool", 2, &[Either, Either, Text], system_privilege),
    ("has_type_privilege", "bool", 2, &[Either, Either, Text], system_privilege),
    ("has_sequence_privilege", "bool", 2, &[Either, Either, Text], |call, values| {
        let (role, rest) = call.role(values, 2)?;
        let relation = call.existing_relation(&rest[0])?;
        let Some(object) = call.relation_object(relation) else { return Ok(Value::Null) };
        Ok(Value::Bool(call.may(&role, &object, text(&rest[1]))))
    }),
    ("has_tablespace_privilege", "bool", 2, &[Either, Either, Text], system_privilege),
    ("has_server_privilege", "bool", 2, &[Either, Either, Text], system_privilege),
    ("has_foreign_data_wrapper_privilege", "bool", 2, &[Either, Either, Text], system_privilege),
    ("pg_has_role", "bool", 2, &[Either, Either, Text], |call, values| {
        let (role, rest) = call.role(values, 2)?;
        let (other, _) = call.role(rest, 1)?;
        Ok(Value::Bool(call.catalog.has_role(&call.roles, &role, &other)))
    }),
];

pub(super) fn system_privilege(call: &Call<'_>, values: &[Value]) -> Result<Value> {
    let (role, rest) = call.role(values, 2)?;
    Ok(Value::Bool(call.may(&role, &Object::System, text(&rest[1]))))
}

pub(super) const NOTHING: Evaluate = |_, _| Ok(Value::Null);

pub(super) const DEFINITIONS: &[Definition] = &[
    // The session.
    ("current_database", "name", 0, &[], |call, _| Ok(call.catalog.source.database().into())),
    ("current_user", "name", 0, &[], |call, _| Ok(call.catalog.source.user().into())),
    ("session_user", "name", 0, &[], |call, _| Ok(call.catalog.source.session_user().into())),
    ("current_schema", "name", 0, &[], |call, _| {
        Ok(call.catalog.source.search_path().into_iter().next().into())
    }),
    ("current_schemas", "_name", 1, &[Bool], |call, values| {
        let implicit = is_true(&values[0]);
        Ok(Value::Texts(if implicit { call.catalog.path() } else { call.catalog.source.search_path() }))
    }),
    ("version", "text", 0, &[], |call, _| Ok(call.catalog.source.version().into())),
    ("pg_backend_pid", "int4", 0, &[], |call, _| Ok(Value::Int(call.catalog.source.backend_pid()))),
    ("pg_postmaster_start_time", "timestamptz", 0, &[], |call, _| {
        Ok(Value::Big(call.catalog.source.start_time()))
    }),
    ("pg_conf_load_time", "timestamptz", 0, &[], |call, _| Ok(Value::Big(call.catalog.source.start_time()))),
    ("pg_is_in_recovery", "bool", 0, &[], |call, _| Ok(Value::Bool(call.catalog.source.in_recovery()))),
    ("pg_my_temp_schema", "oid", 0, &[], |_, _| Ok(Value::Int(0))),
    ("pg_is_other_temp_schema", "bool", 1, &[Int], |_, _| Ok(Value::Bool(false))),
    ("txid_current", "int8", 0, &[], |call, _| Ok(Value::Big(call.catalog.source.transaction_id()))),
    ("pg_current_xact_id", "int8", 0, &[], |call, _| Ok(Value::Big(call.catalog.source.transaction_id()))),
    ("inet_client_addr", "inet", 0, &[], |call, _| {
        Ok(call.catalog.source.client_address().map(|a| a.0).into())
    }),
    ("inet_client_port", "int4", 0, &[], |call, _| {
        Ok(call.catalog.source.client_address().map(|a| i32::from(a.1)).into())
    }),
    ("inet_server_addr", "inet", 0, &[], |call, _| {
        Ok(call.catalog.source.server_address().map(|a| a.0).into())
    }),
    ("inet_server_port", "int4", 0, &[], |call, _| {
        Ok(call.catalog.source.server_address().map(|a| i32::from(a.1)).into())
    }),
    ("current_setting", "text", 1, &[Text, Bool], |call, values| {
        let name = text(&values[0]);
        let settings = call.catalog.source.settings();
        match settings.into_iter().find(|setting| setting.name.eq_ignore_ascii_case(name)) {
            Some(setting) => Ok(setting_text(&setting).into()),
            None => match call.catalog.source.other_setting(name) {
                Err(_) if values.get(1).is_some_and(is_true) => Ok(Value::Null),
                value => Ok(value?.into()),
            },
        }
    }),
    ("set_config", "text", 3, &[Text, Text, Bool], |call, values| {
        if values[0] == Value::Null {
            return plan_err!("SET requires parameter name");
        }
        // NULL resets the setting, which most settings express as an empty text.
        Ok(call.catalog.source.set(text(&values[0]), text(&values[1]), is_true(&values[2]))?.into())
    }),
    ("pg_cancel_backend", "bool", 1, &[Int], |call, values| {
        Ok(Value::Bool(call.catalog.source.signal(int(&values[0]), false)?))
    }),
    ("pg_terminate_backend", "bool", 1, &[Int, Big], |call, values| {
        Ok(Value::Bool(call.catalog.source.signal(int(&values[0]), true)?))
    }),
    // Names.
    ("pg_table_is_visible", "bool", 1, &[Int], |call, values| {
        Ok(call.catalog.is_visible(&call.index, int(&values[0])).into())
    }),
    // There are no extended statistics.
    ("pg_statistics_obj_is_visible", "bool", 1, &[Int], NOTHING),
    ("pg_get_userbyid", "name", 1, &[Int], |call, values| {
        let role = int(&values[0]);
        let name = call.catalog.role_name(&call.roles, role);
        Ok(name.unwrap_or_else(|| format!("unknown (OID={role})")).into())
    }),
    ("to_regclass", "regclass", 1, &[Text], |call, values| Ok(call.relation(&values[0]).into())),
    ("to_regnamespace", "oid", 1, &[Text], |call, values| {
        Ok(call.index.schema_oid(&unquote(&values[0])).into())
    }),
    ("to_regrole", "oid", 1, &[Text], |call, values| Ok(role_oid(call, &unquote(&values[0])).into())),
    ("acldefault", "_aclitem", 2, &[Text, Int], super::acl::default),
    ("to_regtype", "regtype", 1, &[Text], |_, values| Ok(type_by_text(text(&values[0])).into())),
    ("to_regproc", "regproc", 1, &[Text], |_, values| Ok(proc_by_text(text(&values[0])).into())),
    ("to_regprocedure", "oid", 1, &[Text], |_, values| Ok(procedure_by_text(text(&values[0])).into())),
    // Casts to the object name types; the rewriter inserts these functions.
    ("regclassin", "regclass", 1, &[Either], |call, values| match (&values[0], call.relation(&values[0])) {
        (Value::Text(text), None) if text == "-" => Ok(Value::Int(0)),
        (_, Some(relation)) => Ok(Value::Int(relation)),
        (value, None) => plan_err!("relation \"{}\" does not exist", text(value)),
    }),
    ("regclassout", "text", 1, &[Either], |call, values| {
        let relation = call.existing_relation(&values[0])?;
        Ok(call.catalog.relation_text(&call.index, relation).into())
    }),
    ("regnamespacein", "oid", 1, &[Either], |call, values| {
        object_in("schema", &values[0], |name| call.index.schema_oid(&split_name(name)?.pop()?))
    }),
    ("regnamespaceout", "text", 1, &[Either], |call, values| {
        let name = |schema| call.index.schema_name(schema).map(|name| quote_identifier(&name));
        object_out(&values[0], name)
    }),
    ("regrolein", "oid", 1, &[Either], |call, values| {
        object_in("role", &values[0], |name| role_oid(call, &split_name(name)?.pop()?))
    }),
    ("regroleout", "text", 1, &[Either], |call, values| {
        object_out(&values[0], |role| {
            call.catalog.role_name(&call.roles, role).map(|name| quote_identifier(&name))
        })
    }),
    ("regtypein", "regtype", 1, &[Either], |_, values| match &values[0] {
        Value::Text(text) => match number(text).or_else(|| type_by_text(text)) {
            Some(oid) => Ok(Value::Int(oid)),
            None => plan_err!("type \"{text}\" does not exist"),
        },
        other => Ok(other.clone()),
    }),
    ("regtypeout", "text", 1, &[Either], |_, values| match &values[0] {
        Value::Text(name) => match number(name).or_else(|| type_by_text(name)) {
            Some(oid) => object_out(&Value::Int(oid), type_text),
            None => plan_err!("type \"{name}\" does not exist"),
        },
        other => object_out(other, type_text),
    }),
    ("regprocin", "regproc", 1, &[Either], |_, values| object_in("function", &values[0], proc_by_text)),
    ("regprocedurein", "oid", 1, &[Either], |_, values| object_in("function", &values[0], procedure_by_text)),
    ("regprocedureout", "text", 1, &[Either], |_, values| {
        object_out(&values[0], |function| {
            Some(format!("{}({})", proc_text(function)?, argument_types(function)?))
        })
    }),
    ("regprocout", "text", 1, &[Either], |_, values| object_out(&values[0], proc_text)),
    ("oidin", "oid", 1, &[Either], |_, values| match &values[0] {
        Value::Text(given) => match given.trim().parse::<u32>() {
            // The catalogs store oids as signed numbers, none above 2³¹, so no object has such an oid.
            Ok(oid) => Ok(Value::Int(i32::try_from(oid).unwrap_or(-1))),
            Err(_) => exec_err!("invalid input syntax for type oid: \"{given}\""),
        },
        other => Ok(other.clone()),
    }),
    ("format_type", "text", 2, &[Int, Int], |_, values| {
        if values[0] == Value::Null {
            return Ok(Value::Null);
        }
        let (type_oid, modifier) =
            (int(&values[0]), if values[1] == Value::Null { -1 } else { int(&values[1]) });
        let known = match (type_oid, &values[1]) {
            // Without a length it is another type than `character`, which has length 1.
            (1042, Value::Int(..0)) => Some("bpchar".to_string()),
            _ => format_type(type_oid as u32, modifier),
        };
        Ok(known
            .or_else(|| type_text(type_oid))
            .unwrap_or_else(|| match type_oid {
                0 => "-".to_string(),
                _ => "???".to_string(),
            })
            .into())
    }),
    // As in PostgreSQL 17: the base type of a domain, or the type itself.
    ("pg_basetype", "oid", 1, &[Int], |_, values| {
        let mut of = int(&values[0]);
        while let Some((bases, row)) = of_system("pg_type", "oid", of, "typbasetype") {
            match bases.as_primitive::<Int32Type>().value(row) {
                0 => break,
                base => of = base,
            }
        }
        Ok(Value::Int(of))
    }),
    // For sessions without sequences: the engine replaces these functions by its own.
    ("lastval", "int8", 0, &[], |_, _| exec_err!("lastval is not yet defined in this session")),
    ("currval", "int8", 1, &[Text], |_, values| no_sequence(&values[0])),
    ("nextval", "int8", 1, &[Text], |_, values| no_sequence(&values[0])),
    ("setval", "int8", 2, &[Text, Big, Bool], |_, values| no_sequence(&values[0])),
    ("parse_ident", "_text", 1, &[Text, Bool], |_, values| {
        let strict = values.get(1).is_none_or(is_true);
        match identifiers(text(&values[0]), strict) {
            Some(parts) => Ok(Value::Texts(parts)),
            None => exec_err!("string is not a valid identifier: \"{}\"", text(&values[0])),
        }
    }),
    ("quote_ident", "text", 1, &[Text], |_, values| Ok(quote_identifier(text(&values[0])).into())),
    ("quote_literal", "text", 1, &[Text], |_, values| Ok(quote_literal(text(&values[0])).into())),
    ("quote_nullable", "text", 1, &[Text], |_, values| match &values[0] {
        Value::Text(text) => Ok(quote_literal(text).into()),
        _ => Ok("NULL".into()),
    }),
    // The maximum number of arguments of a PostgreSQL function.
    ("format", "text", 1, &[Text; 100], |_, values| format_values(values)),
    // With the elements of an array, given as its text.
    ("harrier_format_elements", "text", 1, &[Text, Text], |_, values| {
        let array = values.get(1).map_or("", text);
        let arguments = elements(array).into_iter().map(Value::from);
        format_values(&values.iter().take(1).cloned().chain(arguments).collect::<Vec<_>>())
    }),
    // Definitions.
    ("pg_get_expr", "text", 2, &[Text, Int, Bool], |_, values| Ok(values[0].clone())),
    ("pg_get_viewdef", "text", 1, &[Either, Any], |call, values| {
        let relation = call.existing_relation(&values[0])?;
        let view = call.index.user_relation(relation);
        Ok(view.and_then(|view| definition(call.catalog, &call.index, view)).into())
    }),
    ("pg_get_ruledef", "text", 1, &[Int, Bool], |call, values| {
        let Some(view) = call.index.user_relation(int(&values[0])).filter(|r| r.kind == Kind::View) else {
            return Ok(Value::Null);
        };
        let Some(definition) = definition(call.catalog, &call.index, view) else { return Ok(Value::Null) };
        let name = call.catalog.relation_text(&call.index, oid(view.id));
        Ok(format!("CREATE RULE \"_RETURN\" AS\n    ON SELECT TO {name} DO INSTEAD {definition}").into())
    }),
    ("pg_get_indexdef", "text", 1, &[Int, Int, Bool], super::key_definitions::index),
    ("pg_get_constraintdef", "text", 1, &[Int, Bool], super::key_definitions::constraint),
    // There are no triggers, partitions and statistics objects.
    ("pg_get_triggerdef", "text", 1, &[Int, Bool], NOTHING),
    ("pg_get_partkeydef", "text", 1, &[Int], NOTHING),
    ("pg_get_partition_constraintdef", "text", 1, &[Int], NOTHING),
    ("pg_get_statisticsobjdef", "text", 1, &[Int], NOTHING),
    ("pg_get_statisticsobjdef_columns", "text", 1, &[Int], NOTHING),
    ("pg_get_statisticsobjdef_expressions", "_text", 1, &[Int], NOTHING),
    ("pg_get_serial_sequence", "text", 2, &[Text, Text], |call, values| {
        let Some(found) = call.relation(&values[0]) else {
            return plan_err!("relation \"{}\" does not exist", text(&values[0]));
        };
        let Some(relation) = call.index.user_relation(found) else { return Ok(Value::Null) };
        let column = text(&values[1]);
        if !relation.columns.iter().any(|own| own.field.name() == column) {
            return plan_err!("column \"{column}\" of relation \"{}\" does not exist", relation.name);
        }
        let sequence = call.index.sequence_of(relation.id, column);
        let name = |(sequence, schema): (&Relation, &Schema)| {
            format!("{}.{}", quote_identifier(&schema.name), quote_identifier(&sequence.name))
        };
        Ok(sequence.map(name).into())
    }),
    ("pg_stat_get_numscans", "int8", 1, &[Int], |_, _| Ok(Value::Big(0))),
    ("pg_sequence_last_value", "int8", 1, &[Either], |call, values| {
        let found = call.relation(&values[0]);
        let found = call.index.sequences().find(|(_, relation, _)| Some(oid(relation.id)) == found);
        // As in `pg_sequences`, and in PostgreSQL from 17 on; 15 fails.
        let role = call.catalog.source.user();
        let found =
            found.filter(|(_, relation, _)| call.may(&role, &Object::Relation(relation.id), "USAGE, SELECT"));
        Ok(found.and_then(|(sequence, ..)| sequence.last).map_or(Value::Null, Value::Big))
    }),
    ("pg_get_functiondef", "text", 1, &[Int], NOTHING),
    ("pg_get_function_sqlbody", "text", 1, &[Int], NOTHING),
    ("pg_get_function_arg_default", "text", 2, &[Int, Int], NOTHING),
    ("pg_get_function_arguments", "text", 1, &[Int], |_, values| {
        Ok(function_arguments(int(&values[0]), true).into())
    }),
    ("pg_get_function_identity_arguments", "text", 1, &[Int], |_, values| {
        Ok(function_arguments(int(&values[0]), false).into())
    }),
    ("pg_get_function_result", "text", 1, &[Int], |_, values| Ok(function_result(int(&values[0])).into())),
    ("pg_relation_is_publishable", "bool", 1, &[Either], |_, _| Ok(Value::Bool(false))),
    ("pg_relation_is_updatable", "int4", 2, &[Either, Bool], |call, values| {
        // INSERT, UPDATE and DELETE are the bits 3, 2 and 4.
        let relation = call.existing_relation(&values[0])?;
        let table = call.index.user_relation(relation).is_some_and(|relation| relation.kind != Kind::View);
        Ok(Value::Int(if table { 28 } else { 0 }))
    }),
    ("pg_column_is_updatable", "bool", 3, &[Either, Int, Bool], |call, values| {
        let relation = call.existing_relation(&values[0])?;
        let table = call.index.user_relation(relation).is_some_and(|relation| relation.kind != Kind::View);
        Ok(Value::Bool(table))
    }),
    // Comments.
    ("col_description", "text", 2, &[Int, Int], |call, values| {
        Ok(comment(call, int(&values[0]), int(&values[1])).into())
    }),
    ("obj_description", "text", 1, &[Int, Text], |call, values| {
        let object = int(&values[0]);
        match values.get(1).map(text) {
            Some("pg_class") => Ok(comment(call, object, 0).into()),
            Some("pg_namespace") => {
                let own = call.index.schema(object).and_then(|schema| schema.comment.clone());
                Ok(own.or_else(|| system_comment(object, Some("pg_namespace"))).into())
            }
            of => {
                let own = if of.is_none() { comment(call, object, 0) } else { None };
                Ok(own.or_else(|| system_comment(object, of)).into())
            }
        }
    }),
    ("shobj_description", "text", 2, &[Int, Text], |call, values| {
        let role =
            call.roles.iter().find(|role| call.catalog.role_oid(&call.roles, &role.name) == int(&values[0]));
        let comment = role.filter(|_| text(&values[1]) == "pg_authid").and_then(|role| role.comment.clone());
        Ok(comment.into())
    }),
    // Sizes, in bytes.
    ("pg_relation_size", "int8", 1, &[Either, Text], |call, values| {
        match values.get(1).map_or("main", text) {
            "main" => relation_bytes(call, &values[0]),
            _ => Ok(Value::Big(0)),
        }
    }),
    ("pg_table_size", "int8", 1, &[Either], |call, values| relation_bytes(call, &values[0])),
    ("pg_total_relation_size", "int8", 1, &[Either], |call, values| relation_bytes(call, &values[0])),
    ("pg_indexes_size", "int8", 1, &[Either], |_, _| Ok(Value::Big(0))),
    ("pg_database_size", "int8", 1, &[Either], |call, values| {
        match &values[0] {
            Value::Text(name) if *name != call.catalog.source.database() => {
                return plan_err!("database \"{name}\" does not exist");
            }
            Value::Int(other) if *other != DATABASE_OID => return Ok(Value::Null),
            _ => {}
        }
        Ok(Value::Big(database_bytes(call)))
    }),
    ("pg_tablespace_size", "int8", 1, &[Either], |call, _| Ok(Value::Big(database_bytes(call)))),
    ("pg_size_pretty", "text", 1, &[Big], |_, values| match values[0] {
        Value::Big(bytes) => Ok(size_pretty(bytes).into()),
        _ => Ok(Value::Null),
    }),
    ("pg_tablespace_location", "text", 1, &[Int], |_, _| Ok("".into())),
    ("pg_relation_filenode", "oid", 1, &[Either], NOTHING),
    ("pg_relation_filepath", "text", 1, &[Either], NOTHING),
    // Encodings: there is one.
    ("pg_encoding_to_char", "name", 1, &[Int], |_, values| {
        Ok(ENCODINGS.get(int(&values[0]).max(-1) as usize).copied().unwrap_or_default().into())
    }),
    ("pg_char_to_encoding", "int4", 1, &[Text], |_, values| {
        let wanted = text(&values[0]).replace(['-', '_'], "").to_uppercase();
        let place = ENCODINGS.iter().position(|name| name.replace('_', "") == wanted);
        Ok(Value::Int(place.map_or(-1, |place| place as i32)))
    }),
    ("getdatabaseencoding", "name", 0, &[], |_, _| Ok("UTF8".into())),
    ("pg_client_encoding", "name", 0, &[], |_, _| Ok("UTF8".into())),
    // Array bounds. Harrier's arrays are one-based.
    ("array_upper", "int4", 2, &[Any, Int], |_, values| Ok(array_bound(&values[0], int(&values[1]), false))),
    ("array_lower", "int4", 2, &[Any, Int], |_, values| Ok(array_bound(&values[0], int(&values[1]), true))),
    // `x = ANY (array)` where the array is a text, a list or a vector.
    ("pg_any_text", "bool", 2, &[Text, Texts], |_, values| match &values[1] {
        Value::Texts(texts) => Ok(Value::Bool(texts.iter().any(|element| element == text(&values[0])))),
        _ => Ok(Value::Null),
    }),
    ("pg_any_int", "bool", 2, &[Int, Ints], |_, values| {
        let numbers = match &values[1] {
            Value::Ints(numbers) => numbers.clone(),
            Value::Text(array) => elements(array).iter().flatten().filter_map(|e| e.parse().ok()).collect(),
            _ => return Ok(Value::Null),
        };
        Ok(Value::Bool(numbers.contains(&int(&values[0]))))
    }),
];

fn no_sequence(name: &Value) -> Result<Value> {
    plan_err!("relation \"{}\" does not exist", text(name))
}

/// The parts of a name. Not `strict`: ignores what follows.
fn identifiers(given: &str, strict: bool) -> Option<Vec<String>> {
    let mut parts = vec![];
    let mut rest = given.trim_start();
    loop {
        if let Some(quoted) = rest.strip_prefix('"') {
            let mut part = String::new();
            let mut letters = quoted.char_indices().peekable();
            let end = loop {
                match letters.next()? {
                    (at, '"') if letters.next_if(|(_, next)| *next == '"').is_none() => break at + 1,
                    (_, letter) => part.push(letter),
                }
            };
            if part.is_empty() {
                return None;
            }
            parts.push(part);
            rest = &quoted[end..];
        } else {
            let begins = |c: char| c.is_alphabetic() || c == '_' || !c.is_ascii();
            let goes_on = |c: char| begins(c) || c.is_ascii_digit() || c == '$';
            rest.chars().next().filter(|c| begins(*c))?;
            let end = rest.find(|c: char| !goes_on(c)).unwrap_or(rest.len());
            parts.push(rest[..end].to_lowercase());
            rest = &rest[end..];
        }
        rest = rest.trim_start();
        match rest.strip_prefix('.') {
            Some(after) => rest = after.trim_start(),
            None => return (rest.is_empty() || !strict).then_some(parts),
        }
    }
}

/// PostgreSQL's encodings by number.
pub(super) const ENCODINGS: [&str; 9] =
    ["SQL_ASCII", "EUC_JP", "EUC_CN", "EUC_KR", "EUC_TW", "EUC_JIS_2004", "UTF8", "MULE_INTERNAL", "LATIN1"];

/// A setting's value with its unit, as in `SHOW`.
pub(super) fn setting_text(setting: &crate::source::Setting) -> String {
    match &setting.unit {
        Some(unit) if setting.value != "0" && setting.value != "-1" => format!("{}{unit}", setting.value),
        _ => setting.value.clone(),
    }
}

pub(super) fn unquote(value: &Value) -> String {
    split_name(text(value)).and_then(|parts| parts.into_iter().next_back()).unwrap_or_default()
}

pub(super) fn role_oid(call: &Call<'_>, name: &str) -> Option<i32> {
    Some(call.catalog.role_oid(&call.roles, name)).filter(|oid| *oid != 0)
}

pub(super) fn number(text: &str) -> Option<i32> {
    match text {
        "-" => Some(0),
        _ => text.parse().ok(),
    }
}

/// The oid of an object by its name; an oid is returned unchanged.
pub(super) fn object_in(kind: &str, value: &Value, find: impl Fn(&str) -> Option<i32>) -> Result<Value> {
    let Value::Text(given) = value else { return Ok(value.clone()) };
    let found = number(given).or_else(|| find(given));
    match found {
        Some(oid) => Ok(Value::Int(oid)),
        None => plan_err!("{kind} \"{given}\" does not exist"),
    }
}

/// The name of an object, or its oid if it does not exist.
pub(super) fn object_out(value: &Value, find: impl Fn(i32) -> Option<String>) -> Result<Value> {
    match value {
        Value::Int(0) => Ok("-".into()),
        Value::Int(oid) => Ok(find(*oid).unwrap_or_else(|| oid.to_string()).into()),
        other => Ok(other.clone()),
    }
}

pub(super) fn relation_bytes(call: &Call<'_>, value: &Value) -> Result<Value> {
    let relation = call.existing_relation(value)?;
    Ok(match call.index.get(relation) {
        Some(Found::User(relation, _)) => Value::Big(relation.bytes.unwrap_or(0) as i64),
        Some(Found::System(_)) => Value::Big(0),
        None => Value::Null,
    })
}

pub(super) fn database_bytes(call: &Call<'_>) -> i64 {
    call.index.contents.relations.iter().filter_map(|relation| relation.bytes).sum::<u64>() as i64
}

/// A size as in PostgreSQL's pg_size_pretty: rounded, in the first unit in which it is below 10240.
pub(super) fn size_pretty(bytes: i64) -> String {
    const UNITS: [&str; 6] = ["bytes", "kB", "MB", "GB", "TB", "PB"];
    // Values in all but the first and last unit are doubled, so that the last bit serves for rounding.
    let (mut size, mut unit) = (i128::from(bytes), 0);
    let mut doubled = false;
    while unit + 1 < UNITS.len() {
        let limit = if doubled { 20 * 1024 - 1 } else { 10 * 1024 };
        if size.abs() < limit {
            break;
        }
        size /= if doubled { 1024 } else { 512 };
        doubled = true;
        unit += 1;
    }
    if doubled {
        size = (size + size.signum()) / 2;
    }
    format!("{size} {}", UNITS[unit])
}

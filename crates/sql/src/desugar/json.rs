//! JSON aggregates, and string literals that are JSON in VALUES.
//!
//! ```text
//! json_agg(x ORDER BY y)           ──►  json_agg_items(array_agg(json_agg_item(x) ORDER BY y))
//! jsonb_agg(DISTINCT x)            ──►  to_jsonb(array_agg(DISTINCT x))
//! ```

use crate::ast_builder::function_call;
use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
    Ident, ObjectName, Values,
};

use crate::identifier::plain;

/// Casts the string literals of a VALUES column to JSON or bytea, if another row has that cast.
pub(super) fn cast_values(values: &mut Values) {
    let columns = values.rows.first().map_or(0, |row| row.content.len());
    for at in 0..columns {
        let kind = values.rows.iter().find_map(|row| match row.content.get(at)? {
            Expr::Cast {
                data_type: data_type @ (DataType::JSON | DataType::JSONB | DataType::Bytea),
                ..
            } => Some(data_type.clone()),
            _ => None,
        });
        let Some(data_type) = kind else { continue };
        for value in values.rows.iter_mut().filter_map(|row| row.content.get_mut(at)) {
            // The cast yields another binary type than a bytea column has, so each value gets it.
            if matches!(value, Expr::Value(_)) || data_type == DataType::Bytea {
                *value = Expr::Cast {
                    kind: CastKind::Cast,
                    expr: Box::new(value.clone()),
                    data_type: data_type.clone(),
                    array: false,
                    format: None,
                };
            }
        }
    }
}

/// Rewrites a JSON aggregate to its building blocks.
pub(super) fn rewrite(expr: &mut Expr) {
    let Expr::Function(function) = expr else { return };
    let name = match function.name.0.as_slice() {
        [name] => name.as_ident(),
        [schema, name] if schema.as_ident().is_some_and(|schema| plain(schema) == "pg_catalog") => {
            name.as_ident()
        }
        _ => None,
    };
    let (item, items) = match name.map(plain).unwrap_or_default().as_str() {
        "json_agg" => ("json_agg_item", "json_agg_items"),
        "jsonb_agg" => ("jsonb_agg_item", "jsonb_agg_items"),
        "json_object_agg" => ("json_object_agg_member", "json_object_agg_members"),
        "jsonb_object_agg" => ("jsonb_object_agg_member", "jsonb_object_agg_members"),
        _ => return,
    };
    let is_text = item == "json_agg_item" && is_distinct(function);
    collect(function, item, items);
    // `json` keeps the spaces that the aggregate writes.
    if is_text {
        *expr = Expr::Cast {
            kind: CastKind::Cast,
            expr: Box::new(expr.clone()),
            data_type: DataType::JSON,
            array: false,
            format: None,
        };
    }
}

fn is_distinct(function: &Function) -> bool {
    matches!(&function.args, FunctionArguments::List(arguments)
        if arguments.duplicate_treatment == Some(DuplicateTreatment::Distinct))
}

fn collect(function: &mut Function, item: &str, items: &str) {
    let FunctionArguments::List(arguments) = &mut function.args else { return };
    // DISTINCT compares and orders the values in their own type.
    if arguments.duplicate_treatment == Some(DuplicateTreatment::Distinct)
        && matches!(item, "json_agg_item" | "jsonb_agg_item")
    {
        function.name = ObjectName::from(vec![Ident::new("array_agg")]);
        let collected = std::mem::replace(function, function_call("to_jsonb", vec![]));
        *function = function_call("to_jsonb", vec![Expr::Function(collected)]);
        return;
    }
    let given = std::mem::take(&mut arguments.args);
    let values = given.iter().map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    });
    let Some(values) = values.collect::<Option<Vec<Expr>>>() else {
        arguments.args = given;
        return;
    };
    let item = Expr::Function(function_call(item, values));
    arguments.args = vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(item))];
    function.name = ObjectName::from(vec![Ident::new("array_agg")]);
    let collected = std::mem::replace(function, function_call(items, vec![]));
    *function = function_call(items, vec![Expr::Function(collected)]);
}

#[cfg(test)]
mod tests {
    use super::super::tests::rewritten;

    #[test]
    fn aggregates_are_made_of_items() {
        let expected = "SELECT json_agg_items(array_agg(json_agg_item(x) ORDER BY y)) FROM t";
        assert_eq!(rewritten("SELECT json_agg(x ORDER BY y) FROM t").unwrap(), expected);
    }
}

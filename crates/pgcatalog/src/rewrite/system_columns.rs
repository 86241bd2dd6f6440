//! PostgreSQL's hidden system columns of system relations: `xmin` is the current snapshot, since clients use
//! it to detect changes. (`tableoid` qualified by its relation: `subqueries.rs`.)

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName, Select, SelectItem,
    TableFactor, Value, VisitMut, VisitorMut,
};

use crate::CATALOG_SCHEMA;
use crate::rewrite::expressions::call;
use crate::system::{SYSTEM, SystemRelation};
use harrier_sql::column_names::parts;
use harrier_sql::identifier::plain;

/// The columns of transactions and commands with their constant values; `xmin` has none.
const COLUMNS: [(&str, &str); 4] = [("xmin", ""), ("xmax", "0"), ("cmin", "0"), ("cmax", "0")];

/// Replaces them by their values.
pub(super) fn name(select: &mut Select) {
    let mut own: Vec<(String, &'static SystemRelation)> = vec![];
    let mut hidden: Vec<&str> = vec![];
    for from in &select.from {
        let joined = from.joins.iter().map(|join| &join.relation);
        for factor in std::iter::once(&from.relation).chain(joined) {
            match of(factor) {
                Some(found) => own.push(found),
                // It may have columns of these names.
                None => hidden = COLUMNS.iter().map(|(name, _)| *name).chain(["tableoid"]).collect(),
            }
        }
    }
    if own.is_empty() {
        return;
    }
    let mut columns = Columns { own, hidden };
    for item in &mut select.projection {
        // The column keeps its name.
        if let SelectItem::UnnamedExpr(expr) = item
            && let Some(column) = columns.system_column(expr)
        {
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::new(column) };
        }
    }
    let _ = VisitMut::visit(select, &mut columns);
}

/// The same in ORDER BY, where the result's columns take precedence.
pub(super) fn name_in_order(select: &Select, order: &mut impl VisitMut) {
    let shown = |name: &str| {
        select.projection.iter().any(|item| match item {
            SelectItem::ExprWithAlias { alias, .. } => plain(alias) == name,
            _ => false,
        })
    };
    let factors = select
        .from
        .iter()
        .flat_map(|from| std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation)));
    let own: Vec<_> = factors.filter_map(of).collect();
    if !own.is_empty() {
        let hidden = COLUMNS.iter().map(|(name, _)| *name).chain(["tableoid"]).filter(|name| shown(name));
        let hidden = hidden.collect();
        let _ = order.visit(&mut Columns { own, hidden });
    }
}

fn of(factor: &TableFactor) -> Option<(String, &'static SystemRelation)> {
    let TableFactor::Table { name, alias, args: None, .. } = factor else { return None };
    let relation = match parts(name).as_slice() {
        [schema, relation] if schema == CATALOG_SCHEMA => SYSTEM.catalog(relation)?,
        _ => return None,
    };
    // Views have none.
    let named = alias.as_ref().map_or_else(|| relation.name.to_string(), |alias| plain(&alias.name));
    (relation.kind == "r").then_some((named, relation))
}

struct Columns {
    own: Vec<(String, &'static SystemRelation)>,
    /// Unqualified names that mean something else.
    hidden: Vec<&'static str>,
}

impl Columns {
    /// The system column that an expression refers to.
    fn system_column(&self, expr: &Expr) -> Option<&'static str> {
        let find =
            |name: &Ident| COLUMNS.iter().find(|(column, _)| *column == plain(name)).map(|known| known.0);
        match expr {
            Expr::Identifier(name) if self.hidden.contains(&plain(name).as_str()) => None,
            Expr::Identifier(name) if plain(name) == "tableoid" => {
                (self.own.len() == 1).then_some("tableoid")
            }
            Expr::Identifier(name) => find(name),
            Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                [.., relation, name] => {
                    self.own.iter().find(|(own, _)| *own == plain(relation)).and_then(|_| find(name))
                }
                _ => None,
            },
            _ => None,
        }
    }
}

impl VisitorMut for Columns {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Some(column) = self.system_column(expr) {
            let value = COLUMNS.iter().find(|(name, _)| *name == column).map_or("", |known| known.1);
            *expr = match (value, self.own.as_slice()) {
                ("", [(_, relation), ..]) if column == "tableoid" => {
                    Expr::value(Value::Number(relation.oid.to_string(), false))
                }
                ("", _) => call("xid_of_catalog", vec![]),
                (value, _) => Expr::value(Value::SingleQuotedString(value.to_string())),
            };
        }
        ControlFlow::Continue(())
    }
}

/// Rewrites `age` of a transaction id, recognized by its argument.
pub(super) fn age_of_transaction(function: &mut Function) {
    if parts(&function.name).last().is_none_or(|name| name != "age") {
        return;
    }
    let FunctionArguments::List(arguments) = &function.args else { return };
    if let [FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))] = arguments.args.as_slice()
        && is_transaction(argument)
    {
        function.name = ObjectName::from(vec![Ident::new("xid_age")]);
    }
}

fn is_transaction(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_transaction(inner),
        Expr::Function(function) => {
            parts(&function.name).last().is_some_and(|name| name == "xid_of_catalog" || name == "xidin")
        }
        Expr::Identifier(name) => is_transaction_column(&plain(name)),
        Expr::CompoundIdentifier(parts) => {
            parts.last().is_some_and(|name| is_transaction_column(&plain(name)))
        }
        _ => false,
    }
}

fn is_transaction_column(name: &str) -> bool {
    let mut columns = SYSTEM.relations.iter().flat_map(|relation| &relation.columns);
    COLUMNS.iter().any(|(column, _)| *column == name)
        || columns.any(|column| column.type_name == "xid" && column.name == name)
}

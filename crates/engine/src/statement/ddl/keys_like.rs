//! Constraints and indexes copied by CREATE TABLE … LIKE.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::error::Result;
use harrier_catalog::state::{ColumnId, State, Table};

use crate::statement::ddl::Ddl;
use crate::warehouse::keys::declaration::KeyKind;
use crate::warehouse::keys::keys_notice;
use crate::warehouse::keys::{
    Expression, Index, IndexKey, Item, KeyDeclaration, Keys, Kind, change, name_of, naming,
};
use harrier_sql::parser::table_clauses::LikeOptions;

impl Ddl<'_> {
    /// Copies to `table`, which has the columns of `source`, what `options` include; returns notices.
    pub(crate) async fn copy_constraints(
        &self,
        table: &Table,
        source: &Table,
        options: LikeOptions,
    ) -> Result<Vec<String>> {
        self.transactions
            .change(|transaction| {
                let Some(table) = transaction.state.tables.get(&table.id) else { return Ok(vec![]) };
                let mut table = Table::clone(table);
                let has_keys = copy(&transaction.state, &mut table, source, options)?;
                if options.comments {
                    for column in &mut table.columns {
                        let own = source.columns.iter().find(|own| own.name == column.name);
                        column.comment = own.and_then(|own| own.comment.clone());
                    }
                }
                let notices = if has_keys { vec![keys_notice(&table.name)] } else { vec![] };
                transaction.state_mut().tables.insert(table.id, Arc::new(table));
                Ok(notices)
            })
            .await
    }
}

/// Copies constraints and indexes. Returns whether there were keys among them. As in PostgreSQL, foreign keys
/// are not copied, CHECK constraints keep their names, and indexes get new ones.
fn copy(state: &State, table: &mut Table, source: &Table, options: LikeOptions) -> Result<bool> {
    let columns: BTreeMap<ColumnId, ColumnId> = source
        .columns
        .iter()
        .filter_map(|own| Some((own.id, table.columns.iter().find(|column| column.name == own.name)?.id)))
        .collect();
    let of = |id: &ColumnId| columns.get(id).copied();
    let keys = Keys::of(source);
    let mut has_keys = false;
    for constraint in &keys.constraints {
        let what = match &constraint.kind {
            Kind::Check(check) if options.constraints => {
                let ids = constraint.columns.iter().filter_map(of).collect();
                let mut check = check.clone();
                check.condition = remap(&check.condition, &columns);
                change::add_check(state, table, Some(&constraint.name), ids, check)?;
                continue;
            }
            Kind::Primary if options.indexes => KeyKind::Primary,
            Kind::Unique { nulls_not_distinct } if options.indexes => {
                KeyKind::Unique { nulls_not_distinct: *nulls_not_distinct }
            }
            _ => continue,
        };
        let names = constraint.columns.iter().map(|id| name_of(source, *id).to_string());
        let declared = KeyDeclaration {
            name: None,
            columns: names.collect(),
            deferrable: constraint.deferrable,
            deferred: constraint.deferred,
            what,
        };
        change::add(state, table, &declared, None)?;
        has_keys = true;
    }
    for index in keys.indexes.iter().filter(|_| options.indexes) {
        let labels: Vec<String> = index.items.iter().map(|item| label(item, source)).collect();
        let item = |item: &Item| {
            let what = match &item.what {
                IndexKey::Column(id) => IndexKey::Column(of(id)?),
                IndexKey::Expression(expression) => IndexKey::Expression(remap(expression, &columns)),
            };
            Some(Item { what, ..item.clone() })
        };
        let index = Index {
            number: 0,
            name: String::new(),
            items: index.items.iter().filter_map(item).collect(),
            include: index.include.iter().filter_map(of).collect(),
            predicate: index.predicate.as_ref().map(|predicate| remap(predicate, &columns)),
            ..index.clone()
        };
        let labels = naming::columns(labels.iter().map(String::as_str));
        change::add_index(state, table, index, &labels, false)?;
        has_keys = true;
    }
    Ok(has_keys)
}

/// The expression over the columns of another table.
fn remap(expression: &Expression, columns: &BTreeMap<ColumnId, ColumnId>) -> Expression {
    let names = expression.columns.iter();
    let names = names.filter_map(|(name, id)| Some((name.clone(), *columns.get(id)?)));
    Expression { sql: expression.sql.clone(), columns: names.collect() }
}

/// An index column's part in the generated index name.
fn label(item: &Item, source: &Table) -> String {
    match &item.what {
        IndexKey::Column(id) => name_of(source, *id).to_string(),
        IndexKey::Expression(expression) => match expression.sql.split_once('(') {
            Some((name, _)) if !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_') => {
                name.to_string()
            }
            _ => "expr".to_string(),
        },
    }
}

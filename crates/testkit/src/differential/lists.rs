//! Queries with default column names: stars, expressions of equal names, casts beside the column of ORDER BY,
//! and whole rows.

use super::Statement;
use super::maker::Maker;
use super::scope::{Column, Kind, Scope};

/// Types with the same text form inside a row and alone.
const IN_ROWS: [Kind; 7] =
    [Kind::Int, Kind::Numeric, Kind::Text, Kind::Date, Kind::Time, Kind::Bool, Kind::Interval];

/// A statement of such a query.
pub(super) fn statement(maker: &mut Maker) -> Statement {
    let is_sorted = maker.choices.happens(1, 2);
    let sql = match (is_sorted, maker.choices.choose(4)) {
        (true, 0) => maker.sorted_groups(),
        (true, _) => return maker.sorted_beside_casts(),
        (false, 0) => maker.stars(),
        (false, 1) => maker.equal_names(),
        (false, 2) => maker.whole_rows(),
        (false, _) => {
            let inside = match maker.choices.happens(1, 2) {
                true => maker.stars(),
                false => maker.equal_names(),
            };
            format!("SELECT * FROM ({inside}) AS {}", maker.alias())
        }
    };
    Statement { sql, check: None, is_ordered: false }
}

impl Maker<'_> {
    /// All columns, repeated, or beside one of them.
    fn stars(&mut self) -> String {
        let (from, scope, _) = self.from(1, &Scope::default());
        let filter = self.where_or_not(&scope);
        let alias = relation_of(&scope.columns[0]);
        let column = scope.columns[self.choices.choose(scope.columns.len())].text.clone();
        let list = match self.choices.choose(6) {
            0 => "*, *".to_owned(),
            1 => format!("{alias}.*, {alias}.*"),
            2 => format!("*, {column}"),
            3 => format!("{column}, {alias}.*, *"),
            4 => format!("{alias}.*, {column}, {column}"),
            _ => format!("*, {}", self.expr(Kind::Int, 1, &scope)),
        };
        format!("SELECT {list} FROM {from}{filter}")
    }

    /// Expressions of equal names: that of their function or of a cast's column, or none.
    fn equal_names(&mut self) -> String {
        let (from, scope, _) = self.from(1, &Scope::default());
        let filter = self.where_or_not(&scope);
        let kind = self.kind();
        let (first, second) = (self.expr(kind, 1, &scope), self.expr(kind, 1, &scope));
        let column = scope.columns[self.choices.choose(scope.columns.len())].clone();
        let list = match self.choices.choose(5) {
            0 => format!("{first}, {first}"),
            1 => format!("{first}, {second}, {first}"),
            2 => format!("coalesce({first}, {second}), coalesce({second}, {first}), {}", column.text),
            3 => {
                let (column, cast) =
                    (&column.text, if column.kind == Kind::Bytes { "bytea" } else { "text" });
                format!("({column})::{cast}, {column}, ({column})::{cast}::{cast}")
            }
            _ => {
                let aggregate = self.aggregate(kind, &scope);
                return format!("SELECT {aggregate}, count(*), {aggregate}, count(*) FROM {from}{filter}");
            }
        };
        format!("SELECT {list} FROM {from}{filter}")
    }

    /// Rows in the order of a column or an expression, whose casts are shown.
    fn sorted_beside_casts(&mut self) -> Statement {
        let (from, scope, unique) = self.from(1, &Scope::default());
        let filter = self.where_or_not(&scope);
        let column = scope.columns[self.choices.choose(scope.columns.len())].clone();
        let key = match self.choices.happens(1, 3) {
            true => self.expr(column.kind, 1, &scope),
            false => column.text.clone(),
        };
        let cast = match (column.kind, self.choices.choose(3)) {
            (Kind::Int, 0) => "numeric(8,2)",
            (Kind::Int, 1) => "double precision",
            (Kind::Time, 0) => "date",
            (Kind::Date, 0) => "timestamp",
            (Kind::Bytes, _) => "bytea",
            _ => "text",
        };
        let list = match self.choices.choose(4) {
            0 => format!("({key})::{cast}"),
            1 => format!("({key})::{cast}, {key}"),
            2 => {
                let name = column.text.rsplit('.').next().unwrap_or("v").to_owned();
                format!("({})::{cast} AS {name}, {key}", column.text)
            }
            _ => format!("({key})::{cast} AS v, {}", column.text),
        };
        let how = self.choices.one_of(&["", " DESC", " NULLS FIRST", " DESC NULLS LAST"]);
        let keys = unique.map(|keys| keys.join(", "));
        let (order, limit) = match &keys {
            Some(keys) => (format!(" ORDER BY {key}{how}, {keys}"), self.limit()),
            // Which of the equal rows comes first is unspecified.
            None => (String::new(), String::new()),
        };
        let ties = match (&keys, self.choices.happens(1, 6)) {
            (Some(_), true) => Some(1 + self.choices.choose(4)),
            _ => None,
        };
        match ties {
            Some(count) => {
                let order = format!(" ORDER BY {key}{how} FETCH FIRST {count} ROWS WITH TIES");
                let sql = format!("SELECT {list} FROM {from}{filter}{order}");
                Statement { sql, check: None, is_ordered: false }
            }
            None => {
                let sql = format!("SELECT {list} FROM {from}{filter}{order}{limit}");
                Statement { sql, check: None, is_ordered: keys.is_some() }
            }
        }
    }

    /// Groups in the order of an aggregate, a cast of which is shown.
    fn sorted_groups(&mut self) -> String {
        let (from, scope, _) = self.from(1, &Scope::default());
        let filter = self.where_or_not(&scope);
        let key = scope.columns[self.choices.choose(scope.columns.len())].text.clone();
        let kind = IN_ROWS[self.choices.choose(IN_ROWS.len())];
        let aggregate = self.aggregate(kind, &scope);
        let how = self.choices.one_of(&["", " DESC", " NULLS FIRST"]);
        let rows = 1 + self.choices.choose(3);
        let limit = match self.choices.happens(1, 2) {
            true => format!(" FETCH FIRST {rows} ROWS WITH TIES"),
            false => String::new(),
        };
        format!(
            "SELECT ({aggregate})::text, {key}, {aggregate} FROM {from}{filter} GROUP BY {key} \
             ORDER BY {aggregate}{how}{limit}"
        )
    }

    /// Rows as values: plain, as text, as JSON, counted, and tested for NULL.
    fn whole_rows(&mut self) -> String {
        let alias = self.alias();
        let kinds = [self.in_row(), self.in_row()];
        let query = self.query(&kinds, 1, &Scope::default());
        let what = match self.choices.choose(6) {
            0 => alias.clone(),
            1 => format!("{alias}::text"),
            2 => format!("row_to_json({alias})"),
            3 => format!("count({alias}), count(*)"),
            4 => format!("{alias} IS NULL, {alias} IS NOT NULL"),
            _ => format!("to_json({alias})::text, {alias}.c2"),
        };
        format!("SELECT {what} FROM ({query}) AS {alias}(c1, c2)")
    }

    fn in_row(&mut self) -> Kind {
        IN_ROWS[self.choices.choose(IN_ROWS.len())]
    }

    fn where_or_not(&mut self, scope: &Scope) -> String {
        match self.choices.happens(1, 2) {
            true => format!(" WHERE {}", self.condition(1, scope)),
            false => String::new(),
        }
    }
}

fn relation_of(column: &Column) -> &str {
    column.text.split('.').next().unwrap_or(&column.text)
}

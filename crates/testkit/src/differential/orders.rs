//! Queries whose answer depends on the row order of a subquery, and on the rows that its limit keeps.

use super::maker::Maker;
use super::queries::with_names;
use super::scope::{Kind, Scope};

impl Maker<'_> {
    /// A query with columns of these types.
    pub(super) fn ordered_select(&mut self, kinds: &[Kind], depth: usize, scope: &Scope) -> String {
        match self.choices.choose(6) {
            5 => self.joined_rows(kinds, depth, scope),
            3 | 4 => self.numbered_rows(kinds, depth, scope),
            _ => {
                let items: Vec<String> =
                    kinds.iter().map(|kind| self.of_ordered(*kind, depth, scope)).collect();
                format!("SELECT {}", with_names(&items))
            }
        }
    }

    /// The rows of a query in a total order.
    fn ordered_rows(&mut self, kinds: &[Kind], depth: usize, scope: &Scope) -> String {
        let query = self.query(kinds, depth, scope);
        let alias = self.alias();
        format!("SELECT * FROM ({query}) AS {alias}{}{}", self.total_order(kinds.len()), self.limit())
    }

    /// Some of them, by position.
    fn numbered_rows(&mut self, kinds: &[Kind], depth: usize, scope: &Scope) -> String {
        let rows = self.ordered_rows(kinds, depth, scope);
        let (inner, outer) = (self.alias(), self.alias());
        let columns: Vec<String> = (1..=kinds.len()).map(|number| format!("c{number}")).collect();
        let columns = columns.join(", ");
        let operator = self.choices.one_of(&["=", "<=", ">", "<>"]);
        let place = 1 + self.choices.choose(4);
        format!(
            "SELECT {columns} FROM (SELECT {columns}, row_number() OVER () AS place FROM ({rows}) AS {inner}({columns})) \
             AS {outer} WHERE place {operator} {place}"
        )
    }

    /// The first rows of a join whose sides are ordered, in the order of columns of both.
    fn joined_rows(&mut self, kinds: &[Kind], depth: usize, scope: &Scope) -> String {
        let aliases = [self.alias(), self.alias()];
        // The first column of each side is the join key.
        let mut sides = [vec![Kind::Int], vec![Kind::Int]];
        let mut items = Vec::with_capacity(kinds.len());
        for kind in kinds {
            let at = self.choices.choose(2);
            sides[at].push(*kind);
            items.push(format!("{}.c{}", aliases[at], sides[at].len()));
        }
        let [left, right] = [0, 1].map(|at| {
            let rows = self.ordered_rows(&sides[at], depth.min(1), scope);
            let columns: Vec<String> = (1..=sides[at].len()).map(|number| format!("c{number}")).collect();
            format!("({rows}) AS {}({})", aliases[at], columns.join(", "))
        });
        let join = self.choices.one_of(&["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]);
        let from = format!("{left} {join} {right} ON {}.c1 = {}.c1", aliases[0], aliases[1]);
        let mut keys = items.clone();
        keys.rotate_left(self.choices.choose(items.len()));
        let keys: Vec<String> = keys
            .iter()
            .map(|key| {
                format!("{key}{}", self.choices.one_of(&["", " DESC", " NULLS FIRST", " DESC NULLS LAST"]))
            })
            .collect();
        let (list, order, outer) = (with_names(&items), keys.join(", "), self.alias());
        let columns: Vec<String> = (1..=kinds.len()).map(|number| format!("c{number}")).collect();
        let columns = columns.join(", ");
        match self.choices.happens(1, 2) {
            true => format!(
                "SELECT {columns} FROM (SELECT {list}, row_number() OVER (ORDER BY {order}) AS place FROM {from}) \
                 AS {outer} WHERE place <= {}",
                1 + self.choices.choose(8)
            ),
            false => format!(
                "SELECT {columns} FROM (SELECT {list} FROM {from} ORDER BY {order}{}) AS {outer}",
                self.limit()
            ),
        }
    }

    /// An expression that depends on row order.
    fn of_ordered(&mut self, kind: Kind, depth: usize, scope: &Scope) -> String {
        let other = [Kind::Int, Kind::Text, Kind::Date, Kind::Bool][self.choices.choose(4)];
        match (kind, self.choices.choose(4)) {
            (Kind::Text, 0) => {
                format!("array_to_string(ARRAY({}), ',', '~')", self.ordered_rows(&[other], depth, scope))
            }
            (Kind::Text, 1) => {
                let kinds = [other, self.kind()];
                let query = self.query(&kinds, depth, scope);
                let alias = self.alias();
                let how = self.choices.one_of(&["", " DESC", " NULLS FIRST", " DESC NULLS LAST"]);
                let then = self.choices.one_of(&["", " DESC"]);
                format!(
                    "(SELECT string_agg({alias}.c1::text, ',' ORDER BY {alias}.c2{how}, {alias}.c1{then}) \
                     FROM ({query}) AS {alias}(c1, c2))"
                )
            }
            (Kind::Text, 2) => {
                let query = self.query(&[other], depth, scope);
                let alias = self.alias();
                format!(
                    "(SELECT array_to_string(array_agg(DISTINCT {alias}.c1), ',', '~') FROM ({query}) AS {alias}(c1))"
                )
            }
            (Kind::Int, 0) => {
                format!("cardinality(ARRAY({}))", self.ordered_rows(&[other], depth, scope))
            }
            _ => {
                let place = 1 + self.choices.choose(3);
                format!("(ARRAY({}))[{place}]", self.ordered_rows(&[kind], depth, scope))
            }
        }
    }
}

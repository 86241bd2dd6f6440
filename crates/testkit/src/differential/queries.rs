//! Generator of queries: FROM, joins, grouping, order and limit.

use super::Statement;
use super::choices::Choices;
use super::maker::Maker;
use super::numbers::summable;
use super::scope::{Column, Kind, Scope};

/// The tables with their columns; the first identifies a row.
const TABLES: [(&str, &[(&str, Kind)]); 4] = [
    (
        "a",
        &[
            ("id", Kind::Int),
            ("k", Kind::Int),
            ("n", Kind::Numeric),
            ("s", Kind::Text),
            ("d", Kind::Date),
            ("f", Kind::Bool),
            ("r", Kind::Real),
            ("x", Kind::Double),
            ("i", Kind::Interval),
            ("y", Kind::Bytes),
        ],
    ),
    (
        "b",
        &[
            ("id", Kind::Int),
            ("k", Kind::Int),
            ("n", Kind::Numeric),
            ("s", Kind::Text),
            ("t", Kind::Time),
            ("f", Kind::Bool),
            ("r", Kind::Real),
            ("x", Kind::Double),
            ("i", Kind::Interval),
            ("y", Kind::Bytes),
        ],
    ),
    ("c", &[("id", Kind::Int), ("k", Kind::Int), ("s", Kind::Text)]),
    ("e", &[("id", Kind::Int), ("k", Kind::Int), ("n", Kind::Numeric), ("s", Kind::Text)]),
];

/// Types of join keys, in order of preference; the first that both sides have is used.
const JOINED: [Kind; 8] =
    [Kind::Int, Kind::Text, Kind::Numeric, Kind::Bool, Kind::Date, Kind::Time, Kind::Interval, Kind::Bytes];

/// A query as a statement.
pub(super) fn statement(choices: &mut Choices) -> Statement {
    let mut maker = Maker::new(choices);
    let count = 1 + maker.choices.choose(3);
    let kinds: Vec<Kind> = (0..count).map(|_| maker.kind()).collect();
    if maker.choices.happens(1, 16) {
        let sql = maker.recursive_select(&kinds);
        return Statement { sql, check: None, is_ordered: false };
    }
    let mut with = String::new();
    let mut scope = Scope::default();
    if maker.choices.happens(1, 8) {
        // A common table expression is read by its name as a derived table; half of them are read twice.
        let kind = maker.kind();
        with = format!("WITH w(v) AS ({}) ", maker.query(&[kind], 2, &scope));
        scope.outer.push(Column::new("(SELECT max(v) FROM w)".to_owned(), kind));
        if kind == Kind::Bool {
            scope.outer.clear();
        }
    }
    let query = maker.query(&kinds, 3, &scope);
    let is_ordered = maker.choices.happens(1, 3);
    let order = match is_ordered {
        true => maker.total_order(kinds.len()),
        false => String::new(),
    };
    let limit = match is_ordered {
        true => maker.limit(),
        false => String::new(),
    };
    let query = match order.is_empty() {
        true => query,
        // The query may have an order of its own.
        false => format!("SELECT * FROM ({query}) AS z{order}{limit}"),
    };
    Statement { sql: format!("{with}{query}"), check: None, is_ordered }
}

impl Maker<'_> {
    /// A query with columns of these types.
    pub(super) fn query(&mut self, kinds: &[Kind], depth: usize, scope: &Scope) -> String {
        if depth > 0 && self.choices.happens(1, 6) {
            return self.set_operation(kinds, depth - 1, scope);
        }
        let query = match self.choices.choose(9) {
            8 if depth > 0 => self.ordered_select(kinds, depth - 1, scope),
            0..=2 => self.plain_select(kinds, depth, scope),
            3 | 4 => self.grouped_select(kinds, depth, scope),
            5 => self.distinct_select(kinds, depth, scope),
            _ => self.windowed_select(kinds, depth, scope),
        };
        match self.choices.happens(1, 8) {
            true => format!("{query}{}{}", self.total_order(kinds.len()), self.limit()),
            false => query,
        }
    }

    pub(super) fn set_operation(&mut self, kinds: &[Kind], depth: usize, scope: &Scope) -> String {
        let operator = self.choices.one_of(&[
            "UNION ALL",
            "UNION",
            "INTERSECT",
            "EXCEPT",
            "INTERSECT ALL",
            "EXCEPT ALL",
        ]);
        let left = self.query(kinds, depth, scope);
        // The result columns of a set operation have the types of the left side.
        let kinds: Vec<Kind> = kinds.iter().map(|kind| self.narrower(*kind)).collect();
        let right = self.query(&kinds, depth, scope);
        format!("({left}) {operator} ({right})")
    }

    /// ` ORDER BY` every column, by number.
    pub(super) fn total_order(&mut self, count: usize) -> String {
        let keys: Vec<String> = (1..=count)
            .map(|number| {
                let how = self.choices.one_of(&[
                    "",
                    " DESC",
                    " NULLS FIRST",
                    " DESC NULLS LAST",
                    " ASC NULLS LAST",
                ]);
                format!("{number}{how}")
            })
            .collect();
        format!(" ORDER BY {}", keys.join(", "))
    }

    /// A limit, or none.
    pub(super) fn limit(&mut self) -> String {
        match self.choices.choose(8) {
            0 | 1 => String::new(),
            2 => format!(" LIMIT {}", self.choices.choose(5)),
            3 => format!(" OFFSET {}", self.choices.choose(4)),
            4 => format!(" FETCH FIRST {} ROWS WITH TIES", 1 + self.choices.choose(4)),
            5 => {
                let skipped = self.choices.choose(3);
                format!(" OFFSET {skipped} ROWS FETCH NEXT {} ROWS ONLY", 1 + self.choices.choose(4))
            }
            6 => {
                let skipped = self.choices.choose(3);
                format!(" OFFSET {skipped} FETCH NEXT {} ROWS WITH TIES", 1 + self.choices.choose(4))
            }
            _ => format!(" LIMIT {} OFFSET {}", self.choices.choose(5), self.choices.choose(3)),
        }
    }

    pub(super) fn plain_select(&mut self, kinds: &[Kind], depth: usize, scope: &Scope) -> String {
        let (from, scope, _) = self.from(depth, scope);
        let filter = self.filter(depth, &scope);
        // In a correlated subquery, only PostgreSQL supports unnesting in the select list.
        let list = match scope.outer.is_empty() && self.choices.happens(1, 8) {
            true => self.unnested_list(kinds, depth, &scope),
            false => self.list(kinds, depth, &scope),
        };
        format!("SELECT {list} FROM {from}{filter}")
    }

    /// A recursive query that ends when its number is large enough.
    fn recursive_select(&mut self, kinds: &[Kind]) -> String {
        let tables = [(); 3].map(|()| TABLES[self.choices.choose(TABLES.len())]);
        let aliases = [(); 3].map(|()| self.alias());
        let scopes = [0, 1, 2].map(|at| {
            let columns = tables[at].1.iter();
            let columns = columns.map(|(name, kind)| Column::new(format!("{}.{name}", aliases[at]), *kind));
            Scope { columns: columns.collect(), outer: vec![] }
        });
        let [first, second, third] = [0, 1, 2].map(|at| format!("{} AS {}", tables[at].0, aliases[at]));
        // It may not be read in a subquery of its own.
        let saved = std::mem::take(&mut self.subqueries);
        let begin = self.filter(0, &scopes[0]);
        let operator = self.choices.one_of(&["UNION ALL", "UNION"]);
        let join = self.choices.one_of(&["JOIN", "LEFT JOIN"]);
        let equal = format!("{}.id = r.v + 1", aliases[1]);
        let mut step = scopes[1].clone();
        step.columns.push(Column::new("r.w".to_owned(), Kind::Int));
        let on = self.odd(&equal, &step);
        let most = 2 + self.choices.choose(4);
        self.subqueries = saved;
        let mut above = scopes[2].clone();
        above.columns.extend(["r.v", "r.w"].map(|name| Column::new(name.to_owned(), Kind::Int)));
        let filter = self.filter(1, &above);
        let list = self.list(kinds, 1, &above);
        format!(
            "WITH RECURSIVE r(v, w) AS (SELECT {0}.id, {0}.k FROM {first}{begin} {operator} \
             SELECT r.v + 1, {1}.k FROM r {join} {second} ON {on} WHERE r.v < {most}) \
             SELECT {list} FROM r JOIN {third} ON {2}.k = r.w{filter}",
            aliases[0], aliases[1], aliases[2]
        )
    }

    /// A select list one of whose columns unnests an array.
    fn unnested_list(&mut self, kinds: &[Kind], depth: usize, scope: &Scope) -> String {
        let unnested = self.choices.choose(kinds.len());
        let items = kinds.iter().enumerate().map(|(at, kind)| {
            let value = self.expr(*kind, depth.min(1), scope);
            match at == unnested {
                true => format!("unnest(ARRAY[{value}, {}])", self.atom(*kind, scope)),
                false => value,
            }
        });
        let items: Vec<String> = items.collect();
        with_names(&items)
    }

    fn distinct_select(&mut self, kinds: &[Kind], depth: usize, scope: &Scope) -> String {
        let (from, scope, _) = self.from(depth, scope);
        let filter = self.filter(depth, &scope);
        let items: Vec<String> = kinds.iter().map(|kind| self.expr(*kind, depth.min(2), &scope)).collect();
        if self.choices.happens(1, 2) {
            return format!("SELECT DISTINCT {} FROM {from}{filter}", with_names(&items));
        }
        // DISTINCT ON the first column; the others decide which row, so that the result is deterministic.
        let order: Vec<String> = (1..=items.len()).map(|number| number.to_string()).collect();
        let query = format!(
            "SELECT DISTINCT ON (c1) * FROM (SELECT {} FROM {from}{filter}) AS {}",
            with_names(&items),
            self.alias()
        );
        format!("{query} ORDER BY {}", order.join(", ")).replacen("SELECT", "SELECT * FROM (SELECT", 1)
            + &format!(") AS {}", self.alias())
    }

    fn list(&mut self, kinds: &[Kind], depth: usize, scope: &Scope) -> String {
        let items: Vec<String> = kinds.iter().map(|kind| self.expr(*kind, depth.min(2), scope)).collect();
        with_names(&items)
    }

    fn filter(&mut self, depth: usize, scope: &Scope) -> String {
        match self.choices.happens(2, 3) {
            true => format!(" WHERE {}", self.condition(depth.min(2), scope)),
            false => String::new(),
        }
    }

    /// A FROM clause: its text, its columns, and those that identify a row, if any.
    pub(super) fn from(&mut self, depth: usize, outer: &Scope) -> (String, Scope, Option<Vec<String>>) {
        let mut scope = Scope { columns: vec![], outer: outer.outer.clone() };
        let (mut text, mut keys) = match depth > 0 && self.choices.happens(1, 14) {
            true => (self.unnested_table(&mut scope), None),
            false => self.relation(depth, &mut scope, false),
        };
        let joins = match depth {
            0 => 0,
            _ => self.choices.choose(3),
        };
        for _ in 0..joins {
            let before = scope.columns.len();
            let kind = self.choices.choose(7);
            let is_lateral = kind >= 5;
            let (right, right_keys) = self.relation(depth - 1, &mut scope, is_lateral);
            keys = keys.zip(right_keys).map(|(left, right)| [left, right].concat());
            let equal = self.join_condition(before, &scope);
            text = match kind {
                0 => format!("{text} JOIN {right} ON {equal}"),
                1 => format!("{text} LEFT JOIN {right} ON {}", self.odd(&equal, &scope)),
                2 => format!("{text} RIGHT JOIN {right} ON {}", self.odd(&equal, &scope)),
                3 => format!("{text} FULL JOIN {right} ON {equal}"),
                4 => format!("{text} CROSS JOIN {right}"),
                5 => format!("{text} CROSS JOIN {right}"),
                _ => format!("{text} LEFT JOIN {right} ON true"),
            };
        }
        (text, scope, keys)
    }

    /// A table joined with the elements of one of its arrays.
    fn unnested_table(&mut self, scope: &mut Scope) -> String {
        let [table, elements] = [(); 2].map(|()| self.alias());
        let (array, kind) = match self.choices.happens(1, 2) {
            true => ("u", Kind::Int),
            false => ("w", Kind::Text),
        };
        scope.columns.push(Column::new(format!("{table}.id"), Kind::Int));
        scope.columns.push(Column::new(format!("{elements}.v"), kind));
        let unnest = format!("unnest({table}.{array}) AS {elements}(v)");
        match self.choices.choose(4) {
            0 => format!("h AS {table} CROSS JOIN {unnest}"),
            1 => format!("h AS {table} JOIN LATERAL {unnest} ON {}", self.condition(0, scope)),
            2 => format!("h AS {table} LEFT JOIN LATERAL {unnest} ON true"),
            _ => format!(
                "h AS {table} CROSS JOIN LATERAL (SELECT v FROM {unnest} WHERE v IS NOT NULL) AS {elements}"
            ),
        }
    }

    /// Equality of one column of each side.
    fn join_condition(&mut self, before: usize, scope: &Scope) -> String {
        let (left, right) = scope.columns.split_at(before);
        if self.choices.happens(1, 6) {
            let numbers = |columns: &[Column]| -> Vec<String> {
                let numbers = columns.iter().filter(|column| column.kind.is_number());
                numbers.map(|column| column.text.clone()).collect()
            };
            let (left, right) = (numbers(left), numbers(right));
            if !left.is_empty() && !right.is_empty() {
                let left = &left[self.choices.choose(left.len())];
                return format!("{left} = {}", right[self.choices.choose(right.len())]);
            }
        }
        for kind in JOINED {
            let left: Vec<&Column> = left.iter().filter(|column| column.kind == kind).collect();
            let right: Vec<&Column> = right.iter().filter(|column| column.kind == kind).collect();
            if left.is_empty() || right.is_empty() {
                continue;
            }
            let (left, right) =
                (left[self.choices.choose(left.len())], right[self.choices.choose(right.len())]);
            return format!("{} = {}", left.text, right.text);
        }
        "true".to_owned()
    }

    fn odd(&mut self, equal: &str, scope: &Scope) -> String {
        match self.choices.choose(4) {
            0 | 1 => equal.to_owned(),
            2 => format!("{equal} AND {}", self.condition(0, scope)),
            _ => self.condition(0, scope),
        }
    }

    /// A table or a derived table, whose columns are added to the scope.
    fn relation(
        &mut self,
        depth: usize,
        scope: &mut Scope,
        is_lateral: bool,
    ) -> (String, Option<Vec<String>>) {
        let alias = self.alias();
        let kind = match depth {
            _ if is_lateral => 3,
            0 => 0,
            _ => self.choices.choose(6),
        };
        match kind {
            0..=2 => {
                let (table, columns) = TABLES[[0, 1, 0, 1, 2, 3][self.choices.choose(6)]];
                scope
                    .columns
                    .extend(columns.iter().map(|(name, kind)| Column::new(format!("{alias}.{name}"), *kind)));
                (format!("{table} AS {alias}"), Some(vec![format!("{alias}.id")]))
            }
            3 | 4 => {
                let kinds = [Kind::Int, self.kind()];
                let inside = match is_lateral {
                    true => scope.inside(),
                    false => Scope { columns: vec![], outer: scope.outer.clone() },
                };
                let outside = match is_lateral {
                    true => inside,
                    // A derived table sees only the outer columns of this query.
                    false => inside.clone_outer(),
                };
                let query = self.query(&kinds, depth.min(1), &outside);
                for (number, kind) in kinds.iter().enumerate() {
                    scope.columns.push(Column::new(format!("{alias}.c{}", number + 1), *kind));
                }
                let lateral = if is_lateral { "LATERAL " } else { "" };
                (format!("{lateral}({query}) AS {alias}(c1, c2)"), None)
            }
            _ => {
                let (table, columns) = TABLES[self.choices.choose(2)];
                let (name, kind) = columns[self.choices.choose(columns.len())];
                let constant = self.atom(Kind::Int, &Scope::default());
                scope.columns.push(Column::new(format!("{alias}.c"), kind));
                scope.columns.push(Column::new(format!("{alias}.flag"), Kind::Int));
                (format!("(SELECT {name} AS c, {constant} AS flag FROM {table}) AS {alias}"), None)
            }
        }
    }

    /// An aggregate query without GROUP BY.
    pub(super) fn one_aggregate(&mut self, kind: Kind, scope: &Scope) -> String {
        let (from, scope, _) = self.from(1, scope);
        let filter = self.filter(1, &scope);
        let aggregate = self.aggregate(kind, &scope);
        format!("SELECT {aggregate} FROM {from}{filter}")
    }

    /// An aggregate of a type.
    pub(super) fn aggregate(&mut self, kind: Kind, scope: &Scope) -> String {
        // Aggregates over outer columns alone belong to the outer query.
        let inner = Scope { columns: scope.columns.clone(), outer: vec![] };
        let saved = std::mem::take(&mut self.subqueries);
        let of = match inner.of_kind(kind).is_empty() {
            true => self.first_column_as(kind, &inner),
            false => self.column(kind, &inner),
        };
        let call = match kind {
            Kind::Int => match self.choices.choose(8) {
                0 => "count(*)".to_owned(),
                1 => format!("count({of})"),
                2 => format!("count(DISTINCT {of})"),
                3 => format!("sum({of})"),
                4 => format!("max({of})"),
                5 => format!("min({of})"),
                6 => self.distinct_count(&inner),
                _ => self.within_group(&inner),
            },
            Kind::Numeric => match self.choices.choose(4) {
                0 => format!("sum({of})"),
                1 => format!("max({of})"),
                2 => format!("sum(DISTINCT {of})"),
                _ => format!("round(avg({of}), 2)"),
            },
            Kind::Text => match self.choices.choose(4) {
                3 => self.ordered_aggregate(&inner),
                0 => format!("max({of})"),
                1 => format!("min({of})"),
                _ => format!("string_agg({of}, ',' ORDER BY {of})"),
            },
            Kind::Bytes => {
                let how = self.choices.one_of(&["", " DESC"]);
                format!("(array_agg({of} ORDER BY {of}{how}))[1]")
            }
            Kind::Date | Kind::Time | Kind::Interval => {
                let function = self.choices.one_of(&["max", "min"]);
                format!("{function}({of})")
            }
            Kind::Bool => {
                let function = self.choices.one_of(&["bool_and", "bool_or"]);
                format!("{function}({of})")
            }
            Kind::Real => match self.choices.choose(4) {
                0 => format!("sum({})", summable(&of)),
                1 => format!("sum(DISTINCT {})", summable(&of)),
                2 => format!("max({of})"),
                _ => format!("min({of})"),
            },
            Kind::Double => match self.choices.choose(5) {
                0 => format!("sum({})", summable(&of)),
                1 => format!("avg({})", summable(&of)),
                2 => match inner.of_kind(Kind::Real).is_empty() {
                    true => format!("avg({})", summable(&of)),
                    false => format!("avg({})", summable(&self.column(Kind::Real, &inner))),
                },
                3 => format!("max({of})"),
                _ => format!("min({of})"),
            },
        };
        let is_inside = kind == Kind::Bytes || call.starts_with("round") || call.starts_with("array_to");
        let filter = match !is_inside && self.choices.happens(1, 5) {
            true => format!(" FILTER (WHERE {})", self.condition(0, &inner)),
            false => String::new(),
        };
        self.subqueries = saved;
        format!("{call}{filter}")
    }

    fn column(&mut self, kind: Kind, scope: &Scope) -> String {
        let columns = scope.of_kind(kind);
        columns[self.choices.choose(columns.len())].text.clone()
    }

    /// An expression of a type that references a column of the scope, if no column has the type.
    fn first_column_as(&mut self, kind: Kind, scope: &Scope) -> String {
        let column = &scope.columns[0].text;
        let value = self.atom(kind, &Scope::default());
        format!("CASE WHEN {column} IS NOT NULL THEN {value} END")
    }

    fn grouped_select(&mut self, kinds: &[Kind], depth: usize, scope: &Scope) -> String {
        let (from, scope, _) = self.from(depth, scope);
        let filter = self.filter(depth, &scope);
        let count = self.choices.choose(3);
        let mut keys: Vec<Column> = Vec::new();
        for _ in 0..count {
            let column = scope.columns[self.choices.choose(scope.columns.len())].clone();
            if keys.iter().all(|key| key.text != column.text) {
                keys.push(column);
            }
        }
        let texts: Vec<&str> = keys.iter().map(|key| key.text.as_str()).collect();
        let group = match (keys.is_empty(), self.choices.choose(8)) {
            (true, 7) => " GROUP BY ()".to_owned(),
            (true, _) => String::new(),
            (false, 4) => format!(" GROUP BY ROLLUP ({})", texts.join(", ")),
            (false, 5) => format!(" GROUP BY CUBE ({})", texts.join(", ")),
            (false, 6) => format!(" GROUP BY GROUPING SETS (({}), ())", texts.join(", ")),
            (false, 7) => format!(" GROUP BY GROUPING SETS ({}, ({}))", texts[0], texts.join(", ")),
            (false, _) => format!(" GROUP BY {}", texts.join(", ")),
        };
        let is_plain = !group.contains('(') || group.ends_with("()");
        let of_keys = match keys.is_empty() {
            true => None,
            false => Some(self.of_keys(&keys, is_plain, &scope)),
        };
        let mut above = Scope { columns: keys, outer: scope.outer.clone() };
        above.columns.extend(of_keys);
        if self.choices.happens(1, 4)
            && let Some(time) = scope.of_kind(Kind::Time).first()
        {
            above.columns.push(Column::value(format!("(max({0}) - min({0}))", time.text), Kind::Interval));
        }
        if !is_plain {
            // Grouping keys are NULL in some sets; correlated subqueries on them are generated as well.
            above.outer.clear();
        }
        for kind in kinds {
            let aggregate = self.aggregate(*kind, &scope);
            above.columns.push(Column::value(aggregate, *kind));
        }
        let having = match self.choices.happens(1, 4) {
            true => format!(" HAVING {}", self.condition(1, &above)),
            false => String::new(),
        };
        let items: Vec<String> = kinds
            .iter()
            .map(|kind| match self.choices.happens(1, 3) {
                true => self.expr(*kind, 1, &above),
                false => self.column(*kind, &above),
            })
            .collect();
        let list = with_names(&items);
        // Without GROUP BY, an aggregate is needed to make the query return one row.
        let having = match (group.is_empty(), having.is_empty()) {
            (true, true) => " HAVING count(*) >= 0".to_owned(),
            _ => having,
        };
        format!("SELECT {list} FROM {from}{filter}{group}{having}")
    }

    fn windowed_select(&mut self, kinds: &[Kind], depth: usize, scope: &Scope) -> String {
        let (from, scope, unique) = self.from(depth, scope);
        let filter = self.filter(depth, &scope);
        let items: Vec<String> = kinds
            .iter()
            .map(|kind| match self.choices.happens(2, 3) {
                true => self.window(*kind, &scope, unique.as_deref()),
                false => self.expr(*kind, 1, &scope),
            })
            .collect();
        format!("SELECT {} FROM {from}{filter}", with_names(&items))
    }

    /// A window function whose answer is deterministic.
    fn window(&mut self, kind: Kind, scope: &Scope, unique: Option<&[String]>) -> String {
        let partition = match self.choices.happens(1, 2) {
            true => {
                let column = &scope.columns[self.choices.choose(scope.columns.len())].text;
                format!("PARTITION BY {column} ")
            }
            false => String::new(),
        };
        let first = scope.columns[self.choices.choose(scope.columns.len())].text.clone();
        let how = self.choices.one_of(&["", " DESC", " NULLS FIRST", " DESC NULLS LAST"]);
        let inner = Scope { columns: scope.columns.clone(), outer: vec![] };
        let saved = std::mem::take(&mut self.subqueries);
        let call = match (unique, kind, self.choices.choose(5)) {
            (Some(keys), _, way) if way < 3 => {
                let direction = self.choices.one_of(&["", " DESC"]);
                let last: Vec<String> = keys.iter().map(|key| format!("{key}{direction}")).collect();
                let order = format!("ORDER BY {first}{how}, {}", last.join(", "));
                let call = self.row_function(kind, &inner);
                let frame = match call.ends_with("(*)") || call.contains("sum(") || call.contains("_value(") {
                    true => self.frame(),
                    false => "",
                };
                format!("{call} OVER ({partition}{order}{frame})")
            }
            (_, Kind::Int, 3) => {
                let function = self.choices.one_of(&["rank()", "dense_rank()"]);
                format!("{function} OVER ({partition}ORDER BY {first}{how})")
            }
            (_, kind, way) => {
                let aggregate = self.order_free_aggregate(kind, &inner);
                let order = match way % 2 {
                    0 => String::new(),
                    _ => format!("ORDER BY {first}{how}"),
                };
                match kind {
                    Kind::Bytes => format!("decode({aggregate} OVER ({partition}{order}), 'hex')"),
                    _ => format!("{aggregate} OVER ({partition}{order})"),
                }
            }
        };
        self.subqueries = saved;
        call
    }

    /// A function that distinguishes the rows of a window.
    fn row_function(&mut self, kind: Kind, scope: &Scope) -> String {
        let of = match scope.of_kind(kind).is_empty() {
            true => self.first_column_as(kind, scope),
            false => self.column(kind, scope),
        };
        match (kind, self.choices.choose(9)) {
            (Kind::Int, 6) => "row_number()".to_owned(),
            (Kind::Int, 7) => "count(*)".to_owned(),
            (Kind::Int, 8) => format!("ntile({})", 1 + self.choices.choose(3)),
            (Kind::Numeric, 6..) => format!("sum({of})"),
            (Kind::Real | Kind::Double, 6..) => format!("sum({})", summable(&of)),
            (_, 0) => format!("lag({of})"),
            (_, 1) => format!("lead({of}, {})", 1 + self.choices.choose(2)),
            (_, 2) => {
                let default = self.atom(kind, &Scope::default());
                format!("lag({of}, 1, {default})")
            }
            (_, 3) => format!("nth_value({of}, {})", 1 + self.choices.choose(2)),
            (_, 4) => format!("last_value({of})"),
            _ => format!("first_value({of})"),
        }
    }

    fn frame(&mut self) -> &'static str {
        self.choices.one_of(&[
            "",
            " ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
            " ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
            " ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
            " ROWS 2 PRECEDING",
            " RANGE UNBOUNDED PRECEDING",
        ])
    }

    /// An order-insensitive aggregate; bytes are aggregated as hexadecimal digits.
    fn order_free_aggregate(&mut self, kind: Kind, scope: &Scope) -> String {
        let of = match scope.of_kind(kind).is_empty() {
            true => self.first_column_as(kind, scope),
            false => self.column(kind, scope),
        };
        let call = match kind {
            Kind::Int => self.choices.one_of(&["count", "sum", "max", "min"]),
            Kind::Numeric => self.choices.one_of(&["sum", "max", "min"]),
            Kind::Bool => self.choices.one_of(&["bool_and", "bool_or"]),
            Kind::Real | Kind::Double => self.choices.one_of(&["sum", "max", "min"]),
            _ => self.choices.one_of(&["max", "min"]),
        };
        let filter = match self.choices.happens(1, 4) {
            true => format!(" FILTER (WHERE {})", self.condition(0, scope)),
            false => String::new(),
        };
        let of = match call == "sum" && matches!(kind, Kind::Real | Kind::Double) {
            true => summable(&of),
            false if kind == Kind::Bytes => format!("encode({of}, 'hex')"),
            false => of,
        };
        format!("{call}({of}){filter}")
    }
}

impl Scope {
    /// The outer columns only.
    fn clone_outer(&self) -> Scope {
        Scope { columns: vec![], outer: self.outer.clone() }
    }
}

pub(super) fn with_names(items: &[String]) -> String {
    let items = items.iter().enumerate().map(|(number, item)| format!("{item} AS c{}", number + 1));
    items.collect::<Vec<_>>().join(", ")
}

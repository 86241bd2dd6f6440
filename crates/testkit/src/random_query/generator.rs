//! Generator of the query of a seed.
//!
//! All random choices are drawn from one generator in a fixed order, so the same seed gives the same query.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::data::{DIMS, EVENTS, FACTS, LONE, NOTHING, Table};
use super::query::Kind::{self, Boolean, Date, Decimal, Float, Integer, Nested, Text};
use super::query::{Expression, Grouping, Join, Piece, Query, Relation, Select, Source};

/// Approximate limit of a join's rows, so that a query takes milliseconds.
const JOIN_ROWS_MAX: usize = 50_000;

pub fn query(seed: u64) -> Query {
    let mut generator = Generator { random: StdRng::seed_from_u64(seed), aliases: 0, with: Vec::new() };
    generator.statement()
}

/// A column that expressions can use.
#[derive(Clone)]
struct Column {
    sql: String,
    kind: Kind,
    /// Whether it is a plain column name: correlated conditions and total orders need one.
    simple: bool,
}

/// The columns in scope, and the approximate number of rows.
#[derive(Clone)]
struct Scope {
    columns: Vec<Column>,
    rows: usize,
}

/// A common table expression that can be read.
struct With {
    name: String,
    kinds: Vec<Kind>,
    rows: usize,
}

struct Generator {
    random: StdRng,
    aliases: usize,
    with: Vec<With>,
}

impl Generator {
    fn statement(&mut self) -> Query {
        let mut with = Vec::new();
        if self.one_in(5) {
            let (query, rows) = self.query(1);
            let name = "w1".to_owned();
            self.with.push(With { name: name.clone(), kinds: query.kinds(), rows });
            with.push((name, query));
        }
        let (query, _) = self.query(2);
        Query { with, ..query }
    }

    /// A query, and the approximate number of its rows. `depth` limits the nesting of queries.
    fn query(&mut self, depth: usize) -> (Query, usize) {
        let (first, mut rows) = self.select(depth, None);
        let kinds: Vec<Kind> = first.items.iter().map(|item| item.kind).collect();
        let nested = kinds.contains(&Nested);
        let mut others = Vec::new();
        while !nested && others.len() < 2 && self.one_in(6) {
            let operator = self.pick(&["union all", "union", "intersect", "except", "union all"]);
            let (select, more) = self.select(depth.saturating_sub(1), Some(&kinds));
            rows += more;
            others.push((operator, select));
        }
        let mut order = Vec::new();
        let mut limit = None;
        if !nested && self.one_in(2) {
            for column in 1..=kinds.len() {
                let direction = self.pick(&["", " desc", " asc nulls first", " desc nulls last"]);
                order.push(format!("{column}{direction}"));
            }
            if self.one_in(2) {
                let offset = if self.one_in(3) { self.random.random_range(1..20) } else { 0 };
                let most = self.random.random_range(0..60);
                limit = Some((most, offset));
                rows = rows.min(most);
            }
        }
        let query = Query { with: Vec::new(), first, others, order, limit };
        (query, rows)
    }

    /// A select with columns of the given kinds, otherwise with one to four columns of any kind.
    fn select(&mut self, depth: usize, kinds: Option<&[Kind]>) -> (Select, usize) {
        let (from, joins, scope) = self.relations(depth);
        let mut select = Select {
            distinct: false,
            items: Vec::new(),
            from,
            joins,
            filters: Vec::new(),
            group: 0,
            grouping: Grouping::Plain,
            having: Vec::new(),
        };
        for _ in 0..self.pick(&[0, 0, 1, 1, 2]) {
            let filter = self.expression(Boolean, &scope, 2);
            select.filters.push(filter);
        }
        if self.one_in(4) {
            let filter = self.subquery_filter(&scope);
            select.filters.push(filter);
        }
        let mut rows = scope.rows;
        match (self.random.random_range(0..10), kinds) {
            (0..4, _) => {
                rows = rows.min(200);
                self.aggregates(&mut select, &scope, kinds);
            }
            (4..6, None) => self.windows(&mut select, &scope),
            (_, kinds) => {
                let kinds = kinds.map_or_else(|| self.kinds(&scope), <[Kind]>::to_vec);
                for kind in kinds {
                    let item = match self.one_in(12) && kind == Integer {
                        true => self.scalar_subquery(&scope),
                        false => self.expression(kind, &scope, 2),
                    };
                    select.items.push(item);
                }
                select.distinct = !select.items.iter().any(|item| item.kind == Nested) && self.one_in(5);
            }
        }
        (select, rows)
    }

    /// Kinds for one to four columns; nested values only if the scope has some.
    fn kinds(&mut self, scope: &Scope) -> Vec<Kind> {
        let nested = scope.columns.iter().any(|column| column.kind == Nested);
        (0..self.random.random_range(1..=4))
            .map(|_| match nested && self.one_in(8) {
                true => Nested,
                false => self.pick(&[Integer, Integer, Decimal, Float, Text, Text, Date, Boolean]),
            })
            .collect()
    }

    fn aggregates(&mut self, select: &mut Select, scope: &Scope, kinds: Option<&[Kind]>) {
        match kinds {
            Some(kinds) => {
                for kind in kinds {
                    let item = self.aggregate(*kind, scope);
                    select.items.push(item);
                }
            }
            None => {
                select.group = self.pick(&[0, 1, 1, 1, 2]);
                for _ in 0..select.group {
                    let key = self.key(scope);
                    select.items.push(key);
                }
                for _ in 0..self.random.random_range(1..=3) {
                    let kind = self.pick(&[Integer, Integer, Decimal, Float, Text, Date, Boolean, Nested]);
                    let item = self.aggregate(kind, scope);
                    select.items.push(item);
                }
                let columns = |item: &Expression| matches!(item.pieces[..], [Piece::Text(_)]);
                if select.group == 2 && select.items[..2].iter().all(columns) {
                    select.grouping = self.pick(&[Grouping::Plain, Grouping::Rollup, Grouping::Cube]);
                }
            }
        }
        if self.one_in(5) {
            let least = self.random.random_range(0..4);
            select.having.push(text(Boolean, format!("count(*) > {least}")));
        }
    }

    fn aggregate(&mut self, kind: Kind, scope: &Scope) -> Expression {
        let of = |g: &mut Self, template: &str, argument: Kind| {
            let argument = g.expression(argument, scope, 1);
            fill(kind, template, vec![argument])
        };
        let any = [Integer, Text, Date, Decimal, Boolean];
        let mut aggregate = match kind {
            Integer => match self.random.random_range(0..6) {
                0 => text(Integer, "count(*)".to_owned()),
                1 => {
                    let argument = self.pick(&any);
                    of(self, "count({})", argument)
                }
                2 => {
                    let argument = self.pick(&any);
                    of(self, "count(distinct {})", argument)
                }
                3 => of(self, "sum({})", Integer),
                4 => of(self, "min({})", Integer),
                _ => of(self, "max({})", Integer),
            },
            Decimal => {
                let template = self.pick(&["sum({})", "min({})", "max({})", "avg({})"]);
                of(self, template, Decimal)
            }
            Float => {
                let template = self.pick(&["sum({})", "min({})", "max({})", "avg({})"]);
                of(self, template, Float)
            }
            Text => match self.one_in(3) {
                true => {
                    let argument = self.expression(Text, scope, 0);
                    let arguments = vec![argument.clone(), argument];
                    fill(Text, "string_agg({}, '|' order by {})", arguments)
                }
                false => {
                    let template = self.pick(&["min({})", "max({})"]);
                    of(self, template, Text)
                }
            },
            Date => {
                let template = self.pick(&["min({})", "max({})"]);
                of(self, template, Date)
            }
            Boolean => {
                let template = self.pick(&["bool_and({})", "bool_or({})"]);
                of(self, template, Boolean)
            }
            Nested => {
                let argument = self.pick(&[Integer, Text]);
                let argument = self.expression(argument, scope, 0);
                let arguments = vec![argument.clone(), argument];
                fill(Nested, "array_agg({} order by {})", arguments)
            }
        };
        if self.one_in(6) {
            let filter = self.expression(Boolean, scope, 1);
            aggregate.pieces.extend([
                Piece::Text(" filter (where ".to_owned()),
                Piece::Expression(filter),
                Piece::Text(")".to_owned()),
            ]);
        }
        aggregate
    }

    fn windows(&mut self, select: &mut Select, scope: &Scope) {
        for _ in 0..self.random.random_range(1..=2) {
            let column = self.plain_column(scope);
            select.items.push(column);
        }
        // The sort of one window determines the order of equal rows; with two windows that number such rows,
        // the combination of their numbers is unspecified, so a query has at most one.
        let mut may_tell_peers_apart = true;
        for _ in 0..self.random.random_range(1..=2) {
            let (item, tells_peers_apart) = self.window(scope, may_tell_peers_apart);
            may_tell_peers_apart &= !tells_peers_apart;
            select.items.push(item);
        }
    }

    /// A call of a window function, and whether it gives different values to equal rows.
    fn window(&mut self, scope: &Scope, may_tell_peers_apart: bool) -> (Expression, bool) {
        let partition = match self.one_in(3) {
            true => String::new(),
            false => format!("partition by {} ", self.key(scope)),
        };
        let by_all: Vec<&str> = scope
            .columns
            .iter()
            .filter(|column| column.simple && column.kind != Nested)
            .map(|column| column.sql.as_str())
            .collect();
        let total = format!("{partition}order by {}", by_all.join(", "));
        let one = self.key(scope);
        let direction = self.pick(&["", " desc", " nulls first"]);
        let peers = format!("{partition}order by {one}{direction}");
        let kind = self.pick(&[Integer, Text, Date, Decimal, Float]);
        let number = self.pick(&[Integer, Decimal, Float]);
        let choices: &[u32] =
            if may_tell_peers_apart { &[0, 1, 2, 3, 4, 5, 6, 7, 8] } else { &[0, 1, 3, 4, 8] };
        let choice = self.pick(choices);
        let (kind, call, over) = match choice {
            0 => (Integer, "rank()".to_owned(), peers),
            1 => (Integer, "dense_rank()".to_owned(), peers),
            2 => (Integer, "row_number()".to_owned(), total),
            3 => (number, format!("sum({})", self.expression(number, scope, 1)), peers),
            4 => (number, format!("sum({})", self.expression(number, scope, 1)), partition),
            5 => {
                let frame = self.pick(&[
                    "rows between 2 preceding and current row",
                    "rows between unbounded preceding and 1 following",
                    "rows between 1 preceding and 3 following",
                ]);
                let call = format!("sum({})", self.expression(number, scope, 0));
                (number, call, format!("{total} {frame}"))
            }
            6 => {
                let function = self.pick(&["lag", "lead"]);
                let argument = self.expression(kind, scope, 0);
                let distance = self.random.random_range(1..4);
                (kind, format!("{function}({argument}, {distance})"), total)
            }
            7 => {
                let function = self.pick(&["first_value", "last_value"]);
                (kind, format!("{function}({})", self.expression(kind, scope, 0)), total)
            }
            _ => {
                let function = self.pick(&["min", "max"]);
                (kind, format!("{function}({})", self.expression(kind, scope, 1)), peers)
            }
        };
        (text(kind, format!("{call} over ({})", over.trim_end())), [2, 5, 6, 7].contains(&choice))
    }

    /// A key to group, partition or order by; never a mere literal, which would be a column's position.
    fn key(&mut self, scope: &Scope) -> Expression {
        let kind = self.pick(&[Integer, Integer, Text, Text, Date, Boolean]);
        let Some(column) = self.column(kind, scope) else {
            return self.plain_column(scope);
        };
        if !self.one_in(3) {
            return column;
        }
        match kind {
            Integer => fill(Integer, "({} % 3)", vec![column]),
            Text => fill(Text, "substr({}, 1, 1)", vec![column]),
            Date => fill(Integer, "cast(extract(month from {}) as bigint)", vec![column]),
            _ => fill(Boolean, "({} is null)", vec![column]),
        }
    }

    /// A column that is not nested, or an IS NULL test if all are nested.
    fn plain_column(&mut self, scope: &Scope) -> Expression {
        let columns: Vec<Column> = scope.columns.iter().filter(|c| c.kind != Nested).cloned().collect();
        match columns.is_empty() {
            false => {
                let column = self.pick(&columns);
                text(column.kind, column.sql)
            }
            true => {
                let column = self.pick(&scope.columns);
                text(Boolean, format!("({} is null)", column.sql))
            }
        }
    }

    fn relations(&mut self, depth: usize) -> (Source, Vec<Join>, Scope) {
        let (from, mut scope) = self.source(depth);
        let mut joins = Vec::new();
        while joins.len() < 2 && self.random.random_range(0..5) < 2 {
            let (source, right) = self.source(depth.saturating_sub(1));
            if let Some((join, joined)) = self.join(&scope, source, &right) {
                joins.push(join);
                scope = joined;
            }
        }
        (from, joins, scope)
    }

    /// `None` if the join would have too many rows, or no join key.
    fn join(&mut self, left: &Scope, source: Source, right: &Scope) -> Option<(Join, Scope)> {
        let how = self.pick(&[
            "join",
            "join",
            "join",
            "left join",
            "left join",
            "right join",
            "full join",
            "left semi join",
            "left anti join",
            "cross join",
        ]);
        let mut both = Scope {
            columns: left.columns.iter().chain(&right.columns).cloned().collect(),
            rows: left.rows + right.rows,
        };
        let mut on = Vec::new();
        if how == "cross join" {
            both.rows = left.rows * right.rows;
        } else {
            let keys = |scope: &Scope| -> Vec<Column> {
                let key = |c: &&Column| c.simple && c.kind == Integer;
                scope.columns.iter().filter(key).cloned().collect()
            };
            let (left_keys, right_keys) = (keys(left), keys(right));
            if left_keys.is_empty() || right_keys.is_empty() {
                return None;
            }
            let (l, r) = (self.pick(&left_keys).sql, self.pick(&right_keys).sql);
            let operator = match how == "join" && self.one_in(6) {
                true => "<",
                false => "=",
            };
            let unique = l.ends_with(".id") || r.ends_with(".id");
            both.rows += match (operator, unique) {
                ("=", true) => 0,
                ("=", false) => left.rows * right.rows / 10,
                _ => left.rows * right.rows / 2,
            };
            on.push(text(Boolean, format!("{l} {operator} {r}")));
            if self.one_in(3) {
                on.push(self.expression(Boolean, &both, 1));
            }
        }
        if both.rows > JOIN_ROWS_MAX {
            return None;
        }
        let scope = match how {
            "left semi join" | "left anti join" => left.clone(),
            _ => both,
        };
        Some((Join { how, source, on }, scope))
    }

    fn source(&mut self, depth: usize) -> (Source, Scope) {
        match self.random.random_range(0..20) {
            0..3 if depth > 0 => {
                let (query, rows) = self.query(depth - 1);
                let alias = self.alias();
                let scope = derived_scope(&alias, &query.kinds(), rows);
                let relation = Relation::Query(Box::new(query));
                (Source { relation, alias }, scope)
            }
            3..8 if !self.with.is_empty() => {
                let alias = self.alias();
                let with = &self.with[0];
                let scope = derived_scope(&alias, &with.kinds, with.rows);
                let relation = Relation::Text(with.name.clone());
                (Source { relation, alias }, scope)
            }
            8 => {
                let alias = self.alias();
                let relation = "(select id as c1, unnest(tags) as c2 from facts)".to_owned();
                let scope = derived_scope(&alias, &[Integer, Text], 900);
                let relation = Relation::Text(relation);
                (Source { relation, alias }, scope)
            }
            9 => {
                let alias = self.alias();
                let relation = "(select column1 as c1, column2 as c2 from (values (1, 'red'), (2, null), (null, ''), (3, 'blue')))";
                let scope = derived_scope(&alias, &[Integer, Text], 4);
                let relation = Relation::Text(relation.to_owned());
                (Source { relation, alias }, scope)
            }
            10 => self.table(&NOTHING, 0),
            11..13 => self.table(&DIMS, 40),
            13 => self.table(&LONE, 150),
            14..17 => self.table(&EVENTS, 800),
            _ => self.table(&FACTS, 600),
        }
    }

    fn table(&mut self, table: &Table, rows: usize) -> (Source, Scope) {
        let alias = self.alias();
        let columns = table.columns.iter().map(|(sql, kind)| Column {
            sql: sql.replace('$', &alias),
            kind: *kind,
            simple: sql.starts_with("$.") && !sql.contains('['),
        });
        let scope = Scope { columns: columns.collect(), rows };
        let relation = Relation::Text(table.name.to_owned());
        (Source { relation, alias }, scope)
    }

    fn alias(&mut self) -> String {
        self.aliases += 1;
        format!("t{}", self.aliases)
    }

    /// `exists`, `in`, or a comparison with an aggregate, over one table, correlated or not.
    fn subquery_filter(&mut self, scope: &Scope) -> Expression {
        let template = self.pick(&["exists ({})", "not exists ({})", "in", "not in", "<", "="]);
        if template.contains("exists") {
            let query = self.subquery(scope, |_, _| text(Integer, "1".to_owned()), true);
            return with_query(Boolean, template, Vec::new(), query);
        }
        let Some(outer) = self.simple(Integer, scope) else {
            return text(Boolean, "true".to_owned());
        };
        let correlated = self.one_in(2);
        let query = match template {
            "in" | "not in" => {
                self.subquery(scope, |g, inner| g.simple(Integer, inner).unwrap_or_else(one), false)
            }
            _ => self.subquery(scope, |g, inner| g.scalar(inner), correlated),
        };
        with_query(Boolean, &format!("{{}} {template} ({{}})"), vec![outer], query)
    }

    fn scalar_subquery(&mut self, scope: &Scope) -> Expression {
        let correlated = self.one_in(2);
        let query = self.subquery(scope, |g, inner| g.scalar(inner), correlated);
        with_query(Integer, "({})", Vec::new(), query)
    }

    fn scalar(&mut self, inner: &Scope) -> Expression {
        let argument = self.simple(Integer, inner).unwrap_or_else(one);
        let template = self.pick(&["max({})", "min({})", "sum({})", "count({})"]);
        fill(Integer, template, vec![argument])
    }

    fn subquery(
        &mut self,
        outer: &Scope,
        item: impl FnOnce(&mut Self, &Scope) -> Expression,
        correlated: bool,
    ) -> Query {
        let table = self.pick(&[(&FACTS, 600), (&EVENTS, 800), (&DIMS, 40), (&LONE, 150), (&NOTHING, 0)]);
        let (from, inner) = self.table(table.0, table.1);
        let mut filters = Vec::new();
        if self.one_in(2) {
            filters.push(self.expression(Boolean, &inner, 1));
        }
        if correlated && let (Some(i), Some(o)) = (self.simple(Integer, &inner), self.simple(Integer, outer))
        {
            filters.push(fill(Boolean, "{} = {}", vec![i, o]));
        }
        let first = Select {
            distinct: false,
            items: vec![item(self, &inner)],
            from,
            joins: Vec::new(),
            filters,
            group: 0,
            grouping: Grouping::Plain,
            having: Vec::new(),
        };
        Query { with: Vec::new(), first, others: Vec::new(), order: Vec::new(), limit: None }
    }

    /// A plain column name of this kind, if there is one.
    fn simple(&mut self, kind: Kind, scope: &Scope) -> Option<Expression> {
        let simple = |c: &&Column| c.simple && c.kind == kind;
        let columns: Vec<Column> = scope.columns.iter().filter(simple).cloned().collect();
        columns.choose(&mut self.random).map(|c| text(kind, c.sql.clone()))
    }

    fn column(&mut self, kind: Kind, scope: &Scope) -> Option<Expression> {
        let columns: Vec<Column> = scope.columns.iter().filter(|c| c.kind == kind).cloned().collect();
        columns.choose(&mut self.random).map(|c| text(kind, c.sql.clone()))
    }

    fn expression(&mut self, kind: Kind, scope: &Scope, depth: usize) -> Expression {
        if depth == 0 || kind == Nested || self.one_in(3) {
            return match self.column(kind, scope) {
                Some(column) if kind == Nested || !self.one_in(6) => column,
                _ => self.literal(kind),
            };
        }
        let (template, kinds): (&str, &[Kind]) = match kind {
            Boolean => return self.condition(scope, depth),
            Integer => self.pick(&[
                ("({} + {})", &[Integer, Integer] as &[Kind]),
                ("({} - {})", &[Integer, Integer]),
                ("({} * 3)", &[Integer]),
                ("({} % 7)", &[Integer]),
                ("abs({})", &[Integer]),
                ("coalesce({}, {})", &[Integer, Integer]),
                ("nullif({}, {})", &[Integer, Integer]),
                ("case when {} then {} else {} end", &[Boolean, Integer, Integer]),
                ("case when {} then {} end", &[Boolean, Integer]),
                ("cast(length({}) as bigint)", &[Text]),
                ("cast(extract(year from {}) as bigint)", &[Date]),
            ]),
            Decimal => self.pick(&[
                ("({} + {})", &[Decimal, Decimal] as &[Kind]),
                ("({} - {})", &[Decimal, Decimal]),
                ("(-{})", &[Decimal]),
                ("coalesce({}, {})", &[Decimal, Decimal]),
                ("case when {} then {} else {} end", &[Boolean, Decimal, Decimal]),
                ("cast({} as decimal(18, 3))", &[Integer]),
            ]),
            Float => self.pick(&[
                ("({} + {})", &[Float, Float] as &[Kind]),
                ("({} - {})", &[Float, Float]),
                ("({} * 0.5e0)", &[Float]),
                ("abs({})", &[Float]),
                ("coalesce({}, {})", &[Float, Float]),
                ("case when {} then {} else {} end", &[Boolean, Float, Float]),
                ("cast({} as double)", &[Integer]),
            ]),
            Text => self.pick(&[
                ("({} || {})", &[Text, Text] as &[Kind]),
                ("upper({})", &[Text]),
                ("reverse({})", &[Text]),
                ("substr({}, 2, 4)", &[Text]),
                ("trim({})", &[Text]),
                ("coalesce({}, {})", &[Text, Text]),
                ("case when {} then {} else {} end", &[Boolean, Text, Text]),
                ("cast({} as varchar)", &[Integer]),
                ("cast({} as varchar)", &[Date]),
                ("replace({}, 'e', {})", &[Text, Text]),
            ]),
            Date => self.pick(&[
                ("coalesce({}, {})", &[Date, Date] as &[Kind]),
                ("case when {} then {} else {} end", &[Boolean, Date, Date]),
                ("cast({} + interval '5 days' as date)", &[Date]),
                ("cast(date_trunc('month', {}) as date)", &[Date]),
            ]),
            Nested => unreachable!("nested values are columns"),
        };
        let arguments = kinds.iter().map(|k| self.expression(*k, scope, depth - 1)).collect();
        fill(kind, template, arguments)
    }

    fn condition(&mut self, scope: &Scope, depth: usize) -> Expression {
        let kind = self.pick(&[Integer, Integer, Decimal, Float, Text, Date]);
        if self.one_in(10) {
            let kind = if self.one_in(6) { Boolean } else { kind };
            return self.search(kind, scope, depth);
        }
        // Kinds of the arguments; `None` is the kind that was drawn.
        let (template, kinds): (&str, &[Option<Kind>]) = self.pick(&[
            ("({} = {})", &[None, None] as &[Option<Kind>]),
            ("({} <> {})", &[None, None]),
            ("({} < {})", &[None, None]),
            ("({} <= {})", &[None, None]),
            ("({} > {})", &[None, None]),
            ("({} >= {})", &[None, None]),
            ("({} is null)", &[None]),
            ("({} is not null)", &[None]),
            ("({} and {})", &[Some(Boolean), Some(Boolean)]),
            ("({} or {})", &[Some(Boolean), Some(Boolean)]),
            ("(not {})", &[Some(Boolean)]),
            ("({} between {} and {})", &[None, None, None]),
            ("({} in ({}, {}))", &[None, None, None]),
            ("({} not in ({}, {}))", &[None, None, None]),
            ("({} is distinct from {})", &[None, None]),
            ("({} like '%e%')", &[Some(Text)]),
            ("({} not like 'b_u%')", &[Some(Text)]),
        ]);
        let arguments = kinds.iter().map(|k| self.expression(k.unwrap_or(kind), scope, depth - 1)).collect();
        fill(Boolean, template, arguments)
    }

    /// A search in an array of constants. None is NULL: plain DataFusion has another answer there than SQL.
    fn search(&mut self, kind: Kind, scope: &Scope, depth: usize) -> Expression {
        let wanted = self.expression(kind, scope, depth - 1);
        let elements = self.random.random_range(1..=3);
        let elements: Vec<String> = (0..elements).map(|_| self.element(kind)).collect();
        let operator = self.pick(&["= any", "<> all"]);
        let array = text(kind, format!("array[{}]", elements.join(", ")));
        fill(Boolean, &format!("({{}} {operator} ({{}}))"), vec![wanted, array])
    }

    /// A constant that is not NULL; decimals have several scales.
    fn element(&mut self, kind: Kind) -> String {
        let n: i32 = self.random.random_range(-3..30);
        match kind {
            Integer | Nested => n.to_string(),
            Decimal => self.pick(&[
                format!("cast({n}.25 as decimal(12, 2))"),
                format!("cast({n}.250 as decimal(9, 3))"),
                format!("cast({n} as decimal(18, 0))"),
            ]),
            Float => format!("cast({} as double)", f64::from(n) / 4.0),
            Text => self.pick(&["'red'", "'green'", "''", "'Zü'", "'a'"]).to_owned(),
            Date => format!("date '2020-{:02}-15'", n.rem_euclid(12) + 1),
            Boolean => self.pick(&["true", "false"]).to_owned(),
        }
    }

    fn literal(&mut self, kind: Kind) -> Expression {
        let n: i32 = self.random.random_range(-3..30);
        let sql = match kind {
            Integer => n.to_string(),
            Decimal => format!("cast({n}.25 as decimal(12, 2))"),
            Float => format!("cast({} as double)", f64::from(n) / 4.0),
            Text => self.pick(&["'red'", "'green'", "''", "'Zü'", "'a'", "null::varchar"]).to_owned(),
            Date => format!("date '2020-{:02}-15'", n.rem_euclid(12) + 1),
            Boolean => self.pick(&["true", "false", "null::boolean"]).to_owned(),
            Nested => "null".to_owned(),
        };
        text(kind, sql)
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.random.random_range(0..n) == 0
    }

    /// One of several; there is at least one.
    fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.random.random_range(0..choices.len())].clone()
    }
}

/// The columns of a derived table, under the names that queries give them.
fn derived_scope(alias: &str, kinds: &[Kind], rows: usize) -> Scope {
    let column =
        |(i, kind): (usize, &Kind)| Column { sql: format!("{alias}.c{}", i + 1), kind: *kind, simple: true };
    Scope { columns: kinds.iter().enumerate().map(column).collect(), rows }
}

fn one() -> Expression {
    text(Integer, "1".to_owned())
}

fn text(kind: Kind, sql: String) -> Expression {
    Expression { kind, pieces: vec![Piece::Text(sql)] }
}

/// Replaces each `{}` by one argument.
fn fill(kind: Kind, template: &str, arguments: Vec<Expression>) -> Expression {
    pieces(kind, template, arguments.into_iter().map(Piece::Expression))
}

/// As [`fill`], with the query in place of the last `{}`.
fn with_query(kind: Kind, template: &str, arguments: Vec<Expression>, query: Query) -> Expression {
    let query = Piece::Query(Box::new(query));
    let arguments = arguments.into_iter().map(Piece::Expression);
    pieces(kind, template, arguments.chain([query]))
}

fn pieces(kind: Kind, template: &str, arguments: impl Iterator<Item = Piece>) -> Expression {
    let mut arguments = arguments;
    let mut pieces = Vec::new();
    for (i, part) in template.split("{}").enumerate() {
        if i > 0 {
            pieces.extend(arguments.next());
        }
        if !part.is_empty() {
            pieces.push(Piece::Text(part.to_owned()));
        }
    }
    Expression { kind, pieces }
}

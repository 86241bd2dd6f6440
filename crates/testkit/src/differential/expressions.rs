//! Generator of expressions of each type, conditions, and the subqueries in them.

use super::choices::Choices;
use super::scope::Kind;
use super::scope::Scope;
use super::{bytes, intervals, numbers};
use crate::differential::maker::Maker;
use crate::differential::scope::name_of;

impl Maker<'_> {
    /// An expression of a type, of limited depth.
    pub(super) fn expr(&mut self, kind: Kind, depth: usize, scope: &Scope) -> String {
        if depth == 0 || self.choices.happens(1, 3) {
            return self.atom(kind, scope);
        }
        if self.subqueries > 0 && self.choices.happens(1, 9) {
            return self.scalar_subquery(kind, scope);
        }
        let next = depth - 1;
        match self.choices.choose(8) {
            0 => self.atom(kind, scope),
            1 => {
                let (first, second) = (self.expr(kind, next, scope), self.narrower_expr(kind, next, scope));
                let function = self.choices.one_of(&["coalesce", "nullif", "greatest", "least"]);
                format!("{function}({first}, {second})")
            }
            2 => {
                let condition = self.condition(next, scope);
                let (first, second) = (self.expr(kind, next, scope), self.narrower_expr(kind, next, scope));
                match self.choices.happens(1, 3) {
                    true => format!("CASE WHEN {condition} THEN {first} END"),
                    false => format!("CASE WHEN {condition} THEN {first} ELSE {second} END"),
                }
            }
            3 => {
                let of = self.kind();
                let (base, when) = (self.expr(of, next, scope), self.expr(of, next, scope));
                let (first, second) = (self.expr(kind, next, scope), self.expr(kind, next, scope));
                format!("CASE {base} WHEN {when} THEN {first} ELSE {second} END")
            }
            _ => self.operation(kind, next, scope),
        }
    }

    fn operation(&mut self, kind: Kind, depth: usize, scope: &Scope) -> String {
        match kind {
            Kind::Int => match self.choices.choose(13) {
                9 => self.whole(scope),
                10 => self.guarded_whole(depth, scope),
                11 => self.part_of_interval(depth, scope),
                12 => self.length_of_bytes(depth, scope),
                0 | 1 => {
                    let operator = self.choices.one_of(&["+", "-", "*"]);
                    self.binary(Kind::Int, operator, depth, scope)
                }
                2 => {
                    let operator = self.choices.one_of(&["/", "%"]);
                    let (left, right) = (self.expr(Kind::Int, depth, scope), self.atom(Kind::Int, scope));
                    format!("({left} {operator} nullif({right}, 0))")
                }
                3 => format!("abs({})", self.expr(Kind::Int, depth, scope)),
                4 => format!("length({})", self.expr(Kind::Text, depth, scope)),
                5 => format!("(- {})", self.expr(Kind::Int, depth, scope)),
                6 => {
                    let field = self.choices.one_of(&["day", "month", "year", "dow"]);
                    format!("extract({field} FROM {})::int", self.expr(Kind::Date, depth, scope))
                }
                7 => format!(
                    "({} - {})",
                    self.expr(Kind::Date, depth, scope),
                    self.expr(Kind::Date, depth, scope)
                ),
                _ => {
                    let field = self.choices.one_of(&["hour", "minute", "day", "second"]);
                    let (left, right) =
                        (self.expr(Kind::Time, depth, scope), self.expr(Kind::Time, depth, scope));
                    format!("extract({field} FROM {left} - {right})::int")
                }
            },
            Kind::Numeric => match self.choices.choose(8) {
                7 => self.guarded_decimal(depth, scope),
                6 => self.decimal(scope),
                0 | 1 => {
                    let operator = self.choices.one_of(&["+", "-", "*"]);
                    let (left, right) =
                        (self.expr(Kind::Numeric, depth, scope), self.atom(Kind::Numeric, scope));
                    format!("({left} {operator} {right})")
                }
                2 => format!("({})::numeric(8,2)", self.expr(Kind::Int, depth, scope)),
                3 => {
                    let function = self.choices.one_of(&["round", "ceil", "floor", "abs"]);
                    format!("{function}({})", self.expr(Kind::Numeric, depth, scope))
                }
                4 => format!("round({}, 1)", self.expr(Kind::Numeric, depth, scope)),
                _ => {
                    let (left, right) =
                        (self.expr(Kind::Numeric, depth, scope), self.atom(Kind::Numeric, scope));
                    format!("round({left} / nullif({right}, 0), 3)")
                }
            },
            Kind::Text => match self.choices.choose(11) {
                9 => format!("({})::text", self.expr(Kind::Interval, depth, scope)),
                10 => self.text_of_bytes(depth, scope),
                8 => self.digits(depth, scope),
                0 | 1 => self.binary(Kind::Text, "||", depth, scope),
                2 => format!("upper({})", self.expr(Kind::Text, depth, scope)),
                3 => format!("substr({}, 2)", self.expr(Kind::Text, depth, scope)),
                4 => format!("({})::text", self.expr(Kind::Int, depth, scope)),
                5 => format!("({})::text", self.expr(Kind::Bool, depth, scope)),
                6 => format!("replace({}, 'a', 'xy')", self.expr(Kind::Text, depth, scope)),
                _ => format!("concat({}, '-', NULL)", self.expr(Kind::Text, depth, scope)),
            },
            Kind::Date => match self.choices.choose(3) {
                0 => {
                    let (date, days) = (self.expr(Kind::Date, depth, scope), self.atom(Kind::Int, scope));
                    let operator = self.choices.one_of(&["+", "-"]);
                    format!("({date} {operator} {days})")
                }
                1 => format!("({})::date", self.expr(Kind::Time, depth, scope)),
                _ => format!("({} + INTERVAL '1 month')::date", self.expr(Kind::Date, depth, scope)),
            },
            Kind::Time => match self.choices.choose(5) {
                4 => self.moved_time(depth, scope),
                0 => {
                    let time = self.expr(Kind::Time, depth, scope);
                    let interval =
                        self.choices.one_of(&["1 day", "1 month", "90 minutes", "-1 year", "36 hours"]);
                    format!("({time} + INTERVAL '{interval}')")
                }
                1 => {
                    let unit = self.choices.one_of(&["day", "month", "hour", "year", "week"]);
                    format!("date_trunc('{unit}', {})", self.expr(Kind::Time, depth, scope))
                }
                2 => format!("({})::timestamp", self.expr(Kind::Date, depth, scope)),
                _ => self.atom(Kind::Time, scope),
            },
            Kind::Bool => self.condition(depth, scope),
            Kind::Real => self.real_operation(depth, scope),
            Kind::Double => self.double_operation(depth, scope),
            Kind::Interval => self.interval_operation(depth, scope),
            Kind::Bytes => self.bytes_operation(depth, scope),
        }
    }

    pub(super) fn binary(&mut self, kind: Kind, operator: &str, depth: usize, scope: &Scope) -> String {
        let (left, right) = (self.expr(kind, depth, scope), self.expr(kind, depth, scope));
        format!("({left} {operator} {right})")
    }

    /// A column, an outer column, or a literal.
    pub(super) fn atom(&mut self, kind: Kind, scope: &Scope) -> String {
        let (inner, outer) = (scope.of_kind(kind), scope.outer_of_kind(kind));
        if !outer.is_empty() && self.choices.happens(1, 4) {
            return outer[self.choices.choose(outer.len())].text.clone();
        }
        if !inner.is_empty() && !self.choices.happens(1, 4) {
            return inner[self.choices.choose(inner.len())].text.clone();
        }
        if self.choices.happens(1, 10) {
            return format!("CAST(NULL AS {})", name_of(kind));
        }
        literal(kind, self.choices).to_owned()
    }

    /// A condition.
    pub(super) fn condition(&mut self, depth: usize, scope: &Scope) -> String {
        if depth == 0 {
            return match scope.of_kind(Kind::Bool).is_empty() || self.choices.happens(3, 4) {
                true => self.comparison(0, scope),
                false => self.atom(Kind::Bool, scope),
            };
        }
        let next = depth - 1;
        match self.choices.choose(13) {
            0..=2 => self.comparison(next, scope),
            12 => self.guarded_condition(scope),
            3 => {
                let operator = self.choices.one_of(&["AND", "OR"]);
                format!("({} {operator} {})", self.condition(next, scope), self.condition(next, scope))
            }
            4 => format!("(NOT {})", self.condition(next, scope)),
            5 => {
                let kind = self.kind();
                let is = self.choices.one_of(&["IS NULL", "IS NOT NULL"]);
                format!("({} {is})", self.expr(kind, next, scope))
            }
            6 => {
                let truth = ["IS TRUE", "IS NOT TRUE", "IS FALSE", "IS NOT FALSE", "IS UNKNOWN", "IS NULL"];
                let truth = self.choices.one_of(&truth);
                format!("({} {truth})", self.condition(next, scope))
            }
            7 => {
                let kind = self.kind();
                let of = self.expr(kind, next, scope);
                let (first, second) = (self.atom(kind, scope), self.atom(kind, scope));
                match self.choices.choose(4) {
                    0 => format!("({of} IN ({first}, {second}))"),
                    1 => format!("({of} NOT IN ({first}, {second}))"),
                    2 => format!("({of} BETWEEN {first} AND {second})"),
                    _ => format!("({of} IS DISTINCT FROM {first})"),
                }
            }
            8 => {
                let pattern = self.choices.one_of(&["'a%'", "'%b'", "'_'", "''", "'%'"]);
                let like = self.choices.one_of(&["LIKE", "NOT LIKE", "ILIKE"]);
                format!("({} {like} {pattern})", self.expr(Kind::Text, next, scope))
            }
            _ if self.subqueries == 0 => self.comparison(next, scope),
            _ => self.subquery_condition(next, scope),
        }
    }

    fn comparison(&mut self, depth: usize, scope: &Scope) -> String {
        if self.choices.happens(1, 12) {
            return self.row_condition(scope);
        }
        if self.choices.happens(1, 8) {
            return self.mixed_comparison(depth, scope);
        }
        let kind = self.kind();
        let operator = self.choices.one_of(&["=", "<>", "<", "<=", ">", ">="]);
        let (left, right) = (self.expr(kind, depth, scope), self.expr(kind, depth, scope));
        format!("({left} {operator} {right})")
    }

    /// A condition on row values.
    fn row_condition(&mut self, scope: &Scope) -> String {
        let kinds = [self.kind(), self.kind()];
        let row =
            |maker: &mut Self| format!("({}, {})", maker.atom(kinds[0], scope), maker.atom(kinds[1], scope));
        let (first, second) = (row(self), row(self));
        match self.choices.choose(4) {
            0 | 1 => {
                let operator = self.choices.one_of(&["=", "<>", "<", "<=", ">", ">="]);
                format!("({first} {operator} {second})")
            }
            2 => {
                let not = self.choices.one_of(&["", "NOT "]);
                format!("({first} {not}IN ({second}, {}))", row(self))
            }
            _ => {
                let is = self.choices.one_of(&["IS NULL", "IS NOT NULL", "IS DISTINCT FROM (NULL, NULL)"]);
                format!("({first} {is})").replace("(NULL, NULL)", &second)
            }
        }
    }

    /// The operand of IN, EXISTS, ANY and ALL.
    fn set_operand(&mut self, kinds: &[Kind], depth: usize, scope: &Scope) -> String {
        match self.choices.choose(8) {
            6 => self.set_operation(kinds, depth, scope),
            7 => {
                let row = |maker: &mut Self| {
                    let values: Vec<String> = kinds.iter().map(|kind| maker.atom(*kind, scope)).collect();
                    format!("({})", values.join(", "))
                };
                let rows: Vec<String> = (0..1 + self.choices.choose(3)).map(|_| row(self)).collect();
                format!("VALUES {}", rows.join(", "))
            }
            _ => self.query(kinds, depth, scope),
        }
    }

    fn subquery_condition(&mut self, depth: usize, scope: &Scope) -> String {
        self.subqueries -= 1;
        let inside = scope.inside();
        match self.choices.choose(6) {
            0 | 1 => {
                let not = self.choices.one_of(&["", "NOT "]);
                let kind = self.kind();
                format!("({not}EXISTS ({}))", self.set_operand(&[kind], depth, &inside))
            }
            2 | 3 => {
                let not = self.choices.one_of(&["", "NOT "]);
                let kind = self.kind();
                let of = self.expr(kind, depth, scope);
                format!("({of} {not}IN ({}))", self.set_operand(&[kind], depth, &inside))
            }
            4 => {
                let kind = self.kind();
                let of = self.expr(kind, depth, scope);
                let operator = self.choices.one_of(&["=", "<>", "<", ">="]);
                let all = self.choices.one_of(&["ANY", "ALL"]);
                format!("({of} {operator} {all} ({}))", self.set_operand(&[kind], depth, &inside))
            }
            _ => {
                let kinds = [self.kind(), self.kind()];
                let (first, second) = (self.expr(kinds[0], 0, scope), self.expr(kinds[1], 0, scope));
                let not = self.choices.one_of(&["", "NOT "]);
                format!("(({first}, {second}) {not}IN ({}))", self.set_operand(&kinds, depth, &inside))
            }
        }
    }

    /// A subquery of at most one row.
    fn scalar_subquery(&mut self, kind: Kind, scope: &Scope) -> String {
        self.subqueries -= 1;
        let inside = scope.inside();
        match self.choices.choose(6) {
            0..=3 => format!("({})", self.one_aggregate(kind, &inside)),
            4 => {
                let queries = self.set_operation(&[kind], 0, &inside);
                format!("({queries} ORDER BY 1 LIMIT 1)")
            }
            _ => format!("({} ORDER BY 1 LIMIT 1)", self.plain_select(&[kind], 1, &inside)),
        }
    }
}

fn literal(kind: Kind, choices: &mut Choices) -> &'static str {
    choices.one_of(match kind {
        Kind::Int => &["1", "2", "0", "3", "7"],
        Kind::Numeric => &["1.5", "0.25", "-2.25", "10.0", "3"],
        Kind::Text => &["'a'", "'b'", "''", "'ab'"],
        Kind::Date => &[
            "DATE '2024-02-29'",
            "DATE '2024-01-31'",
            "DATE '1999-12-31'",
            "DATE '1969-12-31'",
            "DATE '0001-01-01'",
            "DATE '9999-12-31'",
        ],
        Kind::Time => &[
            "TIMESTAMP '2024-02-29 12:30:00'",
            "TIMESTAMP '2024-01-01 00:00:00'",
            "TIMESTAMP '1969-12-31 23:59:59.999999'",
            "TIMESTAMP '0001-01-01 00:00:00'",
            "TIMESTAMP '1677-09-21 00:12:43'",
            "TIMESTAMP '9999-12-31 23:59:59.999999'",
        ],
        Kind::Bool => &["true", "false"],
        Kind::Real => numbers::REALS,
        Kind::Double => numbers::DOUBLES,
        Kind::Interval => intervals::INTERVALS,
        Kind::Bytes => bytes::BYTES,
    })
}

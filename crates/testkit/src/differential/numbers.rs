//! Expressions of REAL and DOUBLE PRECISION, and of mixed numeric types.
//!
//! -0 and 0 are equal: which of them an answer contains is unspecified, and [`super::compare`] treats them as
//! one.

use super::maker::Maker;
use super::scope::{Kind, Scope, name_of};

/// Numbers of 24 bits, and some whose digits differ in a double.
pub(super) const REALS: &[&str] = &[
    "'0.1'::real",
    "'16777216'::real",
    "'-0'::real",
    "'2.5'::real",
    "'0.285'::real",
    "'1e10'::real",
    "'NaN'::real",
    "'Infinity'::real",
];

pub(super) const DOUBLES: &[&str] = &[
    "'0.1'::double precision",
    "'16777217'::double precision",
    "'-0'::double precision",
    "'2.5'::double precision",
    "'0.285'::double precision",
    "'1e10'::double precision",
    "'NaN'::double precision",
    "'-Infinity'::double precision",
];

/// Literals of other types, at different distances from REAL and DOUBLE PRECISION.
const OTHERS: &[&str] = &["1", "16777217", "16777216", "-0.0", "0.1", "16777217.0", "1e10", "0.285"];

const NUMBERS: [Kind; 4] = [Kind::Int, Kind::Numeric, Kind::Real, Kind::Double];

/// A number whose sums are exact in a REAL, in any order: whole and small, or NULL.
pub(super) fn summable(number: &str) -> String {
    format!("CASE WHEN abs({number}) < 1000 OR abs({number}) > 1e30 THEN trunc({number}) END")
}

impl Kind {
    pub(super) fn is_number(self) -> bool {
        NUMBERS.contains(&self)
    }
}

impl Maker<'_> {
    /// A type that is coerced to this one beside it.
    pub(super) fn narrower(&mut self, kind: Kind) -> Kind {
        let kinds: &[Kind] = match kind {
            Kind::Real => &[Kind::Int, Kind::Numeric],
            Kind::Double => &[Kind::Int, Kind::Numeric, Kind::Real],
            _ => return kind,
        };
        match self.choices.happens(1, 3) {
            true => kinds[self.choices.choose(kinds.len())],
            false => kind,
        }
    }

    pub(super) fn narrower_expr(&mut self, kind: Kind, depth: usize, scope: &Scope) -> String {
        let kind = self.narrower(kind);
        self.expr(kind, depth, scope)
    }

    pub(super) fn real_operation(&mut self, depth: usize, scope: &Scope) -> String {
        match self.choices.choose(5) {
            0 | 1 => {
                let operator = self.choices.one_of(&["+", "-", "*"]);
                let (left, right) = (self.expr(Kind::Real, depth, scope), self.atom(Kind::Real, scope));
                format!("({left} {operator} {right})")
            }
            2 => {
                let (left, right) = (self.expr(Kind::Real, depth, scope), self.atom(Kind::Real, scope));
                format!("({left} / nullif({right}, 0))")
            }
            3 => {
                let function = self.choices.one_of(&["abs", "-"]);
                format!("{function}({})", self.expr(Kind::Real, depth, scope))
            }
            _ => {
                let kind = self.number();
                format!("({})::real", self.expr(kind, depth, scope))
            }
        }
    }

    pub(super) fn double_operation(&mut self, depth: usize, scope: &Scope) -> String {
        match self.choices.choose(6) {
            0 | 1 => {
                let operator = self.choices.one_of(&["+", "-", "*"]);
                let (left, right) = (self.expr(Kind::Double, depth, scope), self.number_atom(scope));
                match self.choices.happens(1, 2) {
                    true => format!("({left} {operator} {right})"),
                    false => format!("({right} {operator} {left})"),
                }
            }
            2 => {
                // A REAL beside a number of a type with more digits.
                let operator = self.choices.one_of(&["+", "-", "*"]);
                let kind = [Kind::Int, Kind::Numeric][self.choices.choose(2)];
                let (left, right) = (self.expr(Kind::Real, depth, scope), self.atom(kind, scope));
                format!("({left} {operator} {right})")
            }
            3 => {
                let (left, right) = (self.expr(Kind::Double, depth, scope), self.number_atom(scope));
                format!("({left} / nullif({right}, 0))")
            }
            4 => {
                let function = self.choices.one_of(&["round", "ceil", "floor", "trunc", "sign"]);
                let kind = [Kind::Double, Kind::Real][self.choices.choose(2)];
                format!("{function}({})", self.expr(kind, depth, scope))
            }
            _ => {
                let kind = self.number();
                format!("({})::double precision", self.expr(kind, depth, scope))
            }
        }
    }

    /// An INT cast from a REAL or a DOUBLE PRECISION, rounding half to even.
    pub(super) fn whole(&mut self, scope: &Scope) -> String {
        let number = self.small(scope);
        format!("CASE WHEN abs({number}) < 1000 THEN ({number})::int END")
    }

    /// A NUMERIC cast from one, which has 15 or 6 digits.
    pub(super) fn decimal(&mut self, scope: &Scope) -> String {
        let number = self.small(scope);
        format!("CASE WHEN abs({number}) < 1000 THEN ({number})::numeric(8,2) END")
    }

    /// A column, or a literal that every numeric type can hold.
    fn small(&mut self, scope: &Scope) -> String {
        let kind = [Kind::Double, Kind::Real][self.choices.choose(2)];
        let columns = scope.of_kind(kind);
        match columns.is_empty() {
            true => format!("'{}'::{}", self.choices.one_of(&["2.5", "0.285", "-1.5"]), name_of(kind)),
            false => columns[self.choices.choose(columns.len())].text.clone(),
        }
    }

    /// The text of one, with -0 written as 0.
    pub(super) fn digits(&mut self, depth: usize, scope: &Scope) -> String {
        let kind = [Kind::Double, Kind::Real][self.choices.choose(2)];
        let zero = literal_zero(kind);
        format!("({} + {zero})::text", self.expr(kind, depth, scope))
    }

    fn number(&mut self) -> Kind {
        NUMBERS[self.choices.choose(NUMBERS.len())]
    }

    /// A column or a literal of any numeric type.
    fn number_atom(&mut self, scope: &Scope) -> String {
        match self.choices.happens(1, 4) {
            true => self.choices.one_of(OTHERS).to_owned(),
            false => {
                let kind = self.number();
                self.atom(kind, scope)
            }
        }
    }

    /// A comparison of numbers of two types.
    pub(super) fn mixed_comparison(&mut self, depth: usize, scope: &Scope) -> String {
        let kind = [Kind::Double, Kind::Real][self.choices.choose(2)];
        let number = self.expr(kind, depth, scope);
        let (first, second) = (self.number_atom(scope), self.number_atom(scope));
        match self.choices.choose(6) {
            0 | 1 => {
                let operator = self.choices.one_of(&["=", "<>", "<", "<=", ">", ">="]);
                format!("({number} {operator} {first})")
            }
            2 => format!("({first} = {number})"),
            3 => {
                let not = self.choices.one_of(&["", "NOT "]);
                let third = self.number_atom(scope);
                format!("({number} {not}IN ({first}, {second}, {third}))")
            }
            4 => format!("({number} BETWEEN {first} AND {second})"),
            _ => format!("({first} IS DISTINCT FROM {number})"),
        }
    }
}

fn literal_zero(kind: Kind) -> &'static str {
    match kind {
        Kind::Real => "'0'::real",
        _ => "'0'::double precision",
    }
}

//! Expressions guarded by CASE that would fail if evaluated: casts, divisions, and constants out of range.
//! Also guarded by AND, OR or FILTER.
//!
//! PostgreSQL folds constants in any branch that may be taken before it has seen a row, so those appear only
//! where no row can take the branch.

use super::maker::Maker;
use super::scope::{Kind, Scope, name_of};

/// Conditions that are never true, without reading a row.
const NEVER: &[&str] = &["5 < 3", "false", "NULL", "1 = 2 AND true", "NOT (2 IN (1, 2))", "'a' = 'b'"];

/// Invalid integers.
const WRONG_WHOLES: &[&str] =
    &["(1e10)::int", "'x'::text::int", "1 / 0", "(99999 * 99999)::int", "'NaN'::double precision::int"];

/// Invalid values of NUMERIC(8,2).
const WRONG_DECIMALS: &[&str] = &[
    "(1e10)::numeric(8,2)",
    "'x'::text::numeric(8,2)",
    "1.5 / 0",
    "'Infinity'::double precision::numeric(8,2)",
];

impl Maker<'_> {
    /// A guarded INT.
    pub(super) fn guarded_whole(&mut self, depth: usize, scope: &Scope) -> String {
        let other = self.expr(Kind::Int, depth, scope);
        match self.choices.choose(6) {
            0 => self.never(WRONG_WHOLES, &other),
            1 => {
                let text = self.atom(Kind::Text, scope);
                format!("CASE WHEN {text} ~ '^[0-9]{{1,5}}$' THEN ({text} || '')::int ELSE {other} END")
            }
            2 => {
                let number = self.atom(Kind::Int, scope);
                format!("CASE WHEN {number} <> 0 THEN 100 / {number} ELSE {other} END")
            }
            3 => {
                let number = self.atom(Kind::Double, scope);
                let outside = "'NaN', 'Infinity', '-Infinity'";
                format!(
                    "CASE WHEN {number} IN ({outside}) THEN {other} \
                     ELSE CASE WHEN abs({number}) > 1e9 THEN -1 ELSE ({number})::int END END"
                )
            }
            4 => {
                let number = self.atom(Kind::Int, scope);
                let condition = self.condition(0, scope);
                format!(
                    "CASE WHEN {number} IS NULL THEN {other} WHEN {number} = 0 THEN -1 \
                     ELSE CASE WHEN {condition} THEN 10 / {number} ELSE 10 % {number} END END"
                )
            }
            _ => {
                let kind = self.kind();
                let of = self.atom(kind, scope);
                let never = self.never(WRONG_WHOLES, "0");
                format!("CASE WHEN {of} IS NULL THEN {other} ELSE {never} END")
            }
        }
    }

    /// A guarded NUMERIC.
    pub(super) fn guarded_decimal(&mut self, depth: usize, scope: &Scope) -> String {
        let other = self.expr(Kind::Numeric, depth, scope);
        match self.choices.choose(3) {
            0 => self.never(WRONG_DECIMALS, &other),
            1 => {
                let number = self.atom(Kind::Numeric, scope);
                format!("CASE WHEN {number} = 0 THEN {other} ELSE round(1 / {number}, 4) END")
            }
            _ => {
                let number = self.atom(Kind::Real, scope);
                let kind = name_of(Kind::Numeric);
                format!(
                    "CASE WHEN {number} > 1e5 THEN {other} WHEN {number} < -1e5 THEN 0 \
                     WHEN {number} = 'NaN' THEN 1 ELSE ({number})::{kind} END"
                )
            }
        }
    }

    /// A condition that may fail on the right side of AND or OR, for rows that the left side decides.
    pub(super) fn guarded_condition(&mut self, scope: &Scope) -> String {
        let other = self.atom(Kind::Int, scope);
        let operator = self.choices.one_of(&["=", "<>", "<", ">="]);
        match self.choices.choose(6) {
            5 => {
                let alias = self.alias();
                let aggregate = self.choices.one_of(&["sum", "max", "count"]);
                format!(
                    "((SELECT {aggregate}(100 / {alias}.k) FILTER (WHERE {alias}.k <> 0) FROM a AS {alias}) \
                     {operator} {other})"
                )
            }
            0 => {
                let number = self.atom(Kind::Int, scope);
                format!("({number} <> 0 AND 100 / {number} {operator} {other})")
            }
            1 => {
                let number = self.atom(Kind::Int, scope);
                format!("({number} = 0 OR 100 % {number} {operator} {other})")
            }
            2 => {
                let text = self.atom(Kind::Text, scope);
                format!("({text} ~ '^[0-9]{{1,5}}$' AND ({text} || '')::int {operator} {other})")
            }
            3 => {
                let number = self.atom(Kind::Numeric, scope);
                format!("({number} IS NULL OR {number} = 0 OR round(1 / {number}, 2) {operator} {other})")
            }
            _ => {
                let (number, divisor) = (self.atom(Kind::Int, scope), self.atom(Kind::Int, scope));
                format!(
                    "({divisor} <> 0 AND {number} / {divisor} <> 0 \
                     AND 100 / ({number} / {divisor}) {operator} {other})"
                )
            }
        }
    }

    /// A failing expression in a branch that is never taken.
    fn never(&mut self, wrong: &[&str], other: &str) -> String {
        let (never, wrong) = (self.choices.one_of(NEVER), self.choices.one_of(wrong));
        match self.choices.choose(4) {
            0 => format!("CASE WHEN {never} THEN {wrong} ELSE {other} END"),
            1 => format!("CASE WHEN true THEN {other} ELSE {wrong} END"),
            2 => format!("CASE 1 WHEN 2 THEN {wrong} ELSE {other} END"),
            _ => format!("CASE WHEN {never} THEN CASE WHEN true THEN {wrong} END ELSE {other} END"),
        }
    }
}

//! Expressions of INTERVAL.
//!
//! Equal intervals may have several text forms (`24:00:00` is `1 day`), and which one DISTINCT keeps is
//! unspecified. So days, months and times are chosen such that few of them are equal.

use super::maker::Maker;
use super::scope::{Kind, Scope};

pub(super) const INTERVALS: &[&str] = &[
    "INTERVAL '1 day'",
    "INTERVAL '01:02:03'",
    "INTERVAL '1 month'",
    "INTERVAL '-3 days 04:05:06.5'",
    "INTERVAL '1 year 2 months -7 days'",
    "INTERVAL '0'",
];

impl Maker<'_> {
    pub(super) fn interval_operation(&mut self, depth: usize, scope: &Scope) -> String {
        match self.choices.choose(5) {
            0 => {
                let operator = self.choices.one_of(&["+", "-"]);
                let (left, right) =
                    (self.expr(Kind::Interval, depth, scope), self.atom(Kind::Interval, scope));
                format!("({left} {operator} {right})")
            }
            1 => format!("({} - {})", self.atom(Kind::Time, scope), self.atom(Kind::Time, scope)),
            2 => format!("(- {})", self.expr(Kind::Interval, depth, scope)),
            3 => {
                let times = self.choices.one_of(&["2", "3", "-1"]);
                format!("({} * {times})", self.expr(Kind::Interval, depth, scope))
            }
            _ => self.atom(Kind::Interval, scope),
        }
    }

    pub(super) fn part_of_interval(&mut self, depth: usize, scope: &Scope) -> String {
        let field = self.choices.one_of(&["day", "hour", "month", "year", "minute"]);
        format!("extract({field} FROM {})::int", self.expr(Kind::Interval, depth, scope))
    }

    pub(super) fn moved_time(&mut self, depth: usize, scope: &Scope) -> String {
        let (time, interval) = (self.expr(Kind::Time, depth, scope), self.atom(Kind::Interval, scope));
        let operator = self.choices.one_of(&["+", "-"]);
        format!("({time} {operator} {interval})")
    }
}

//! Ordered and filtered aggregates, and expressions over the keys of a group.

use super::maker::Maker;
use super::scope::{Column, Kind, Scope};

/// Types whose text form is the same in every engine.
const WRITTEN: [Kind; 5] = [Kind::Int, Kind::Text, Kind::Date, Kind::Bool, Kind::Interval];

impl Maker<'_> {
    /// The number of distinct values of a column, or of two.
    pub(super) fn distinct_count(&mut self, scope: &Scope) -> String {
        let column = |maker: &mut Self| scope.columns[maker.choices.choose(scope.columns.len())].text.clone();
        let (first, second) = (column(self), column(self));
        match self.choices.happens(1, 4) {
            true => format!("count(DISTINCT ({first}, {second}))"),
            false => format!("count(DISTINCT {first})"),
        }
    }

    /// A hypothetical-set or ordered-set aggregate: the rank of a value in a group, or a value by its rank.
    pub(super) fn within_group(&mut self, scope: &Scope) -> String {
        let numbers = scope.of_kind(Kind::Int);
        let how = self.choices.one_of(&["", " DESC", " NULLS FIRST"]);
        match self.choices.choose(4) {
            0 | 1 if !numbers.is_empty() => {
                let of = &numbers[self.choices.choose(numbers.len())].text;
                let function =
                    self.choices.one_of(&["percentile_disc(0.5)", "mode()", "percentile_disc(0.9)"]);
                format!("{function} WITHIN GROUP (ORDER BY {of}{how})")
            }
            _ => {
                let column = scope.columns[self.choices.choose(scope.columns.len())].clone();
                let value = self.atom(column.kind, &Scope::default());
                let function = self.choices.one_of(&["rank", "dense_rank"]);
                format!("{function}({value}) WITHIN GROUP (ORDER BY {}{how})", column.text)
            }
        }
    }

    /// The values of a column in an order, as a text.
    pub(super) fn ordered_aggregate(&mut self, scope: &Scope) -> String {
        let written: Vec<&Column> =
            scope.columns.iter().filter(|column| WRITTEN.contains(&column.kind)).collect();
        let how = self.choices.one_of(&["", " DESC", " NULLS FIRST", " DESC NULLS LAST"]);
        let Some(column) = written.get(self.choices.choose(written.len().max(1))) else {
            return "max('a'::text)".to_owned();
        };
        let of = &column.text;
        let other = &written[self.choices.choose(written.len())].text;
        match self.choices.choose(3) {
            0 => format!("string_agg(DISTINCT {of}::text, ',' ORDER BY {of}::text{how})"),
            1 => format!("string_agg({of}::text, ',' ORDER BY {other}{how}, {of})"),
            _ => format!("array_to_string(array_agg(DISTINCT {of} ORDER BY {of}{how}), ',', '~')"),
        }
    }

    /// GROUPING of grouping keys, or the rank of a key within its group.
    pub(super) fn of_keys(&mut self, keys: &[Column], is_plain: bool, scope: &Scope) -> Column {
        let key = &keys[self.choices.choose(keys.len())];
        let same = scope.of_kind(key.kind);
        let of = &same[self.choices.choose(same.len())].text;
        let text = match (is_plain, self.choices.choose(3)) {
            (false, 0 | 1) => {
                let all: Vec<&str> = keys.iter().map(|key| key.text.as_str()).collect();
                match self.choices.happens(1, 2) {
                    true => format!("GROUPING({})", all.join(", ")),
                    false => format!("GROUPING({})", key.text),
                }
            }
            _ => format!("rank({}) WITHIN GROUP (ORDER BY {of})", key.text),
        };
        Column::value(text, Kind::Int)
    }
}

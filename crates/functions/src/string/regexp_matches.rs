//! Regular expression matches as lists: `regexp_split_to_array`, and the rows of `regexp_matches`.
//!
//! Flags are PostgreSQL's: a point matches any character, including newlines, and `^` and `$` match the ends
//! of the text, unless `n` or another flag says otherwise.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, ListBuilder, StringBuilder};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::{Result, ScalarValue, exec_err, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use regex::{Regex, RegexBuilder};

use crate::interruptible::flag;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Purpose {
    /// (text, pattern, flags) → the texts between matches
    Split,
    /// (text, pattern, flags) → for each match the texts of its groups, or its own
    Matches,
}

/// The functions; ranks know them by their names.
pub(crate) fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    [Purpose::Split, Purpose::Matches].into_iter().map(|purpose| {
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(ScalarUDF::new_from_impl(RegexpList { purpose, signature }))
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct RegexpList {
    purpose: Purpose,
    signature: Signature,
}

impl RegexpList {
    fn public_name(&self) -> &str {
        self.name().trim_start_matches("harrier_")
    }
}

impl ScalarUDFImpl for RegexpList {
    fn name(&self) -> &str {
        match self.purpose {
            Purpose::Split => "regexp_split_to_array",
            Purpose::Matches => "harrier_regexp_matches",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let is_text = |kind: &DataType| kind.is_string() || kind.is_null();
        match given {
            [_, _] | [_, _, _] if given.iter().all(is_text) => Ok(vec![DataType::Utf8; given.len()]),
            _ => {
                let given: Vec<String> = given.iter().map(DataType::to_string).collect();
                plan_err!("function {}({}) does not exist", self.public_name(), given.join(", "))
            }
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        let texts = DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)));
        Ok(match self.purpose {
            Purpose::Split => texts,
            Purpose::Matches => DataType::List(Arc::new(Field::new_list_field(texts, true))),
        })
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_scalar = arguments.args.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { arguments.number_rows };
        let texts = |at: usize| -> Result<Option<ArrayRef>> {
            let Some(argument) = arguments.args.get(at) else { return Ok(None) };
            Ok(Some(cast(&argument.to_array(rows)?, &DataType::Utf8)?))
        };
        let (Some(values), Some(patterns)) = (texts(0)?, texts(1)?) else {
            return internal_err!("{} has two arguments or three", self.name());
        };
        let flags = texts(2)?;
        let mut known: Option<(String, String, Compiled)> = None;
        let mut found = Lists::new(self.purpose);
        let canceled = flag(&arguments.config_options);
        for row in 0..rows {
            canceled.check()?;
            let is_null = values.is_null(row)
                || patterns.is_null(row)
                || flags.as_ref().is_some_and(|flags| flags.is_null(row));
            if is_null {
                found.null();
                continue;
            }
            let pattern = patterns.as_string::<i32>().value(row);
            let flags = flags.as_ref().map_or("", |flags| flags.as_string::<i32>().value(row));
            let is_known = known.as_ref().is_some_and(|(one, with, _)| one == pattern && with == flags);
            if !is_known {
                let compiled = Compiled::of(pattern, flags)?;
                if compiled.is_global && self.purpose == Purpose::Split {
                    let message = "regexp_split_to_array() does not support the \"global\" option";
                    return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message).into_datafusion());
                }
                known = Some((pattern.to_string(), flags.to_string(), compiled));
            }
            if let Some((_, _, compiled)) = &known {
                found.add(compiled, values.as_string::<i32>().value(row));
            }
        }
        let found = found.finish();
        match is_scalar {
            true => ScalarValue::try_from_array(&found, 0).map(ColumnarValue::Scalar),
            false => Ok(ColumnarValue::Array(found)),
        }
    }

    /// The name in SQL.
    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        let names: Vec<String> =
            arguments.iter().map(|argument| argument.schema_name().to_string()).collect();
        Ok(format!("{}({})", self.public_name(), names.join(",")))
    }
}

/// Compiles a pattern for functions that return one match.
///
/// Errors: as [`Compiled::of`], and for flag `g` (22023).
pub(crate) fn compile(pattern: &str, flags: &str) -> Result<Regex> {
    let compiled = Compiled::of(pattern, flags)?;
    if compiled.is_global {
        let message = "invalid regular expression option: \"g\"";
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message).into_datafusion());
    }
    Ok(compiled.regex)
}

struct Compiled {
    regex: Regex,
    is_global: bool,
}

impl Compiled {
    /// Errors: an invalid flag (22023) or pattern (2201B).
    fn of(pattern: &str, flags: &str) -> Result<Self> {
        let mut is_global = false;
        let mut is_literal = false;
        let (mut ignores_case, mut is_extended) = (false, false);
        let (mut point_is_any, mut has_lines) = (true, false);
        for flag in flags.chars() {
            match flag {
                'g' => is_global = true,
                'i' => ignores_case = true,
                'c' => ignores_case = false,
                'q' => is_literal = true,
                'x' => is_extended = true,
                't' => is_extended = false,
                'n' | 'm' => (point_is_any, has_lines) = (false, true),
                'p' => (point_is_any, has_lines) = (false, false),
                'w' => (point_is_any, has_lines) = (true, true),
                's' => (point_is_any, has_lines) = (true, false),
                'b' | 'e' => {
                    return exec_err!(
                        "regular expressions are advanced ones, and not of the kind \"{flag}\""
                    );
                }
                other => {
                    let message = format!("invalid regular expression option: \"{other}\"");
                    return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message).into_datafusion());
                }
            }
        }
        let pattern = if is_literal { regex::escape(pattern) } else { pattern.to_string() };
        let regex = RegexBuilder::new(&pattern)
            .case_insensitive(ignores_case)
            .dot_matches_new_line(point_is_any)
            .multi_line(has_lines)
            .ignore_whitespace(is_extended && !is_literal)
            .build()
            .map_err(|error| {
                SqlError::new(
                    SqlState::INVALID_REGULAR_EXPRESSION,
                    format!("invalid regular expression: {error}"),
                )
            })
            .map_err(harrier_sqlstate::external)?;
        Ok(Self { regex, is_global })
    }
}

/// Builders of the lists per row.
enum Lists {
    Split(ListBuilder<StringBuilder>),
    Matches(ListBuilder<ListBuilder<StringBuilder>>),
}

impl Lists {
    fn new(purpose: Purpose) -> Self {
        let texts = ListBuilder::new(StringBuilder::new());
        match purpose {
            Purpose::Split => Self::Split(texts),
            Purpose::Matches => Self::Matches(ListBuilder::new(texts)),
        }
    }

    fn null(&mut self) {
        match self {
            Self::Split(lists) => lists.append_null(),
            Self::Matches(lists) => lists.append_null(),
        }
    }

    fn add(&mut self, compiled: &Compiled, text: &str) {
        match self {
            Self::Split(lists) => {
                let mut from = 0;
                for found in compiled.regex.find_iter(text) {
                    // Empty matches at the ends of a text do not count.
                    if found.is_empty() && (found.start() == 0 || found.end() == text.len()) {
                        continue;
                    }
                    lists.values().append_value(&text[from..found.start()]);
                    from = found.end();
                }
                lists.values().append_value(&text[from..]);
                lists.append(true);
            }
            Self::Matches(lists) => {
                let count = if compiled.is_global { usize::MAX } else { 1 };
                for captures in compiled.regex.captures_iter(text).take(count) {
                    let groups = lists.values();
                    // Without groups the whole match is the only item.
                    for group in captures.iter().skip(usize::from(captures.len() > 1)) {
                        groups.values().append_option(group.map(|group| group.as_str()));
                    }
                    groups.append(true);
                }
                lists.append(true);
            }
        }
    }

    fn finish(self) -> ArrayRef {
        match self {
            Self::Split(mut lists) => Arc::new(lists.finish()),
            Self::Matches(mut lists) => Arc::new(lists.finish()),
        }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::util::display::array_value_to_string;

    use super::*;

    fn lists_of(purpose: Purpose, text: &str, pattern: &str, flags: &str) -> Result<String> {
        let mut lists = Lists::new(purpose);
        lists.add(&Compiled::of(pattern, flags)?, text);
        Ok(array_value_to_string(&lists.finish(), 0)?)
    }

    /// PostgreSQL 15's results.
    #[test]
    fn texts_are_split_and_matched() {
        for (text, pattern, flags, expected) in [
            ("the quick", r"\s+", "", "[the, quick]"),
            ("the quick", r"\s*", "", "[t, h, e, q, u, i, c, k]"),
            (",a,,b,", ",", "", "[, a, , b, ]"),
            ("", ",", "", "[]"),
            ("aXbxc", "x", "i", "[a, b, c]"),
            ("a.b", ".", "q", "[a, b]"),
        ] {
            assert_eq!(lists_of(Purpose::Split, text, pattern, flags).unwrap(), expected, "{text} {pattern}");
        }
        for (text, pattern, flags, expected) in [
            ("a1b2", "[a-z]([0-9])", "g", "[[1], [2]]"),
            ("a1b2", "[a-z]([0-9])", "", "[[1]]"),
            ("a1b2", "[a-z][0-9]", "g", "[[a1], [b2]]"),
            ("ab", "(a)|(b)", "g", "[[a, ], [, b]]"),
            ("ab", "c", "g", "[]"),
            ("a\nb", "a.b", "", "[[a\nb]]"),
            ("a\nb", "^b", "n", "[[b]]"),
            ("a\nb", "^b", "", "[]"),
        ] {
            assert_eq!(
                lists_of(Purpose::Matches, text, pattern, flags).unwrap(),
                expected,
                "{text} {pattern}"
            );
        }
        for (pattern, flags, state) in [("(", "", "2201B"), ("a", "y", "22023")] {
            let error = lists_of(Purpose::Matches, "a", pattern, flags).unwrap_err();
            assert_eq!(harrier_sqlstate::of(&error), SqlState::literal(state));
        }
    }
}

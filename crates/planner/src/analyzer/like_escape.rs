//! Supports `LIKE … ESCAPE 'c'` with any character; DataFusion only supports the backslash.
//!
//! ```text
//! x LIKE 'a/_b/c' ESCAPE '/'  ─►  x LIKE 'a\_bc'
//! x LIKE '//%' ESCAPE '/'     ─►  x LIKE '/%'
//! x LIKE p ESCAPE '/'         ─►  x LIKE replace(…(p)…), with backslashes for /
//! x LIKE 'a/' ESCAPE '/'      ─►  an error (22025)
//! ```
//!
//! `LikeEscapes` can go when LIKE runs with any escape character; PostgreSQL 9.7.1.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue, plan_err};
use datafusion::error::Result;
use datafusion::functions::expr_fn::replace;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, Like, LogicalPlan, cast, lit};
use datafusion::optimizer::AnalyzerRule;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use crate::rewrite::rewrite_expressions;

/// The analyzer rule: rewrites patterns to use backslashes.
#[derive(Debug)]
pub struct LikeEscapes;

impl AnalyzerRule for LikeEscapes {
    fn name(&self) -> &str {
        "like_escapes"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_up_with_subqueries(|plan| {
            let schema = merge_schema(&plan.inputs());
            rewrite_expressions(plan, |expr| match expr {
                Expr::Like(like) => rewrite_escape(like, &schema),
                other => Ok(Transformed::no(other)),
            })
        })?;
        Ok(changed.data)
    }
}

fn rewrite_escape(mut like: Like, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Some(escape) = like.escape_char.filter(|escape| *escape != '\\') else {
        return Ok(Transformed::no(Expr::Like(like)));
    };
    let pattern = match like.pattern.as_ref() {
        Expr::Literal(text, metadata) => match text.try_as_str() {
            Some(Some(pattern)) => {
                let pattern = ScalarValue::from(escape_with_backslashes(pattern, escape)?);
                Expr::Literal(pattern.cast_to(&text.data_type())?, metadata.clone())
            }
            Some(None) => Expr::Literal(text.clone(), metadata.clone()),
            None => return plan_err!("LIKE wants a text as its pattern, not {text}"),
        },
        // Stands for an escaped escape character, while the others are replaced.
        pattern => {
            const PLACEHOLDER: &str = "\u{f0000}";
            let sign = escape.to_string();
            let pattern = replace(pattern.clone(), lit("\\"), lit("\\\\"));
            let pattern = replace(pattern, lit(format!("{sign}{sign}")), lit(PLACEHOLDER));
            let pattern = replace(pattern, lit(sign.as_str()), lit("\\"));
            let pattern = replace(pattern, lit(PLACEHOLDER), lit(sign.as_str()));
            // Both operands of LIKE must have the same type.
            cast(pattern, like.pattern.get_type(schema)?)
        }
    };
    like.pattern = Box::new(pattern);
    like.escape_char = None;
    Ok(Transformed::yes(Expr::Like(like)))
}

/// Rewrites a pattern with the escape character `escape` to use the backslash.
///
/// Errors: it ends with the escape character (22025).
fn escape_with_backslashes(pattern: &str, escape: char) -> Result<String> {
    let mut changed = String::with_capacity(pattern.len());
    let mut signs = pattern.chars();
    while let Some(sign) = signs.next() {
        let (is_escaped, sign) = match sign == escape {
            true => match signs.next() {
                Some(next) => (true, next),
                None => {
                    let message = "LIKE pattern must not end with escape character";
                    return Err(SqlError::new(SqlState::INVALID_ESCAPE_SEQUENCE, message).into_datafusion());
                }
            },
            false => (false, sign),
        };
        if sign == '\\' || is_escaped && matches!(sign, '%' | '_') {
            changed.push('\\');
        }
        changed.push(sign);
    }
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_written_with_backslashes() {
        for (pattern, expected) in
            [("a/_b", "a\\_b"), ("//%", "/%"), ("/a", "a"), ("\\", "\\\\"), ("/\\", "\\\\"), ("%/%", "%\\%")]
        {
            assert_eq!(escape_with_backslashes(pattern, '/').unwrap(), expected, "{pattern}");
        }
        assert!(escape_with_backslashes("a/", '/').is_err());
    }
}

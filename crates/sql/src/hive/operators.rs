//! Operators of Hive whose meaning depends on types: they stay operators, with names that no text has, and
//! the planner resolves them (`hive_operators` of crate `planner`).

use datafusion::sql::sqlparser::ast::BinaryOperator;

/// The prefix of their names. A blank is in no operator of a text.
const PREFIX: &str = "hive ";

/// Hive's operator of this sign.
pub fn custom(sign: &str) -> BinaryOperator {
    BinaryOperator::Custom(format!("{PREFIX}{sign}"))
}

/// The sign of an operator of Hive.
pub fn sign_of(operator: &BinaryOperator) -> Option<&str> {
    match operator {
        BinaryOperator::Custom(name) => name.strip_prefix(PREFIX),
        _ => None,
    }
}

/// The operator for an operator of the parser, if it means something else in Hive.
pub(super) fn of(operator: &BinaryOperator) -> Option<BinaryOperator> {
    Some(custom(match operator {
        BinaryOperator::Plus => "+",
        BinaryOperator::Minus => "-",
        BinaryOperator::Multiply => "*",
        BinaryOperator::Divide => "/",
        BinaryOperator::Modulo => "%",
        BinaryOperator::MyIntegerDivide => "DIV",
        BinaryOperator::Eq => "=",
        BinaryOperator::NotEq => "<>",
        BinaryOperator::Lt => "<",
        BinaryOperator::LtEq => "<=",
        BinaryOperator::Gt => ">",
        BinaryOperator::GtEq => ">=",
        BinaryOperator::Spaceship => "<=>",
        _ => return None,
    }))
}

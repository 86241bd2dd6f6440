//! `ALTER COLUMN a TYPE bigint USING a::bigint`: USING is redundant if it casts the column itself to its new
//! type.

use datafusion::sql::sqlparser::ast::{
    AlterColumnOperation, AlterTableOperation, DataType, Expr, Ident, Statement,
};

use crate::identifier::plain;

/// Drops a redundant USING. Others stay, and are rejected later.
pub(super) fn drop_redundant(statement: &mut Statement) {
    let Statement::AlterTable(alter) = statement else { return };
    for operation in &mut alter.operations {
        if let AlterTableOperation::AlterColumn { column_name, op } = operation
            && let AlterColumnOperation::SetDataType { data_type, using: using @ Some(_), .. } = op
            && using.as_ref().is_some_and(|expr| is_itself(expr, column_name, data_type))
        {
            *using = None;
        }
    }
}

fn is_itself(expr: &Expr, column: &Ident, kind: &DataType) -> bool {
    match expr {
        Expr::Nested(inner) => is_itself(inner, column, kind),
        Expr::Identifier(name) => plain(name) == plain(column),
        Expr::Cast { expr, data_type, .. } => data_type == kind && is_itself(expr, column, kind),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    fn rewritten(sql: &str) -> String {
        let mut statement = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap().pop().unwrap();
        super::drop_redundant(&mut statement);
        statement.to_string()
    }

    #[test]
    fn a_cast_of_the_column_is_left_out() {
        let check = |sql: &str, expected: &str| assert_eq!(rewritten(sql), expected);
        check(
            "ALTER TABLE t ALTER COLUMN a TYPE BIGINT USING (\"a\"::BIGINT)",
            "ALTER TABLE t ALTER COLUMN a TYPE BIGINT",
        );
        for kept in [
            "ALTER TABLE t ALTER COLUMN a TYPE BIGINT USING b::BIGINT",
            "ALTER TABLE t ALTER COLUMN a TYPE BIGINT USING a + 1",
            "ALTER TABLE t ALTER COLUMN a TYPE BIGINT USING a::INT",
        ] {
            check(kept, kept);
        }
    }
}

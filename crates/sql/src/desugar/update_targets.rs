//! `UPDATE t SET LOCKED = TRUE`: lowercases unquoted names of assigned columns, as the planner does
//! everywhere else.

use datafusion::sql::sqlparser::ast::{AssignmentTarget, Ident, ObjectName, ObjectNamePart, Statement};

/// Normalizes the column names that an UPDATE assigns.
pub(super) fn rewrite(statement: &mut Statement) {
    let Statement::Update(update) = statement else { return };
    for assignment in &mut update.assignments {
        match &mut assignment.target {
            AssignmentTarget::ColumnName(name) => normalize(name),
            AssignmentTarget::Tuple(names) => names.iter_mut().for_each(normalize),
        }
    }
}

fn normalize(name: &mut ObjectName) {
    for part in &mut name.0 {
        if let ObjectNamePart::Identifier(ident @ Ident { quote_style: None, .. }) = part {
            ident.value = crate::identifier::plain(ident);
        }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    fn rewritten(sql: &str) -> String {
        let mut statement = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap().pop().unwrap();
        super::rewrite(&mut statement);
        statement.to_string()
    }

    #[test]
    fn update_targets_are_folded_to_lower_case() {
        let check = |sql: &str, expected: &str| assert_eq!(rewritten(sql), expected);
        check("UPDATE t SET A = B, \"C\" = 1", "UPDATE t SET a = B, \"C\" = 1");
    }
}

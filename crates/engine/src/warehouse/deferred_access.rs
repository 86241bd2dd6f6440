//! GRANT and other access statements on objects created by the open transaction, deferred to its commit:
//! until then no other session can use the objects.

use harrier_sql::parser::access::AccessStatement;

/// Deferred statements, in order. ROLLBACK TO a savepoint discards those that came after it.
#[derive(Debug, Default)]
pub(crate) struct DeferredAccess {
    statements: Vec<AccessStatement>,
    /// Names, and the number of statements before each.
    savepoints: Vec<(String, usize)>,
}

impl DeferredAccess {
    pub(crate) fn push(&mut self, statement: AccessStatement) {
        self.statements.push(statement);
    }

    pub(crate) fn savepoint(&mut self, name: &str) {
        self.savepoints.push((name.to_string(), self.statements.len()));
    }

    /// Forgets the savepoint and later ones; statements after it stay.
    pub(crate) fn release(&mut self, name: &str) {
        if let Some(at) = self.position(name) {
            self.savepoints.truncate(at);
        }
    }

    /// Discards the statements after the savepoint, which stays.
    pub(crate) fn roll_back_to(&mut self, name: &str) {
        if let Some(at) = self.position(name) {
            self.statements.truncate(self.savepoints[at].1);
            self.savepoints.truncate(at + 1);
        }
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.savepoints.iter().rposition(|(known, _)| known == name)
    }

    /// Returns all statements, at the end of the transaction.
    pub(crate) fn take(&mut self) -> Vec<AccessStatement> {
        std::mem::take(self).statements
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rollback_to_savepoint_drops_later_changes() {
        let drop =
            |name: &str| AccessStatement::DropRoles { names: vec![name.to_string()], if_exists: false };
        let mut deferred = DeferredAccess::default();
        deferred.push(drop("a"));
        deferred.savepoint("s");
        deferred.push(drop("b"));
        deferred.savepoint("s");
        deferred.push(drop("c"));
        // The inner savepoint of the same name.
        deferred.roll_back_to("s");
        deferred.release("s");
        deferred.push(drop("d"));
        let names = |statements: &[AccessStatement]| -> Vec<String> {
            let name = |statement: &AccessStatement| match statement {
                AccessStatement::DropRoles { names, .. } => names[0].clone(),
                other => panic!("{other:?}"),
            };
            statements.iter().map(name).collect()
        };
        assert_eq!(names(&deferred.statements), ["a", "b", "d"]);
        deferred.roll_back_to("s");
        deferred.roll_back_to("nosuch");
        assert_eq!(names(&deferred.take()), ["a"]);
        assert!(deferred.take().is_empty() && deferred.savepoints.is_empty());
    }
}

//! Statements about the access to what the open transaction has made, which wait for its commit: until then
//! nobody else can be given anything of it.

use harrier_sql::parser::access::AccessStatement;

/// What waits, in its order. A savepoint that is gone back to takes along what came after it.
#[derive(Debug, Default)]
pub(crate) struct Deferred {
    statements: Vec<AccessStatement>,
    /// Names, and how many statements there were before.
    savepoints: Vec<(String, usize)>,
}

impl Deferred {
    pub(crate) fn push(&mut self, statement: AccessStatement) {
        self.statements.push(statement);
    }

    pub(crate) fn savepoint(&mut self, name: &str) {
        self.savepoints.push((name.to_string(), self.statements.len()));
    }

    /// The savepoint and those after it are forgotten; what came since then stays.
    pub(crate) fn release(&mut self, name: &str) {
        if let Some(at) = self.position(name) {
            self.savepoints.truncate(at);
        }
    }

    /// The savepoint itself stays.
    pub(crate) fn roll_back_to(&mut self, name: &str) {
        if let Some(at) = self.position(name) {
            self.statements.truncate(self.savepoints[at].1);
            self.savepoints.truncate(at + 1);
        }
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.savepoints.iter().rposition(|(known, _)| known == name)
    }

    /// All of it, at the transaction's end.
    pub(crate) fn take(&mut self) -> Vec<AccessStatement> {
        std::mem::take(self).statements
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_after_a_savepoint_goes_with_it() {
        let drop =
            |name: &str| AccessStatement::DropRoles { names: vec![name.to_string()], if_exists: false };
        let mut deferred = Deferred::default();
        deferred.push(drop("a"));
        deferred.savepoint("s");
        deferred.push(drop("b"));
        deferred.savepoint("s");
        deferred.push(drop("c"));
        // The inner one of the same name.
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

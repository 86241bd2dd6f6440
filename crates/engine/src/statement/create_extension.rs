//! `CREATE EXTENSION`, as migration scripts begin: nothing is loaded, but some extensions' functions are
//! built in.

use datafusion::error::Result;
use datafusion::sql::sqlparser::ast;
use harrier_error::{SqlError, SqlState};
use harrier_pgcatalog::EXTENSIONS;
use harrier_session_api::statement::Completion;
use harrier_sql::identifier::plain;
use harrier_sqlstate::IntoDataFusionError;

use crate::statement::outcome::Outcome;

/// Errors: the extension is built in and so exists already (42710), or is not available (0A000).
pub(crate) fn create(create: &ast::CreateExtension) -> Result<Outcome> {
    let name = plain(&create.name);
    if !exists(&name) {
        let message = format!("extension \"{name}\" is not available");
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion());
    }
    let told = format!("extension \"{name}\" already exists");
    match create.if_not_exists {
        true => {
            let completion = Completion::new("CREATE EXTENSION");
            Ok(Outcome::Command(completion.with_notices(vec![format!("{told}, skipping")])))
        }
        false => Err(SqlError::new(SqlState::DUPLICATE_OBJECT, told).into_datafusion()),
    }
}

/// Whether an extension of that name is there.
pub(crate) fn exists(name: &str) -> bool {
    EXTENSIONS.iter().any(|extension| extension.name == name)
}

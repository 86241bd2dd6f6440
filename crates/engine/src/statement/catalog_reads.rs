//! What a statement reads of PostgreSQL's catalogs, and what is loaded of them before it is planned.

use std::borrow::Cow;
use std::sync::Arc;

use datafusion::error::Result;
use datafusion::sql::parser::{CopyToSource, Statement};
use datafusion::sql::sqlparser::ast;
use harrier_pgcatalog::Source;
use harrier_sql::desugar::result_columns;

use crate::session::Session;
use crate::statement::parsed::{CatalogReads, ParsedStatement};
use crate::warehouse::public_schema::SchemaNameMentions;
use crate::warehouse::system_catalogs::pg_catalog::NamedObjects;

/// What statements that ask PostgreSQL's catalogs say, beside the names of their schemas and of what begins
/// with `pg_`. In `harrier sql`, a statement with none of them costs no look at what there is.
const CATALOG_WORDS: [&str; 14] = [
    "current_catalog",
    "current_database",
    "current_role",
    "current_schema",
    "current_user",
    "session_user",
    "regclass",
    "regnamespace",
    "regproc",
    "regrole",
    "regtype",
    "has_",
    "_description",
    "txid_current",
];

impl Session {
    /// To be called before a statement is planned, when it is known what it sees.
    pub(crate) async fn prepare_statement(&self, statement: &ParsedStatement) -> Result<()> {
        if self.parameters().has_changed() {
            self.apply_parameters()?;
        }
        if self.is_client()
            && let Some(warehouse) = self.warehouse()
        {
            self.set_superuser(warehouse.names.role().viewer().is_superuser());
        }
        self.follow_search_path();
        let CatalogReads { any, sizes, analyses, sequences, said } = statement.reads;
        if let Some(warehouse) = self.warehouse() {
            warehouse.names.set_shows_main(said.is_main(&statement.values));
        }
        if let Some(source) = self.postgres().get().filter(|_| any) {
            if !self.is_client() {
                source.set_named(NamedObjects { prepared: self.prepared().list(), cursors: vec![] });
                if let Some(warehouse) = self.engine().warehouse()
                    && let Some(catalog) = warehouse.open().await?
                {
                    source.set_access(catalog.access().await.map_err(crate::warehouse::explain)?);
                }
            }
            source.load_views().await;
        }
        if let Some(source) = self.postgres().get().filter(|_| sizes)
            && let Some(warehouse) = self.engine().warehouse()
            && let Some(catalog) = warehouse.open().await?
        {
            source.set_sizes(catalog.sizes().await.map_err(crate::warehouse::explain)?);
        }
        if let Some(source) = self.postgres().get().filter(|_| sequences)
            && let Some(warehouse) = self.engine().warehouse()
            && let Some(catalog) = warehouse.open().await?
        {
            source.set_values(catalog.sequence_values().await.map_err(crate::warehouse::explain)?);
        }
        if let Some(source) = self.postgres().get().filter(|_| analyses)
            && let Some(warehouse) = self.engine().warehouse()
            && let Some(catalog) = warehouse.open().await?
        {
            source.set_analyses(catalog.analyses().await.map_err(crate::warehouse::explain)?);
        }
        Ok(())
    }

    /// The same without a warehouse: what there is may be listed.
    pub(crate) async fn look_at_own_tables(&self, statement: &ParsedStatement) {
        if let (Some(source), Some(own)) = (self.postgres().get(), self.own())
            && statement.reads.any
        {
            let contents = own.contents(&source.session_user()).await;
            let schema = self.context().state_ref().read().config_options().catalog.default_schema.clone();
            source.set_listed(contents, schema);
            source.set_named(NamedObjects { prepared: self.prepared().list(), cursors: vec![] });
        }
    }

    /// Makes a statement fit for PostgreSQL's catalogs and names; returns what it was, `sent`, and what it
    /// may read of them.
    pub(crate) fn rewrite(
        &self,
        form: &mut harrier_sql::Statement,
        text: &str,
        sent: Option<Arc<ast::Statement>>,
    ) -> (Option<Arc<ast::Statement>>, CatalogReads) {
        if !self.names_as_postgres() {
            return (None, CatalogReads::default());
        }
        let mut text = text.to_ascii_lowercase();
        if let harrier_sql::Statement::Sql(Statement::Statement(statement)) = form
            && let Ok(executed @ Cow::Owned(_)) = self.executed(statement)
        {
            text += &executed.to_string().to_ascii_lowercase();
        }
        let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
        let any = has(&["pg_", "information_schema"]) || !self.is_client() && has(&CATALOG_WORDS);
        let statement = match &*form {
            harrier_sql::Statement::Sql(Statement::Statement(statement)) => Some(statement.as_ref()),
            _ => None,
        };
        let said = SchemaNameMentions::of(statement, &text);
        let reads = CatalogReads {
            any,
            said,
            sizes: any && has(&["_size", "reltuples", "relpages"]),
            analyses: any && has(&["pg_stats"]),
            sequences: any && has(&["pg_sequence"]),
        };
        match form {
            harrier_sql::Statement::Sql(statement) => rewrite(statement, reads.any),
            harrier_sql::Statement::Copy(copy) if reads.any => {
                copy.query_mut().into_iter().for_each(harrier_pgcatalog::rewrite_query);
            }
            _ => {}
        }
        (sent, reads)
    }
}

/// Makes a statement fit for PostgreSQL's catalogs, of which it may read some if `reads`.
fn rewrite(statement: &mut Statement, reads: bool) {
    match statement {
        Statement::Statement(statement) => {
            harrier_pgcatalog::rewrite(statement);
            result_columns::disambiguate_columns(statement);
        }
        Statement::Explain(explain) => rewrite(&mut explain.statement, reads),
        Statement::CopyTo(copy) => match &mut copy.source {
            CopyToSource::Query(query) if reads => harrier_pgcatalog::rewrite_query(query),
            CopyToSource::Query(_) | CopyToSource::Relation(_) => {}
        },
        Statement::CreateExternalTable(_) | Statement::Reset(_) => {}
    }
}

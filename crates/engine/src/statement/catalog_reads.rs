//! Detects reads of PostgreSQL's system catalogs, and loads their contents before planning.

use std::borrow::Cow;
use std::sync::Arc;

use datafusion::error::Result;
use datafusion::sql::parser::{CopyToSource, Statement};
use datafusion::sql::sqlparser::ast;
use harrier_pgcatalog::Source;
use harrier_session_api::named_objects::NamedObjects;
use harrier_sql::desugar::result_columns;

use crate::session::Session;
use crate::statement::parsed_statement::{CatalogReads, ParsedStatement};
use crate::warehouse::public_schema::SchemaNameMentions;

/// Words of statements that read the system catalogs, besides schema names and the prefix `pg_`. In `harrier
/// sql`, statements without any of them skip loading.
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
    /// Applies parameters and loads the catalogs that a statement reads. Call it before planning, once the
    /// snapshot is fixed.
    pub(crate) async fn prepare_statement(&self, statement: &ParsedStatement) -> Result<()> {
        if self.parameters().has_changed() {
            self.apply_parameters()?;
        }
        if self.is_client()
            && let Some(warehouse) = self.warehouse()
        {
            self.set_superuser(warehouse.names.role().viewer().is_superuser());
        }
        self.apply_search_path();
        let CatalogReads { any, sizes, analyses, sequences, public_schema } = statement.catalog_reads;
        if let Some(warehouse) = self.warehouse() {
            warehouse.names.set_shows_main(public_schema.is_main(&statement.values));
        }
        if let Some(source) = self.postgres().get().filter(|_| any) {
            if !self.is_client() {
                source.set_named_objects(NamedObjects {
                    prepared: self.prepared_statements().list(),
                    cursors: vec![],
                });
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

    /// Loads the list of the session's tables, in a session without a warehouse.
    pub(crate) async fn load_session_tables(&self, statement: &ParsedStatement) {
        if let (Some(source), Some(own)) = (self.postgres().get(), self.temporary_catalog())
            && statement.catalog_reads.any
        {
            let contents = own.contents(&source.session_user()).await;
            let schema = self.context().state_ref().read().config_options().catalog.default_schema.clone();
            source.set_listed(contents, schema);
            source.set_named_objects(NamedObjects {
                prepared: self.prepared_statements().list(),
                cursors: vec![],
            });
        }
    }

    /// Rewrites a statement for PostgreSQL's catalogs and column names. Returns the original, `sent`, and the
    /// catalogs that it may read.
    pub(crate) fn rewrite(
        &self,
        form: &mut harrier_sql::Statement,
        text: &str,
        sent: Option<Arc<ast::Statement>>,
    ) -> (Option<Arc<ast::Statement>>, CatalogReads) {
        if !self.uses_postgres_names() {
            return (None, CatalogReads::default());
        }
        let mut text = text.to_ascii_lowercase();
        if let harrier_sql::Statement::Sql(Statement::Statement(statement)) = form
            && let Ok(executed @ Cow::Owned(_)) = self.resolve_execute(statement)
        {
            text += &executed.to_string().to_ascii_lowercase();
        }
        let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
        let any = has(&["pg_", "information_schema"]) || !self.is_client() && has(&CATALOG_WORDS);
        let statement = match &*form {
            harrier_sql::Statement::Sql(Statement::Statement(statement)) => Some(statement.as_ref()),
            _ => None,
        };
        let public_schema = SchemaNameMentions::of(statement, &text);
        let reads = CatalogReads {
            any,
            public_schema,
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

/// Rewrites a statement for PostgreSQL's catalogs; `reads`: it may read some.
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

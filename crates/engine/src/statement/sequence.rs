//! CREATE, ALTER and DROP SEQUENCE.

use datafusion::error::Result;
use harrier_session_api::statement::Completion;
use harrier_sql::parser::sequence::SequenceStatement;

use crate::session::Session;
use crate::statement::outcome::Outcome;
use crate::statement::parsed_statement::ParsedStatement;

impl Session {
    pub(crate) async fn run_sequence(
        &self,
        sequence: &SequenceStatement,
        statement: &ParsedStatement,
    ) -> Result<Outcome> {
        let warehouse = self.require_warehouse("sequences are kept in a warehouse")?;
        self.begin_distributed().await?;
        let done = self.ddl(warehouse, statement).sequence_statement(sequence).await?;
        if let Some(uuid) = &done.altered {
            warehouse.sequences.forget_cached(uuid);
        }
        Ok(Outcome::Command(Completion::new(done.tag).with_notices(done.notices)))
    }
}

//! The simple protocol: a text of statements, run one after the other.

use std::sync::Arc;

use harrier_error::SqlError;

use super::super::own::Own;
use super::super::portal::Prepared;
use super::run::Read;
use super::{Conversation, Trouble, shift, split};
use crate::backend::{CursorStatement, Description, Kind};

/// The parameter by which literals are read when a statement is parsed.
const DATE_STYLE: &str = "DateStyle";

impl Conversation {
    pub(super) async fn query(&mut self, text: &str) -> Result<(), Trouble> {
        self.portals.remove("");
        self.statements.remove("");
        let style = self.session.parameter(DATE_STYLE);
        let mut parsed = Vec::new();
        let (registry, session) = (Arc::clone(&self.registry), Arc::clone(&self.guard.entry));
        for part in split(&*self.session, text) {
            let shifted = |failure: SqlError| {
                registry.never_ran(&session, &part.text, &failure);
                shift(failure, part.offset)
            };
            let read = self.read(&part.text).await.map_err(|trouble| match trouble {
                Trouble::Failed(failure) => Trouble::Failed(shifted(failure)),
                gone => gone,
            })?;
            let (description, types) = (Description::default(), vec![]);
            let prepared = match read {
                Read::Own(own) => Prepared::Own { own, text: part.text.clone(), description, types },
                Read::Sql(statement) => Prepared::Sql { statement, description, types, given: vec![] },
            };
            parsed.push((part.offset, prepared));
        }
        if parsed.is_empty() {
            self.io.reply.empty_query();
            return Ok(());
        }
        let many = parsed.len() > 1;
        for (offset, prepared) in parsed {
            let done = match self.read_again(prepared, style.as_deref()).await {
                Ok(prepared) => self.simple(prepared, many).await,
                Err(trouble) => Err(trouble),
            };
            if let Err(trouble) = done {
                let trouble = match trouble {
                    Trouble::Failed(failure) => Trouble::Failed(shift(failure, offset)),
                    gone => gone,
                };
                self.report(Err(trouble))?;
                return self.end_implicit().await;
            }
            self.tell_parameters();
        }
        self.end_implicit().await
    }

    /// A statement by the order of days that those before it have left; all were parsed in `style`.
    async fn read_again(&mut self, prepared: Prepared, style: Option<&str>) -> Result<Prepared, Trouble> {
        match prepared {
            Prepared::Sql { statement, description, types, given }
                if self.session.parameter(DATE_STYLE).as_deref() != style =>
            {
                let statement = self.parsed(&statement.text).await?;
                Ok(Prepared::Sql { statement, description, types, given })
            }
            other => Ok(other),
        }
    }

    pub(super) async fn simple(&mut self, prepared: Prepared, many: bool) -> Result<(), Trouble> {
        let statement = match prepared {
            Prepared::Own { own, text, .. } => {
                if let Own::Cursor(CursorStatement::Fetch { name, is_move: false, .. }) = &own {
                    let columns = self.cursor_columns(name, None)?;
                    self.io.reply.columns(&columns);
                }
                return self.own(own, &text, &[], None).await;
            }
            Prepared::Sql { statement, .. } => statement,
            Prepared::Empty => return Ok(()),
        };
        match statement.kind {
            _ if many => self.join_implicit(&statement).await?,
            Kind::Begin | Kind::Control => self.take_over(&statement)?,
            Kind::Plain | Kind::Alone => {}
        }
        let open = self.start(&statement, &[], &[], true, None).await?;
        match open {
            Some(rows) => self.rest(rows).await,
            None => Ok(()),
        }
    }
}

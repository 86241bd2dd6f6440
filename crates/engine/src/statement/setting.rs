//! SET, RESET and SHOW.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::datatypes::Schema;
use datafusion::error::Result;
use datafusion::physical_plan::memory::MemoryStream;

use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use crate::runtime::progress::PlanProgress;
use crate::session::Session;
use crate::settings::parameters::Change;
use crate::statement::outcome::{Outcome, command};

impl Session {
    pub(crate) async fn change_parameter(&self, change: Change) -> Result<Outcome> {
        let columns = change.columns();
        let mut rows: Vec<Vec<String>> = Vec::new();
        match change {
            Change::Set { name, value, is_local } => {
                self.parameters().set(name, &value, is_local)?;
                self.apply_parameters()?;
                return Ok(command("SET"));
            }
            Change::SetDefault { name, is_local } => {
                self.parameters().set_default(name, is_local);
                self.apply_parameters()?;
                return Ok(command("SET"));
            }
            Change::Use(schema) => {
                if !self.has_schema(&schema) {
                    let message = format!("schema \"{schema}\" does not exist");
                    return Err(SqlError::new(SqlState::INVALID_SCHEMA_NAME, message).into_datafusion());
                }
                let path = format!("\"{}\"", schema.replace('"', "\"\""));
                self.parameters().set("search_path", &path, false)?;
                self.apply_parameters()?;
                return Ok(command("USE"));
            }
            Change::Setting { name, value, is_local } => {
                let changed = self.change_setting(&name, value.as_deref(), is_local).await;
                return changed.map(|()| command("SET")).map_err(IntoDataFusionError::into_datafusion);
            }
            Change::Reset(name) => {
                self.parameters().reset(Some(name));
                self.apply_parameters()?;
                return Ok(command("RESET"));
            }
            Change::ResetAll => {
                self.parameters().reset(None);
                self.reset("all").await?;
                self.apply_parameters()?;
                return Ok(command("RESET"));
            }
            Change::Show(name) => {
                let isolation = match (name, self.warehouse()) {
                    ("transaction_isolation", Some(warehouse)) => {
                        Some(warehouse.transactions.isolation().await.to_string())
                    }
                    ("transaction_read_only", Some(warehouse)) => {
                        let is_read_only = warehouse.transactions.is_read_only().await;
                        Some(if is_read_only { "on" } else { "off" }.to_string())
                    }
                    _ => None,
                };
                rows.push(vec![isolation.or_else(|| self.parameters().get(name)).unwrap_or_default()]);
            }
            Change::ShowAll => rows = self.all_settings(),
        }
        let schema = columns.unwrap_or_else(|| Arc::new(Schema::empty()));
        let column = |at: usize| -> ArrayRef {
            Arc::new(rows.iter().map(|row| row.get(at).map(String::as_str)).collect::<StringArray>())
        };
        let columns = (0..schema.fields().len()).map(column).collect();
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns)?;
        let stream = Box::pin(MemoryStream::try_new(vec![batch], Arc::clone(&schema), None)?);
        Ok(Outcome::Rows { schema, stream, progress: PlanProgress::none() })
    }

    /// All parameters and settings: names, values and descriptions.
    pub(crate) fn all_settings(&self) -> Vec<Vec<String>> {
        let parameters = self.parameters().all();
        let mut rows: Vec<Vec<String>> = parameters
            .into_iter()
            .map(|(name, value, description)| vec![name.to_string(), value, description.to_string()])
            .collect();
        let state = self.context().state_ref();
        let settings = state.read().config_options().entries();
        rows.extend(
            settings
                .into_iter()
                .map(|entry| vec![entry.key, entry.value.unwrap_or_default(), entry.description.to_string()]),
        );
        rows.sort_by_cached_key(|row| row[0].to_lowercase());
        rows
    }
}

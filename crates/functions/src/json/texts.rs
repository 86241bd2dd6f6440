//! Memory-accounted result builder of JSON functions, whose results can be far larger than their input: a
//! number of ten letters has thousands of digits.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, StringViewBuilder};
use datafusion::common::Result;
use datafusion::config::ConfigOptions;

use crate::bounded_result::CONSTANT_BYTES_MAX;
use harrier_error::{SqlError, SqlState};
use harrier_resources::value_account::{Account, Reservation};
use harrier_sqlstate::IntoDataFusionError;

/// Text results, reserved in the memory account as they grow.
pub(super) struct Texts<'c> {
    builder: StringViewBuilder,
    name: &'static str,
    account: Option<&'c Account>,
    bytes: u64,
    reservations: Vec<Reservation>,
    reserved_bytes: u64,
}

impl<'c> Texts<'c> {
    /// Granularity of reservations. Smaller ones are not worth their cost.
    const STEP_BYTES: u64 = 4 << 20;

    pub(super) fn new(name: &'static str, config: &'c ConfigOptions) -> Self {
        let account = Account::of(config);
        Self {
            builder: StringViewBuilder::new(),
            name,
            account,
            bytes: 0,
            reservations: vec![],
            reserved_bytes: 0,
        }
    }

    pub(super) fn push(&mut self, text: Option<&str>) -> Result<()> {
        self.bytes += text.map_or(0, |text| text.len() as u64);
        match self.account {
            Some(account) => {
                while self.bytes > self.reserved_bytes + Self::STEP_BYTES {
                    self.reservations.push(account.reserve(self.name, Self::STEP_BYTES)?);
                    self.reserved_bytes += Self::STEP_BYTES;
                }
            }
            // Leaves the call in the plan: an account is available at execution.
            None if self.bytes > CONSTANT_BYTES_MAX => {
                let message = format!("a constant of {} bytes in a statement that is planned", self.bytes);
                return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message).into_datafusion());
            }
            None => {}
        }
        self.builder.append_option(text);
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<ArrayRef> {
        let array: ArrayRef = Arc::new(self.builder.finish());
        match self.account {
            Some(account) if !self.reservations.is_empty() => {
                self.reservations.clear();
                account.reserve(self.name, array.get_array_memory_size() as u64)?.attach_to(&array)
            }
            _ => Ok(array),
        }
    }
}

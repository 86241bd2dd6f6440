//! Tables of the schema `sys` that the process around the engine provides.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use futures::future::BoxFuture;

use crate::warehouse::access::Viewer;

/// The schema that the tables are in.
pub(crate) const SYSTEM_SCHEMA: &str = "sys";

/// A table of schema `sys` that tells of the process around the engine: who is served, what runs.
#[derive(Clone)]
pub struct ServerTable {
    pub name: &'static str,
    pub schema: SchemaRef,
    /// Its rows at the moment, as far as somebody may see them; called for every scan.
    pub rows: Arc<dyn Fn(&Viewer) -> BoxFuture<'static, Result<RecordBatch>> + Send + Sync>,
}

impl fmt::Debug for ServerTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerTable({})", self.name)
    }
}

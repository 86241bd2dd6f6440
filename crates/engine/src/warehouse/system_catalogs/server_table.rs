//! Tables of the schema `sys` that the server provides.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use futures::future::BoxFuture;

use crate::warehouse::access::Viewer;

/// The schema of these tables.
pub(crate) const SYSTEM_SCHEMA: &str = "sys";

/// A table of schema `sys` about the server process: sessions, running statements.
#[derive(Clone)]
pub struct ServerTable {
    pub name: &'static str,
    pub schema: SchemaRef,
    /// Returns the current rows that a viewer may see; called for every scan.
    pub rows: Arc<dyn Fn(&Viewer) -> BoxFuture<'static, Result<RecordBatch>> + Send + Sync>,
}

impl fmt::Debug for ServerTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerTable({})", self.name)
    }
}

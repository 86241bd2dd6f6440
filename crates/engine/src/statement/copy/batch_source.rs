//! Source of a COPY whose rows arrive as batches, already decoded.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use futures::StreamExt;
use parking_lot::Mutex;
use tokio::sync::mpsc;

/// Batches of one schema, until the sender is dropped. Can be read once.
pub(super) struct Batches {
    schema: SchemaRef,
    receiver: Mutex<Option<mpsc::Receiver<RecordBatch>>>,
}

impl Batches {
    pub(super) fn new(schema: SchemaRef, receiver: mpsc::Receiver<RecordBatch>) -> Self {
        Self { schema, receiver: Mutex::new(Some(receiver)) }
    }
}

impl fmt::Debug for Batches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batches").field("schema", &self.schema).finish()
    }
}

impl PartitionStream for Batches {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let schema = Arc::clone(&self.schema);
        let Some(mut receiver) = self.receiver.lock().take() else {
            let twice = DataFusionError::Internal("rows of a COPY are read twice".to_string());
            let failed = futures::stream::once(async { Err(twice) });
            return Box::pin(RecordBatchStreamAdapter::new(schema, failed));
        };
        let batches = futures::stream::poll_fn(move |context| receiver.poll_recv(context)).map(Ok);
        Box::pin(RecordBatchStreamAdapter::new(schema, batches))
    }
}

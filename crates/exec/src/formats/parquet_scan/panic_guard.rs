//! Panic guards around DataFusion's Parquet reader: a panic means a damaged file.

use datafusion::arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::datasource::listing::PartitionedFile;
use datafusion_datasource::morsel::{Morsel, MorselPlan, MorselPlanner, Morselizer};
use futures::StreamExt;
use futures::stream::BoxStream;

use crate::formats::damaged_files;

#[derive(Debug)]
pub(super) struct PanicGuard<T: ?Sized> {
    /// The file's name; empty for a reader of all files.
    name: String,
    inner: Box<T>,
}

impl PanicGuard<dyn Morselizer> {
    pub(super) fn new(inner: Box<dyn Morselizer>) -> Self {
        Self { name: String::new(), inner }
    }
}

impl Morselizer for PanicGuard<dyn Morselizer> {
    fn plan_file(&self, file: PartitionedFile) -> Result<Box<dyn MorselPlanner>> {
        let name = file.object_meta.location.filename().unwrap_or_default().to_string();
        let inner = damaged_files::read(&name, || self.inner.plan_file(file))?;
        Ok(Box::new(PanicGuard { name, inner }))
    }
}

impl MorselPlanner for PanicGuard<dyn MorselPlanner> {
    fn plan(self: Box<Self>) -> Result<Option<MorselPlan>> {
        let Self { name, inner } = *self;
        let Some(mut plan) = damaged_files::read(&name, || inner.plan())? else { return Ok(None) };
        let morsels = plan.take_morsels().into_iter();
        let morsels =
            morsels.map(|inner| Box::new(PanicGuard { name: name.clone(), inner }) as Box<dyn Morsel>);
        let planners = plan.take_ready_planners().into_iter();
        let planners = planners
            .map(|inner| Box::new(PanicGuard { name: name.clone(), inner }) as Box<dyn MorselPlanner>);
        let mut guarded = MorselPlan::new().with_morsels(morsels.collect()).with_planners(planners.collect());
        if let Some(pending) = plan.take_pending_planner() {
            guarded.set_pending_planner(async move {
                let inner = damaged_files::open(&name, pending.into_future()).await?;
                Ok(Box::new(PanicGuard { name, inner }) as Box<dyn MorselPlanner>)
            });
        }
        Ok(Some(guarded))
    }
}

impl Morsel for PanicGuard<dyn Morsel> {
    fn into_stream(self: Box<Self>) -> BoxStream<'static, Result<RecordBatch>> {
        let Self { name, inner } = *self;
        match damaged_files::read(&name, || Ok(inner.into_stream())) {
            Ok(stream) => damaged_files::stream(name, stream),
            Err(error) => futures::stream::iter([Err(error)]).boxed(),
        }
    }
}

//! What DataFusion reads Parquet files by, part after part: a panic in it is that the file is damaged.

use datafusion::arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::datasource::listing::PartitionedFile;
use datafusion_datasource::morsel::{Morsel, MorselPlan, MorselPlanner, Morselizer};
use futures::StreamExt;
use futures::stream::BoxStream;

use crate::formats::damaged_files;

#[derive(Debug)]
pub(super) struct Guarded<T: ?Sized> {
    /// Of the file; empty for what reads all of them.
    name: String,
    inner: Box<T>,
}

impl Guarded<dyn Morselizer> {
    pub(super) fn new(inner: Box<dyn Morselizer>) -> Self {
        Self { name: String::new(), inner }
    }
}

impl Morselizer for Guarded<dyn Morselizer> {
    fn plan_file(&self, file: PartitionedFile) -> Result<Box<dyn MorselPlanner>> {
        let name = file.object_meta.location.filename().unwrap_or_default().to_string();
        let inner = damaged_files::read(&name, || self.inner.plan_file(file))?;
        Ok(Box::new(Guarded { name, inner }))
    }
}

impl MorselPlanner for Guarded<dyn MorselPlanner> {
    fn plan(self: Box<Self>) -> Result<Option<MorselPlan>> {
        let Self { name, inner } = *self;
        let Some(mut plan) = damaged_files::read(&name, || inner.plan())? else { return Ok(None) };
        let morsels = plan.take_morsels().into_iter();
        let morsels = morsels.map(|inner| Box::new(Guarded { name: name.clone(), inner }) as Box<dyn Morsel>);
        let planners = plan.take_ready_planners().into_iter();
        let planners =
            planners.map(|inner| Box::new(Guarded { name: name.clone(), inner }) as Box<dyn MorselPlanner>);
        let mut guarded = MorselPlan::new().with_morsels(morsels.collect()).with_planners(planners.collect());
        if let Some(pending) = plan.take_pending_planner() {
            guarded.set_pending_planner(async move {
                let inner = damaged_files::opened(&name, pending.into_future()).await?;
                Ok(Box::new(Guarded { name, inner }) as Box<dyn MorselPlanner>)
            });
        }
        Ok(Some(guarded))
    }
}

impl Morsel for Guarded<dyn Morsel> {
    fn into_stream(self: Box<Self>) -> BoxStream<'static, Result<RecordBatch>> {
        let Self { name, inner } = *self;
        match damaged_files::read(&name, || Ok(inner.into_stream())) {
            Ok(stream) => damaged_files::stream(name, stream),
            Err(error) => futures::stream::iter([Err(error)]).boxed(),
        }
    }
}

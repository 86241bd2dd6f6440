//! Ranks inside one process: rows pass by reference. It shows what is left when a transport costs nothing.

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::common::{Result, exec_err};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion_distributed::{
    ChannelResolver, CoordinatorToWorkerMsg, ExecuteTaskRequest, GetWorkerInfoRequest, GetWorkerInfoResponse,
    MaybeEncoded, SetPlanRequest, Worker, WorkerChannel, WorkerToCoordinatorMsg,
};
use futures::StreamExt;
use futures::stream::BoxStream;
use http::HeaderMap;
use std::sync::{Arc, OnceLock};
use url::Url;

/// Channels to the workers of this process, by rank.
pub struct LoopbackChannels(pub Arc<OnceLock<Vec<Worker>>>);

#[async_trait]
impl ChannelResolver for LoopbackChannels {
    async fn get_worker_client_for_url(&self, url: &Url) -> Result<Box<dyn WorkerChannel>> {
        let rank = url.host_str().and_then(|host| host.parse::<usize>().ok());
        match rank.and_then(|rank| self.0.get()?.get(rank)) {
            Some(worker) => Ok(Box::new(Loopback(worker.clone()))),
            None => exec_err!("{url} is not the address of a rank"),
        }
    }
}

struct Loopback(Worker);

#[async_trait]
impl WorkerChannel for Loopback {
    async fn coordinator_channel(
        &mut self,
        headers: HeaderMap,
        mut set_plan_request: SetPlanRequest,
        to_worker: BoxStream<'static, CoordinatorToWorkerMsg>,
        _metrics: ExecutionPlanMetricsSet,
        context: &Arc<TaskContext>,
    ) -> Result<BoxStream<'static, Result<WorkerToCoordinatorMsg>>> {
        // Encoded all the same: operators keep state, and the ranks' copies of a plan must not share it.
        set_plan_request.plan = MaybeEncoded::Encoded(set_plan_request.plan.encode(context)?);
        self.0.coordinator_channel(headers, set_plan_request, to_worker.map(Ok).boxed()).await
    }

    async fn execute_task(
        &mut self,
        _headers: HeaderMap,
        request: ExecuteTaskRequest,
        _metrics: ExecutionPlanMetricsSet,
        _context: &Arc<TaskContext>,
    ) -> Result<Vec<BoxStream<'static, Result<RecordBatch>>>> {
        let (streams, _) = self.0.execute_task(request).await?;
        Ok(streams.into_iter().map(|stream| stream.boxed()).collect())
    }

    async fn get_worker_info(&mut self, _request: GetWorkerInfoRequest) -> Result<GetWorkerInfoResponse> {
        Ok(GetWorkerInfoResponse { version: self.0.version().to_string() })
    }
}

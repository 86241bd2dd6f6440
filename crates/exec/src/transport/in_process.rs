//! In-process ranks: rows are passed by reference, to measure the costs besides the transport.

use datafusion::arrow::array::RecordBatch;
use datafusion::common::{Result, exec_err};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion_distributed::{
    ChannelResolver, CoordinatorToWorkerMsg, ExecuteTaskRequest, GetWorkerInfoRequest, GetWorkerInfoResponse,
    MaybeEncoded, SetPlanRequest, Worker, WorkerChannel, WorkerToCoordinatorMsg,
};
use futures::future::{BoxFuture, ready};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use http::HeaderMap;
use std::sync::{Arc, OnceLock};
use url::Url;

use crate::transport::plan_codec;

/// Channels to the workers of this process, by rank.
pub struct LoopbackChannels(pub Arc<OnceLock<Vec<Worker>>>);

impl LoopbackChannels {
    fn channel(&self, url: &Url) -> Result<Box<dyn WorkerChannel>> {
        let rank = url.host_str().and_then(|host| host.parse::<usize>().ok());
        match rank.and_then(|rank| self.0.get()?.get(rank)) {
            Some(worker) => Ok(Box::new(Loopback(worker.clone()))),
            None => exec_err!("{url} is not the address of a rank"),
        }
    }
}

// Methods are written out for the compiler's sake: docs/decisions/0025-boxed-futures-behind-traits.md
impl ChannelResolver for LoopbackChannels {
    fn get_worker_client_for_url<'a: 'f, 'b: 'f, 'f>(
        &'a self,
        url: &'b Url,
    ) -> BoxFuture<'f, Result<Box<dyn WorkerChannel>>> {
        ready(self.channel(url)).boxed()
    }
}

struct Loopback(Worker);

impl Loopback {
    /// Sends a plan to the worker.
    fn boxed_coordinator_channel(
        &self,
        headers: HeaderMap,
        mut set_plan_request: SetPlanRequest,
        to_worker: BoxStream<'static, CoordinatorToWorkerMsg>,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Result<WorkerToCoordinatorMsg>>>> {
        async move {
            // Encoded nevertheless: operators have state, and the ranks' copies of a plan must not share it.
            set_plan_request.plan = MaybeEncoded::Encoded(plan_codec::for_worker(set_plan_request.plan)?);
            self.0.coordinator_channel(headers, set_plan_request, to_worker.map(Ok).boxed()).await
        }
        .boxed()
    }

    fn boxed_execute_task(
        &self,
        request: ExecuteTaskRequest,
    ) -> BoxFuture<'_, Result<Vec<BoxStream<'static, Result<RecordBatch>>>>> {
        async move {
            let (streams, _) = self.0.execute_task(request).await?;
            Ok(streams.into_iter().map(|stream| stream.boxed()).collect())
        }
        .boxed()
    }
}

// Methods are written out for the compiler's sake: docs/decisions/0025-boxed-futures-behind-traits.md
impl WorkerChannel for Loopback {
    fn coordinator_channel<'a: 'f, 'b: 'f, 'f>(
        &'a mut self,
        headers: HeaderMap,
        set_plan_request: SetPlanRequest,
        to_worker: BoxStream<'static, CoordinatorToWorkerMsg>,
        _metrics: ExecutionPlanMetricsSet,
        _context: &'b Arc<TaskContext>,
    ) -> BoxFuture<'f, Result<BoxStream<'static, Result<WorkerToCoordinatorMsg>>>> {
        self.boxed_coordinator_channel(headers, set_plan_request, to_worker)
    }

    fn execute_task<'a: 'f, 'b: 'f, 'f>(
        &'a mut self,
        _headers: HeaderMap,
        request: ExecuteTaskRequest,
        _metrics: ExecutionPlanMetricsSet,
        _context: &'b Arc<TaskContext>,
    ) -> BoxFuture<'f, Result<Vec<BoxStream<'static, Result<RecordBatch>>>>> {
        self.boxed_execute_task(request)
    }

    fn get_worker_info<'a: 'f, 'f>(
        &'a mut self,
        _request: GetWorkerInfoRequest,
    ) -> BoxFuture<'f, Result<GetWorkerInfoResponse>> {
        ready(Ok(GetWorkerInfoResponse { version: self.0.version().to_string() })).boxed()
    }
}

//! Baseline transport: datafusion-distributed's own gRPC between the same ranks, started on demand.
//!
//! The only case in which a rank listens on a port: an ephemeral one, on loopback if all ranks share a host.

use datafusion::common::{Result, exec_datafusion_err};
use datafusion_distributed::Worker;
use std::net::{IpAddr, Ipv4Addr};
use tokio::net::TcpListener;
use tokio::sync::OnceCell;
use tokio_stream::wrappers::TcpListenerStream;
use url::Url;

/// This rank's gRPC server. It lives until the process ends.
pub struct GrpcServer {
    /// This rank's host name for other hosts; `None` if all ranks share this host.
    host: Option<String>,
    url: OnceCell<Url>,
}

impl GrpcServer {
    pub fn new(host: Option<String>) -> Self {
        GrpcServer { host, url: OnceCell::new() }
    }

    /// Starts the server unless it runs, and returns its address.
    ///
    /// Errors: no port is available.
    pub async fn start(&self, worker: &Worker) -> Result<Url> {
        let url = self.url.get_or_try_init(|| async {
            let (bind, host) = match &self.host {
                None => (IpAddr::V4(Ipv4Addr::LOCALHOST), "127.0.0.1"),
                Some(host) => (IpAddr::V4(Ipv4Addr::UNSPECIFIED), host.as_str()),
            };
            let listener = TcpListener::bind((bind, 0)).await?;
            let port = listener.local_addr()?.port();
            let url = Url::parse(&format!("http://{host}:{port}"))
                .map_err(|error| exec_datafusion_err!("address of the gRPC server: {error}"))?;
            let serving = tonic::transport::Server::builder()
                .tcp_nodelay(true)
                .add_service(worker.clone().into_worker_server())
                .serve_with_incoming(TcpListenerStream::new(listener));
            tokio::spawn(async move {
                if let Err(error) = serving.await {
                    tracing::error!(%error, "the gRPC server stopped");
                }
            });
            Ok::<_, datafusion::error::DataFusionError>(url)
        });
        url.await.cloned()
    }
}

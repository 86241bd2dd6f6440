//! gRPC primitive: a call for each round trip, and one call with a stream of messages for packets. Messages
//! are raw bytes.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::task::{Context, Poll};

use bytes::{Buf, BufMut, Bytes};
use futures::StreamExt;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::{Service, http};
use tonic::server::{ClientStreamingService, NamedService, UnaryService};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status, Streaming};

use super::pair::{self, Pair};
use crate::configuration::this_binary;

const ECHO: &str = "/harrier.Primitives/Echo";
const COUNT: &str = "/harrier.Primitives/Count";

/// Packets queued ahead.
const AHEAD: usize = 8;

/// Codec of raw bytes.
#[derive(Debug, Clone, Copy, Default)]
struct BytesCodec;

impl Codec for BytesCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put(item);
        Ok(())
    }
}

impl Decoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(bytes.copy_to_bytes(bytes.remaining())))
    }
}

type Answer = Pin<Box<dyn Future<Output = Result<Response<Bytes>, Status>> + Send>>;

#[derive(Clone)]
struct Echo;

impl UnaryService<Bytes> for Echo {
    type Response = Bytes;
    type Future = Answer;

    fn call(&mut self, request: Request<Bytes>) -> Answer {
        Box::pin(std::future::ready(Ok(Response::new(request.into_inner()))))
    }
}

#[derive(Clone)]
struct Count;

impl ClientStreamingService<Bytes> for Count {
    type Response = Bytes;
    type Future = Answer;

    fn call(&mut self, request: Request<Streaming<Bytes>>) -> Answer {
        Box::pin(async move {
            let mut packets = request.into_inner();
            let mut bytes = 0;
            while let Some(packet) = packets.next().await {
                bytes += packet?.len() as u64;
            }
            Ok(Response::new(Bytes::copy_from_slice(&u64::to_le_bytes(bytes))))
        })
    }
}

/// The server's two methods.
#[derive(Clone)]
struct Primitives;

impl NamedService for Primitives {
    const NAME: &'static str = "harrier.Primitives";
}

impl Service<http::Request<Body>> for Primitives {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let mut grpc = tonic::server::Grpc::new(BytesCodec)
            .max_decoding_message_size(usize::MAX)
            .max_encoding_message_size(usize::MAX);
        Box::pin(async move {
            Ok(match request.uri().path() {
                ECHO => grpc.unary(Echo, request).await,
                _ => grpc.client_streaming(Count, request).await,
            })
        })
    }
}

/// Runs the server process: prints its port and serves until standard input ends.
pub(super) fn run_server() -> Result<(), String> {
    runtime()?.block_on(async {
        let address = "127.0.0.1:0".parse().map_err(|error| format!("{error}"))?;
        let incoming = TcpIncoming::bind(address).map_err(|error| error.to_string())?;
        let incoming = incoming.with_nodelay(Some(true));
        println!("{}", incoming.local_addr().map_err(|error| error.to_string())?.port());
        let ended = async {
            let read =
                tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
            let _ = read.await;
        };
        let server = Server::builder().add_service(Primitives).serve_with_incoming(incoming);
        tokio::select! {
            served = server => served.map_err(|error| error.to_string()),
            () = ended => Ok(()),
        }
    })
}

/// Starts the server and runs the worker until standard input ends.
pub(super) fn run() -> Result<(), String> {
    let binary = this_binary().map_err(|failure| failure.error.message)?;
    let mut server = Command::new(binary)
        .args(["bench-worker", "--primitive", "grpc-server"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("the server did not start: {error}"))?;
    let output = server.stdout.take().ok_or("the server has no output")?;
    let mut port = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut port)
        .map_err(|error| error.to_string())?;
    let runtime = runtime()?;
    let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{}", port.trim()))
        .map_err(|error| error.to_string())?
        .tcp_nodelay(true);
    let channel = runtime.block_on(endpoint.connect()).map_err(|error| error.to_string())?;
    let client =
        Grpc::new(channel).max_decoding_message_size(usize::MAX).max_encoding_message_size(usize::MAX);
    let input = server.stdin.take();
    pair::serve(Call { runtime, client, _server: Running { input, server } })
}

fn runtime() -> Result<Runtime, String> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| error.to_string())
}

/// Server process, which ends with its standard input.
struct Running {
    input: Option<ChildStdin>,
    server: Child,
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.server.wait();
    }
}

struct Call {
    runtime: Runtime,
    client: Grpc<Channel>,
    _server: Running,
}

fn status_text(status: Status) -> String {
    status.to_string()
}

impl Pair for Call {
    fn engine(&self) -> String {
        "gRPC of tonic, HTTP/2 without TLS, uncompressed".to_owned()
    }

    fn round_trip(&mut self, message: &[u8]) -> Result<(), String> {
        let back = self.runtime.block_on(async {
            self.client.ready().await.map_err(|error| error.to_string())?;
            let request = Request::new(Bytes::copy_from_slice(message));
            let answer = self.client.unary(request, PathAndQuery::from_static(ECHO), BytesCodec).await;
            Ok::<_, String>(answer.map_err(status_text)?.into_inner())
        })?;
        (back == message).then_some(()).ok_or_else(|| "another message came back".to_owned())
    }

    fn packets(&mut self, packet: &[u8], more: &mut dyn FnMut(u64) -> bool) -> Result<u64, String> {
        let packet = Bytes::copy_from_slice(packet);
        self.runtime.block_on(async {
            let (sender, receiver) = mpsc::channel::<Bytes>(AHEAD);
            self.client.ready().await.map_err(|error| error.to_string())?;
            let packets = futures::stream::unfold(receiver, |mut receiver| async move {
                receiver.recv().await.map(|packet| (packet, receiver))
            });
            let call = self.client.client_streaming(
                Request::new(packets),
                PathAndQuery::from_static(COUNT),
                BytesCodec,
            );
            let sending = async {
                let mut sent = 0;
                // A call that ends early returns the reason.
                while more(sent) && sender.send(packet.clone()).await.is_ok() {
                    sent += packet.len() as u64;
                }
                drop(sender);
            };
            let (answer, ()) = tokio::join!(call, sending);
            let count = answer.map_err(status_text)?.into_inner();
            count.as_ref().try_into().map(u64::from_le_bytes).map_err(|_| "no count came back".to_owned())
        })
    }
}

//! Stream primitive: blocks over the streams of Harrier's interconnect, one stream in each direction.

use std::sync::Arc;

use futures::StreamExt;
use harrier_exec::interconnect_options;
use harrier_interconnect::limits::MOTION_WINDOW_BYTES;
use harrier_interconnect::{
    Incoming, Interconnect, Launch, ReadOptions, Received, Service, StreamReceiver, StreamSender,
};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::mpsc;

use super::pair::{self, Pair};

/// Request of a stream: on rank 1 to echo or count blocks, on rank 0 the return stream of either.
const ECHO: &[u8] = b"echo";
const COUNT: &[u8] = b"count";
const BACK: &[u8] = b"back";

/// Runs a rank until standard input of rank 0 ends.
pub(super) fn run(launch: Option<Launch>) -> Result<(), String> {
    let Launch { carrier, .. } = launch.ok_or("no launcher started this rank")?;
    let gang = Interconnect::start(interconnect_options(carrier)).map_err(|error| error.to_string())?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let (back, backs) = mpsc::unbounded_channel();
    gang.serve(Arc::new(Answers { gang: gang.clone(), runtime: runtime.handle().clone(), back }));
    let done = match gang.rank() {
        0 => pair::serve(Streams { gang: gang.clone(), runtime, backs, echo: None }),
        _ => {
            runtime.block_on(gang.departure(0));
            Ok(())
        }
    };
    gang.leave(0);
    done
}

/// Service for streams that the other rank opens.
struct Answers {
    gang: Interconnect,
    runtime: Handle,
    back: mpsc::UnboundedSender<StreamSender>,
}

impl Service for Answers {
    fn open(&self, incoming: Incoming) {
        let Incoming { from, request, mut senders, .. } = incoming;
        let Some(sender) = senders.pop() else { return };
        if request == BACK {
            let _ = self.back.send(sender);
            return;
        }
        let Some(receiver) = self.gang.open(from, BACK, 1, ReadOptions::window(MOTION_WINDOW_BYTES)).pop()
        else {
            return;
        };
        if request == ECHO {
            self.runtime.spawn(echo(receiver, sender));
        } else {
            self.runtime.spawn(count(receiver, sender));
        }
    }
}

async fn echo(mut receiver: StreamReceiver, mut sender: StreamSender) {
    while let Some(Ok(Received::Block { payload, .. })) = receiver.next().await {
        if send(&mut sender, &payload).await.is_err() {
            return;
        }
    }
    sender.finish();
}

async fn count(mut receiver: StreamReceiver, mut sender: StreamSender) {
    let mut bytes = 0;
    while let Some(Ok(Received::Block { payload, .. })) = receiver.next().await {
        bytes += payload.len() as u64;
    }
    if send(&mut sender, &bytes.to_le_bytes()).await.is_ok() {
        sender.finish();
    }
}

async fn send(sender: &mut StreamSender, bytes: &[u8]) -> Result<(), String> {
    sender.credit().await.map_err(|closed| format!("{closed:?}"))?;
    let mut block = sender.block_for(bytes.len());
    block.extend_from_slice(bytes);
    sender.send(1, block);
    Ok(())
}

struct Streams {
    gang: Interconnect,
    runtime: Runtime,
    backs: mpsc::UnboundedReceiver<StreamSender>,
    /// Opened by the first round trip.
    echo: Option<(StreamSender, StreamReceiver)>,
}

impl Streams {
    fn open(&mut self, request: &[u8]) -> Result<(StreamSender, StreamReceiver), String> {
        let receiver = self.gang.open(1, request, 1, ReadOptions::window(MOTION_WINDOW_BYTES)).pop();
        let sender = self.runtime.block_on(self.backs.recv());
        sender.zip(receiver).ok_or_else(|| "no stream could be opened".to_owned())
    }
}

impl Pair for Streams {
    fn engine(&self) -> String {
        format!("harrier {}, {}", env!("CARGO_PKG_VERSION"), self.gang.library())
    }

    fn round_trip(&mut self, message: &[u8]) -> Result<(), String> {
        let (mut sender, mut receiver) = match self.echo.take() {
            Some(open) => open,
            None => self.open(ECHO)?,
        };
        let echo = self.runtime.block_on(async {
            send(&mut sender, message).await?;
            match receiver.next().await {
                Some(Ok(Received::Block { payload, .. })) => Ok(payload == message),
                other => Err(format!("instead of a block {other:?}")),
            }
        })?;
        self.echo = Some((sender, receiver));
        echo.then_some(()).ok_or_else(|| "another message came back".to_owned())
    }

    fn packets(&mut self, packet: &[u8], more: &mut dyn FnMut(u64) -> bool) -> Result<u64, String> {
        let (mut sender, mut receiver) = self.open(COUNT)?;
        self.runtime.block_on(async {
            let mut sent = 0;
            while more(sent) {
                send(&mut sender, packet).await?;
                sent += packet.len() as u64;
            }
            sender.finish();
            match receiver.next().await {
                Some(Ok(Received::Block { payload, .. })) => payload
                    .as_ref()
                    .try_into()
                    .map(u64::from_le_bytes)
                    .map_err(|_| "no count came back".to_owned()),
                other => Err(format!("instead of a count {other:?}")),
            }
        })
    }
}

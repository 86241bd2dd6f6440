//! Transport between ranks, over MPI, over gRPC, or within a process: plans, settings, errors, and the rows
//! of motions (the exchange, or shuffle).

pub(crate) mod broadcast;
pub(crate) mod channel;
pub mod clock_offset;
pub(crate) mod grpc;
pub mod grpc_benchmark;
pub(crate) mod in_process;
pub mod local_socket;
pub mod messages;
pub(crate) mod metrics_codec;
pub(crate) mod node_codec;
pub mod plan_codec;
pub(crate) mod propagated_settings;
pub(crate) mod remote_error;
pub mod running_tasks;
pub(crate) mod service;
pub mod stream_metrics;
pub(crate) mod task_reaper;

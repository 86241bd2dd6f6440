//! HiveServer2: the Thrift service that beeline, Hive's JDBC and ODBC drivers, PyHive, impyla and Hue speak.
//!
//! ```text
//! client ═ TCP, TLS ═► connection ─┬─ SASL PLAIN ──┐
//!                                  ├─ no SASL ─────┼─► service ─► session ─► operation: statement ─► rows
//!                                  └─ http: POST ──┘     calls      lane         row_set ◄─ batches ─┘
//! ```
//!
//! - One port takes all three transports; the first byte tells which one it is.
//! - A session has a handle, and belongs to no connection: Hue and balancers change connections. Over the
//!   binary transports it ends with the connection that opened it, as in Hive.
//! - A session's statements run one after the other on its lane. A statement whose rows are not read lets the
//!   next one in: the rest of its rows goes into a buffer that spills to disk.
//! - Rows are sent in columns, written from Arrow arrays. Clients of protocol versions before 6, which want
//!   rows, get rows.
//! - A statement is canceled by `CancelOperation`, by closing its operation or session, and by a stop request
//!   to its session in the [`Registry`](crate::registry::Registry).
//!
//! Architecture Invariant: nothing here parses SQL.
//!
//! Source: `TCLIService.thrift` of Apache Hive (numbers of fields and enums), and what Hive 4.0.1 answers.

mod caller;
mod columns;
mod configuration;
mod connection;
mod ends;
mod handle;
mod hive_type;
mod http;
mod lane;
mod metadata;
mod nested_text;
mod operation;
mod pattern;
mod result_rows;
mod row_set;
mod server_info;
mod service;
mod session;
mod status;
mod transport;
mod type_info;
mod value_text;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use self::session::Site;

pub use self::configuration::{Hive, HiveLimits};

/// The interval of checks for idle sessions and operations.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Serves HiveServer2 until `stop` is ready, then drains: statements and transactions end first. Dropping the
/// future ends everything at once.
pub async fn serve(
    listener: TcpListener,
    hive: Hive,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let site = Arc::new(Site::new(hive));
    let ended = CancellationToken::new();
    let _guard = ended.clone().drop_guard();
    let accept = connection::accept(listener, Arc::clone(&site), ended.clone());
    tokio::spawn(ended.clone().run_until_cancelled_owned(accept));
    tokio::spawn(ended.clone().run_until_cancelled_owned({
        let site = Arc::clone(&site);
        async move {
            let mut ticks = tokio::time::interval(SWEEP_INTERVAL);
            loop {
                ticks.tick().await;
                site.sweep();
            }
        }
    }));
    stop.await;
    site.drain().await;
    Ok(())
}

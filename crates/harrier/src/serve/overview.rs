//! What the pages, the metrics and the health checks show of this server.

use std::sync::Arc;
use std::time::SystemTime;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use async_trait::async_trait;
use futures::TryStreamExt;
use harrier_engine::{Engine, Outcome};
use harrier_server::backend::Failure;
use harrier_server::overview::{Overview, QueueFacts, RankFacts, RankState, ServerFacts, TableFacts};
use harrier_server::queues::Queues;

use super::gang::{State, Supervisor};
use super::operate::Controls;
use super::session::failure;

/// The tables of the warehouse, counted.
const TABLES: &str = "SELECT table_schema, table_name, rows, bytes, files FROM sys.tables ORDER BY 1, 2";

pub(super) struct Facts {
    pub(super) engine: Engine,
    pub(super) runtime: tokio::runtime::Handle,
    pub(super) gang: Option<Supervisor>,
    pub(super) queues: Queues,
    pub(super) since: SystemTime,
    pub(super) warehouse: String,
    pub(super) listen: Vec<String>,
    pub(super) controls: Arc<Controls>,
}

#[async_trait]
impl Overview for Facts {
    async fn server(&self) -> ServerFacts {
        ServerFacts {
            version: env!("CARGO_PKG_VERSION").to_string(),
            since: self.since,
            warehouse: self.warehouse.clone(),
            listen: self.listen.clone(),
            closed: self.controls.closed(),
            // Without a gang that is wanted, statements run in this process all the same.
            ranks_wanted: self.gang.as_ref().map_or(0, |gang| gang.plan().ranks),
        }
    }

    async fn ranks(&self) -> Vec<RankFacts> {
        let Some(gang) = &self.gang else {
            return vec![];
        };
        let view = gang.view();
        if view.state != State::Up {
            let reason = match view.state {
                State::Starting => Some("the gang is being started".to_string()),
                _ => view.reason.clone(),
            };
            return (0..gang.plan().ranks)
                .map(|number| RankFacts {
                    number,
                    host: String::new(),
                    process: None,
                    state: RankState::Down,
                    reason: reason.clone(),
                    sent_bytes: 0,
                    reserved_bytes: 0,
                    processor_seconds: 0.0,
                })
                .collect();
        }
        let rank = |(number, rank): (usize, &harrier_exec::front::RankStatus)| RankFacts {
            number,
            host: rank.host.clone(),
            process: Some(rank.pid),
            state: match (rank.is_down(), rank.works) {
                (true, _) => RankState::Down,
                (false, true) => RankState::Working,
                (false, false) => RankState::Spare,
            },
            reason: rank.reason(),
            sent_bytes: rank.bytes_sent,
            reserved_bytes: rank.reserved_bytes,
            processor_seconds: rank.process_cpu_ns as f64 / 1e9,
        };
        view.status.ranks.iter().enumerate().map(rank).collect()
    }

    async fn queues(&self) -> Vec<QueueFacts> {
        let (queues, _) = self.queues.snapshot();
        let facts = |queue: harrier_server::queues::QueueSnapshot| QueueFacts {
            name: queue.definition.name.clone(),
            limits: queue
                .definition
                .active_statements
                .map(|limit| ("active_statements".to_string(), limit.to_string()))
                .into_iter()
                .collect(),
            running: queue.running,
            waiting: queue.waiting,
        };
        queues.into_iter().map(facts).collect()
    }

    async fn tables(&self) -> Result<Vec<TableFacts>, Failure> {
        let session = self.engine.session();
        let work = async move {
            let statements = session.statements(TABLES)?;
            let mut tables = Vec::new();
            for statement in &statements {
                let Outcome::Rows { stream, .. } = session.execute(statement).await? else {
                    continue;
                };
                let batches: Vec<_> = stream.try_collect().await.map_err(harrier_engine::SqlError::from)?;
                for batch in &batches {
                    let text =
                        |at: usize, row: usize| batch.column(at).as_string::<i32>().value(row).to_string();
                    let number = |at: usize, row: usize| {
                        batch.column(at).as_primitive::<Int64Type>().value(row).max(0) as u64
                    };
                    tables.extend((0..batch.num_rows()).map(|row| TableFacts {
                        schema: text(0, row),
                        name: text(1, row),
                        rows: number(2, row),
                        bytes: number(3, row),
                        files: number(4, row),
                    }));
                }
            }
            Ok(tables)
        };
        match self.runtime.spawn(work).await {
            Ok(tables) => tables.map_err(failure),
            Err(error) => Err(Failure::new("XX000", error.to_string())),
        }
    }
}

//! What a statement took on all ranks: the difference between what they have counted after it and before it.
//!
//! Asking for it is part of it: a question to each rank before the statement, and one after it.

use crate::gang::Gang;
use crate::transport::messages::RankReport;
use crate::transport::stream_metrics::RankCounts;
use datafusion::common::Result;
use std::collections::BTreeMap;
use std::time::Duration;

/// What a plan took that was run to be explained.
#[derive(Debug, Clone, Default)]
pub struct Took {
    pub wall: Duration,
    /// Over all ranks, nanoseconds.
    pub processor_ns: u64,
    pub mpi_threads_ns: u64,
    pub ranks: usize,
    /// The rank that each place of a slice stands for.
    pub members: Vec<usize>,
    /// What the interconnect of each member has counted, by the member's rank; none where there is no
    /// interconnect.
    pub interconnect: Vec<(usize, RankCounts)>,
}

/// What the ranks had counted before a statement.
pub struct Before(BTreeMap<usize, RankReport>);

impl Before {
    /// Asks all members of the gang, if there is one.
    ///
    /// Errors: a rank is lost.
    pub async fn of(gang: Option<&Gang>) -> Result<Before> {
        reports(gang).await.map(Before)
    }

    /// What the statement that has ended took, and `wall` by the clock.
    ///
    /// Errors: a rank is lost.
    pub async fn took(self, gang: Option<&Gang>, wall: Duration) -> Result<Took> {
        let Before(before) = self;
        let after = reports(gang).await?;
        let total = |count: fn(&RankReport) -> u64| {
            let sum = |reports: &BTreeMap<usize, RankReport>| reports.values().map(count).sum::<u64>();
            sum(&after).saturating_sub(sum(&before))
        };
        let has_interconnect = gang.is_some_and(|gang| !gang.peers().is_empty());
        let since = |(rank, report): (&usize, &RankReport)| {
            let before = before.get(rank).map(|report| report.counts).unwrap_or_default();
            (*rank, report.counts.since(before))
        };
        Ok(Took {
            wall,
            processor_ns: total(|report| report.process_cpu_ns),
            mpi_threads_ns: total(|report| report.mpi_cpu_ns),
            ranks: gang.map_or(1, Gang::ranks),
            members: gang.map(Gang::members).unwrap_or_default(),
            interconnect: if has_interconnect { after.iter().map(since).collect() } else { vec![] },
        })
    }
}

async fn reports(gang: Option<&Gang>) -> Result<BTreeMap<usize, RankReport>> {
    match gang {
        Some(gang) => Ok(gang.reports_by_rank().await?.into_iter().collect()),
        None => Ok(BTreeMap::from([(0, RankReport::of_process())])),
    }
}

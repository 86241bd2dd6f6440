//! Resource usage of a statement on all ranks: the difference of their counters before and after it.
//!
//! Measuring costs two requests per rank: one before the statement, and one after it.

use crate::gang::Gang;
use crate::transport::messages::RankReport;
use crate::transport::stream_metrics::RankCounts;
use datafusion::common::Result;
use std::collections::BTreeMap;
use std::time::Duration;

/// Resource usage of a plan run by EXPLAIN ANALYZE.
#[derive(Debug, Clone, Default)]
pub struct ResourceUsage {
    pub wall: Duration,
    /// Sum over all ranks, nanoseconds.
    pub processor_ns: u64,
    pub mpi_threads_ns: u64,
    pub ranks: usize,
    /// The rank at each place of a slice.
    pub members: Vec<usize>,
    /// Interconnect counters of each member, by rank; empty without an interconnect.
    pub interconnect: Vec<(usize, RankCounts)>,
}

/// The counters of the ranks before a statement.
pub struct UsageBaseline(BTreeMap<usize, RankReport>);

impl UsageBaseline {
    /// Requests the counters of all members of the gang, if there is one.
    ///
    /// Errors: a rank is lost.
    pub async fn of(gang: Option<&Gang>) -> Result<UsageBaseline> {
        reports(gang).await.map(UsageBaseline)
    }

    /// The usage of the statement that has ended, with the elapsed time `wall`.
    ///
    /// Errors: a rank is lost.
    pub async fn usage(self, gang: Option<&Gang>, wall: Duration) -> Result<ResourceUsage> {
        let UsageBaseline(before) = self;
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
        Ok(ResourceUsage {
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

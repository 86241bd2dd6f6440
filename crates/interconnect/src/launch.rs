//! What this process was started as: the one place that tells a rank of MPI from a rank of QUIC, and both from a process alone.

use crate::error::StartError;
use crate::transport::udp::{Place, hosts};
use std::path::{Path, PathBuf};

/// What joins the ranks of a gang and carries their frames.
#[derive(Clone, Debug)]
pub enum Carrier {
    /// `library`: the MPI library to load; `None`: found out from the environment.
    Mpi { library: Option<PathBuf> },
    /// QUIC, between the hosts of a file.
    Udp(Place),
}

/// This process as one rank of a gang that it has not joined yet.
#[derive(Clone, Debug)]
pub struct Launch {
    pub rank: usize,
    /// From 1 on.
    pub ranks: usize,
    pub carrier: Carrier,
}

/// What this process was started as; `None`: alone. A hosts file, `hosts` or else `HARRIER_HOSTS`, goes before a launcher of MPI.
///
/// Errors: a hosts file that cannot be used, or a place in it that is not told.
pub fn launch(hosts: Option<&Path>) -> Result<Option<Launch>, StartError> {
    let named = std::env::var_os(hosts::HOSTS).filter(|path| !path.is_empty()).map(PathBuf::from);
    if let Some(path) = hosts.or(named.as_deref()) {
        let place = Place::from_environment(path)?;
        let (rank, ranks) = (place.rank, place.addresses.len());
        return Ok(Some(Launch { rank, ranks, carrier: Carrier::Udp(place) }));
    }
    let ranks = harrier_mpi::launched_ranks();
    Ok(ranks.map(|ranks| Launch {
        rank: harrier_mpi::launched_rank().unwrap_or(0),
        ranks,
        carrier: Carrier::Mpi { library: None },
    }))
}

/// The rank that this process was told to be, by whatever started it, for its log; nothing is checked.
pub fn launched_rank() -> Option<usize> {
    let told = std::env::var(hosts::RANK).ok().and_then(|rank| rank.trim().parse().ok());
    told.or_else(|| {
        harrier_mpi::launched_ranks().filter(|ranks| *ranks > 1).and_then(|_| harrier_mpi::launched_rank())
    })
}

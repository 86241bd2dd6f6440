//! Launch detection: the single place that distinguishes a rank of MPI, a rank of QUIC and a process alone.

use crate::configuration::ConfigurationFact;
use crate::error::{PlaceError, StartError};
use crate::transport::quic::{Place, hosts};
use harrier_mpi::LaunchedProcess;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Variable: 1 for a process that runs alone, whatever started it.
const ALONE: &str = "HARRIER_ALONE";

/// The transport that joins the ranks of a gang and carries their frames.
#[derive(Clone, Debug)]
pub enum Carrier {
    /// `library`: the MPI library to load; `None`: detected from the environment. `patience`: how long to
    /// wait for the other ranks.
    Mpi { library: Option<PathBuf>, patience: Duration },
    /// QUIC, between the hosts of a file.
    Quic(Place),
}

impl Carrier {
    /// MPI, configured by the environment.
    ///
    /// Errors: `HARRIER_START_SECONDS` is not a number.
    pub fn mpi() -> Result<Carrier, StartError> {
        Ok(Carrier::Mpi { library: None, patience: hosts::start_timeout()? })
    }
}

/// This process as one rank of a gang that it has not joined yet.
#[derive(Clone, Debug)]
pub struct Launch {
    /// 0 if the launcher does not state it.
    pub rank: usize,
    /// `None`: the launcher does not state it. It may be one; see [`crate::Interconnect::ranks`].
    pub ranks: Option<usize>,
    pub carrier: Carrier,
    /// Configuration facts, which must agree on all ranks.
    pub facts: Vec<ConfigurationFact>,
}

/// Detects how this process was launched; `None`: alone, because it is, or because `alone` or `HARRIER_ALONE`
/// is set. A hosts file, `hosts` or else `HARRIER_HOSTS`, has precedence over an MPI launcher.
///
/// Errors: an invalid hosts file, or no rank in it for this process; variables of a launcher that belong to
/// another process.
pub fn launch(hosts: Option<&Path>, alone: bool) -> Result<Option<Launch>, StartError> {
    if alone || (hosts.is_none() && is_alone()?) {
        return Ok(None);
    }
    let named = std::env::var_os(hosts::HOSTS).filter(|path| !path.is_empty()).map(PathBuf::from);
    if let Some(path) = hosts.or(named.as_deref()) {
        let place = Place::from_environment(path)?;
        let (rank, ranks) = (place.rank, Some(place.addresses.len()));
        return Ok(Some(Launch { rank, ranks, carrier: Carrier::Quic(place), facts: Vec::new() }));
    }
    let Some(LaunchedProcess { rank, ranks, .. }) = harrier_mpi::detect_launcher()? else { return Ok(None) };
    Ok(Some(Launch { rank: rank.unwrap_or(0), ranks, carrier: Carrier::mpi()?, facts: Vec::new() }))
}

/// Errors: the variable is neither 0 nor 1.
fn is_alone() -> Result<bool, PlaceError> {
    match std::env::var(ALONE).unwrap_or_default().trim() {
        "" | "0" => Ok(false),
        "1" => Ok(true),
        value => {
            Err(PlaceError::Variable { variable: ALONE, value: value.to_string(), wanted: "1, 0 or nothing" })
        }
    }
}

/// The rank that this process was assigned by its launcher, for its log; nothing is checked.
pub fn launched_rank() -> Option<usize> {
    if is_alone().unwrap_or(false) {
        return None;
    }
    let rank = std::env::var(hosts::RANK).ok().and_then(|rank| rank.trim().parse().ok());
    rank.or_else(|| harrier_mpi::detect_launcher().ok().flatten()?.rank)
}

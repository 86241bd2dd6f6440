//! What this process was started as: the one place that tells a rank of MPI from a rank of QUIC, and both
//! from a process alone.

use crate::error::{PlaceError, StartError};
use crate::introduction::Told;
use crate::transport::quic::{Place, hosts};
use harrier_mpi::LaunchedProcess;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Variable: 1 for a process that is alone, whatever started it.
const ALONE: &str = "HARRIER_ALONE";

/// What joins the ranks of a gang and carries their frames.
#[derive(Clone, Debug)]
pub enum Carrier {
    /// `library`: the MPI library to load; `None`: found out from the environment. `patience`: how long the
    /// others may take to come.
    Mpi { library: Option<PathBuf>, patience: Duration },
    /// QUIC, between the hosts of a file.
    Quic(Place),
}

impl Carrier {
    /// MPI, as the environment says.
    ///
    /// Errors: `HARRIER_START_SECONDS` is no number.
    pub fn mpi() -> Result<Carrier, StartError> {
        Ok(Carrier::Mpi { library: None, patience: hosts::patience()? })
    }
}

/// This process as one rank of a gang that it has not joined yet.
#[derive(Clone, Debug)]
pub struct Launch {
    /// 0 where the launcher does not tell.
    pub rank: usize,
    /// `None`: the launcher does not tell. They may turn out to be one; see [`crate::Interconnect::ranks`].
    pub ranks: Option<usize>,
    pub carrier: Carrier,
    /// What it was told to do, which has to be the same on all ranks.
    pub told: Vec<Told>,
}

/// What this process was started as; `None`: alone, because it is, or `alone` or `HARRIER_ALONE` says so. A
/// hosts file, `hosts` or else `HARRIER_HOSTS`, goes before a launcher of MPI.
///
/// Errors: a hosts file that cannot be used, or a place in it that is not told; variables of a launcher that
/// are another process's.
pub fn launch(hosts: Option<&Path>, alone: bool) -> Result<Option<Launch>, StartError> {
    if alone || (hosts.is_none() && is_alone()?) {
        return Ok(None);
    }
    let named = std::env::var_os(hosts::HOSTS).filter(|path| !path.is_empty()).map(PathBuf::from);
    if let Some(path) = hosts.or(named.as_deref()) {
        let place = Place::from_environment(path)?;
        let (rank, ranks) = (place.rank, Some(place.addresses.len()));
        return Ok(Some(Launch { rank, ranks, carrier: Carrier::Quic(place), told: Vec::new() }));
    }
    let Some(LaunchedProcess { rank, ranks, .. }) = harrier_mpi::detect_launcher()? else { return Ok(None) };
    Ok(Some(Launch { rank: rank.unwrap_or(0), ranks, carrier: Carrier::mpi()?, told: Vec::new() }))
}

/// Errors: the variable is neither.
fn is_alone() -> Result<bool, PlaceError> {
    match std::env::var(ALONE).unwrap_or_default().trim() {
        "" | "0" => Ok(false),
        "1" => Ok(true),
        value => {
            Err(PlaceError::Variable { variable: ALONE, value: value.to_string(), wanted: "1, 0 or nothing" })
        }
    }
}

/// The rank that this process was told to be, by whatever started it, for its log; nothing is checked.
pub fn launched_rank() -> Option<usize> {
    if is_alone().unwrap_or(false) {
        return None;
    }
    let told = std::env::var(hosts::RANK).ok().and_then(|rank| rank.trim().parse().ok());
    told.or_else(|| harrier_mpi::detect_launcher().ok().flatten()?.rank)
}

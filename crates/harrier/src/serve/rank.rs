//! `harrier rank`: one rank of the gang that a front end supervises. Rank 0 runs the plan service; the
//! others work for it.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use harrier_engine::{Engine, EngineOptions};
use harrier_exec::frontend::server::PlanService;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::segments::Segments;
use crate::freed_memory;
use crate::gang;
use crate::option_values::memory_size;
use crate::sql::on_ranks;
use harrier_error::exit;

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Where rank 0 takes plans: the path of a local socket
    #[arg(long, value_name = "PATH")]
    desk: PathBuf,
    /// Threads a statement may keep busy on this rank
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: u16,
    /// Memory statements may hold on this rank before they spill to disk
    #[arg(long, value_name = "SIZE", value_parser = memory_size)]
    memory: Option<u64>,
    /// Folders for temporary files
    #[arg(long = "spill-dir", value_name = "DIR")]
    spill_dirs: Vec<PathBuf>,
    /// The folder of this gang for memory that MPI shares
    #[arg(long, value_name = "DIR")]
    segments: Option<PathBuf>,
    /// Ranks that do nothing until others are lost
    #[arg(long, value_name = "N", default_value_t = 0)]
    spares: u16,
}

pub(crate) fn run(args: Args) -> ExitCode {
    // Entered before MPI uses it, and held until this process ends.
    let segments = args.segments.as_deref().map(Segments::enter).transpose();
    let _segments = match segments {
        Ok(segments) => segments,
        Err(error) => {
            eprintln!("ERROR 58030: cannot make a folder for shared memory: {error}");
            return ExitCode::from(exit::BROKEN);
        }
    };
    let launch = match gang::launch(None, false) {
        Ok(launch) => launch,
        Err(status) => return status,
    };
    let threads = usize::from(args.threads);
    let options = |gang| {
        let mut options = EngineOptions::default();
        options.threads = threads;
        options.memory_bytes = args.memory.or(options.memory_bytes);
        freed_memory::limit_purge_delay(options.memory_bytes);
        options.spill_dirs = args.spill_dirs.clone();
        options.gang = gang;
        options
    };
    on_ranks(launch, args.spares.into(), options, async |engine| serve(engine, &args.desk, threads).await)
}

async fn serve(engine: Engine, path: &std::path::Path, threads: usize) -> u8 {
    let Some(service) = engine.plan_service(threads) else {
        eprintln!("ERROR 22023: harrier rank is for launchers: it is one rank of a gang of two or more");
        return exit::USAGE;
    };
    let served = match open(service, path.to_path_buf()) {
        Ok(served) => served,
        Err(error) => {
            eprintln!("ERROR 58030: cannot take plans at \"{}\": {error}", path.display());
            return exit::FAILED;
        }
    };
    let _ = served.await;
    let _ = std::fs::remove_file(path);
    exit::DONE
}

/// Starts the plan service on a separate thread, so that the front end gets status updates while statements
/// compute.
/// The receiver completes when the service has ended.
fn open(service: PlanService, path: PathBuf) -> io::Result<oneshot::Receiver<()>> {
    let work = Handle::current();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = {
        let _inside = runtime.enter();
        harrier_exec::transport::local_socket::bind(&path)
    };
    let listener = match listener {
        Ok(listener) => listener,
        Err(error) => {
            // A runtime cannot be dropped with waiting inside another runtime.
            runtime.shutdown_background();
            return Err(error);
        }
    };
    let (closed, served) = oneshot::channel();
    std::thread::Builder::new().name("harrier-desk".to_string()).spawn(move || {
        runtime.block_on(service.serve(listener, work));
        let _ = closed.send(());
    })?;
    Ok(served)
}

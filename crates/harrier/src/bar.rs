//! Progress bar of a long statement, on standard error if that is a terminal.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use harrier_engine::{PlanProgress, memory_size};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Shorter statements show no bar.
const DELAY: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_millis(100);

/// Resolution of the bar: only the fraction of work done is known.
const LENGTH: u64 = 1000;

/// Progress bar of one statement. It is drawn only while [`Bar::during`] waits, so it never mixes with rows.
pub(crate) struct Bar {
    /// `None` if there is no progress to show or no terminal.
    progress: Option<PlanProgress>,
    since: Instant,
    /// Whether rows go to the same terminal; the bar is then cleared before each batch.
    shares_terminal: bool,
    drawn: Option<ProgressBar>,
}

impl Bar {
    pub(crate) fn new(progress: &PlanProgress, is_wanted: bool) -> Self {
        let is_shown = is_wanted && progress.is_known() && io::stderr().is_terminal();
        Self {
            progress: is_shown.then(|| progress.clone()),
            since: Instant::now(),
            shares_terminal: io::stdout().is_terminal(),
            drawn: None,
        }
    }

    /// Draws the bar, once the statement is old enough, until `future` is ready.
    pub(crate) async fn during<T>(&mut self, future: impl Future<Output = T>) -> T {
        let Some(progress) = self.progress.clone() else {
            return future.await;
        };
        tokio::pin!(future);
        loop {
            let wait = DELAY.saturating_sub(self.since.elapsed()).max(INTERVAL);
            tokio::select! {
                biased;
                output = &mut future => {
                    if self.shares_terminal {
                        self.clear();
                    }
                    return output;
                }
                () = tokio::time::sleep(wait) => {}
            }
            if self.since.elapsed() >= DELAY {
                self.draw(&progress);
            }
        }
    }

    fn draw(&mut self, progress: &PlanProgress) {
        let bar = self.drawn.get_or_insert_with(|| {
            let bar = ProgressBar::with_draw_target(Some(LENGTH), ProgressDrawTarget::stderr())
                .with_elapsed(self.since.elapsed());
            if let Ok(style) = ProgressStyle::with_template("{elapsed} [{bar:30}] {percent:>3}% {msg}") {
                bar.set_style(style.progress_chars("=> "));
            }
            bar
        });
        let reading = progress.read();
        bar.set_position((reading.fraction * LENGTH as f64) as u64);
        bar.set_message(format!(
            "{} rows, {} of at most {} read",
            reading.rows,
            memory_size::format_bytes(reading.bytes_read),
            memory_size::format_bytes(reading.bytes_total),
        ));
    }

    fn clear(&mut self) {
        if let Some(bar) = self.drawn.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.clear();
    }
}

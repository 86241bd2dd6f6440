//! The text of `EXPLAIN` and `EXPLAIN ANALYZE`: the logical plan, the tree of slices and motions, the
//! operators of each slice. After a run also the metrics of each operator and motion, where the time of the
//! whole query went, and the interconnect counters of each rank.
//!
//! Source of the time breakdown: Impala's characterisation of queries into I/O, communication, computation.
//! Here I/O is the time scans spent opening, reading and decoding files (DataFusion measures the three
//! together); communication is gathering batches into blocks, reading them back, and the MPI threads'
//! processor time; computation is the time of all other operators. Times are summed over ranks and threads,
//! so they can exceed the wall-clock time.

use datafusion::logical_expr::LogicalPlan;
use harrier_exec::monitor::resource_usage::ResourceUsage;
use harrier_exec::monitor::slice_tree::{Bucket, Motion, MotionKind, OperatorNode, SliceNode};
use harrier_exec::transport::stream_metrics::{RankCounts, StreamMeasured};

/// The lines of `EXPLAIN`.
pub(crate) fn explain(logical: &LogicalPlan, slices: &[SliceNode], verbose: bool) -> Vec<String> {
    let mut lines = crate::runtime::explain_text::logical(logical);
    lines.extend(physical(slices, verbose));
    lines
}

/// The logical plan's part of these lines.
pub(crate) fn logical(logical: &LogicalPlan) -> Vec<String> {
    let mut lines = vec!["Logical plan".to_string()];
    lines.extend(logical.display_indent().to_string().lines().map(|line| format!("  {line}")));
    lines.push(String::new());
    lines
}

fn physical(slices: &[SliceNode], verbose: bool) -> Vec<String> {
    let mut lines = tree(slices);
    lines.push(String::new());
    lines.push("Physical plan".to_string());
    lines.extend(operators(slices, None, verbose));
    lines
}

/// The lines for a front end's plan that only ranks know: the plan, or its metrics after a run (`usage`).
pub(crate) fn rank_lines(slices: &[SliceNode], usage: Option<&ResourceUsage>, verbose: bool) -> Vec<String> {
    match usage {
        Some(usage) => analyze(slices, usage, verbose),
        None => physical(slices, verbose),
    }
}

/// The lines of `EXPLAIN ANALYZE`.
pub(crate) fn analyze(slices: &[SliceNode], totals: &ResourceUsage, verbose: bool) -> Vec<String> {
    let mut lines = tree(slices);
    lines.push(String::new());
    lines.push("Physical plan".to_string());
    lines.extend(operators(slices, Some(&totals.members), verbose));
    lines.push(String::new());
    lines.extend(summary(slices, totals));
    lines.extend(interconnect(&totals.interconnect));
    lines
}

fn tree(slices: &[SliceNode]) -> Vec<String> {
    let mut lines = vec!["Slices and motions".to_string(), format!("  {}", headline(&slices[0]))];
    branches(slices, &slices[0], "  ", &mut lines);
    lines
}

fn branches(slices: &[SliceNode], slice: &SliceNode, indent: &str, lines: &mut Vec<String>) {
    let motions: Vec<&Motion> =
        slice.operators.iter().filter_map(|operator| operator.motion.as_ref()).collect();
    for (at, motion) in motions.iter().enumerate() {
        let last = at + 1 == motions.len();
        let feeder = slices.iter().find(|slice| slice.number == motion.slice);
        let from = feeder.map(headline).unwrap_or_default();
        lines.push(format!("{indent}{} {} ◄ {from}", if last { "└─" } else { "├─" }, name(motion)));
        if let Some(feeder) = feeder {
            let indent = format!("{indent}{}  ", if last { " " } else { "│" });
            branches(slices, feeder, &indent, lines);
        }
    }
}

/// `slice 3 on 2 ranks`, with the bucket that pruned it to one rank, and the files it reads.
fn headline(slice: &SliceNode) -> String {
    let place = match (slice.number, slice.ranks, &slice.dispatch) {
        (0, ..) => "on the coordinator".to_string(),
        (_, _, Some((_, owner))) => format!("on rank {} alone", owner.rank),
        (_, 1, None) => "on 1 rank".to_string(),
        (_, ranks, None) => format!("on {ranks} ranks"),
    };
    let bucket = match &slice.dispatch {
        Some((Bucket { number, count }, _)) => format!(", which has bucket {number} of {count}"),
        None => String::new(),
    };
    let scans: Vec<&str> = slice
        .operators
        .iter()
        .filter_map(|operator| operator.scan.as_ref())
        .map(|scan| scan.name.as_str())
        .collect();
    let reads = if scans.is_empty() { String::new() } else { format!(", reads {}", scans.join(", ")) };
    format!("slice {} {place}{bucket}{reads}", slice.number)
}

/// `gather 2→1`, `redistribute 2→2 by k@0`, `broadcast 1→2`.
fn name(motion: &Motion) -> String {
    let Motion { kind, from, to, .. } = motion;
    match kind {
        MotionKind::Gather => format!("gather {from}→{to}"),
        MotionKind::Redistribute(keys) => format!("redistribute {from}→{to} by {keys}"),
        MotionKind::Broadcast => format!("broadcast {from}→{to}"),
    }
}

/// `analyzed`: for a plan that ran, the rank at each place of a slice.
fn operators(slices: &[SliceNode], analyzed: Option<&[usize]>, verbose: bool) -> Vec<String> {
    let mut lines = Vec::new();
    for slice in slices {
        lines.push(format!("  {}", headline(slice)));
        for operator in &slice.operators {
            let text = match &operator.motion {
                Some(motion) => format!("◄ {} from slice {}", name(motion), motion.slice),
                None if verbose => operator.full_text.clone(),
                None => operator.text.clone(),
            };
            let metrics = match analyzed {
                Some(_) => metrics_text(operator, verbose),
                None => {
                    operator.expected_rows.map(|rows| format!(" (expected rows {rows})")).unwrap_or_default()
                }
            };
            let indent = 4 + 2 * operator.depth;
            lines.push(format!("{:indent$}{text}{metrics}", ""));
            if let (Some(motion), Some(members)) = (&operator.motion, analyzed) {
                let streams = motion_streams(operator, motion, slice, members, verbose);
                lines.extend(streams.into_iter().map(|line| format!("{:indent$}  {line}", "")));
            }
        }
    }
    lines
}

/// ` (rows 12, time 3.4 ms, …)`.
fn metrics_text(operator: &OperatorNode, verbose: bool) -> String {
    let metrics = &operator.measured;
    if metrics.is_empty() {
        return String::new();
    }
    let mut parts = Vec::new();
    if let Some(rows) = metrics.total("output_rows") {
        let each = metrics.by_rank("output_rows");
        let spread = match (each.iter().min(), each.iter().max()) {
            (Some(least), Some(most)) if each.len() > 1 && least != most => {
                format!(", {least}…{most} a rank")
            }
            _ => String::new(),
        };
        let expected = operator.expected_rows.map(|rows| format!(" of {rows} expected")).unwrap_or_default();
        parts.push(format!("rows {rows}{expected}{spread}"));
    }
    let bytes_name = if operator.motion.is_some() { "bytes_transferred" } else { "output_bytes" };
    let bytes = metrics.total(bytes_name);
    if operator.motion.is_some() {
        let blocks = metrics.total("msg_count").unwrap_or(0);
        parts.push(format!("moved {} in {blocks} blocks", human_bytes(bytes.unwrap_or(0))));
        for (metric, label) in [("encode_time", "encode"), ("decode_time", "decode")] {
            if let Some(ns) = metrics.total(metric) {
                parts.push(format!("{label} {}", human_ns(ns)));
            }
        }
    } else {
        parts.extend(bytes.map(human_bytes));
        parts.extend(busy_ns(operator).map(|ns| format!("time {}", human_ns(ns))));
    }
    if operator.scan.is_some() {
        parts.extend(metrics.total("bytes_scanned").map(|bytes| format!("read {}", human_bytes(bytes))));
    }
    if let Some(spills) = metrics.total("spill_count").filter(|spills| *spills > 0) {
        let bytes = metrics.total("spilled_bytes").unwrap_or(0);
        parts.push(format!("spilled {} in {spills} files", human_bytes(bytes)));
    }
    if verbose {
        for name in metrics.names() {
            parts.push(format!("{name}={}", metrics.total(name).unwrap_or(0)));
        }
    }
    if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
}

/// Network traffic of a motion: total, minimum and maximum over all its streams; with `verbose` also each
/// stream. Empty if no stream was needed.
fn motion_streams(
    operator: &OperatorNode,
    motion: &Motion,
    slice: &SliceNode,
    members: &[usize],
    verbose: bool,
) -> Vec<String> {
    let streams: Vec<_> = operator.measured.streams().collect();
    if streams.is_empty() {
        return vec![];
    }
    let over = |pick: fn(&StreamMeasured) -> u64, human: fn(u64) -> String| {
        let each = || streams.iter().map(|(_, _, stream)| pick(stream));
        let (least, most) = (each().min().unwrap_or(0), each().max().unwrap_or(0));
        format!("{} ({}…{})", human(each().sum()), human(least), human(most))
    };
    let count = |count: u64| count.to_string();
    let plural = if streams.len() == 1 { "" } else { "s" };
    let mut lines = vec![format!(
        "{} stream{plural}: bytes {}, blocks {}, credit waits {}, credit wait {}, encode {}, queue {}, decode {}",
        streams.len(),
        over(|stream| stream.bytes, human_bytes),
        over(|stream| stream.blocks, count),
        over(|stream| stream.credit_waits, count),
        over(|stream| stream.credit_wait_ns, human_ns),
        over(|stream| stream.encode_ns, human_ns),
        over(|stream| stream.queue_ns, human_ns),
        over(|stream| stream.decode_ns, human_ns),
    )];
    for (place, from, stream) in streams.iter().filter(|_| verbose) {
        let to = members.get(*place).unwrap_or(place);
        lines.push(format!(
            "slice[{}->{}] rank {from}->{to}: bytes {}, blocks {}, credit waits {}, credit wait {}, encode {}, queue {}, \
             decode {}",
            motion.slice,
            slice.number,
            human_bytes(stream.bytes),
            stream.blocks,
            stream.credit_waits,
            human_ns(stream.credit_wait_ns),
            human_ns(stream.encode_ns),
            human_ns(stream.queue_ns),
            human_ns(stream.decode_ns),
        ));
    }
    lines
}

/// Summed over all ranks.
fn busy_ns(operator: &OperatorNode) -> Option<u64> {
    let each = operator.busy_ns();
    (!each.is_empty()).then(|| each.iter().map(|(_, ns)| ns).sum())
}

fn summary(slices: &[SliceNode], totals: &ResourceUsage) -> Vec<String> {
    let all = || slices.iter().flat_map(|slice| &slice.operators);
    let sum = |operators: &mut dyn Iterator<Item = &OperatorNode>, metric: &str| -> u64 {
        operators.filter_map(|operator| operator.measured.total(metric)).sum()
    };
    let io = all().filter(|operator| operator.scan.is_some()).filter_map(busy_ns).sum::<u64>();
    let read = sum(&mut all().filter(|operator| operator.scan.is_some()), "bytes_scanned");
    let motions = || all().filter(|operator| operator.motion.is_some());
    let encode = sum(&mut motions(), "encode_time");
    let decode = sum(&mut motions(), "decode_time");
    let moved = sum(&mut motions(), "bytes_transferred");
    let blocks = sum(&mut motions(), "msg_count");
    let communication = encode + decode + totals.mpi_threads_ns;
    let computation = sum(
        &mut all().filter(|operator| operator.motion.is_none() && operator.scan.is_none()),
        "elapsed_compute",
    );
    let whole = (io + communication + computation).max(1);
    let line = |label: &str, ns: u64, what: String| {
        format!("  {label:<14}{:>12}  {:>5.1} %  {what}", human_ns(ns), 100.0 * ns as f64 / whole as f64)
    };
    let ranks = if totals.ranks == 1 { "1 rank".to_string() } else { format!("{} ranks", totals.ranks) };
    vec![
        "Whole query".to_string(),
        format!(
            "  wall clock {}, processor time {} on {ranks}",
            human_ns(totals.wall.as_nanos() as u64),
            human_ns(totals.processor_ns)
        ),
        line("I/O", io, format!("files opened, read and decoded: {}", human_bytes(read))),
        line(
            "communication",
            communication,
            format!(
                "encode {}, decode {}, MPI threads {}: {} in {blocks} blocks between ranks",
                human_ns(encode),
                human_ns(decode),
                human_ns(totals.mpi_threads_ns),
                human_bytes(moved)
            ),
        ),
        line("computation", computation, "all other operators".to_string()),
    ]
}

/// The same counters as in `sys.interconnect`. Empty without an interconnect.
fn interconnect(ranks: &[(usize, RankCounts)]) -> Vec<String> {
    if ranks.is_empty() {
        return vec![];
    }
    let line = |(rank, counts): &(usize, RankCounts)| {
        format!(
            "  rank {rank}: sent {} in {} blocks, {} through shared memory, credit waits {}, credit wait {}, encode {}, queue {}, \
             sleeps {}, doorbells {}, driver {}, epoch {}",
            human_bytes(counts.bytes_sent),
            counts.blocks_sent,
            counts.blocks_lent,
            counts.credit_waits,
            human_ns(counts.credit_wait_ns),
            human_ns(counts.encode_ns),
            human_ns(counts.queue_ns),
            counts.sleeps,
            counts.doorbells,
            human_ns(counts.driver_cpu_ns),
            counts.epoch,
        )
    };
    let head = [String::new(), "Interconnect".to_string()];
    head.into_iter().chain(ranks.iter().map(line)).collect()
}

/// `1.2 MiB`.
pub(crate) fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// `1.2 ms`.
fn human_ns(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_has_a_line() {
        assert!(interconnect(&[]).is_empty());
        let counts = RankCounts {
            bytes_sent: 2048,
            blocks_sent: 7,
            blocks_lent: 2,
            credit_waits: 1,
            credit_wait_ns: 1_500,
            encode_ns: 10,
            queue_ns: 20,
            sleeps: 12,
            doorbells: 9,
            driver_cpu_ns: 3_000_000,
            epoch: 2,
        };
        let expected = "  rank 3: sent 2.0 KiB in 7 blocks, 2 through shared memory, credit waits 1, credit wait 1.5 µs, encode 10 ns, \
                        queue 20 ns, sleeps 12, doorbells 9, driver 3.0 ms, epoch 2";
        assert_eq!(interconnect(&[(3, counts)]), ["", "Interconnect", expected]);
    }

    #[test]
    fn quantities_are_readable() {
        let bytes: &[(u64, &str)] = &[(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1 << 40, "1.0 TiB")];
        for (value, expected) in bytes {
            assert_eq!(human_bytes(*value), *expected);
        }
        let times: &[(u64, &str)] =
            &[(999, "999 ns"), (1_500, "1.5 µs"), (2_000_000, "2.0 ms"), (3_000_000_000, "3.00 s")];
        for (value, expected) in times {
            assert_eq!(human_ns(*value), *expected);
        }
    }
}

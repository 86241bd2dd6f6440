//! Bounds and tuning constants of the interconnect, with units, reasons and relations.

/// Alignment in bytes of every Arrow buffer inside a block: a cache line, and enough for the widest Arrow
/// type.
pub const BUFFER_ALIGNMENT_BYTES: usize = 64;

/// Size in bytes of a frame's header. One alignment unit, so that the payload behind it is aligned too.
pub const HEADER_BYTES: usize = 64;

/// Target payload size of a data block, bytes. Batches larger than [`BLOCK_BYTES_MAX`] are split into blocks
/// of about this size. 256 KiB fits the second-level cache of one core beside its working set, and is far
/// enough above MPI's eager limit that the cost of a message is its bytes.
pub const BLOCK_BYTES_TARGET: usize = 256 * 1024;

/// Payload size in bytes up to which a batch is sent as one block. DataFusion's default batch of 8192 rows
/// with a dozen columns is below it: splitting those would only slow down the operators above the motion.
pub const BLOCK_BYTES_MAX: usize = 1024 * 1024;

/// Hard maximum of a block's payload, bytes: MPI counts bytes in a C `int`. Only a single row can be that
/// large.
pub const BLOCK_BYTES_HARD_MAX: usize = i32::MAX as usize - 4096;

/// Payload size in bytes from which a block goes to a rank of the same host through shared memory. A smaller
/// one is as fast as a message: MPI copies it eagerly, and the loan would need a message as well.
pub const SHARED_BYTES_MIN: usize = 8 * 1024;

/// Address space of a rank's shared memory, bytes. Pages are used only as blocks are written; blocks that do
/// not fit go through MPI.
pub const SHARED_ADDRESSES: usize = 64 * 1024 * 1024 * 1024;

/// Bytes of shared memory read and not returned, above which the driver is woken to return them; below that
/// they are returned at its next turn. Half of what stays warm in the owner's cache.
pub const RETURN_BYTES_MAX: usize = 512 * 1024;

/// Maximum window of a stream when few streams share a motion: bytes of its blocks in flight or unread,
/// [`block_cost`] each; the last block may exceed it. One and a half of the largest blocks, so that there are
/// always two; with more of them the blocks of all streams do not stay in the caches of their cores: 4 MiB
/// cost 5 times the processor time of 1 or 2 MiB where 4 ranks send 1 MiB to each other
/// (`docs/decisions/0017-windows-in-bytes.md`).
pub const WINDOW_BYTES_MAX: u64 = 3 * BLOCK_BYTES_MAX as u64 / 2;

/// Minimum window of a stream, bytes: one block at a time, whatever its size. That suffices for progress:
/// streams share no window, so none can starve.
pub const WINDOW_BYTES_MIN: u64 = 1;

/// Per-block overhead in its stream's window, bytes: frame header and queue entries on both sides, so that
/// empty blocks are bounded, too.
pub const BLOCK_OVERHEAD_BYTES: u64 = 512;

/// Unsignalled bytes in frames up to which a stream's sender does not wake the driver: many small blocks are
/// moved in one turn, and in one message. It wakes the driver sooner when it waits or ends.
pub const UNSIGNALLED_BYTES_MAX: usize = 64 * 1024;

/// Payload size in bytes from which a block may be compressed, up to [`BLOCK_BYTES_MAX`]: a smaller one is
/// bundled with others.
pub const COMPRESSED_BYTES_MIN: usize = 1024;

/// Size in bytes up to which a frame is bundled with others: one more copy is cheaper than a message.
pub const BUNDLED_FRAME_BYTES_MAX: usize = 8 * 1024 + HEADER_BYTES;

/// Maximum size of a bundle, bytes.
pub const BUNDLE_BYTES_MAX: usize = 32 * 1024;

/// Maximum payload bytes cached by a partition of a broadcast for streams that lag: the windows of two
/// streams. A stream that lags further has its rows encoded again, at the cost of a stream without broadcast.
pub const BROADCAST_BYTES_MAX: usize = 2 * WINDOW_BYTES_MAX as usize;

/// Maximum number of streams in one `Open`: the output partitions that a rank reads from another one in one
/// motion. More than any machine has threads; a corrupt frame cannot exhaust the memory.
pub const STREAMS_PER_OPEN_MAX: usize = 1 << 16;

/// Bytes that the unread blocks of one opened motion (all its streams from one sending rank) may hold on the
/// receiving side, plus one block per stream.
pub const MOTION_WINDOW_BYTES: usize = 32 * 1024 * 1024;

/// Maximum bytes of pending messages of one call, [`block_cost`] each, before one more evicts its sender from
/// the gang; the last one may exceed it, up to the size of what a program gathers from its ranks. This is the
/// only queue that no credit bounds: after its request a statement or a job sends a few control messages, and
/// the callee reads as long as the call lasts. So the limit is far above any real use.
pub const MESSAGES_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Initial sleep of the driver in nanoseconds while requests are in flight that only its own calls can
/// progress.
pub const IN_FLIGHT_SLEEP_NS_MIN: u64 = 20_000;

/// Maximum sleep of the driver in nanoseconds while requests are in flight. Peers on the same host ring when
/// they have made progress, so this only bounds the harm of a lost ring and paces MPI libraries that copy in
/// fragments.
pub const IN_FLIGHT_SLEEP_NS_MAX: u64 = 1_000_000;

/// Maximum sleep in nanoseconds while streams are open to a rank on another host, which cannot ring.
pub const REMOTE_BUSY_SLEEP_NS_MAX: u64 = 200_000;

/// Maximum sleep in nanoseconds while nothing is open and some rank is on another host: 200 wake-ups a second
/// cost about 0.3 % of a core and add at most this much to the first frame of a statement.
pub const REMOTE_IDLE_SLEEP_NS_MAX: u64 = 5_000_000;

/// Scheduler slice of the driver, nanoseconds: one turn. The operators' threads keep every core busy, and
/// frames that wait for the end of their slices (1 to 4 ms) block the operators of other ranks.
pub const DRIVER_SLICE_NS: u64 = 200_000;

/// Maximum busy polling of an idle driver in nanoseconds, while small messages arrive in close succession. It
/// is the round trip when all threads on the way have to be woken: with less, polling would never catch a
/// message and so never start.
pub const BUSY_POLL_NS_MAX: u64 = 100_000;

/// Cap of an idle time in the moving average of message gaps, nanoseconds: a pause between two statements is
/// forgotten after a few messages.
pub const GAP_NS_MAX: u64 = 4 * BUSY_POLL_NS_MAX;

/// The newest gap has the weight one divided by this.
pub const GAP_WEIGHT: u64 = 8;

/// Bytes moved between two idle times above which they were blocks of rows and not small messages.
pub const SMALL_MESSAGE_BYTES_MAX: u64 = 4 * 1024;

/// Maximum duration of a poll and a yield in nanoseconds without contention; they usually take one or two
/// thousand.
pub const YIELD_NS_MAX: u64 = 50_000;

/// Minimum and maximum suspension of busy polling after contention, nanoseconds: the run time of a short task
/// of a statement, and some slices of threads that compute.
pub const SUSPENSION_NS_MIN: u64 = 500_000;
pub const SUSPENSION_NS_MAX: u64 = 32_000_000;

/// Heartbeat interval for ranks that this rank waits for, nanoseconds.
pub const HEARTBEAT_NS: u64 = 1_000_000_000;

/// Silence in nanoseconds after which a rank that this rank waits for is declared lost. The driver of a live
/// rank answers a heartbeat in microseconds even when its cores are busy; five missed ones mean it is stopped
/// or cut off.
pub const SILENCE_NS_MAX: u64 = 5 * HEARTBEAT_NS;

/// Extra heartbeats that a rank waits for one with a lower number. If two are cut off from each other, the
/// one with the lower number declares the other lost first, and stays: otherwise each might evict the other,
/// and with the coordinator the gang.
pub const HEARTBEATS_FOR_LOWER: u64 = 2;

const _: () = {
    assert!(HEADER_BYTES.is_multiple_of(BUFFER_ALIGNMENT_BYTES));
    assert!(BLOCK_BYTES_TARGET <= BLOCK_BYTES_MAX);
    assert!(BLOCK_BYTES_MAX < BLOCK_BYTES_HARD_MAX);
    assert!(BLOCK_BYTES_HARD_MAX + HEADER_BYTES < i32::MAX as usize);
    assert!(WINDOW_BYTES_MIN >= 1 && WINDOW_BYTES_MIN <= WINDOW_BYTES_MAX);
    assert!(MOTION_WINDOW_BYTES as u64 >= WINDOW_BYTES_MAX);
    assert!(WINDOW_BYTES_MAX > BLOCK_BYTES_MAX as u64 + BLOCK_OVERHEAD_BYTES);
    assert!(SHARED_BYTES_MIN + HEADER_BYTES <= BUNDLED_FRAME_BYTES_MAX);
    assert!(HEADER_BYTES + 2 * BUNDLED_FRAME_BYTES_MAX <= BUNDLE_BYTES_MAX);
    assert!(IN_FLIGHT_SLEEP_NS_MIN < IN_FLIGHT_SLEEP_NS_MAX);
    assert!(YIELD_NS_MAX < BUSY_POLL_NS_MAX && BUSY_POLL_NS_MAX < GAP_NS_MAX);
    assert!(GAP_NS_MAX < SUSPENSION_NS_MIN && SUSPENSION_NS_MIN < SUSPENSION_NS_MAX);
    assert!(GAP_WEIGHT > 1);
    assert!(SILENCE_NS_MAX > 2 * HEARTBEAT_NS);
};

/// The window of each of `streams` streams opened together, bytes: an equal share of `window_bytes` within
/// the bounds.
pub fn window_for(streams: usize, window_bytes: usize) -> u64 {
    let share = window_bytes / streams.max(1);
    (share as u64).clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX)
}

/// The cost of a block of `payload_bytes` in its stream's window, bytes.
pub fn block_cost(payload_bytes: usize) -> u64 {
    payload_bytes as u64 + BLOCK_OVERHEAD_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_share_the_window_and_keep_their_bounds() {
        assert_eq!(window_for(1, MOTION_WINDOW_BYTES), WINDOW_BYTES_MAX);
        assert_eq!(window_for(32, MOTION_WINDOW_BYTES), 1024 * 1024);
        assert_eq!(window_for(2, MOTION_WINDOW_BYTES), WINDOW_BYTES_MAX);
        assert_eq!(window_for(usize::MAX, MOTION_WINDOW_BYTES), WINDOW_BYTES_MIN);
        assert_eq!(window_for(4, 0), WINDOW_BYTES_MIN);
    }
}

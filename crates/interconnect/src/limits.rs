//! Every bound of the interconnect in one place, with its unit, its reason and how it relates to the others.

/// Alignment in bytes of every Arrow buffer inside a block: a cache line, and enough for the widest Arrow type.
pub const BUFFER_ALIGNMENT_BYTES: usize = 64;

/// Size in bytes of a frame's header. One alignment unit, so that the payload behind it is aligned too.
pub const HEADER_BYTES: usize = 64;

/// Payload size in bytes that a data block aims at. Batches larger than [`BLOCK_BYTES_MAX`] are cut into blocks of about
/// this size. 256 KiB fits the second-level cache of one core beside its working set, and is far enough above MPI's
/// eager limit that the cost of a message is its bytes.
pub const BLOCK_BYTES_TARGET: usize = 256 * 1024;

/// Payload size in bytes up to which a batch is sent as one block. DataFusion's usual batch of 8192 rows with a dozen
/// columns is below it: cutting those would only make the operators behind the motion slower.
pub const BLOCK_BYTES_MAX: usize = 1024 * 1024;

/// Payload size in bytes no block may pass: MPI counts bytes in a C `int`. Only a single row can be that large.
pub const BLOCK_BYTES_HARD_MAX: usize = i32::MAX as usize - 4096;

/// Payload size in bytes from which a block goes to a rank of the same host through shared memory. A smaller one is as fast
/// as a message: MPI copies it eagerly, and the loan would need a message as well.
pub const SHARED_BYTES_MIN: usize = 8 * 1024;

/// Bytes of addresses of a rank's shared memory. Pages are used only as blocks are written; blocks that find no room go
/// through MPI.
pub const SHARED_ADDRESSES: usize = 64 * 1024 * 1024 * 1024;

/// Bytes of shared memory that are read and not given back yet, above which the driver is woken to give them back;
/// below that they go along at its next turn. Half of what stays warm in the owner's cache.
pub const RETURN_BYTES_MAX: usize = 512 * 1024;

/// Blocks a stream may have under way or unread at once when few streams share a motion.
pub const CREDITS_PER_STREAM_MAX: u32 = 8;

/// Blocks a stream may have under way at least. One is enough for progress: streams share no credit, so none can starve.
pub const CREDITS_PER_STREAM_MIN: u32 = 1;

/// Streams that one `Open` may ask for: the output partitions that a rank reads from another one in one motion. More
/// than any machine has threads; a damaged frame cannot use up the memory.
pub const STREAMS_PER_OPEN_MAX: usize = 1 << 16;

/// Bytes that the unread blocks of one opened motion (all its streams from one sending rank) may hold on the receiving
/// side, as long as that leaves every stream [`CREDITS_PER_STREAM_MIN`].
pub const MOTION_WINDOW_BYTES: usize = 32 * 1024 * 1024;

/// Nanoseconds the driver sleeps at first when requests are under way that only its own calls can move on.
pub const IN_FLIGHT_SLEEP_NS_MIN: u64 = 20_000;

/// Nanoseconds the driver sleeps at most while requests are under way. Peers on the same host ring when they have
/// moved, so this only bounds the harm of a lost ring and paces MPI libraries that copy in fragments.
pub const IN_FLIGHT_SLEEP_NS_MAX: u64 = 1_000_000;

/// Nanoseconds the driver sleeps at most while streams are open to a rank on another host, which cannot ring.
pub const REMOTE_BUSY_SLEEP_NS_MAX: u64 = 200_000;

/// Nanoseconds the driver sleeps at most while nothing is open and some rank is on another host: 200 wake-ups a
/// second cost about 0.3 % of a core and add at most this much to the first frame of a statement.
pub const REMOTE_IDLE_SLEEP_NS_MAX: u64 = 5_000_000;

/// Nanoseconds of processor time the driver asks for at a time: one turn of it. The operators' threads keep every core
/// busy, and frames that wait for the end of their slices (1 to 4 ms) keep the operators of other ranks waiting.
pub const DRIVER_SLICE_NS: u64 = 200_000;

/// Nanoseconds between two heartbeats to a rank that this rank waits for.
pub const HEARTBEAT_NS: u64 = 1_000_000_000;

/// Nanoseconds of silence after which a rank that this rank waits for is held lost. The driver of a living rank
/// answers a heartbeat in microseconds even when its cores are busy; five missed ones mean it is stopped or cut off.
pub const SILENCE_NS_MAX: u64 = 5 * HEARTBEAT_NS;

const _: () = {
    assert!(HEADER_BYTES.is_multiple_of(BUFFER_ALIGNMENT_BYTES));
    assert!(BLOCK_BYTES_TARGET <= BLOCK_BYTES_MAX);
    assert!(BLOCK_BYTES_MAX < BLOCK_BYTES_HARD_MAX);
    assert!(BLOCK_BYTES_HARD_MAX + HEADER_BYTES < i32::MAX as usize);
    assert!(CREDITS_PER_STREAM_MIN >= 1 && CREDITS_PER_STREAM_MIN <= CREDITS_PER_STREAM_MAX);
    assert!(MOTION_WINDOW_BYTES >= BLOCK_BYTES_MAX);
    assert!(IN_FLIGHT_SLEEP_NS_MIN < IN_FLIGHT_SLEEP_NS_MAX);
    assert!(SILENCE_NS_MAX > 2 * HEARTBEAT_NS);
};

/// Credits for each of `streams` streams opened together: the window shared out, within the bounds.
pub fn credits_for(streams: usize, window_bytes: usize) -> u32 {
    let blocks = window_bytes / BLOCK_BYTES_MAX / streams.max(1);
    (blocks as u32).clamp(CREDITS_PER_STREAM_MIN, CREDITS_PER_STREAM_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credits_share_the_window_and_keep_their_bounds() {
        assert_eq!(credits_for(1, MOTION_WINDOW_BYTES), CREDITS_PER_STREAM_MAX);
        assert_eq!(credits_for(8, MOTION_WINDOW_BYTES), 4);
        assert_eq!(credits_for(1000, MOTION_WINDOW_BYTES), CREDITS_PER_STREAM_MIN);
        assert_eq!(credits_for(4, 0), CREDITS_PER_STREAM_MIN);
    }
}

//! Every bound of the interconnect in one place, with its unit, its reason and how it relates to the others.

/// Alignment in bytes of every Arrow buffer inside a block: a cache line, and enough for the widest Arrow
/// type.
pub const BUFFER_ALIGNMENT_BYTES: usize = 64;

/// Size in bytes of a frame's header. One alignment unit, so that the payload behind it is aligned too.
pub const HEADER_BYTES: usize = 64;

/// Payload size in bytes that a data block aims at. Batches larger than [`BLOCK_BYTES_MAX`] are cut into
/// blocks of about this size. 256 KiB fits the second-level cache of one core beside its working set, and is
/// far enough above MPI's eager limit that the cost of a message is its bytes.
pub const BLOCK_BYTES_TARGET: usize = 256 * 1024;

/// Payload size in bytes up to which a batch is sent as one block. DataFusion's usual batch of 8192 rows with
/// a dozen columns is below it: cutting those would only make the operators behind the motion slower.
pub const BLOCK_BYTES_MAX: usize = 1024 * 1024;

/// Payload size in bytes no block may pass: MPI counts bytes in a C `int`. Only a single row can be that
/// large.
pub const BLOCK_BYTES_HARD_MAX: usize = i32::MAX as usize - 4096;

/// Payload size in bytes from which a block goes to a rank of the same host through shared memory. A smaller
/// one is as fast as a message: MPI copies it eagerly, and the loan would need a message as well.
pub const SHARED_BYTES_MIN: usize = 8 * 1024;

/// Bytes of addresses of a rank's shared memory. Pages are used only as blocks are written; blocks that find
/// no room go through MPI.
pub const SHARED_ADDRESSES: usize = 64 * 1024 * 1024 * 1024;

/// Bytes of shared memory that are read and not given back yet, above which the driver is woken to give them
/// back; below that they go along at its next turn. Half of what stays warm in the owner's cache.
pub const RETURN_BYTES_MAX: usize = 512 * 1024;

/// Bytes that the blocks of a stream may have under way or unread when few streams share a motion:
/// [`block_cost`] of each, and the last one may reach beyond it by all of itself. One of the largest blocks
/// and a half, so that there are always two; with more of them the blocks of all streams do not stay in the
/// caches of their cores: 4 MiB cost 5 times the processor time of 1 or 2 MiB where 4 ranks send 1 MiB to
/// each other (`docs/decisions/0017-windows-in-bytes.md`).
pub const WINDOW_BYTES_MAX: u64 = 3 * BLOCK_BYTES_MAX as u64 / 2;

/// The least window of a stream in bytes: one block at a time, whatever its size. That is enough for
/// progress: streams share no window, so none can starve.
pub const WINDOW_BYTES_MIN: u64 = 1;

/// Bytes that a block takes of its stream's window beside its payload: what its frame and its place in queues
/// take on both sides, so that blocks without bytes are bounded, too.
pub const BLOCK_OVERHEAD_BYTES: u64 = 512;

/// Bytes in frames that a stream's sender may leave lying before it wakes the driver for them: many small
/// blocks are moved in one turn, and in one message. It wakes the driver sooner when it waits or ends.
pub const UNTOLD_BYTES_MAX: usize = 64 * 1024;

/// Payload size in bytes from which a block may be compressed, up to [`BLOCK_BYTES_MAX`]: a smaller one
/// shares its message with others.
pub const COMPRESSED_BYTES_MIN: usize = 1024;

/// Bytes of a frame up to which it travels with others in one message: copying it once more is cheaper than a
/// message.
pub const BUNDLED_FRAME_BYTES_MAX: usize = 8 * 1024 + HEADER_BYTES;

/// Bytes of a message of several frames at most.
pub const BUNDLE_BYTES_MAX: usize = 32 * 1024;

/// Bytes of payload that a partition of a broadcast keeps gathered for streams that have not come to it: the
/// windows of two streams. One that is farther behind has its rows gathered again, which costs what it would
/// without broadcasts.
pub const BROADCAST_BYTES_MAX: usize = 2 * WINDOW_BYTES_MAX as usize;

/// Streams that one `Open` may ask for: the output partitions that a rank reads from another one in one
/// motion. More than any machine has threads; a damaged frame cannot use up the memory.
pub const STREAMS_PER_OPEN_MAX: usize = 1 << 16;

/// Bytes that the unread blocks of one opened motion (all its streams from one sending rank) may hold on the
/// receiving side, and one block of each stream beside.
pub const MOTION_WINDOW_BYTES: usize = 32 * 1024 * 1024;

/// Bytes of messages of one call that may wait for whoever is called, [`block_cost`] of each, before one more
/// costs its sender its place in the gang; the last one may reach beyond it by all of itself, which is as
/// large as what a program gathers from its ranks. They are the one queue that no credit bounds: what a
/// statement or a job sends after its request is a few control messages, and those who are called read as
/// long as the call lasts. So this is far above what is ever there.
pub const MESSAGES_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Nanoseconds the driver sleeps at first when requests are under way that only its own calls can move on.
pub const IN_FLIGHT_SLEEP_NS_MIN: u64 = 20_000;

/// Nanoseconds the driver sleeps at most while requests are under way. Peers on the same host ring when they
/// have moved, so this only bounds the harm of a lost ring and paces MPI libraries that copy in fragments.
pub const IN_FLIGHT_SLEEP_NS_MAX: u64 = 1_000_000;

/// Nanoseconds the driver sleeps at most while streams are open to a rank on another host, which cannot ring.
pub const REMOTE_BUSY_SLEEP_NS_MAX: u64 = 200_000;

/// Nanoseconds the driver sleeps at most while nothing is open and some rank is on another host: 200 wake-ups
/// a second cost about 0.3 % of a core and add at most this much to the first frame of a statement.
pub const REMOTE_IDLE_SLEEP_NS_MAX: u64 = 5_000_000;

/// Nanoseconds of processor time the driver asks for at a time: one turn of it. The operators' threads keep
/// every core busy, and frames that wait for the end of their slices (1 to 4 ms) keep the operators of other
/// ranks waiting.
pub const DRIVER_SLICE_NS: u64 = 200_000;

/// Nanoseconds that the driver polls busily with nothing to do before it sleeps, while small messages follow
/// each other closely. It is what passes until an answer comes where all threads on its way have to be woken:
/// with less, none would ever begin to see one come.
pub const LOOK_ON_NS_MAX: u64 = 100_000;

/// Nanoseconds that a time without anything to do counts at most, where the driver asks how closely messages
/// follow each other: a pause between two statements is forgotten after a few messages.
pub const GAP_NS_MAX: u64 = 4 * LOOK_ON_NS_MAX;

/// One in so many is the weight of the newest of these times.
pub const GAP_WEIGHT: u64 = 8;

/// Bytes that are moved between two times without anything to do, above which they were blocks of rows and
/// not messages.
pub const SMALL_TALK_BYTES_MAX: u64 = 4 * 1024;

/// Nanoseconds that a look and a yield take at most while nobody else wants the processor; alone they take
/// one or two thousand.
pub const YIELD_NS_MAX: u64 = 50_000;

/// Nanoseconds for which the driver does not poll busily after somebody else wanted the processor, at first
/// and at most: what a task of its own takes for a statement's part, and some slices of threads that compute.
pub const CROWDED_NS_MIN: u64 = 500_000;
pub const CROWDED_NS_MAX: u64 = 32_000_000;

/// Nanoseconds between two heartbeats to a rank that this rank waits for.
pub const HEARTBEAT_NS: u64 = 1_000_000_000;

/// Nanoseconds of silence after which a rank that this rank waits for is held lost. The driver of a living
/// rank answers a heartbeat in microseconds even when its cores are busy; five missed ones mean it is stopped
/// or cut off.
pub const SILENCE_NS_MAX: u64 = 5 * HEARTBEAT_NS;

/// Heartbeats more that a rank waits for one with a lower number. Of two that do not hear each other any more
/// the one with the lower number is the first to say so, and stays: otherwise each might end the other, and
/// with the coordinator the gang.
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
    assert!(YIELD_NS_MAX < LOOK_ON_NS_MAX && LOOK_ON_NS_MAX < GAP_NS_MAX);
    assert!(GAP_NS_MAX < CROWDED_NS_MIN && CROWDED_NS_MIN < CROWDED_NS_MAX);
    assert!(GAP_WEIGHT > 1);
    assert!(SILENCE_NS_MAX > 2 * HEARTBEAT_NS);
};

/// The window in bytes of each of `streams` streams opened together: `window_bytes` shared out, within the
/// bounds.
pub fn window_for(streams: usize, window_bytes: usize) -> u64 {
    let share = window_bytes / streams.max(1);
    (share as u64).clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX)
}

/// What a block of `payload_bytes` takes of its stream's window.
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

//! Checks and measures an MPI library through this crate: `mpirun -n N pingring`, or `mpirun -n 2 pingring
//! bench`.
//!
//! `pingring [all-to-all] [--seed S] [--messages M]`: every rank sends M messages on each channel to every
//! rank, itself included, of random sizes from nothing to 8 MiB; each receiver checks sizes, contents and
//! order, which it computes from the seed. `pingring bench [--bytes B] [--count C] [--window W]`: rank 0
//! sends C blocks to rank 1, at most W at a time, and prints the rate and the processor time of both ranks.
//! `pingring info`: only the library, one line per rank. `pingring abort`: the last rank ends all of them
//! with the status 7 while the others wait for messages.
//!
//! Exit status: 0 all is right, 1 it is not, 2 wrong usage, 3 MPI failed.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use harrier_mpi::{Block, Channel, Mpi, MpiError, Options};

/// The allocator of the `harrier` binary. It matters: memory that the C library returns to the system after
/// each block, and takes again for the next, makes receiving several times slower.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The largest message of the all-to-all check.
const MESSAGE_BYTES_MAX: u64 = 8 << 20;

/// The most bytes that one rank has in flight in the all-to-all check.
const SEND_BYTES_IN_FLIGHT_MAX: usize = 64 << 20;

struct Arguments {
    mode: String,
    seed: u64,
    messages: u64,
    bytes: usize,
    count: u64,
    window: usize,
}

fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(message) => {
            eprintln!("pingring: {message}");
            return ExitCode::from(2);
        }
    };
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("ERROR: {error}");
            error.detail().iter().for_each(|detail| eprintln!("DETAIL: {detail}"));
            error.hint().iter().for_each(|hint| eprintln!("HINT: {hint}"));
            ExitCode::from(3)
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments {
        mode: "all-to-all".into(),
        seed: 1,
        messages: 24,
        bytes: 256 << 10,
        count: 8192,
        window: 64,
    };
    while let Some(word) = words.next() {
        if ["all-to-all", "bench", "info", "abort"].contains(&word.as_str()) {
            arguments.mode = word;
            continue;
        }
        let value = words.next().and_then(|value| value.parse::<u64>().ok());
        let value = value.ok_or_else(|| format!("a number must follow \"{word}\""))?;
        match word.as_str() {
            "--seed" => arguments.seed = value,
            "--messages" => arguments.messages = value,
            "--bytes" => arguments.bytes = value as usize,
            "--count" => arguments.count = value,
            "--window" => arguments.window = value as usize,
            _ => return Err(format!("unknown option \"{word}\"")),
        }
    }
    Ok(arguments)
}

/// Returns whether all was right.
fn run(arguments: &Arguments) -> Result<bool, MpiError> {
    let mut mpi = Mpi::init(&Options::default())?;
    let library = mpi.library();
    println!(
        "rank {} of {}: {} {} {}",
        mpi.rank(),
        mpi.size(),
        library.abi,
        library.path.display(),
        library.version
    );
    let right = match arguments.mode.as_str() {
        "bench" => bench(&mut mpi, arguments)?,
        "info" => true,
        "abort" if mpi.rank() + 1 == mpi.size() => mpi.abort(7),
        "abort" => loop {
            mpi.progress(&mut |_, _, _| {})?;
            std::thread::yield_now();
        },
        _ => check_all_gather(&mut mpi)? & all_to_all(&mut mpi, arguments)?,
    };
    // No rank leaves before the last one has received everything.
    let everywhere = mpi.all_gather(&[u8::from(right)])?;
    mpi.finalize()?;
    Ok(everywhere.iter().all(|right| right == &[1]))
}

/// Every rank contributes another length, the first one nothing.
fn check_all_gather(mpi: &mut Mpi) -> Result<bool, MpiError> {
    let of = |rank: usize| vec![rank as u8; rank * 1000];
    let all = mpi.all_gather(&of(mpi.rank()))?;
    let right = all.len() == mpi.size() && all.iter().enumerate().all(|(rank, bytes)| *bytes == of(rank));
    if !right {
        eprintln!("rank {}: all_gather returned other bytes than were given", mpi.rank());
    }
    Ok(right)
}

fn all_to_all(mpi: &mut Mpi, arguments: &Arguments) -> Result<bool, MpiError> {
    let (rank, size) = (mpi.rank(), mpi.size());
    let message =
        |source, dest, channel, index| Message { seed: arguments.seed, source, dest, channel, index };
    let mut received = vec![[0u64; 2]; size];
    let mut wrong = 0;
    let mut bytes = 0usize;

    // What is still to be sent, the channels and peers interleaved so that every lane is busy at once.
    let mut to_send = (0..arguments.messages)
        .flat_map(|index| {
            (0..size).flat_map(move |step| Channel::ALL.map(|channel| ((rank + step) % size, channel, index)))
        })
        .peekable();
    let all = arguments.messages * size as u64 * 2;
    let mut arrived = 0;
    while arrived < all || to_send.peek().is_some() || mpi.in_flight().sends > 0 {
        while mpi.in_flight().send_bytes < SEND_BYTES_IN_FLIGHT_MAX
            && let Some((dest, channel, index)) = to_send.next()
        {
            mpi.isend(dest, channel, Arc::new(message(rank, dest, channel, index).block()))?;
        }
        let progress = mpi.progress(&mut |source, channel, block| {
            let index = &mut received[source][channel as usize];
            let expected = message(source, rank, channel, *index);
            if !expected.is(block.as_slice()) {
                eprintln!(
                    "rank {rank}: message {index} from rank {source} on {channel:?} is wrong: {} bytes, expected {}",
                    block.len(),
                    expected.len()
                );
                wrong += 1;
            }
            *index += 1;
            arrived += 1;
            bytes += block.len();
        })?;
        if progress.is_idle() {
            std::thread::yield_now();
        }
    }
    println!(
        "rank {rank}: {arrived} messages, {bytes} bytes received, {wrong} wrong (seed {})",
        arguments.seed
    );
    Ok(wrong == 0 && mpi.in_flight() == Default::default())
}

/// A message whose size and content follow from who sends it to whom.
struct Message {
    seed: u64,
    source: usize,
    dest: usize,
    channel: Channel,
    index: u64,
}

impl Message {
    fn random(&self) -> Random {
        let parts = [self.source as u64, self.dest as u64, self.channel as u64, self.index];
        Random(parts.into_iter().fold(self.seed, |state, part| Random(state ^ part).next()))
    }

    /// Small sizes are as frequent as large ones: uniform in the logarithm.
    fn len(&self) -> usize {
        let random = self.random().next();
        let limit = 1u64 << (random % (MESSAGE_BYTES_MAX.ilog2() as u64 + 1));
        ((random >> 8) % (limit + 1)) as usize
    }

    fn words(&self) -> impl Iterator<Item = [u8; 8]> {
        let mut random = self.random();
        random.next();
        std::iter::repeat_with(move || random.next().to_le_bytes())
    }

    fn block(&self) -> Block {
        let len = self.len();
        let mut block = Block::with_capacity(len);
        block.push_zeros(len);
        for (chunk, word) in block.as_mut_slice().chunks_mut(8).zip(self.words()) {
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
        block
    }

    fn is(&self, bytes: &[u8]) -> bool {
        bytes.len() == self.len()
            && bytes.chunks(8).zip(self.words()).all(|(chunk, word)| chunk == &word[..chunk.len()])
    }
}

/// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

fn bench(mpi: &mut Mpi, arguments: &Arguments) -> Result<bool, MpiError> {
    if mpi.size() != 2 {
        eprintln!("rank {}: the benchmark is between 2 ranks", mpi.rank());
        return Ok(false);
    }
    // As many different blocks as are in flight, so that the sender's memory is as cold as in use.
    let blocks: Vec<Arc<Block>> = (0..arguments.window.max(1))
        .map(|index| {
            let mut block = Block::with_capacity(arguments.bytes);
            block.push_zeros(arguments.bytes);
            block.as_mut_slice().fill(index as u8);
            Arc::new(block)
        })
        .collect();
    transfer(mpi, arguments, &blocks, arguments.count / 8)?;

    mpi.all_gather(&[])?;
    let (started, processor_started) = (Instant::now(), processor_seconds());
    transfer(mpi, arguments, &blocks, arguments.count)?;
    mpi.all_gather(&[])?;
    let (seconds, mine) = (started.elapsed().as_secs_f64(), processor_seconds() - processor_started);

    let both = mpi.all_gather(&mine.to_le_bytes())?;
    let both: Vec<f64> =
        both.iter().map(|bytes| f64::from_le_bytes(bytes[..].try_into().expect("8 bytes"))).collect();
    if mpi.rank() == 0 {
        let gigabytes = arguments.count as f64 * arguments.bytes as f64 / 1e9;
        println!(
            "{} blocks of {} bytes, window {}: {:.2} GB/s, processor seconds per GB: sender {:.3}, receiver {:.3}",
            arguments.count,
            arguments.bytes,
            arguments.window,
            gigabytes / seconds,
            both[0] / gigabytes,
            both[1] / gigabytes
        );
    }
    Ok(true)
}

/// Rank 0 sends `count` blocks; rank 1 receives them and reads one word of every cache line.
fn transfer(mpi: &mut Mpi, arguments: &Arguments, blocks: &[Arc<Block>], count: u64) -> Result<(), MpiError> {
    let (mut sent, mut received, mut sum) = (0, 0, 0u64);
    loop {
        if mpi.rank() == 0 {
            while sent < count && mpi.in_flight().sends < arguments.window {
                mpi.isend(1, Channel::Data, Arc::clone(&blocks[sent as usize % blocks.len()]))?;
                sent += 1;
            }
        }
        let progress = mpi.progress(&mut |_, _, block| {
            received += 1;
            sum += block.as_slice().iter().step_by(64).map(|&byte| u64::from(byte)).sum::<u64>();
        })?;
        let done =
            if mpi.rank() == 0 { sent == count && mpi.in_flight().sends == 0 } else { received == count };
        if done {
            std::hint::black_box(sum);
            return Ok(());
        }
        if progress.is_idle() {
            std::thread::yield_now();
        }
    }
}

/// The processor time that this process has used, in user and system mode, in seconds: fields 14 and 15 of
/// proc(5)'s stat, in ticks of 10 ms.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() / 100.0
}

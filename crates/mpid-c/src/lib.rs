//! The C API of `harrier-mpid`, with the papers' names; it must never do more than hand calls on.
//!
//! `include/mpid.h` is its contract. One job at a time, which belongs to the thread that began it.
//!
//! # Unsafe
//! C hands over pointers that nobody can check, so this crate may do what only the crate `mpi` may besides: each block says which
//! promise of the header it stands on. Nothing unwinds into C: what panics in the library is an error of the job, and a panic of a
//! call itself ends the process, as `extern "C"` has it.
#![allow(unsafe_code)]
// The names are the papers'.
#![allow(non_snake_case)]

use harrier_mpid::session::{Arrangement, CombineBytes, CompareBytes, PartitionBytes, Session, Shaping};
use harrier_mpid::{Config, EmitError, Error, Mode, Rejected, Side, World};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::Arc;

const SUCCESS: c_int = 0;
const END: c_int = 1;
const ERR_USAGE: c_int = 2;
const ERR_JOB: c_int = 3;
const ERR_RANKS: c_int = 4;
const LATE: c_int = 5;

/// Room that a combiner has for its result beyond what it was given.
const COMBINED_ROOM: usize = 4096;

type Combiner = extern "C" fn(*const c_void, usize, *mut c_void, usize, usize, *const c_void, usize) -> i64;
type Partitioner = extern "C" fn(*const c_void, usize, usize) -> usize;
type Comparator = extern "C" fn(*const c_void, usize, *const c_void, usize) -> c_int;

/// What this thread has begun.
#[derive(Default)]
struct State {
    shaping: Shaping,
    world: Option<World>,
    session: Option<Session>,
    message: CString,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
}

fn with<R>(work: impl FnOnce(&mut State) -> R) -> R {
    STATE.with_borrow_mut(work)
}

impl State {
    fn fails(&mut self, code: c_int, message: impl ToString) -> c_int {
        let text = message.to_string().replace('\0', " ");
        self.message = CString::new(text).unwrap_or_default();
        code
    }

    fn job_fails(&mut self, error: &Error) -> c_int {
        let code = if error.leaves_the_ranks_alive() { ERR_JOB } else { ERR_RANKS };
        self.fails(code, error)
    }
}

/// The bytes of a pair as C handed them over.
///
/// # Safety
/// The header's promise: `data` points to `bytes` bytes, or `bytes` is 0; they stay as they are for `'a`.
unsafe fn given<'a>(data: *const c_void, bytes: usize) -> &'a [u8] {
    if bytes == 0 || data.is_null() {
        return &[];
    }
    // SAFETY: see above; bytes need no alignment.
    unsafe { std::slice::from_raw_parts(data.cast(), bytes) }
}

/// Writes through a pointer of the caller's, if there is one.
///
/// # Safety
/// The header's promise: `to` is null or points to a place for a `T`.
unsafe fn tell<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: see above.
        unsafe { to.write(value) };
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn MPI_D_Set_arrangement(arrangement: c_int) {
    with(|state| {
        state.shaping.arrangement = match arrangement {
            0 => Arrangement::Plain,
            2 => Arrangement::Sorted,
            _ => Arrangement::Grouped,
        };
    });
}

#[unsafe(no_mangle)]
pub extern "C" fn MPI_D_Set_mode(mode: c_int) {
    with(|state| {
        state.shaping.mode = match mode {
            1 => Mode::Iteration,
            2 => Mode::Streaming,
            _ => Mode::Common,
        };
    });
}

#[unsafe(no_mangle)]
pub extern "C" fn MPI_D_Set_window(width: u64) {
    with(|state| state.shaping.window_width = width);
}

#[unsafe(no_mangle)]
pub extern "C" fn MPI_D_Set_combiner(combiner: Option<Combiner>) {
    let combine = combiner.map(|combiner| {
        let combine: Arc<CombineBytes> = Arc::new(move |key, held, value, out| {
            let room = held.len() + value.len() + COMBINED_ROOM;
            out.extend_from_slice(held);
            out.resize(room, 0);
            let bytes = combiner(
                key.as_ptr().cast(),
                key.len(),
                out.as_mut_ptr().cast(),
                held.len(),
                room,
                value.as_ptr().cast(),
                value.len(),
            );
            match usize::try_from(bytes) {
                Ok(bytes) if bytes <= room => {
                    out.truncate(bytes);
                    Ok(())
                }
                _ => Err(Rejected("the combiner does not accept a value".to_string())),
            }
        });
        combine
    });
    with(|state| state.shaping.combine = combine);
}

#[unsafe(no_mangle)]
pub extern "C" fn MPI_D_Set_partitioner(partitioner: Option<Partitioner>) {
    with(|state| {
        state.shaping.partition = partitioner.map(|partitioner| {
            let partition: Arc<PartitionBytes> =
                Arc::new(move |key, tasks| partitioner(key.as_ptr().cast(), key.len(), tasks));
            partition
        });
    });
}

#[unsafe(no_mangle)]
pub extern "C" fn MPI_D_Set_comparator(comparator: Option<Comparator>) {
    with(|state| {
        state.shaping.compare = comparator.map(|comparator| {
            let compare: Arc<CompareBytes> = Arc::new(move |left, right| {
                comparator(left.as_ptr().cast(), left.len(), right.as_ptr().cast(), right.len()).cmp(&0)
            });
            compare
        });
    });
}

/// # Safety
/// As the header says of a combiner: `held` has `room` bytes, of which the first `held_bytes` are the value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_D_Sum_int64(
    _key: *const c_void,
    _key_bytes: usize,
    held: *mut c_void,
    held_bytes: usize,
    _room: usize,
    value: *const c_void,
    value_bytes: usize,
) -> i64 {
    if held_bytes != 8 || value_bytes != 8 {
        return -1;
    }
    // SAFETY: both have eight bytes, as was just checked; they need not be aligned.
    let sum =
        unsafe { held.cast::<i64>().read_unaligned().wrapping_add(value.cast::<i64>().read_unaligned()) };
    // SAFETY: as above, and `held` is the caller's to write to.
    unsafe { held.cast::<i64>().write_unaligned(sum) };
    8
}

#[unsafe(no_mangle)]
pub extern "C" fn MPI_D_Init(_argc: *mut c_int, _argv: *mut *mut *mut c_char) -> c_int {
    with(|state| {
        if state.session.is_some() || state.world.is_some() {
            return state.fails(ERR_USAGE, "MPI_D_Init was called before");
        }
        let begun = Config::from_environment().and_then(|config| {
            let world = World::join()?;
            let session = Session::start(&world, &config, "program", &state.shaping);
            Ok((world, session))
        });
        match begun {
            Err(error) => state.job_fails(&error),
            Ok((world, session)) => {
                state.world = Some(world);
                match session {
                    Err(error) => state.job_fails(&error),
                    Ok(session) => {
                        state.session = Some(session);
                        SUCCESS
                    }
                }
            }
        }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn MPI_D_Next_task() -> c_int {
    with(|state| state.session.as_mut().and_then(Session::next_task).map_or(0, |_| 1))
}

#[unsafe(no_mangle)]
pub extern "C" fn MPI_D_Comm_bipartite(a_side: c_int) -> c_int {
    let wanted = if a_side == 0 { Side::O } else { Side::A };
    with(|state| match state.session.as_ref().and_then(Session::task) {
        Some((side, _)) if side == wanted => a_side + 1,
        _ => 0,
    })
}

/// # Safety
/// `rank` is null or points to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_D_Comm_rank(comm: c_int, rank: *mut c_int) -> c_int {
    with(|state| match state.session.as_ref().and_then(Session::task) {
        Some((side, index)) if comm == side as c_int + 1 => {
            // SAFETY: as the header says.
            unsafe { tell(rank, index as c_int) };
            SUCCESS
        }
        _ => state.fails(ERR_USAGE, "the task is none of that communicator's"),
    })
}

/// # Safety
/// `size` is null or points to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_D_Comm_size(comm: c_int, size: *mut c_int) -> c_int {
    with(|state| {
        let side = match comm {
            1 => Side::O,
            2 => Side::A,
            _ => return state.fails(ERR_USAGE, "there is no such communicator"),
        };
        match state.session.as_ref().map(|session| session.tasks(side)) {
            Some(tasks) => {
                // SAFETY: as the header says.
                unsafe { tell(size, tasks as c_int) };
                SUCCESS
            }
            None => state.fails(ERR_USAGE, "MPI_D_Init was not called"),
        }
    })
}

impl State {
    /// The session, in a task of this side.
    ///
    /// Errors: what the call is to return.
    #[inline]
    fn task_of(&mut self, wanted: Side) -> Result<&mut Session, c_int> {
        match self.session.as_ref().map(|session| session.task().map(|(side, _)| side)) {
            Some(Some(side)) if side == wanted => Ok(self.session.as_mut().expect("it was just seen")),
            None => Err(self.fails(ERR_USAGE, "MPI_D_Init was not called")),
            Some(_) => Err(self.fails(ERR_USAGE, format!("no {wanted} runs"))),
        }
    }

    /// What a call in an O task is to return.
    fn in_o_task(&mut self, work: impl FnOnce(&mut Session) -> Result<(), EmitError>) -> c_int {
        match self.task_of(Side::O).map(work) {
            Err(code) => code,
            Ok(Ok(())) => SUCCESS,
            Ok(Err(error)) => self.fails(ERR_JOB, error),
        }
    }
}

/// # Safety
/// `key` and `value` point to as many bytes as is said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_D_Send(
    key: *const c_void,
    key_bytes: usize,
    value: *const c_void,
    value_bytes: usize,
) -> c_int {
    // SAFETY: as the header says; they are copied before this returns.
    let (key, value) = unsafe { (given(key, key_bytes), given(value, value_bytes)) };
    with(|state| state.in_batch(|session| session.send(key, value)))
}

/// # Safety
/// `key` and `value` point to as many bytes as is said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_D_Send_at(
    time: u64,
    key: *const c_void,
    key_bytes: usize,
    value: *const c_void,
    value_bytes: usize,
) -> c_int {
    // SAFETY: as the header says; they are copied before this returns.
    let (key, value) = unsafe { (given(key, key_bytes), given(value, value_bytes)) };
    with(|state| {
        let mut in_time = true;
        let sent = state.in_stream(|session| {
            in_time = session.send_at(time, key, value)?;
            Ok(())
        });
        if sent == SUCCESS && !in_time { LATE } else { sent }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn MPI_D_Advance(time: u64) -> c_int {
    with(|state| state.in_stream(|session| session.advance(time)))
}

#[unsafe(no_mangle)]
pub extern "C" fn MPI_D_End_input() -> c_int {
    with(|state| {
        state.in_stream(|session| {
            session.end_input();
            Ok(())
        })
    })
}

/// # Safety
/// `begin` and `end` are null or point to numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_D_Window(begin: *mut u64, end: *mut u64) -> c_int {
    with(|state| match state.session.as_ref().and_then(Session::window) {
        Some(window) => {
            // SAFETY: as the header says.
            unsafe {
                tell(begin, window.begin);
                tell(end, window.end);
            }
            SUCCESS
        }
        None => state.fails(ERR_USAGE, "no A task of a stream runs"),
    })
}

/// # Safety
/// `keys` and `values` point to `pairs` times as many bytes as is said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_D_Send_many(
    pairs: usize,
    keys: *const c_void,
    key_bytes: usize,
    values: *const c_void,
    value_bytes: usize,
) -> c_int {
    // SAFETY: as the header says; they are copied before this returns.
    let (keys, values) = unsafe { (given(keys, pairs * key_bytes), given(values, pairs * value_bytes)) };
    with(|state| {
        state.in_batch(|session| {
            let part = |all: &'_ [u8], at: usize, bytes: usize| at * bytes..((at + 1) * bytes).min(all.len());
            (0..pairs).try_for_each(|at| {
                session.send(&keys[part(keys, at, key_bytes)], &values[part(values, at, value_bytes)])
            })
        })
    })
}

impl State {
    /// As [`State::in_o_task`], but of a stream.
    fn in_batch(&mut self, work: impl FnOnce(&mut Session) -> Result<(), EmitError>) -> c_int {
        match &self.session {
            Some(session) if session.mode() == Mode::Streaming => {
                self.fails(ERR_USAGE, "a pair of a stream has a time: MPI_D_Send_at")
            }
            _ => self.in_o_task(work),
        }
    }

    /// As [`State::in_o_task`], of a stream.
    fn in_stream(&mut self, work: impl FnOnce(&mut Session) -> Result<(), EmitError>) -> c_int {
        match &self.session {
            Some(session) if session.mode() != Mode::Streaming => {
                self.fails(ERR_USAGE, "only O tasks of streams have times")
            }
            _ => self.in_o_task(work),
        }
    }
}

/// # Safety
/// `source` is null or a text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_D_Reads(source: *const c_char) -> c_int {
    let source = match source.is_null() {
        true => String::new(),
        // SAFETY: as the header says.
        false => unsafe { CStr::from_ptr(source) }.to_string_lossy().into_owned(),
    };
    with(|state| {
        state.in_o_task(|session| {
            session.reads(&source);
            Ok(())
        })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn MPI_D_At(position: u64) -> c_int {
    with(|state| {
        state.in_o_task(|session| {
            session.at(position);
            Ok(())
        })
    })
}

/// # Safety
/// The pointers are null or point to places for what is returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_D_Recv(
    key: *mut *const c_void,
    key_bytes: *mut usize,
    value: *mut *const c_void,
    value_bytes: *mut usize,
) -> c_int {
    with(|state| match state.task_of(Side::A).map(Session::receive) {
        Err(code) => code,
        Ok(Err(error)) => state.fails(ERR_JOB, error),
        Ok(Ok(false)) => END,
        Ok(Ok(true)) => {
            let (bytes_of_key, bytes_of_value) = state.session.as_ref().expect("it has a pair").pair();
            // SAFETY: as the header says. What is pointed to belongs to the session, which keeps it until it goes to another pair.
            unsafe {
                tell(key, bytes_of_key.as_ptr().cast());
                tell(key_bytes, bytes_of_key.len());
                tell(value, bytes_of_value.as_ptr().cast());
                tell(value_bytes, bytes_of_value.len());
            }
            SUCCESS
        }
    })
}

/// # Safety
/// `keys` and `values` have room for `pairs` times as many bytes as is said; `received` is null or points to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_D_Recv_many(
    pairs: usize,
    keys: *mut c_void,
    key_bytes: usize,
    values: *mut c_void,
    value_bytes: usize,
    received: *mut usize,
) -> c_int {
    with(|state| {
        let mut count = 0;
        let code = loop {
            if count == pairs {
                break SUCCESS;
            }
            match state.task_of(Side::A).map(Session::receive) {
                Err(code) => break code,
                Ok(Err(error)) => break state.fails(ERR_JOB, error),
                Ok(Ok(false)) => break SUCCESS,
                Ok(Ok(true)) => {}
            }
            let session = state.session.as_mut().expect("it has a pair");
            let (key, value) = session.pair();
            if (key.len(), value.len()) != (key_bytes, value_bytes) {
                let message = format!(
                    "a pair of {} and {} bytes, not {key_bytes} and {value_bytes}",
                    key.len(),
                    value.len()
                );
                session.fail(&message);
                break state.fails(ERR_JOB, message);
            }
            // SAFETY: as the header says there is room for this pair, and nothing of the session's lies there.
            unsafe {
                if key_bytes > 0 {
                    keys.cast::<u8>()
                        .add(count * key_bytes)
                        .copy_from_nonoverlapping(key.as_ptr(), key_bytes);
                }
                if value_bytes > 0 {
                    values
                        .cast::<u8>()
                        .add(count * value_bytes)
                        .copy_from_nonoverlapping(value.as_ptr(), value_bytes);
                }
            }
            count += 1;
        };
        // SAFETY: as the header says.
        unsafe { tell(received, count) };
        code
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn MPI_D_Next_round() -> c_int {
    with(|state| {
        let Some(session) = &mut state.session else { return 0 };
        match session.next_round(&state.shaping) {
            Ok(()) => 1,
            Err(error) => {
                state.job_fails(&error);
                0
            }
        }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn MPI_D_Round() -> u64 {
    with(|state| state.session.as_ref().map_or(0, Session::round))
}

/// # Safety
/// `numbers` points to `count` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_D_Sum(numbers: *mut f64, count: usize) -> c_int {
    with(|state| {
        let Some(session) = state.session.as_mut().filter(|session| session.is_between_rounds()) else {
            return state.fails(ERR_USAGE, "numbers are added up between rounds, when no task is left");
        };
        let numbers: &mut [f64] = match numbers.is_null() {
            true => &mut [],
            // SAFETY: as the header says.
            false => unsafe { std::slice::from_raw_parts_mut(numbers, count) },
        };
        match session.sum(numbers) {
            Ok(()) => SUCCESS,
            Err(error) => state.job_fails(&error),
        }
    })
}

/// # Safety
/// `key` and `value` point to as many bytes as is said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_D_Keep(
    key: *const c_void,
    key_bytes: usize,
    value: *const c_void,
    value_bytes: usize,
) -> c_int {
    // SAFETY: as the header says; they are copied before this returns.
    let (key, value) = unsafe { (given(key, key_bytes), given(value, value_bytes)) };
    with(|state| match state.session.as_mut().is_some_and(|session| session.keep(key, value)) {
        true => SUCCESS,
        false => state.fails(ERR_USAGE, "only an A task of rounds keeps pairs"),
    })
}

/// # Safety
/// The pointers are null or point to places for what is returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_D_Kept(
    key: *mut *const c_void,
    key_bytes: *mut usize,
    value: *mut *const c_void,
    value_bytes: *mut usize,
) -> c_int {
    with(|state| {
        let Some(session) = state.session.as_mut().filter(|session| session.task().is_some()) else {
            return state.fails(ERR_USAGE, "no task runs");
        };
        if !session.next_kept() {
            return END;
        }
        let (bytes_of_key, bytes_of_value) = session.kept();
        // SAFETY: as the header says. What is pointed to belongs to the session, which keeps it until the task ends.
        unsafe {
            tell(key, bytes_of_key.as_ptr().cast());
            tell(key_bytes, bytes_of_key.len());
            tell(value, bytes_of_value.as_ptr().cast());
            tell(value_bytes, bytes_of_value.len());
        }
        SUCCESS
    })
}

/// # Safety
/// `message` is null or a text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_D_Fail(message: *const c_char) -> c_int {
    let message = match message.is_null() {
        true => "no reason was given".to_string(),
        // SAFETY: as the header says.
        false => unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned(),
    };
    with(|state| match &mut state.session {
        Some(session) if session.task().is_some() => {
            session.fail(&message);
            SUCCESS
        }
        _ => state.fails(ERR_USAGE, "no task runs"),
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn MPI_D_Finalize() -> c_int {
    with(|state| {
        let Some(world) = state.world.take() else {
            return state.fails(ERR_USAGE, "MPI_D_Init was not called");
        };
        let code = match state.session.take().map(Session::finish) {
            // It did not begin, and MPI_D_Init said why.
            None => ERR_JOB,
            Some(Ok(_)) => SUCCESS,
            Some(Err(error)) => {
                if world.rank() == 0 {
                    eprintln!("mpid: {error}");
                }
                state.job_fails(&error)
            }
        };
        match world.leave(code) {
            Ok(()) => code,
            Err(error) => state.job_fails(&error),
        }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn MPI_D_Error_message() -> *const c_char {
    // The text belongs to the thread's state, and is replaced by the next error only.
    with(|state| state.message.as_ptr())
}

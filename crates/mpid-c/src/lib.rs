//! C API of `harrier-mpid`, with the papers' names; a thin wrapper that must only forward calls.
//!
//! `include/mpid.h` is its contract. One job at a time, owned by the thread that began it.
//!
//! # Unsafe
//! C passes pointers that cannot be checked, so this crate may use `unsafe`, as otherwise only the crate
//! `mpi` may: each block names the promise of the header it relies on. Nothing unwinds into C: every function
//! goes through [`call`], and a panic in it becomes an error of the job ([`State::record_panic`]). An
//! exception thrown by one of the program's functions would unwind through Rust and end the process: the
//! header forbids it.
#![allow(unsafe_code)]
// Names from the papers.
#![allow(non_snake_case)]

mod exit;
mod input;

use harrier_mpid::session::{Arrangement, CombineBytes, CompareBytes, PartitionBytes, Session, Shaping};
use harrier_mpid::{EmitError, Error, Mode, Rejected, Side, World, last_words, tell_warnings};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// When an option may be set.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Settable {
    Before,
    InRounds,
}

impl Settable {
    fn refusal(self) -> &'static str {
        match self {
            Settable::Before => "the mode and the width of windows are set before MPI_D_Init",
            Settable::InRounds => {
                "arrangement, combiner, partitioner and comparator are set before MPI_D_Init, or between rounds before MPI_D_Next_round"
            }
        }
    }
}

const SUCCESS: c_int = 0;
const END: c_int = 1;
const ERR_USAGE: c_int = 2;
const ERR_JOB: c_int = 3;
const ERR_RANKS: c_int = 4;
const LATE: c_int = 5;

/// Result of a combiner that accepts two values but cannot represent their combination.
const OUT_OF_RANGE: i64 = -2;

/// Room for a combiner's result beyond the sizes of its inputs.
const COMBINED_ROOM: usize = 4096;

type Combiner = extern "C" fn(*const c_void, usize, *mut c_void, usize, usize, *const c_void, usize) -> i64;
type Partitioner = extern "C" fn(*const c_void, usize, usize) -> usize;
type Comparator = extern "C" fn(*const c_void, usize, *const c_void, usize) -> c_int;

/// This thread's job.
#[derive(Default)]
struct State {
    shaping: Shaping,
    world: Option<World>,
    session: Option<Session>,
    /// File name of the O task's current split.
    split: CString,
    /// Message of a panic between tasks, where it cannot fail a task of the session.
    panicked: Option<String>,
    /// Error of a rejected option, reported by the next job or round.
    refused: Option<String>,
}

impl Drop for State {
    /// The thread ends without `MPI_D_Finalize`. Waiting for the other ranks would block, as they are not
    /// notified.
    fn drop(&mut self) {
        let Some(session) = self.session.take() else { return };
        if let (Some(failure), Ok(mut failure_slot)) = (session.failure(), UNREPORTED_FAILURE.lock()) {
            *failure_slot = Some(failure);
        }
        std::mem::forget(session);
    }
}

thread_local! {
    /// Boxed: for thread-locals of a library that is loaded later, the C library has only some 1600 bytes.
    static STATE: RefCell<Box<State>> = RefCell::default();
    /// Message of the last error. Apart from the state, because it is written while the state is borrowed.
    static MESSAGE: RefCell<CString> = RefCell::default();
    /// Whether a callback of the program is running.
    static CALLING: Cell<Calling> = const { Cell::new(Calling::Nothing) };
    /// Message that the callback passed to `MPI_D_Fail`.
    static FAIL_MESSAGE: Cell<Option<String>> = const { Cell::new(None) };
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Calling {
    Nothing,
    Function,
    /// The callback has called `MPI_D_Fail`.
    Failed,
}

/// Calls a combiner, a partitioner or a comparator. Returns its result, or the message of `MPI_D_Fail` if it
/// called that, whatever its result.
#[inline]
fn call_back<R>(function: impl FnOnce() -> R) -> Result<R, Rejected> {
    CALLING.set(Calling::Function);
    let returned = function();
    match CALLING.replace(Calling::Nothing) {
        Calling::Failed => Err(Rejected(FAIL_MESSAGE.take().unwrap_or_default())),
        _ => Ok(returned),
    }
}

/// Whether a thread of this process has begun a job; other threads then get a more specific error.
static JOB_BEGAN: AtomicBool = AtomicBool::new(false);

/// Whether this process has left its ranks; it cannot join again, as MPI is initialised only once.
static HAS_LEFT: AtomicBool = AtomicBool::new(false);

/// Reason of the failure of a job that ended without `MPI_D_Finalize`.
static UNREPORTED_FAILURE: Mutex<Option<String>> = Mutex::new(None);

/// Error for calls from a callback or from another thread.
const WRONG_CALLER: &str =
    "no combiner, partitioner or comparator calls the library, and no other thread than that of MPI_D_Init";

fn set_error(code: c_int, message: impl ToString) -> c_int {
    let text = message.to_string().replace('\0', " ");
    // The thread may be exiting, with its thread-locals gone.
    let _ = MESSAGE.try_with(|message| message.replace(CString::new(text).unwrap_or_default()));
    code
}

/// Guards a call from C: rejects nested calls and turns panics into errors. `on_error` maps an error code to
/// the return value.
fn call<R>(on_error: impl FnOnce(c_int) -> R, work: impl FnOnce(&mut State) -> R) -> R {
    let called = STATE.try_with(|state| {
        // Already borrowed: a callback of the program called back into the library.
        let Ok(mut state) = state.try_borrow_mut() else { return Err(set_error(ERR_USAGE, WRONG_CALLER)) };
        catch_unwind(AssertUnwindSafe(|| work(&mut state))).map_err(|panic| state.record_panic(&*panic))
    });
    called.unwrap_or_else(|_| Err(ERR_USAGE)).unwrap_or_else(on_error)
}

/// Guards a function that returns an error code, see [`call`].
fn with_code(work: impl FnOnce(&mut State) -> c_int) -> c_int {
    call(|code| code, work)
}

/// Guards a function without an error code, see [`call`]: it returns nothing, or 0 on error.
fn with_default<R: Default>(work: impl FnOnce(&mut State) -> R) -> R {
    call(|_| R::default(), work)
}

impl State {
    fn job_fails(&mut self, error: &Error) -> c_int {
        let code = if error.leaves_the_ranks_alive() { ERR_JOB } else { ERR_RANKS };
        set_error(code, error)
    }

    /// Changes an option of the next job or round if it is valid and may be set now.
    fn set(&mut self, what: Settable, change: Result<impl FnOnce(&mut Shaping), String>) {
        let in_rounds = |session: &Session| session.mode() == Mode::Iteration && what == Settable::InRounds;
        if let Some(session) = self.session.as_mut().filter(|session| !in_rounds(session)) {
            session.refuse(what.refusal());
            set_error(ERR_USAGE, what.refusal());
            return;
        }
        match change {
            Ok(change) => change(&mut self.shaping),
            Err(why) => {
                set_error(ERR_USAGE, &why);
                self.refused.get_or_insert(why);
            }
        }
    }

    /// Returns the options of the next job or round.
    fn take_shaping(&mut self) -> Shaping {
        Shaping { refused: self.refused.take(), ..self.shaping.clone() }
    }

    /// Returns the error for a call without a job.
    fn no_job_error(&self) -> c_int {
        let other = self.world.is_none() && JOB_BEGAN.load(Ordering::Relaxed);
        set_error(ERR_USAGE, if other { WRONG_CALLER } else { "MPI_D_Init was not called" })
    }

    /// Handles a panic of the library or a failed comparator: the current task fails, and the job with it;
    /// between tasks, the job fails when it ends.
    #[cold]
    fn record_panic(&mut self, panic: &(dyn Any + Send)) -> c_int {
        let text = panic.downcast_ref::<&str>().map(|text| text.to_string());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        let message = match FAIL_MESSAGE.take() {
            Some(why) if why == text => why,
            _ => format!("the library panicked: {text}"),
        };
        let recorded = self.session.as_mut().filter(|session| session.task().is_some());
        // The task's state may be too broken to record the error.
        let recorded =
            recorded.is_some_and(|session| catch_unwind(AssertUnwindSafe(|| session.fail(&message))).is_ok());
        if !recorded {
            self.panicked.get_or_insert_with(|| message.clone());
        }
        set_error(ERR_JOB, message)
    }
}

/// Returns the bytes that C passed. `None`: a null pointer with a nonzero length, or a length beyond
/// `isize::MAX`.
///
/// # Safety
/// The header's promise: `data` points to `bytes` bytes, or `bytes` is 0; they stay unchanged for `'a`.
#[inline]
unsafe fn bytes_from<'a>(data: *const c_void, bytes: usize) -> Option<&'a [u8]> {
    if bytes == 0 {
        return Some(&[]);
    }
    if data.is_null() || bytes > isize::MAX as usize {
        return None;
    }
    // SAFETY: see above; bytes need no alignment.
    Some(unsafe { std::slice::from_raw_parts(data.cast(), bytes) })
}

/// Returns a key and a value, see [`bytes_from`].
///
/// # Safety
/// As of [`bytes_from`].
#[inline]
unsafe fn pair_from<'a>(
    key: *const c_void,
    key_bytes: usize,
    value: *const c_void,
    value_bytes: usize,
) -> Option<(&'a [u8], &'a [u8])> {
    // SAFETY: see above.
    unsafe { bytes_from(key, key_bytes).zip(bytes_from(value, value_bytes)) }
}

#[cold]
fn null_data() -> c_int {
    set_error(
        ERR_USAGE,
        "a null pointer to keys or values that are said to have bytes, or more of them than memory has",
    )
}

/// Writes through the caller's pointer unless it is null.
///
/// # Safety
/// The header's promise: `to` is null or points to a writable place for a `T`.
unsafe fn write_to<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: see above.
        unsafe { to.write(value) };
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn MPI_D_Set_arrangement(arrangement: c_int) {
    let known = match arrangement {
        0 => Ok(Arrangement::Plain),
        1 => Ok(Arrangement::Grouped),
        2 => Ok(Arrangement::Sorted),
        _ => Err(format!("there is no arrangement {arrangement}")),
    };
    let change = known.map(|arrangement| move |shaping: &mut Shaping| shaping.arrangement = arrangement);
    with_default(|state| state.set(Settable::InRounds, change));
}

#[unsafe(no_mangle)]
pub extern "C" fn MPI_D_Set_mode(mode: c_int) {
    let known = match mode {
        0 => Ok(Mode::Common),
        1 => Ok(Mode::Iteration),
        2 => Ok(Mode::Streaming),
        _ => Err(format!("there is no mode {mode}")),
    };
    let change = known.map(|mode| move |shaping: &mut Shaping| shaping.mode = mode);
    with_default(|state| state.set(Settable::Before, change));
}

#[unsafe(no_mangle)]
pub extern "C" fn MPI_D_Set_window(width: u64) {
    with_default(|state| {
        state.set(Settable::Before, Ok(|shaping: &mut Shaping| shaping.window_width = width))
    });
}

#[unsafe(no_mangle)]
pub extern "C" fn MPI_D_Set_combiner(combiner: Option<Combiner>) {
    let combine = combiner.map(|combiner| {
        let combine: Arc<CombineBytes> = Arc::new(move |key, held, value, out| {
            let room = held.len() + value.len() + COMBINED_ROOM;
            // The bytes beyond the held value are only room; their content is arbitrary.
            [held, value, &[0; COMBINED_ROOM]].iter().for_each(|bytes| out.extend_from_slice(bytes));
            let bytes = call_back(|| {
                combiner(
                    key.as_ptr().cast(),
                    key.len(),
                    out.as_mut_ptr().cast(),
                    held.len(),
                    room,
                    value.as_ptr().cast(),
                    value.len(),
                )
            })?;
            let why = match usize::try_from(bytes) {
                Ok(bytes) if bytes <= room => {
                    out.truncate(bytes);
                    return Ok(());
                }
                Ok(bytes) => format!("the combiner says that it wrote {bytes} bytes into room for {room}"),
                Err(_) if bytes == OUT_OF_RANGE => {
                    "with another value it is out of the combiner's range, which of MPI_D_Sum_int64 is that of int64_t".to_string()
                }
                Err(_) => "the combiner does not accept a value".to_string(),
            };
            Err(Rejected(why))
        });
        combine
    });
    with_default(|state| {
        state.set(Settable::InRounds, Ok(|shaping: &mut Shaping| shaping.combine = combine))
    });
}

#[unsafe(no_mangle)]
pub extern "C" fn MPI_D_Set_partitioner(partitioner: Option<Partitioner>) {
    let partition = partitioner.map(|partitioner| {
        let partition: Arc<PartitionBytes> =
            Arc::new(move |key, tasks| call_back(|| partitioner(key.as_ptr().cast(), key.len(), tasks)));
        partition
    });
    with_default(|state| {
        state.set(Settable::InRounds, Ok(|shaping: &mut Shaping| shaping.partition = partition))
    });
}

#[unsafe(no_mangle)]
pub extern "C" fn MPI_D_Set_comparator(comparator: Option<Comparator>) {
    let compare = comparator.map(|comparator| {
        let compare: Arc<CompareBytes> = Arc::new(move |left, right| {
            let order = call_back(|| {
                comparator(left.as_ptr().cast(), left.len(), right.as_ptr().cast(), right.len())
            });
            match order {
                Ok(order) => order.cmp(&0),
                // A comparator has no error result: fail as a panicking Rust comparator does, but print
                // nothing to stderr.
                Err(Rejected(why)) => {
                    FAIL_MESSAGE.set(Some(why.clone()));
                    resume_unwind(Box::new(why))
                }
            }
        });
        compare
    });
    with_default(|state| {
        state.set(Settable::InRounds, Ok(|shaping: &mut Shaping| shaping.compare = compare))
    });
}

/// # Safety
/// The header's promise for a combiner: `held` has `room` bytes, of which the first `held_bytes` are the
/// value.
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
    // SAFETY: both lengths were just checked to be eight; unaligned reads are allowed.
    let (left, right) =
        unsafe { (held.cast::<i64>().read_unaligned(), value.cast::<i64>().read_unaligned()) };
    let Some(sum) = left.checked_add(right) else { return OUT_OF_RANGE };
    // SAFETY: as above, and the caller allows writes to `held`.
    unsafe { held.cast::<i64>().write_unaligned(sum) };
    8
}

/// # Safety
/// As of [`MPI_D_Sum_int64`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_D_Sum_double(
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
    // SAFETY: both lengths were just checked to be eight, and the caller allows writes to `held`; unaligned
    // access is allowed.
    unsafe {
        let sum = held.cast::<f64>().read_unaligned() + value.cast::<f64>().read_unaligned();
        held.cast::<f64>().write_unaligned(sum);
    }
    8
}

#[unsafe(no_mangle)]
pub extern "C" fn MPI_D_Init(_argc: *mut c_int, _argv: *mut *mut *mut c_char) -> c_int {
    with_code(|state| {
        if state.session.is_some() || state.world.is_some() {
            return set_error(ERR_USAGE, "MPI_D_Init was called before");
        }
        if JOB_BEGAN.load(Ordering::Relaxed) {
            return set_error(ERR_USAGE, WRONG_CALLER);
        }
        if HAS_LEFT.load(Ordering::Relaxed) {
            let why = "a process joins its ranks once, and has left them with MPI_D_Finalize: a second job in it runs alone only";
            return set_error(ERR_RANKS, why);
        }
        state.panicked = None;
        tell_warnings();
        let world = match World::join() {
            Ok(world) => world,
            Err(error) => return state.job_fails(&error),
        };
        JOB_BEGAN.store(true, Ordering::Relaxed);
        exit::register();
        // Before the steps below, so that the ranks leave cleanly whatever the result.
        let shaping = state.take_shaping();
        let world = state.world.insert(world);
        let started =
            world.configure().and_then(|config| Session::start(world, &config, "program", &shaping));
        match started {
            Err(error) => state.job_fails(&error),
            Ok(session) => {
                state.session = Some(session);
                SUCCESS
            }
        }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn MPI_D_Next_task() -> c_int {
    with_default(|state| match &mut state.session {
        Some(session) if state.panicked.is_none() => session.next_task().map_or(0, |_| 1),
        // A panic or a failed MPI_D_Init was already reported.
        None if state.world.is_none() => {
            state.no_job_error();
            0
        }
        _ => 0,
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn MPI_D_Comm_bipartite(a_side: c_int) -> c_int {
    let wanted = if a_side == 0 { Side::O } else { Side::A };
    with_default(|state| match state.session.as_ref().and_then(Session::task) {
        Some((side, _)) if side == wanted => a_side + 1,
        _ => 0,
    })
}

/// # Safety
/// `rank` is null or points to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_D_Comm_rank(comm: c_int, rank: *mut c_int) -> c_int {
    with_code(|state| match state.session.as_ref().and_then(Session::task) {
        Some((side, index)) if comm == side as c_int + 1 => {
            // SAFETY: the header's promise.
            unsafe { write_to(rank, index as c_int) };
            SUCCESS
        }
        _ => set_error(ERR_USAGE, "the task is none of that communicator's"),
    })
}

/// # Safety
/// `size` is null or points to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_D_Comm_size(comm: c_int, size: *mut c_int) -> c_int {
    with_code(|state| {
        let side = match comm {
            1 => Side::O,
            2 => Side::A,
            _ => return set_error(ERR_USAGE, "there is no such communicator"),
        };
        match state.session.as_ref().map(|session| session.tasks(side)) {
            Some(tasks) => {
                // SAFETY: the header's promise.
                unsafe { write_to(size, tasks as c_int) };
                SUCCESS
            }
            None => state.no_job_error(),
        }
    })
}

impl State {
    /// Returns the session if it runs a task of this side.
    ///
    /// Errors: the code that the call must return.
    #[inline]
    fn task_of(&mut self, wanted: Side) -> Result<&mut Session, c_int> {
        match self.session.as_ref().map(|session| session.task().map(|(side, _)| side)) {
            Some(Some(side)) if side == wanted => Ok(self.session.as_mut().expect("it was just seen")),
            None => Err(self.no_job_error()),
            Some(_) => Err(set_error(ERR_USAGE, format!("no {wanted} runs"))),
        }
    }

    /// Runs a call of an O task; returns its code.
    fn in_o_task(&mut self, work: impl FnOnce(&mut Session) -> Result<(), EmitError>) -> c_int {
        match self.task_of(Side::O).map(work) {
            Err(code) => code,
            Ok(Ok(())) => SUCCESS,
            Ok(Err(error)) => set_error(ERR_JOB, error),
        }
    }
}

/// # Safety
/// `key` and `value` point to the given numbers of bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_D_Send(
    key: *const c_void,
    key_bytes: usize,
    value: *const c_void,
    value_bytes: usize,
) -> c_int {
    // SAFETY: the header's promise; the bytes are copied before this returns.
    let pair = unsafe { pair_from(key, key_bytes, value, value_bytes) };
    with_code(|state| match pair {
        Some((key, value)) => state.in_batch(|session| session.send(key, value)),
        None => null_data(),
    })
}

/// # Safety
/// `key` and `value` point to the given numbers of bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_D_Send_at(
    time: u64,
    key: *const c_void,
    key_bytes: usize,
    value: *const c_void,
    value_bytes: usize,
) -> c_int {
    // SAFETY: the header's promise; the bytes are copied before this returns.
    let pair = unsafe { pair_from(key, key_bytes, value, value_bytes) };
    with_code(|state| {
        let Some((key, value)) = pair else { return null_data() };
        let mut in_time = true;
        let sent = state.in_open_input(|session| {
            in_time = session.send_at(time, key, value)?;
            Ok(())
        });
        if sent == SUCCESS && !in_time { LATE } else { sent }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn MPI_D_Advance(time: u64) -> c_int {
    with_code(|state| state.in_open_input(|session| session.advance(time)))
}

#[unsafe(no_mangle)]
pub extern "C" fn MPI_D_End_input() -> c_int {
    with_code(|state| {
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
    with_code(|state| match state.session.as_ref().and_then(Session::window) {
        Some(window) => {
            // SAFETY: the header's promise.
            unsafe {
                write_to(begin, window.begin);
                write_to(end, window.end);
            }
            SUCCESS
        }
        None => set_error(ERR_USAGE, "no A task of a stream runs"),
    })
}

/// # Safety
/// `keys` and `values` point to `pairs` times the given numbers of bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_D_Send_many(
    pairs: usize,
    keys: *const c_void,
    key_bytes: usize,
    values: *const c_void,
    value_bytes: usize,
) -> c_int {
    let all = (pairs.saturating_mul(key_bytes), pairs.saturating_mul(value_bytes));
    // SAFETY: the header's promise; the bytes are copied before this returns.
    let given = unsafe { pair_from(keys, all.0, values, all.1) };
    with_code(|state| {
        let Some((keys, values)) = given else { return null_data() };
        state.in_batch(|session| {
            (0..pairs).try_for_each(|at| {
                let (key, value) = (at * key_bytes, at * value_bytes);
                session.send(&keys[key..key + key_bytes], &values[value..value + value_bytes])
            })
        })
    })
}

impl State {
    /// Runs a call of an O task that is not part of a stream, see [`State::in_o_task`].
    fn in_batch(&mut self, work: impl FnOnce(&mut Session) -> Result<(), EmitError>) -> c_int {
        match &self.session {
            Some(session) if session.mode() == Mode::Streaming => {
                set_error(ERR_USAGE, "a pair of a stream has a time: MPI_D_Send_at")
            }
            _ => self.in_o_task(work),
        }
    }

    /// Runs a call of a stream's O task, see [`State::in_o_task`].
    fn in_stream(&mut self, work: impl FnOnce(&mut Session) -> Result<(), EmitError>) -> c_int {
        match &self.session {
            Some(session) if session.mode() != Mode::Streaming => {
                set_error(ERR_USAGE, "only O tasks of streams have times")
            }
            _ => self.in_o_task(work),
        }
    }

    /// Runs a call of a stream's O task whose input has not ended, see [`State::in_stream`].
    fn in_open_input(&mut self, work: impl FnOnce(&mut Session) -> Result<(), EmitError>) -> c_int {
        if self.session.as_ref().is_some_and(Session::has_ended_input) {
            return set_error(ERR_USAGE, "the O task has ended its input with MPI_D_End_input");
        }
        self.in_stream(work)
    }
}

/// # Safety
/// `source` is null or a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_D_Reads(source: *const c_char) -> c_int {
    let source = match source.is_null() {
        true => String::new(),
        // SAFETY: the header's promise.
        false => unsafe { CStr::from_ptr(source) }.to_string_lossy().into_owned(),
    };
    with_code(|state| {
        state.in_o_task(|session| {
            session.reads(&source);
            Ok(())
        })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn MPI_D_At(position: u64) -> c_int {
    with_code(|state| {
        state.in_o_task(|session| {
            session.at(position);
            Ok(())
        })
    })
}

/// # Safety
/// The pointers are null or point to writable places for the results.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_D_Recv(
    key: *mut *const c_void,
    key_bytes: *mut usize,
    value: *mut *const c_void,
    value_bytes: *mut usize,
) -> c_int {
    with_code(|state| match state.task_of(Side::A).map(Session::receive) {
        Err(code) => code,
        Ok(Err(error)) => set_error(ERR_JOB, error),
        Ok(Ok(false)) => END,
        Ok(Ok(true)) => {
            let (bytes_of_key, bytes_of_value) = state.session.as_ref().expect("it has a pair").pair();
            // SAFETY: the header's promise. The bytes belong to the session and live until the next pair.
            unsafe {
                write_to(key, bytes_of_key.as_ptr().cast());
                write_to(key_bytes, bytes_of_key.len());
                write_to(value, bytes_of_value.as_ptr().cast());
                write_to(value_bytes, bytes_of_value.len());
            }
            SUCCESS
        }
    })
}

/// # Safety
/// `keys` and `values` have room for `pairs` times the given numbers of bytes; `received` is null or points
/// to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_D_Recv_many(
    pairs: usize,
    keys: *mut c_void,
    key_bytes: usize,
    values: *mut c_void,
    value_bytes: usize,
    received: *mut usize,
) -> c_int {
    with_code(|state| {
        // SAFETY: the header's promise.
        unsafe { write_to(received, 0) };
        if pairs > 0 && (keys.is_null() && key_bytes > 0 || values.is_null() && value_bytes > 0) {
            return null_data();
        }
        let mut count = 0;
        let code = loop {
            if count == pairs {
                break SUCCESS;
            }
            match state.task_of(Side::A).map(Session::receive) {
                Err(code) => break code,
                Ok(Err(error)) => break set_error(ERR_JOB, error),
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
                break set_error(ERR_JOB, message);
            }
            // SAFETY: the header promises room for this pair, and it does not overlap the session's memory.
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
        // SAFETY: the header's promise.
        unsafe { write_to(received, count) };
        code
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn MPI_D_Next_round() -> c_int {
    with_default(|state| {
        if state.world.is_none() {
            state.no_job_error();
        }
        if state.session.is_none() || state.panicked.is_some() {
            return 0;
        }
        let shaping = state.take_shaping();
        let session = state.session.as_mut().expect("it was just seen");
        match session.next_round(&shaping) {
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
    with_default(|state| state.session.as_ref().map_or(0, Session::round))
}

/// # Safety
/// `numbers` points to `count` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_D_Sum(numbers: *mut f64, count: usize) -> c_int {
    with_code(|state| {
        if state.panicked.is_some() {
            return ERR_JOB;
        }
        let Some(session) = state.session.as_mut().filter(|session| session.is_between_rounds()) else {
            return set_error(ERR_USAGE, "numbers are added up between rounds, when no task is left");
        };
        let numbers: &mut [f64] = match numbers.is_null() {
            true if count > 0 => return null_data(),
            true => &mut [],
            // SAFETY: the header's promise.
            false => unsafe { std::slice::from_raw_parts_mut(numbers, count) },
        };
        match session.sum(numbers) {
            Ok(()) => SUCCESS,
            Err(error) => state.job_fails(&error),
        }
    })
}

/// # Safety
/// `key` and `value` point to the given numbers of bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_D_Keep(
    key: *const c_void,
    key_bytes: usize,
    value: *const c_void,
    value_bytes: usize,
) -> c_int {
    // SAFETY: the header's promise; the bytes are copied before this returns.
    let pair = unsafe { pair_from(key, key_bytes, value, value_bytes) };
    with_code(|state| {
        let Some((key, value)) = pair else { return null_data() };
        match state.session.as_mut().is_some_and(|session| session.keep(key, value)) {
            true => SUCCESS,
            false => set_error(ERR_USAGE, "only an A task of rounds keeps pairs"),
        }
    })
}

/// # Safety
/// The pointers are null or point to writable places for the results.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_D_Kept(
    key: *mut *const c_void,
    key_bytes: *mut usize,
    value: *mut *const c_void,
    value_bytes: *mut usize,
) -> c_int {
    with_code(|state| {
        let Some(session) = state.session.as_mut().filter(|session| session.task().is_some()) else {
            return set_error(ERR_USAGE, "no task runs");
        };
        if session.mode() != Mode::Iteration {
            return set_error(ERR_USAGE, "only jobs of rounds have pairs that were kept (MPI_D_ITERATION)");
        }
        if !session.next_kept() {
            return END;
        }
        let (bytes_of_key, bytes_of_value) = session.kept_pair();
        // SAFETY: the header's promise. The bytes belong to the session and live until the task ends.
        unsafe {
            write_to(key, bytes_of_key.as_ptr().cast());
            write_to(key_bytes, bytes_of_key.len());
            write_to(value, bytes_of_value.as_ptr().cast());
            write_to(value_bytes, bytes_of_value.len());
        }
        SUCCESS
    })
}

/// # Safety
/// `message` is null or a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_D_Fail(message: *const c_char) -> c_int {
    let message = match message.is_null() {
        true => "no reason was given".to_string(),
        // SAFETY: the header's promise.
        false => unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned(),
    };
    if CALLING.get() != Calling::Nothing {
        CALLING.set(Calling::Failed);
        FAIL_MESSAGE.set(Some(message));
        return SUCCESS;
    }
    with_code(|state| match &mut state.session {
        Some(session) if session.task().is_some() => {
            session.fail(&message);
            SUCCESS
        }
        _ => set_error(ERR_USAGE, "no task runs"),
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn MPI_D_Finalize() -> c_int {
    with_code(|state| {
        let Some(world) = state.world.take() else { return state.no_job_error() };
        JOB_BEGAN.store(false, Ordering::Relaxed);
        let session = state.session.take();
        let code = match (state.panicked.take(), session) {
            // The other ranks detect that this rank did not finish the job, and fail too.
            (Some(message), session) => {
                // Dropping the broken session may panic once more; nothing else can be done for it.
                let _ = catch_unwind(AssertUnwindSafe(|| drop(session)));
                set_error(ERR_JOB, message)
            }
            // The job did not begin, and MPI_D_Init reported why.
            (None, None) => ERR_JOB,
            (None, Some(session)) => match catch_unwind(AssertUnwindSafe(|| session.finish())) {
                Ok(Ok(_)) => SUCCESS,
                Ok(Err(error)) => {
                    if world.rank() == 0 {
                        last_words(&error.to_string());
                    }
                    state.job_fails(&error)
                }
                // The ranks still leave cleanly.
                Err(panic) => {
                    let code = state.record_panic(&*panic);
                    state.panicked = None;
                    code
                }
            },
        };
        if world.ranks() > 1 {
            HAS_LEFT.store(true, Ordering::Relaxed);
        }
        match world.leave(code) {
            Ok(()) => code,
            Err(error) => state.job_fails(&error),
        }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn MPI_D_Error_message() -> *const c_char {
    // The string belongs to the thread and lives until the next error. A callback may ask for it, too.
    MESSAGE.try_with(|message| message.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::{null, null_mut};

    fn message() -> String {
        // SAFETY: it is a zero-terminated string, and no other call intervenes.
        unsafe { CStr::from_ptr(MPI_D_Error_message()) }.to_string_lossy().into_owned()
    }

    fn send(number: u64) -> c_int {
        // SAFETY: both point to eight bytes.
        unsafe { MPI_D_Send((&raw const number).cast(), 8, (&raw const number).cast(), 8) }
    }

    /// Runs a job of one rank with these options. Returns the code and the message of `MPI_D_Finalize`.
    fn job(shaping: Shaping) -> (c_int, String) {
        STATE.with_borrow_mut(|state| state.shaping = shaping);
        assert_eq!(MPI_D_Init(null_mut(), null_mut()), SUCCESS, "{}", message());
        while MPI_D_Next_task() == 1 {
            match MPI_D_Comm_bipartite(0) {
                0 => {
                    let mut length = 0;
                    // SAFETY: null pointers are not written to.
                    while unsafe { MPI_D_Recv(&mut null(), &mut length, null_mut(), null_mut()) } == SUCCESS {
                    }
                }
                _ => assert!((0..1000).all(|number| send(number % 10) == SUCCESS) || !message().is_empty()),
            }
        }
        (MPI_D_Finalize(), message())
    }

    /// Wherever the library panics, the process survives, and the job has failed. One test, as there is one
    /// job at a time.
    #[test]
    fn a_panic_is_an_error_of_the_job() {
        assert_eq!(call(|code| -code, |_| -> c_int { panic!("outside of a job") }), -ERR_JOB);
        assert_eq!(message(), "the library panicked: outside of a job");
        assert_eq!(job(Shaping::default()).0, SUCCESS);

        let partition: Arc<PartitionBytes> = Arc::new(|_, _| panic!("in a send"));
        let (code, message) = job(Shaping { partition: Some(partition), ..Shaping::default() });
        assert!(code == ERR_JOB && message.contains("the library panicked: in a send"), "{message}");
        assert!(message.contains("O task 0"), "{message}");

        let compare: Arc<CompareBytes> = Arc::new(|_, _| panic!("between tasks"));
        let shaping =
            Shaping { arrangement: Arrangement::Sorted, compare: Some(compare), ..Shaping::default() };
        let (code, message) = job(shaping);
        assert!(code == ERR_JOB && message.contains("between tasks"), "{message}");

        // Another job can run afterwards.
        assert_eq!(job(Shaping::default()).0, SUCCESS);
    }

    /// Every function must be guarded: a panic in an unguarded one would end the process.
    #[test]
    fn every_function_is_guarded() {
        let (source, _) = include_str!("lib.rs").split_once("#[cfg(test)]").unwrap();
        let source = format!("{source}{}", include_str!("input.rs"));
        let functions: Vec<(&str, &str)> = source
            .split("extern \"C\" fn MPI_D_")
            .skip(1)
            .map(|text| (text.split('(').next().unwrap(), text.split("\n}\n").next().unwrap()))
            .collect();
        assert!(functions.len() > 29, "{}", functions.len());
        for (name, body) in functions {
            let guarded = body.contains(" with_code(") || body.contains(" with_default(");
            assert!(guarded || ["Sum_int64", "Sum_double", "Error_message"].contains(&name), "MPI_D_{name}");
        }
    }

    #[test]
    fn sums_overflow_at_int64() {
        let sum = |left: i64, right: i64| {
            let (mut held, value) = (left, right);
            // SAFETY: both pointers are to the eight bytes of a number.
            let bytes = unsafe {
                MPI_D_Sum_int64(null(), 0, (&raw mut held).cast(), 8, 8, (&raw const value).cast(), 8)
            };
            (bytes, held)
        };
        assert_eq!(sum(i64::MAX, i64::MIN), (8, -1));
        assert_eq!(sum(i64::MAX - 1, 1), (8, i64::MAX));
        // The held value is unchanged.
        assert_eq!(sum(i64::MAX, 1), (OUT_OF_RANGE, i64::MAX));
        assert_eq!(sum(i64::MIN, -1), (OUT_OF_RANGE, i64::MIN));
    }

    #[test]
    fn doubles_are_added_as_such() {
        let sum = |left: f64, right: f64| {
            let (mut held, value) = (left, right);
            // SAFETY: both pointers are to the eight bytes of a number.
            let bytes = unsafe {
                MPI_D_Sum_double(null(), 0, (&raw mut held).cast(), 8, 8, (&raw const value).cast(), 8)
            };
            (bytes, held)
        };
        assert_eq!(sum(1.5, -4.25), (8, -2.75));
        assert_eq!(sum(f64::MAX, f64::MAX), (8, f64::INFINITY));
        // SAFETY: a value of four bytes is rejected before it is read.
        let bytes = unsafe { MPI_D_Sum_double(null(), 0, null_mut(), 8, 8, null(), 4) };
        assert_eq!(bytes, -1);
    }
}

//! Input of the current O task: splits of files and their lines, or a part of a range.
#![allow(non_snake_case)]

use crate::{END, ERR_JOB, ERR_USAGE, SUCCESS, null_data, set_error, with_code, write_to};
use harrier_mpid::Side;
use harrier_mpid::input::Split;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// # Safety
/// `paths` points to `count` zero-terminated strings, or is null and `count` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_D_Splits(paths: *const *const c_char, count: usize, split_bytes: u64) -> c_int {
    with_code(|state| {
        if count > 0 && paths.is_null() || count > isize::MAX as usize / size_of::<*const c_char>() {
            return null_data();
        }
        // SAFETY: the header's promise.
        let given = (0..count).map(|at| unsafe { *paths.add(at) });
        let mut named = Vec::new();
        for path in given {
            if path.is_null() {
                return set_error(ERR_USAGE, "a null pointer to the name of a file");
            }
            // SAFETY: the header's promise.
            named.push(PathBuf::from(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes())));
        }
        let split_bytes = Some(split_bytes).filter(|bytes| *bytes > 0);
        match state.task_of(Side::O).map(|session| session.share(&named, split_bytes)) {
            Err(code) => code,
            Ok(Ok(())) => SUCCESS,
            Ok(Err(why)) => set_error(ERR_JOB, why),
        }
    })
}

/// # Safety
/// The pointers are null or point to writable places for the results.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_D_Next_split(path: *mut *const c_char, begin: *mut u64, end: *mut u64) -> c_int {
    with_code(|state| {
        let split = match state.task_of(Side::O) {
            Err(code) => return code,
            Ok(session) => session.next_split(),
        };
        let Some(Split { path: name, begin: from, end: to }) = split else { return END };
        // A file name contains no zero byte.
        state.split = CString::new(name.as_os_str().as_bytes()).unwrap_or_default();
        // SAFETY: the header's promise. The name belongs to the thread and lives until the next split.
        unsafe {
            write_to(path, state.split.as_ptr());
            write_to(begin, from);
            write_to(end, to);
        }
        SUCCESS
    })
}

/// # Safety
/// The pointers are null or point to writable places for the results.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_D_Next_line(
    line: *mut *const c_void,
    bytes: *mut usize,
    position: *mut u64,
) -> c_int {
    with_code(|state| match state.task_of(Side::O).map(|session| session.next_line()) {
        Err(code) => code,
        Ok(Err(why)) => set_error(ERR_JOB, why),
        Ok(Ok(None)) => END,
        Ok(Ok(Some((at, text)))) => {
            // SAFETY: the header's promise. The line belongs to the session and lives until the next line.
            unsafe {
                write_to(line, text.as_ptr().cast());
                write_to(bytes, text.len());
                write_to(position, at);
            }
            SUCCESS
        }
    })
}

/// # Safety
/// The pointers are null or point to writable places for the results.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_D_Part(begin: u64, end: u64, own_begin: *mut u64, own_end: *mut u64) -> c_int {
    with_code(|state| {
        if begin > end {
            return set_error(ERR_USAGE, format!("a range that begins at {begin} does not end at {end}"));
        }
        let part = match state.task_of(Side::O) {
            Err(code) => return code,
            Ok(session) => session.part_of(begin..end).expect("an O task runs"),
        };
        // SAFETY: the header's promise.
        unsafe {
            write_to(own_begin, part.start);
            write_to(own_end, part.end);
        }
        SUCCESS
    })
}

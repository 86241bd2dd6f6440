//! Which part of an input is the current O task's: splits of files and their lines, or a part of a range.
#![allow(non_snake_case)]

use crate::{END, ERR_JOB, ERR_USAGE, SUCCESS, coded, fails, nothing_given, tell};
use harrier_mpid::Side;
use harrier_mpid::input::Split;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// # Safety
/// `paths` points to `count` texts that end with a zero, or is null and there are none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_D_Splits(paths: *const *const c_char, count: usize, split_bytes: u64) -> c_int {
    coded(|state| {
        if count > 0 && paths.is_null() || count > isize::MAX as usize / size_of::<*const c_char>() {
            return nothing_given();
        }
        // SAFETY: as the header says.
        let given = (0..count).map(|at| unsafe { *paths.add(at) });
        let mut named = Vec::new();
        for path in given {
            if path.is_null() {
                return fails(ERR_USAGE, "a null pointer to the name of a file");
            }
            // SAFETY: as the header says.
            named.push(PathBuf::from(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes())));
        }
        let split_bytes = Some(split_bytes).filter(|bytes| *bytes > 0);
        match state.task_of(Side::O).map(|session| session.share(&named, split_bytes)) {
            Err(code) => code,
            Ok(Ok(())) => SUCCESS,
            Ok(Err(why)) => fails(ERR_JOB, why),
        }
    })
}

/// # Safety
/// The pointers are null or point to places for what is returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_D_Next_split(path: *mut *const c_char, begin: *mut u64, end: *mut u64) -> c_int {
    coded(|state| {
        let split = match state.task_of(Side::O) {
            Err(code) => return code,
            Ok(session) => session.next_split(),
        };
        let Some(Split { path: name, begin: from, end: to }) = split else { return END };
        // A name of a file has no zero in it.
        state.split = CString::new(name.as_os_str().as_bytes()).unwrap_or_default();
        // SAFETY: as the header says. The name belongs to the thread, which keeps it until it comes to
        // another split.
        unsafe {
            tell(path, state.split.as_ptr());
            tell(begin, from);
            tell(end, to);
        }
        SUCCESS
    })
}

/// # Safety
/// The pointers are null or point to places for what is returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_D_Next_line(
    line: *mut *const c_void,
    bytes: *mut usize,
    position: *mut u64,
) -> c_int {
    coded(|state| match state.task_of(Side::O).map(|session| session.next_line()) {
        Err(code) => code,
        Ok(Err(why)) => fails(ERR_JOB, why),
        Ok(Ok(None)) => END,
        Ok(Ok(Some((at, text)))) => {
            // SAFETY: as the header says. The line belongs to the session, which keeps it until it comes to
            // another one.
            unsafe {
                tell(line, text.as_ptr().cast());
                tell(bytes, text.len());
                tell(position, at);
            }
            SUCCESS
        }
    })
}

/// # Safety
/// The pointers are null or point to places for what is returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_D_Part(begin: u64, end: u64, own_begin: *mut u64, own_end: *mut u64) -> c_int {
    coded(|state| {
        if begin > end {
            return fails(ERR_USAGE, format!("a range that begins at {begin} does not end at {end}"));
        }
        let part = match state.task_of(Side::O) {
            Err(code) => return code,
            Ok(session) => session.part_of(begin..end).expect("an O task runs"),
        };
        // SAFETY: as the header says.
        unsafe {
            tell(own_begin, part.start);
            tell(own_end, part.end);
        }
        SUCCESS
    })
}

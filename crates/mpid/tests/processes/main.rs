//! Jobs whose ranks are processes: the library's programs, and the launcher `mpidrun`.
//!
//! The tests of this folder are one program, which is linked once. Those of one file: `cargo test -p
//! harrier-mpid --test processes mpidrun::`.

mod mpidrun;
mod programs;

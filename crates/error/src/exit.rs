//! The exit statuses of the command line, which scripts rely on.

/// Everything succeeded.
pub const DONE: u8 = 0;
/// A statement failed.
pub const FAILED: u8 = 1;
/// Wrong usage.
pub const USAGE: u8 = 2;
/// The gang or the warehouse failed, or this machine lacks a requirement.
pub const BROKEN: u8 = 3;

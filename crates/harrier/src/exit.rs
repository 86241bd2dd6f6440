//! The exit statuses of the command line, which scripts rely on.

pub(crate) const DONE: u8 = 0;
/// A statement failed.
pub(crate) const FAILED: u8 = 1;
/// Wrong usage.
pub(crate) const USAGE: u8 = 2;
/// The gang or the warehouse failed, or this machine cannot run what it should.
pub(crate) const BROKEN: u8 = 3;

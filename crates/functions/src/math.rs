//! Numbers: operators that fail where a result is out of range, quotients, rounding, and decimals as doubles.

pub mod checked;
pub mod decimal_to_double;
pub mod quotient;
pub mod rounding;

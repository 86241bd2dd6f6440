//! Numbers: overflow-checked operators, quotients, rounding, decimals as doubles, and floats as decimals.

pub mod checked;
pub mod decimal_to_double;
pub mod float_to_decimal;
pub mod quotient;
pub mod rounding;

//! Numbers: checked operators, quotients, rounding, logarithms, decimals as doubles, floats as decimals.

pub mod checked;
pub mod decimal_to_double;
pub mod float_to_decimal;
pub mod logarithm;
pub mod quotient;
pub mod rounding;

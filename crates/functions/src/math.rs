//! Numbers: checked operators, quotients, rounding, functions that are not defined for all floats, decimals
//! as doubles, floats as decimals.

pub mod checked;
pub mod decimal_to_double;
pub mod domain;
pub mod float_to_decimal;
pub mod quotient;
pub mod rounding;

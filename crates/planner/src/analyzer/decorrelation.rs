//! Subqueries that speak of columns of the query around them, evaluated as the standard says: for each row of
//! that query.
//!
//! DataFusion joins them to the rows around by taking their conditions out of them. That is right for plain
//! conditions alone: past an aggregate, a LIMIT, a window or an outer join the same condition is about other
//! rows. Two rules leave to DataFusion what it does right.
//!
//! - [`QuantifiedSubqueries`]: IN, ANY and ALL become EXISTS over a comparison, by which NULLs come out as
//!   they have to wherever it stands.
//! - [`Decorrelation`]: what [`plain`] does not accept is computed for all values of the outer columns at
//!   once, and joined by these.
//!
//! ```text
//!   (SELECT max(y) FROM b WHERE b.g < a.g)
//!
//!   a LEFT JOIN (SELECT k, max(y) … GROUP BY k) ON a.g = k
//!                       │
//!                 b.g < k: (SELECT DISTINCT a.g AS k FROM a) × b
//! ```
//!
//! Source: Neumann and Kemper, Unnesting Arbitrary Queries, BTW 2015. Upstream: apache/datafusion#24960,
//! #25283, #25347, #25473, #21202.
//!
//! `QuantifiedSubqueries` can go when IN, ANY and ALL are right with NULLs as values and in all places.
//!
//! `Decorrelation` can go when DataFusion unnests arbitrary subqueries (apache/datafusion#5492, open); paper:
//! Neumann and Kemper, BTW 2015.

mod conditions;
mod dependent;
mod plain;
mod quantified;
pub(crate) mod references;
mod unnest;

pub(crate) use quantified::QuantifiedSubqueries;
pub(crate) use references::free;
pub(crate) use unnest::Decorrelation;

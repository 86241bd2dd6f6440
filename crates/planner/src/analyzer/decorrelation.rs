//! Decorrelation of subqueries: joins that return what evaluating a correlated subquery for each outer row
//! would, as the SQL standard defines.
//!
//! DataFusion decorrelates by pulling conditions up into a join. This is only correct for plain conditions:
//! above an aggregate, a LIMIT, a window or an outer join the same condition applies to other rows. Two rules
//! leave to DataFusion only the cases that it handles correctly.
//!
//! - [`QuantifiedSubqueries`]: IN, ANY and ALL become EXISTS over a comparison, which yields the correct NULL
//!   results in all contexts.
//! - [`Decorrelation`]: subqueries that [`plain`] does not accept are computed for all values of the outer
//!   columns at once (dependent join), and joined on these.
//!
//! ```text
//!   (SELECT max(y) FROM b WHERE b.g < a.g)
//!
//!   a LEFT JOIN (SELECT k, max(y) … GROUP BY k) ON a.g = k
//!                       │
//!                 b.g < k: (SELECT DISTINCT a.g AS k FROM a) × b
//! ```
//!
//! The outer rows are read twice: for the values, and for the join. Rows that could be others the second time
//! are computed once ([`shared`]). Values of rows for which SQL does not evaluate a subquery are left out, if
//! it may fail ([`guards`]).
//!
//! Source: Neumann and Kemper, Unnesting Arbitrary Queries, BTW 2015. Upstream: apache/datafusion#24960,
//! #25283, #25347, #25473, #21202.
//!
//! `QuantifiedSubqueries` can go when IN, ANY and ALL treat NULLs correctly as values and in all contexts.
//!
//! `Decorrelation` can go when DataFusion unnests arbitrary subqueries (apache/datafusion#5492, open); paper:
//! Neumann and Kemper, BTW 2015.

mod carried;
mod conditions;
mod dependent;
mod guards;
mod plain;
mod quantified;
pub(crate) mod references;
mod shared;
mod unnest;

pub(crate) use quantified::QuantifiedSubqueries;
pub(crate) use references::free_references;
pub(crate) use unnest::Decorrelation;

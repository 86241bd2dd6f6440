//! Joins of very many relations, which are left in the order in which they are written.
//!
//! DataFusion's rule against products of relations without a condition between them takes a chain of inner
//! joins apart and puts it together again, and then does the same with each shorter chain in it. The time
//! grows with the third power of their number: 900 relations took more than half a minute. Beyond
//! [`RELATIONS_MAX`] the order is the one that is written; conditions of WHERE still become those of joins.
//! PostgreSQL does so beyond 8 (`join_collapse_limit`).
//!
//! ```text
//! plan with chains of inner joins of at most 64 relations  ─►  what eliminate_cross_join makes of it
//! plan with a chain of 65 relations or more                ─►  the same plan
//! ```
//! Only the order is left alone: conditions of WHERE still become those of the joins.
//!
//! `JoinChainLimit` can go when eliminate_cross_join does not go over each shorter chain again; no issue
//! found (apache/datafusion#22612 helps plans without joins only); PostgreSQL 20.7.4.

use std::sync::Arc;

use datafusion::common::JoinType;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// Relations of a chain of inner joins whose order is still looked at.
const RELATIONS_MAX: usize = 64;

/// The rule, in the place of DataFusion's.
#[derive(Debug)]
struct JoinChainLimit(Arc<dyn OptimizerRule + Send + Sync>);

/// Keeps long chains of joins from the rule that puts them in another order.
pub fn guard(rules: &mut [Arc<dyn OptimizerRule + Send + Sync>]) {
    for rule in rules.iter_mut().filter(|rule| rule.name() == "eliminate_cross_join") {
        *rule = Arc::new(JoinChainLimit(Arc::clone(rule)));
    }
}

impl OptimizerRule for JoinChainLimit {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match longest(&plan)? > RELATIONS_MAX {
            true => Ok(Transformed::no(plan)),
            false => self.0.rewrite(plan, config),
        }
    }
}

/// Relations of the longest chain of inner joins in a plan and its subqueries.
fn longest(plan: &LogicalPlan) -> Result<usize> {
    let mut longest_below = 0;
    // Of each chain, how many relations it has.
    let mut chains: Vec<usize> = Vec::new();
    let mut open = vec![(plan, None)];
    while let Some((plan, above)) = open.pop() {
        let chain = match plan {
            LogicalPlan::Join(join) if join.join_type == JoinType::Inner => {
                Some(above.unwrap_or_else(|| {
                    chains.push(1);
                    chains.len() - 1
                }))
            }
            _ => None,
        };
        if let Some(chain) = chain {
            chains[chain] += 1;
        }
        open.extend(plan.inputs().into_iter().map(|input| (input, chain)));
        plan.apply_subqueries(|subquery| {
            longest_below = longest(subquery)?.max(longest_below);
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    Ok(chains.into_iter().max().unwrap_or(0).max(longest_below))
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::logical_expr::{LogicalPlanBuilder, lit};

    fn one(name: &str) -> LogicalPlanBuilder {
        let row = LogicalPlanBuilder::values(vec![vec![lit(1)]]).unwrap();
        row.alias(name).unwrap()
    }

    fn chain(count: usize) -> LogicalPlanBuilder {
        (1..count)
            .fold(one("t0"), |plan, at| plan.cross_join(one(&format!("t{at}")).build().unwrap()).unwrap())
    }

    #[test]
    fn relations_of_a_chain_are_counted() {
        let of = |plan: LogicalPlanBuilder| longest(&plan.build().unwrap()).unwrap();
        assert_eq!(of(one("t")), 0);
        assert_eq!(of(chain(5)), 5);
        // What is below something else is another chain.
        let below = chain(7).filter(lit(true)).unwrap().build().unwrap();
        assert_eq!(of(one("u").cross_join(below).unwrap()), 7);
        let outer = chain(3).join_on(one("u").build().unwrap(), JoinType::Left, [lit(true)]).unwrap();
        assert_eq!(of(outer), 3);
    }
}

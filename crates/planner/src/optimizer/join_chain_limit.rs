//! Limit on join reordering: very long chains of inner joins keep the order in which they are written.
//!
//! DataFusion's eliminate_cross_join takes a chain of inner joins apart and rebuilds it, then repeats this
//! for each shorter chain in it. Its run time is cubic in the number of relations: 900 took more than half a
//! minute. Beyond [`RELATIONS_MAX`] relations the written order is kept. PostgreSQL does so beyond 8
//! (`join_collapse_limit`).
//!
//! ```text
//! plan with chains of inner joins of at most 64 relations  ─►  the output of eliminate_cross_join
//! plan with a chain of 65 relations or more                ─►  the same plan
//! ```
//! Only the order is kept: WHERE conditions still become join conditions.
//!
//! `JoinChainLimit` can go when eliminate_cross_join does not visit each shorter chain again; no issue found
//! (apache/datafusion#22612 helps only plans without joins); PostgreSQL 20.7.4.

use std::sync::Arc;

use datafusion::common::JoinType;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use crate::delegation::delegate_optimizer_rule;

/// The maximum number of relations in a chain of inner joins that is reordered.
const RELATIONS_MAX: usize = 64;

/// Wraps DataFusion's rule.
#[derive(Debug)]
struct JoinChainLimit(Arc<dyn OptimizerRule + Send + Sync>);

/// Wraps the rule that reorders joins in `rules`.
pub fn guard(rules: &mut [Arc<dyn OptimizerRule + Send + Sync>]) {
    for rule in rules.iter_mut().filter(|rule| rule.name() == "eliminate_cross_join") {
        *rule = Arc::new(JoinChainLimit(Arc::clone(rule)));
    }
}

impl OptimizerRule for JoinChainLimit {
    delegate_optimizer_rule!();

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match longest_chain(&plan)? > RELATIONS_MAX {
            true => Ok(Transformed::no(plan)),
            false => self.0.rewrite(plan, config),
        }
    }
}

/// The number of relations in the longest chain of inner joins in a plan and its subqueries.
fn longest_chain(plan: &LogicalPlan) -> Result<usize> {
    let mut longest_below = 0;
    // The number of relations of each chain.
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
            longest_below = longest_chain(subquery)?.max(longest_below);
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
        let of = |plan: LogicalPlanBuilder| longest_chain(&plan.build().unwrap()).unwrap();
        assert_eq!(of(one("t")), 0);
        assert_eq!(of(chain(5)), 5);
        // Below another operator a new chain begins.
        let below = chain(7).filter(lit(true)).unwrap().build().unwrap();
        assert_eq!(of(one("u").cross_join(below).unwrap()), 7);
        let outer = chain(3).join_on(one("u").build().unwrap(), JoinType::Left, [lit(true)]).unwrap();
        assert_eq!(of(outer), 3);
    }
}

//! Which joins may change places: for each join, the relations that it needs on its sides, and rules about
//! what else must be there. This is the conflict detector CD-C.
//!
//! Two joins change places in three ways, each of which holds for some kinds only:
//!
//! ```text
//! associative        (a ∘ b) • c  =  a ∘ (b • c)
//! left asscommutative  (a ∘ b) • c  =  (a • c) ∘ b
//! right asscommutative a ∘ (b • c)  =  b • (a ∘ c)
//! ```
//!
//! A join gets a rule for each join below it with which it must not change places in one of these ways. A
//! mark join moves as a semi join does, but never below or above a full join, which would pad its mark. A
//! single join moves as a left join does where it then sees no row that it would not have seen as written:
//! otherwise it would raise errors that the statement does not have. (It may lose errors.)
//!
//! Source: G. Moerkotte, P. Fender and M. Eich, "On the Correct and Complete Enumeration of the Core Search
//! Space", SIGMOD 2013, tables 2 and 3 and section 5.4; T. Neumann, V. Leis and A. Kemper, "The Complete
//! Story of Joins (in HyPer)", BTW 2017, for mark and single joins.

use super::relation_set::RelationSet;
use super::written_tree::{JoinKind, WrittenJoin};

use JoinKind::{Full, Inner, Left, LeftAnti, LeftMark, LeftSemi, Single};

/// If one of `when` takes part in a join, all of `then` must do so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConflictRule {
    /// Relations that call for others.
    pub when: RelationSet,
    /// The relations that are called for.
    pub then: RelationSet,
}

impl ConflictRule {
    /// Whether a join with these relations, of both sides, keeps the rule.
    pub fn allows(&self, relations: RelationSet) -> bool {
        !self.when.intersects(relations) || self.then.is_subset(relations)
    }
}

/// What a join, or one conjunct of an inner join, needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eligibility {
    /// The relations that must be there.
    pub relations: RelationSet,
    /// The rules that these do not fulfil yet.
    pub rules: Vec<ConflictRule>,
}

impl Eligibility {
    /// The needs of a predicate that reads `references`, at a join with `rules`.
    pub fn new(references: RelationSet, rules: &[ConflictRule]) -> Self {
        let mut relations = references;
        let mut rules = rules.to_vec();
        while let Some(at) = rules.iter().position(|rule| rule.when.intersects(relations)) {
            relations |= rules.swap_remove(at).then;
        }
        rules.retain(|rule| !rule.then.is_subset(relations));
        rules.sort_by_key(|rule| (rule.when, rule.then));
        rules.dedup();
        Self { relations, rules }
    }

    /// Whether all that it needs is in a join with these relations, of both sides.
    pub fn allows(&self, relations: RelationSet) -> bool {
        self.relations.is_subset(relations) && self.rules.iter().all(|rule| rule.allows(relations))
    }
}

/// The rules of a join against those below it, which `joins` must contain.
pub fn find_conflict_rules(join: &WrittenJoin, joins: &[WrittenJoin]) -> Vec<ConflictRule> {
    let mut rules = Vec::new();
    for below in joins {
        let (left, right) = (find_references(below, below.left), find_references(below, below.right));
        if below.relations().is_subset(join.left) {
            if !is_associative(below, join) {
                rules.push(ConflictRule { when: below.right, then: left });
            }
            if !is_left_asscommutative(below, join) {
                rules.push(ConflictRule { when: below.left, then: right });
            }
        } else if below.relations().is_subset(join.right) {
            if !is_associative(join, below) {
                rules.push(ConflictRule { when: below.left, then: right });
            }
            if !is_right_asscommutative(join, below) {
                rules.push(ConflictRule { when: below.right, then: left });
            }
        }
    }
    rules
}

/// The relations of a side without which the join below cannot have happened.
fn find_references(join: &WrittenJoin, side: RelationSet) -> RelationSet {
    join.references & side
}

/// Whether the predicates of a join reject NULLs of each relation of `of` that they read.
fn rejects_nulls(join: &WrittenJoin, of: RelationSet) -> bool {
    let read = join.references & of;
    !read.is_empty() && read.is_subset(join.null_rejecting)
}

/// Whether `(a first b) second c` is `a first (b second c)`.
fn is_associative(first: &WrittenJoin, second: &WrittenJoin) -> bool {
    let middle = first.right & second.left;
    match (first.kind, second.kind) {
        (Inner, Inner | Left | LeftSemi | LeftAnti | LeftMark) => true,
        (Left, Left) | (Full, Left | Single) => rejects_nulls(second, middle),
        (Full, Full) => rejects_nulls(first, middle) && rejects_nulls(second, middle),
        _ => false,
    }
}

/// Whether `(a first b) second c` is `(a second c) first b`, where `first` is below `second` as written.
fn is_left_asscommutative(first: &WrittenJoin, second: &WrittenJoin) -> bool {
    match (first.kind, second.kind) {
        (Full, Full) => rejects_nulls(first, first.left) && rejects_nulls(second, first.left),
        (Full, Left | Single) => rejects_nulls(second, first.left),
        (Left | Single, Full) => rejects_nulls(first, first.left),
        (Full, _) | (_, Full) => false,
        (Inner | LeftSemi | LeftAnti, Single) => false,
        _ => true,
    }
}

/// Whether `a first (b second c)` is `b second (a first c)`.
fn is_right_asscommutative(first: &WrittenJoin, second: &WrittenJoin) -> bool {
    match (first.kind, second.kind) {
        (Inner, Inner) => true,
        (Full, Full) => rejects_nulls(first, second.right) && rejects_nulls(second, second.right),
        _ => false,
    }
}

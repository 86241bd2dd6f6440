//! The tree of joins as a statement has it: kinds of joins, predicates, and which relations they read.

use super::relation_set::RelationSet;

/// A column of a relation: a name that the caller gives to what it compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Column {
    /// The relation's number.
    pub relation: usize,
    /// The column's number within the relation.
    pub number: usize,
}

/// What a join keeps. Joins of the right side are written with their sides swapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JoinKind {
    /// Pairs of rows that fulfil the predicates.
    Inner,
    /// As inner, and rows of the left side without a partner, with NULLs for the right side.
    Left,
    /// As left, and rows of the right side without a partner.
    Full,
    /// Rows of the left side that have a partner.
    LeftSemi,
    /// Rows of the left side that have no partner; also for NOT IN, whose NULLs keep rows from passing.
    LeftAnti,
    /// All rows of the left side, with a column that says whether there is a partner.
    LeftMark,
    /// As left, and an error where a row has more than one partner: a scalar subquery.
    Single,
}

impl JoinKind {
    /// Whether the columns of the right side are gone after the join.
    pub fn hides_right(self) -> bool {
        matches!(self, Self::LeftSemi | Self::LeftAnti | Self::LeftMark)
    }
}

/// A condition of a join. It may be evaluated for rows for which it is not evaluated as written, so that one
/// that may raise an error, or is volatile, must not be here. Conditions on one relation alone belong to the
/// leaf: one that reads a single side needs all of the other side before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Predicate {
    /// The caller's name for it, unique within the tree.
    pub id: usize,
    /// The relations whose columns it reads. Who reads the column that a mark join adds reads all relations
    /// of that join's right side.
    pub relations: RelationSet,
    /// Those of them of which it rejects NULLs: it is not true of a row in which all columns of one of these
    /// relations are NULL. Empty is always right; more lets more joins change places.
    pub null_rejecting: RelationSet,
    /// The columns, if all that it says is that two columns of different relations are equal and none of
    /// them NULL, by an equality that is transitive (one type, no NaN that differs from itself).
    pub equality: Option<(Column, Column)>,
}

impl Predicate {
    /// A predicate that two columns are equal.
    pub fn equal(id: usize, left: Column, right: Column) -> Self {
        let relations = RelationSet::single(left.relation) | RelationSet::single(right.relation);
        Self { id, relations, null_rejecting: relations, equality: Some((left, right)) }
    }
}

/// A predicate that a join evaluates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AppliedPredicate {
    /// The one of this name.
    Written(usize),
    /// An equality of columns that follows from written ones. The first column is of the side that was left
    /// as written, which may be the right one here.
    Implied(Column, Column),
}

/// The joins as written. The leaves are relations, numbered from 0 in any order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WrittenTree {
    /// A relation.
    Leaf(usize),
    /// A join.
    Join {
        /// What it keeps.
        kind: JoinKind,
        /// Its conjuncts. Those of an inner join may be evaluated at different joins of the result.
        predicates: Vec<Predicate>,
        /// The left side, which is the preserved one of joins that are not symmetric.
        left: Box<WrittenTree>,
        /// The right side.
        right: Box<WrittenTree>,
    },
}

impl WrittenTree {
    /// A join of two trees.
    pub fn join(kind: JoinKind, predicates: Vec<Predicate>, left: Self, right: Self) -> Self {
        Self::Join { kind, predicates, left: Box::new(left), right: Box::new(right) }
    }

    /// Its relations.
    pub fn relations(&self) -> RelationSet {
        self.leaves().into_iter().collect()
    }

    /// How many leaves it has.
    pub fn leaf_count(&self) -> usize {
        self.leaves().len()
    }

    /// Its relations, from left to right.
    pub fn leaves(&self) -> Vec<usize> {
        match self {
            Self::Leaf(relation) => vec![*relation],
            Self::Join { left, right, .. } => {
                let mut leaves = left.leaves();
                leaves.extend(right.leaves());
                leaves
            }
        }
    }
}

/// A join of the written tree with what the algorithms ask of it.
#[derive(Clone, Debug)]
pub struct WrittenJoin<'a> {
    /// What it keeps.
    pub kind: JoinKind,
    /// The relations of its left side.
    pub left: RelationSet,
    /// The relations of its right side.
    pub right: RelationSet,
    /// The relations that its predicates read, completed by [`WrittenJoin::complete`].
    pub references: RelationSet,
    /// Those of which its predicates together reject NULLs.
    pub null_rejecting: RelationSet,
    /// Its predicates.
    pub predicates: &'a [Predicate],
}

impl WrittenJoin<'_> {
    /// All its relations.
    pub fn relations(&self) -> RelationSet {
        self.left | self.right
    }

    /// The relations that a predicate of the join needs. One that reads nothing of a side needs all of it:
    /// the rules for changing places hold for predicates that connect both sides.
    pub fn complete(&self, references: RelationSet) -> RelationSet {
        [self.left, self.right]
            .into_iter()
            .filter(|side| !side.intersects(references))
            .fold(references, |all, side| all | side)
    }
}

/// The joins of a tree, each before those below it.
pub fn list_joins(tree: &WrittenTree) -> Vec<WrittenJoin<'_>> {
    let WrittenTree::Join { kind, predicates, left, right } = tree else { return Vec::new() };
    let read = predicates.iter().fold(RelationSet::EMPTY, |all, predicate| all | predicate.relations);
    let null_rejecting =
        predicates.iter().fold(RelationSet::EMPTY, |all, predicate| all | predicate.null_rejecting);
    let mut join = WrittenJoin {
        kind: *kind,
        left: left.relations(),
        right: right.relations(),
        references: read,
        null_rejecting,
        predicates,
    };
    join.references = join.complete(read);
    let mut joins = vec![join];
    joins.extend(list_joins(left));
    joins.extend(list_joins(right));
    joins
}

//! Query tree that prints itself as SQL and enumerates its smaller versions.
//!
//! Smaller versions need not be valid: those that the oracle rejects are not used.

use std::fmt;

/// The type of an expression, as distinguished by the generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Integer,
    Decimal,
    Float,
    Text,
    Date,
    Boolean,
    /// A list or a struct: passed through, but not computed with, and not ordered by.
    Nested,
}

#[derive(Debug, Clone)]
pub enum Piece {
    Text(String),
    Expression(Expression),
    Query(Box<Query>),
}

/// An expression: text with expressions and queries in it.
#[derive(Debug, Clone)]
pub struct Expression {
    pub kind: Kind,
    pub pieces: Vec<Piece>,
}

#[derive(Debug, Clone)]
pub enum Relation {
    /// A table, or anything else allowed in its place.
    Text(String),
    Query(Box<Query>),
}

#[derive(Debug, Clone)]
pub struct Source {
    pub relation: Relation,
    pub alias: String,
}

#[derive(Debug, Clone)]
pub struct Join {
    /// For example `left join`.
    pub how: &'static str,
    pub source: Source,
    pub on: Vec<Expression>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grouping {
    Plain,
    Rollup,
    Cube,
}

#[derive(Debug, Clone)]
pub struct Select {
    pub distinct: bool,
    /// The columns, named c1, c2, ….
    pub items: Vec<Expression>,
    pub from: Source,
    pub joins: Vec<Join>,
    pub filters: Vec<Expression>,
    /// How many of the first items are grouped by.
    pub group: usize,
    pub grouping: Grouping,
    pub having: Vec<Expression>,
}

#[derive(Debug, Clone)]
pub struct Query {
    pub with: Vec<(String, Query)>,
    pub first: Select,
    /// Set operations, such as `union all`, with their right sides.
    pub others: Vec<(&'static str, Select)>,
    /// One entry per column, such as `2 desc nulls last`, or none.
    pub order: Vec<String>,
    /// Limit and offset.
    pub limit: Option<(usize, usize)>,
}

impl Query {
    pub fn is_ordered(&self) -> bool {
        !self.order.is_empty()
    }

    pub fn kinds(&self) -> Vec<Kind> {
        self.first.items.iter().map(|item| item.kind).collect()
    }

    /// Reduced queries, largest reductions first.
    pub fn smaller(&self) -> Vec<Self> {
        let mut smaller = Vec::new();
        let mut push = |change: &dyn Fn(&mut Self)| {
            let mut query = self.clone();
            change(&mut query);
            smaller.push(query);
        };
        if let Relation::Query(inner) = &self.first.from.relation {
            push(&|query| *query = (**inner).clone());
        }
        for (_, inner) in &self.with {
            push(&|query| *query = inner.clone());
        }
        for (_, select) in &self.others {
            push(&|query| {
                query.first = select.clone();
                query.others.clear();
            });
        }
        for i in 0..self.others.len() {
            push(&|query| drop(query.others.remove(i)));
        }
        for i in 0..self.with.len() {
            push(&|query| drop(query.with.remove(i)));
        }
        if self.limit.is_some() {
            push(&|query| query.limit = None);
        }
        if self.is_ordered() {
            push(&|query| {
                query.order.clear();
                query.limit = None;
            });
        }
        if self.first.items.len() > 1 {
            for i in 0..self.first.items.len() {
                push(&|query| {
                    query.order.clear();
                    query.limit = None;
                    query.first.remove_item(i);
                    for (_, select) in &mut query.others {
                        select.remove_item(i);
                    }
                });
            }
        }
        for select in self.first.smaller() {
            push(&|query| query.first = select.clone());
        }
        for (i, (_, other)) in self.others.iter().enumerate() {
            for select in other.smaller() {
                push(&|query| query.others[i].1 = select.clone());
            }
        }
        for (i, (_, with)) in self.with.iter().enumerate() {
            for inner in with.smaller() {
                push(&|query| query.with[i].1 = inner.clone());
            }
        }
        smaller
    }
}

impl Select {
    fn remove_item(&mut self, i: usize) {
        self.items.remove(i);
        if i < self.group {
            self.group -= 1;
        }
    }

    fn smaller(&self) -> Vec<Self> {
        let mut smaller = Vec::new();
        let mut push = |change: &dyn Fn(&mut Self)| {
            let mut select = self.clone();
            change(&mut select);
            smaller.push(select);
        };
        for i in 0..self.joins.len() {
            push(&|select| drop(select.joins.remove(i)));
        }
        if self.filters.len() + self.having.len() > 1 {
            push(&|select| {
                select.filters.clear();
                select.having.clear();
            });
        }
        for i in 0..self.filters.len() {
            push(&|select| drop(select.filters.remove(i)));
        }
        for i in 0..self.having.len() {
            push(&|select| drop(select.having.remove(i)));
        }
        if self.distinct {
            push(&|select| select.distinct = false);
        }
        if self.grouping != Grouping::Plain {
            push(&|select| select.grouping = Grouping::Plain);
        }
        for inner in self.from.smaller() {
            push(&|select| select.from = inner.clone());
        }
        for (i, join) in self.joins.iter().enumerate() {
            for inner in join.source.smaller() {
                push(&|select| select.joins[i].source = inner.clone());
            }
            if join.on.len() > 1 {
                for j in 0..join.on.len() {
                    push(&|select| drop(select.joins[i].on.remove(j)));
                }
            }
            for (j, on) in join.on.iter().enumerate() {
                for expression in on.smaller() {
                    push(&|select| select.joins[i].on[j] = expression.clone());
                }
            }
        }
        type List = fn(&mut Select) -> &mut Vec<Expression>;
        let lists: [(&Vec<Expression>, List); 3] = [
            (&self.filters, |select| &mut select.filters),
            (&self.having, |select| &mut select.having),
            (&self.items, |select| &mut select.items),
        ];
        for (expressions, list) in lists {
            for (i, expression) in expressions.iter().enumerate() {
                for inner in expression.smaller() {
                    push(&|select| list(select)[i] = inner.clone());
                }
            }
        }
        smaller
    }
}

impl Source {
    fn smaller(&self) -> Vec<Self> {
        let Relation::Query(query) = &self.relation else {
            return Vec::new();
        };
        let with = |query| Self { relation: Relation::Query(Box::new(query)), alias: self.alias.clone() };
        query.smaller().into_iter().map(with).collect()
    }
}

impl Expression {
    /// Each subexpression of the same kind, and itself with a smaller expression or query in it.
    fn smaller(&self) -> Vec<Self> {
        let mut smaller = Vec::new();
        for piece in &self.pieces {
            if let Piece::Expression(inner) = piece
                && inner.kind == self.kind
            {
                smaller.push(inner.clone());
            }
        }
        for (i, piece) in self.pieces.iter().enumerate() {
            let replacements: Vec<Piece> = match piece {
                Piece::Text(_) => continue,
                Piece::Expression(inner) => inner.smaller().into_iter().map(Piece::Expression).collect(),
                Piece::Query(inner) => {
                    inner.smaller().into_iter().map(|q| Piece::Query(Box::new(q))).collect()
                }
            };
            for replacement in replacements {
                let mut pieces = self.pieces.clone();
                pieces[i] = replacement;
                smaller.push(Self { kind: self.kind, pieces });
            }
        }
        smaller
    }
}

impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (name, query)) in self.with.iter().enumerate() {
            f.write_str(if i == 0 { "with " } else { ", " })?;
            write!(f, "{name} as ({query})")?;
        }
        if !self.with.is_empty() {
            f.write_str(" ")?;
        }
        self.first.fmt(f)?;
        for (operator, select) in &self.others {
            write!(f, " {operator} {select}")?;
        }
        if !self.order.is_empty() {
            write!(f, " order by {}", self.order.join(", "))?;
        }
        if let Some((limit, offset)) = self.limit {
            write!(f, " limit {limit}")?;
            if offset > 0 {
                write!(f, " offset {offset}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Select {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("select ")?;
        if self.distinct {
            f.write_str("distinct ")?;
        }
        for (i, item) in self.items.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{item} as c{}", i + 1)?;
        }
        write!(f, " from {}", self.from)?;
        for join in &self.joins {
            write!(f, " {} {}", join.how, join.source)?;
            list(f, " on ", " and ", &join.on)?;
        }
        list(f, " where ", " and ", &self.filters)?;
        if self.group > 0 {
            let open = match self.grouping {
                Grouping::Plain => " group by ",
                Grouping::Rollup => " group by rollup(",
                Grouping::Cube => " group by cube(",
            };
            list(f, open, ", ", &self.items[..self.group])?;
            if self.grouping != Grouping::Plain {
                f.write_str(")")?;
            }
        }
        list(f, " having ", " and ", &self.having)
    }
}

fn list(f: &mut fmt::Formatter<'_>, start: &str, separator: &str, expressions: &[Expression]) -> fmt::Result {
    for (i, expression) in expressions.iter().enumerate() {
        write!(f, "{}{expression}", if i == 0 { start } else { separator })?;
    }
    Ok(())
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.relation {
            Relation::Text(text) => write!(f, "{text} as {}", self.alias),
            Relation::Query(query) => write!(f, "({query}) as {}", self.alias),
        }
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => f.write_str(text)?,
                Piece::Expression(expression) => expression.fmt(f)?,
                Piece::Query(query) => query.fmt(f)?,
            }
        }
        Ok(())
    }
}

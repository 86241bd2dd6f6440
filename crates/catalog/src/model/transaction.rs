//! A transaction: a base snapshot, a changed copy of its state, and row changes. It is invisible to others
//! before it commits.
//!
//! It is a plain value: a savepoint is a clone, and rolling back restores the clone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use uuid::Uuid;

use crate::model::files::TableChanges;
use crate::model::ids::{ObjectId, SnapshotId};
use crate::model::sequences::UncommittedValue;
use crate::model::state::{Schema, State, Table};

/// Metadata written with a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommitNote {
    pub author: Option<String>,
    pub message: Option<String>,
    /// The role that owns the schemas, tables and views created by the commit.
    pub owner: Option<String>,
}

/// A successful commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    pub snapshot: SnapshotId,
    /// Whether schemas, tables or views (or options) were changed.
    pub state_changed: bool,
    /// Final ids of new schemas, tables and views, by their ids in the transaction.
    pub objects: BTreeMap<ObjectId, ObjectId>,
}

#[derive(Debug, Clone)]
pub struct Transaction {
    /// Stored with the commit, so that an unacknowledged outcome can be looked up.
    pub id: Uuid,
    /// The committed state when the transaction (or, if it is read committed, its current statement) began.
    pub base: Arc<State>,
    /// `base` with the transaction's own changes.
    pub state: State,
    pub data: BTreeMap<ObjectId, TableChanges>,
    /// The snapshot on which its first change to a schema, table or view was made.
    pub since: Option<SnapshotId>,
    /// The writers of its files, as registered by [`crate::Catalog::register_writer`].
    pub writers: BTreeSet<String>,
    /// Values of sequences that the transaction has created or restarted.
    pub values: BTreeMap<ObjectId, UncommittedValue>,
    /// Roles that are to own new objects. Those of the others are in the note of the commit.
    pub owners: BTreeMap<ObjectId, String>,
    next_object: ObjectId,
}

impl Transaction {
    pub fn new(base: Arc<State>) -> Self {
        let state = State::clone(&base);
        Self {
            id: Uuid::new_v4(),
            base,
            state,
            data: BTreeMap::new(),
            since: None,
            writers: BTreeSet::new(),
            values: BTreeMap::new(),
            owners: BTreeMap::new(),
            next_object: -1,
        }
    }

    /// `commit_extra_info`, by which its commit is found.
    pub(crate) fn extra_info(&self) -> String {
        format!("{{\"harrier_transaction\":\"{}\"}}", self.id)
    }

    /// A temporary id for a new schema, table, view or sequence, replaced by the commit.
    pub fn allocate_object(&mut self) -> ObjectId {
        let id = self.next_object;
        self.next_object -= 1;
        id
    }

    /// Whether a commit would change nothing.
    pub fn is_empty(&self) -> bool {
        self.data.values().all(TableChanges::is_empty)
            && !self.changes_state()
            && self.values.keys().all(|id| !self.state.sequences.contains_key(id))
    }

    /// Whether schemas, tables, views or sequences were changed, not only rows.
    pub fn changes_state(&self) -> bool {
        self.state != *self.base
    }

    /// The row changes of one table, to be extended.
    pub fn changes_of(&mut self, table: ObjectId) -> &mut TableChanges {
        let since = self.base.snapshot;
        self.data.entry(table).or_insert_with(|| TableChanges { since, ..TableChanges::default() })
    }

    /// Must be called before `state` is changed.
    pub fn state_mut(&mut self) -> &mut State {
        self.since.get_or_insert(self.base.snapshot);
        &mut self.state
    }

    /// Whether there are changes that may conflict with those of others. Cheap if there are none.
    pub(crate) fn may_conflict(&self) -> bool {
        self.data.values().any(|changes| !changes.is_empty())
            || (self.since.is_some() && self.changes_state())
    }

    /// Applies the transaction's changes to a newer snapshot, with which they do not conflict.
    pub(crate) fn rebase(&mut self, newer: Arc<State>) {
        let mut state = State::clone(&newer);
        overlay(&self.base.schemas, &self.state.schemas, &mut state.schemas, |base, own, newer| {
            let options = overlay_options(&base.options, &own.options, &newer.options);
            let comment = if own.comment == base.comment { &newer.comment } else { &own.comment };
            Schema { options, comment: comment.clone(), ..own.clone() }
        });
        overlay(&self.base.tables, &self.state.tables, &mut state.tables, |base, own, newer| {
            let options = overlay_options(&base.options, &own.options, &newer.options);
            // Others may have altered a table of which only options are changed here.
            let rest = if base.differs_beyond_options(own) { own } else { newer };
            Table { options, ..rest.clone() }
        });
        overlay(&self.base.views, &self.state.views, &mut state.views, |_, own, _| own.clone());
        overlay(&self.base.sequences, &self.state.sequences, &mut state.sequences, |_, own, _| own.clone());
        let (before, own) = (&self.base.unusable, &self.state.unusable);
        state.unusable.retain(|id, _| own.contains_key(id) || !before.contains_key(id));
        state.options = overlay_options(&self.base.options, &self.state.options, &newer.options);
        self.state = state;
        self.base = newer;
    }
}

/// Applies the changes from `base` to `own` to `newer`; `merge` combines an object that is in all three.
fn overlay<T: PartialEq>(
    base: &BTreeMap<ObjectId, Arc<T>>,
    own: &BTreeMap<ObjectId, Arc<T>>,
    newer: &mut BTreeMap<ObjectId, Arc<T>>,
    merge: impl Fn(&T, &T, &T) -> T,
) {
    newer.retain(|id, _| own.contains_key(id) || !base.contains_key(id));
    for (id, object) in own {
        let before = base.get(id);
        if before == Some(object) {
            continue;
        }
        let merged = match (before, newer.get(id)) {
            (Some(before), Some(now)) if before != now => Arc::new(merge(before, object, now)),
            _ => Arc::clone(object),
        };
        newer.insert(*id, merged);
    }
}

/// The same for options, which are set independently.
fn overlay_options(
    base: &BTreeMap<String, String>,
    own: &BTreeMap<String, String>,
    newer: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut options = newer.clone();
    options.retain(|key, _| own.contains_key(key) || !base.contains_key(key));
    for (key, value) in own {
        if base.get(key) != Some(value) {
            options.insert(key.clone(), value.clone());
        }
    }
    options
}

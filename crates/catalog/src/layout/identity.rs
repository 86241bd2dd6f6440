//! The identity of a warehouse as rows of `ducklake_metadata`. DuckDB treats unknown keys as options.

use crate::database::session::Session;
use crate::database::sql::text;
use crate::error::Result;
use crate::model::identity::Identity;

/// The keys of `ducklake_metadata`.
pub(crate) const ID: &str = "harrier_id";
const FORMER_IDS: &str = "harrier_former_ids";
pub(crate) const PLACE: &str = "harrier_place";
const FILE: &str = "harrier_file";
pub(crate) const KEYS: [&str; 4] = [ID, FORMER_IDS, PLACE, FILE];

/// The rows of `ducklake_metadata` that contain an identity.
pub(crate) fn rows(identity: &Identity) -> Result<String> {
    let former = identity.former.join(",");
    let values = [&identity.id, &former, &identity.place, &identity.file];
    let row = |(key, value): (&str, &String)| Ok(format!("('{key}', {}, NULL, NULL)", text(value)?));
    Ok(KEYS.into_iter().zip(values).map(row).collect::<Result<Vec<_>>>()?.join(", "))
}

/// The identity of the warehouse; `None` in a catalog of an earlier version.
pub(crate) async fn load(session: &mut Session) -> Result<Option<Identity>> {
    let keys = KEYS.map(|key| format!("'{key}'")).join(", ");
    let sql = format!(
        "SELECT \"key\", \"value\" FROM ducklake_metadata WHERE \"scope\" IS NULL AND \"key\" IN ({keys})"
    );
    let mut found: [Option<String>; KEYS.len()] = Default::default();
    for row in session.query(sql).await? {
        let key = row.text(0)?;
        if let Some(at) = KEYS.iter().position(|known| *known == key) {
            found[at] = row.optional_text(1)?;
        }
    }
    let [id, former, place, file] = found;
    Ok(id.map(|id| Identity {
        id,
        former: former
            .unwrap_or_default()
            .split(',')
            .filter(|id| !id.is_empty())
            .map(str::to_string)
            .collect(),
        place: place.unwrap_or_default(),
        file: file.unwrap_or_default(),
    }))
}

/// Replaces the identity and the data path.
pub(crate) async fn store(session: &mut Session, identity: &Identity, data_path: &str) -> Result<()> {
    let keys = KEYS.map(|key| format!("'{key}'")).join(", ");
    session
        .execute(format!(
            "DELETE FROM ducklake_metadata WHERE \"scope\" IS NULL AND \"key\" IN ({keys}, 'data_path')"
        ))
        .await?;
    let path = format!("('data_path', {}, NULL, NULL)", text(data_path)?);
    let insert = "INSERT INTO ducklake_metadata (\"key\", \"value\", \"scope\", scope_id) VALUES";
    session.execute(format!("{insert} {path}, {}", rows(identity)?)).await?;
    Ok(())
}

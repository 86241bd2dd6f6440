//! Statistics of ANALYZE in SQLite and PostgreSQL: round trips by column, and counts of changed rows.

use std::collections::BTreeMap;

use crate::support::*;
use harrier_catalog::{Analysis, ColumnAnalysis, Histogram, Histograms};

fn column(distinct: i64, histogram: Option<Histogram>) -> ColumnAnalysis {
    ColumnAnalysis { distinct, nulls: 2, mean_bytes: Some(7), histogram }
}

#[test]
fn analyze_statistics_round_trip() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        let catalog = &lake.catalog;
        let (id, other) =
            (create_table_committed(catalog, "t").await, create_table_committed(catalog, "other").await);
        assert_eq!(catalog.analysis(id, Histograms::All).await.unwrap(), None);
        assert!(catalog.analyses().await.unwrap().is_empty());

        let histogram = Histogram {
            common: vec![("it's".into(), 0.5), ("{\"\\,NULL}".into(), 0.1 + 0.2), (String::new(), 1e-9)],
            bounds: vec!["a".into(), "null".into(), "ä\n".into()],
        };
        let columns = BTreeMap::from([(1, column(3, Some(histogram.clone()))), (2, column(4, None))]);
        let analysis = Analysis { snapshot: 5, rows: 100, columns };
        catalog.store_analysis(id, &analysis).await.unwrap();
        assert_eq!(catalog.analysis(id, Histograms::All).await.unwrap().as_ref(), Some(&analysis));
        assert_eq!(catalog.analysis(id, Histograms::Of(&[2, 1])).await.unwrap().as_ref(), Some(&analysis));
        assert_eq!(catalog.analysis(other, Histograms::All).await.unwrap(), None);
        let plain = catalog.analysis(id, Histograms::Of(&[2])).await.unwrap().unwrap();
        assert_eq!(plain.columns[&1], column(3, None));

        // Another analysis of one column, without a histogram, leaves the other column as it was.
        let again = Analysis { snapshot: 6, rows: 50, columns: BTreeMap::from([(2, column(9, None))]) };
        catalog.store_analysis(id, &again).await.unwrap();
        catalog.store_analysis(other, &again).await.unwrap();
        let all = catalog.analyses().await.unwrap();
        assert_eq!((all.len(), all[&id].rows, all[&id].snapshot), (2, 50, 6));
        assert_eq!(all[&id].columns[&1].histogram.as_ref(), Some(&histogram));
        assert_eq!(all[&id].columns[&2], column(9, None));
    });
}

#[test]
fn changed_rows_are_counted_since_analyze() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        let catalog = &lake.catalog;
        let id = create_table_committed(catalog, "t").await;
        change(catalog, |transaction| transaction.changes_of(id).added = vec![file("1.parquet", 0, 100)])
            .await;
        let since = catalog.head().await.unwrap().snapshot;
        assert_eq!(catalog.rows_changed(id, since).await.unwrap(), 0);
        assert_eq!(catalog.rows_changed(id, 0).await.unwrap(), 100);
        change(catalog, |transaction| transaction.changes_of(id).added = vec![file("2.parquet", 100, 30)])
            .await;
        assert_eq!(catalog.rows_changed(id, since).await.unwrap(), 30);
    });
}

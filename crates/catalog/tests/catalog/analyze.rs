//! What ANALYZE has found out is kept as it was told, column by column, in both databases.

use std::collections::BTreeMap;

use crate::support::*;
use harrier_catalog::{Analysis, ColumnAnalysis, Histogram, Histograms};

fn column(distinct: i64, histogram: Option<Histogram>) -> ColumnAnalysis {
    ColumnAnalysis { distinct, nulls: 2, mean_bytes: Some(7), histogram }
}

#[test]
fn analyses_are_kept() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        let catalog = &lake.catalog;
        let (id, other) = (made_table(catalog, "t").await, made_table(catalog, "other").await);
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

        // A column again, without a histogram: the other stays.
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
fn changes_are_counted() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        let catalog = &lake.catalog;
        let id = made_table(catalog, "t").await;
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

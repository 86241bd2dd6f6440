//! Tables of TPC-H and TPC-DS, each with the generator that makes any part of it as batches or as text.
//!
//! A source is a pure function of table, scale and part: part `n` of `m` always holds the same rows, and the
//! parts 1 to m, concatenated, are the table. This module uses no files and no threads.
//!
//! Sources: the TPC-H specification, clause 4.2.5 (rows per table); the TPC-DS specification, clause 3.1;
//! `tpchgen` and `tpcdsgen`, which give the same rows as the benchmarks' own `dbgen` and `dsdgen`.

use std::io::{self, Write};

use arrow::record_batch::RecordBatchReader;
use tpcdsgen::config::{Session, SessionBuilder};

/// TPC-DS tables with fewer source rows than this are made in one piece, whatever the number of parts, as
/// `dsdgen` does (`parallel.c`); the generator would leave the other parts empty.
const TPCDS_SPLIT_ROWS_MIN: u64 = 1_000_000;

/// A part of a table at a scale: `part` counts from 1 to `parts`.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    pub scale: f64,
    pub part: u32,
    pub parts: u32,
}

/// One table of a benchmark.
pub struct Table {
    pub name: &'static str,
    /// Approximate rows at a scale, for the number of parts and for progress. For the sales and returns
    /// tables of TPC-DS these are orders, the unit its generator counts and splits.
    pub rows: fn(f64) -> u64,
    /// Whether the table can be split into parts at a scale.
    pub divisible: fn(f64) -> bool,
    /// The part's rows, in batches of a few thousand rows. Strings are views.
    pub batches: fn(Part) -> Box<dyn RecordBatchReader + Send>,
    /// Writes the part's rows in the format of `dbgen` and `dsdgen`: fields ended by `|`, one row a line,
    /// NULL as an empty field. Stops at the writer's first error.
    pub text: fn(Part, &mut dyn Write) -> io::Result<()>,
}

/// The tables of TPC-H, largest first.
pub static TPCH: &[Table] = &[
    tpch::LINEITEM,
    tpch::ORDERS,
    tpch::PARTSUPP,
    tpch::PART,
    tpch::CUSTOMER,
    tpch::SUPPLIER,
    tpch::NATION,
    tpch::REGION,
];

/// The tables of TPC-DS, except `dbgen_version`, which no query reads and which holds its creation time.
pub static TPCDS: &[Table] = &[
    tpcds::CATALOG_SALES,
    tpcds::STORE_SALES,
    tpcds::WEB_SALES,
    tpcds::INVENTORY,
    tpcds::CATALOG_RETURNS,
    tpcds::STORE_RETURNS,
    tpcds::WEB_RETURNS,
    tpcds::CUSTOMER_DEMOGRAPHICS,
    tpcds::CUSTOMER,
    tpcds::CUSTOMER_ADDRESS,
    tpcds::TIME_DIM,
    tpcds::DATE_DIM,
    tpcds::ITEM,
    tpcds::CATALOG_PAGE,
    tpcds::HOUSEHOLD_DEMOGRAPHICS,
    tpcds::PROMOTION,
    tpcds::REASON,
    tpcds::WEB_PAGE,
    tpcds::WEB_SITE,
    tpcds::STORE,
    tpcds::CALL_CENTER,
    tpcds::SHIP_MODE,
    tpcds::INCOME_BAND,
    tpcds::WAREHOUSE,
];

mod tpch {
    use tpchgen::generators::{
        CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
        PartSuppGenerator, RegionGenerator, SupplierGenerator,
    };
    use tpchgen_arrow::{
        CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RegionArrow,
        SupplierArrow,
    };

    use super::Table;

    macro_rules! table {
        ($table:ident, $name:literal, $generator:ident, $batches:ident, $rows:expr, divisible: $divisible:literal) => {
            pub const $table: Table = Table {
                name: $name,
                rows: $rows,
                divisible: |_| $divisible,
                batches: |p| {
                    let generator = $generator::new(p.scale, p.part as i32, p.parts as i32);
                    Box::new($batches::new(generator))
                },
                text: |p, out| {
                    for row in $generator::new(p.scale, p.part as i32, p.parts as i32).iter() {
                        writeln!(out, "{row}")?;
                    }
                    Ok(())
                },
            };
        };
    }

    table!(LINEITEM, "lineitem", LineItemGenerator, LineItemArrow, |s| scale_rows(6_000_000, s), divisible: true);
    table!(ORDERS, "orders", OrderGenerator, OrderArrow, |s| scale_rows(1_500_000, s), divisible: true);
    table!(PARTSUPP, "partsupp", PartSuppGenerator, PartSuppArrow, |s| scale_rows(800_000, s), divisible: true);
    table!(PART, "part", PartGenerator, PartArrow, |s| scale_rows(200_000, s), divisible: true);
    table!(CUSTOMER, "customer", CustomerGenerator, CustomerArrow, |s| scale_rows(150_000, s), divisible: true);
    table!(SUPPLIER, "supplier", SupplierGenerator, SupplierArrow, |s| scale_rows(10_000, s), divisible: true);
    table!(NATION, "nation", NationGenerator, NationArrow, |_| 25, divisible: false);
    table!(REGION, "region", RegionGenerator, RegionArrow, |_| 5, divisible: false);

    fn scale_rows(rows_at_scale_1: u64, scale: f64) -> u64 {
        (rows_at_scale_1 as f64 * scale) as u64
    }
}

mod tpcds {
    use tpcdsgen::config::Table as Key;
    use tpcdsgen::row;

    use super::{TPCDS_SPLIT_ROWS_MIN, Table, tpcds_rows, tpcds_session};

    macro_rules! table {
        ($table:ident, $key:ident, $name:literal, $generator:ident, $batches:ident) => {
            pub const $table: Table = Table {
                name: $name,
                rows: |scale| tpcds_rows(Key::$key, scale),
                divisible: |scale| tpcds_rows(Key::$key, scale) >= TPCDS_SPLIT_ROWS_MIN,
                batches: |p| {
                    let session = tpcds_session(p);
                    let rows = session.get_source_row_range(Key::$key);
                    let batches = tpcdsgen_arrow::$batches::new(session);
                    Box::new(batches.with_source_row_range(*rows.start(), *rows.end()))
                },
                text: |p, out| {
                    let session = tpcds_session(p);
                    let rows = session.get_source_row_range(Key::$key);
                    let mut generator = row::$generator::new(session, *rows.end());
                    generator.skip_rows_until_starting_row_number(*rows.start());
                    for row in generator {
                        writeln!(out, "{row}")?;
                    }
                    Ok(())
                },
            };
        };
    }

    table!(CALL_CENTER, CallCenter, "call_center", CallCenterRowGenerator, CallCenterArrow);
    table!(CATALOG_PAGE, CatalogPage, "catalog_page", CatalogPageRowGenerator, CatalogPageArrow);
    table!(
        CATALOG_RETURNS,
        CatalogReturns,
        "catalog_returns",
        CatalogReturnsRowGenerator,
        CatalogReturnsArrow
    );
    table!(CATALOG_SALES, CatalogSales, "catalog_sales", CatalogSalesRowGenerator, CatalogSalesArrow);
    table!(CUSTOMER, Customer, "customer", CustomerRowGenerator, CustomerArrow);
    table!(
        CUSTOMER_ADDRESS,
        CustomerAddress,
        "customer_address",
        CustomerAddressRowGenerator,
        CustomerAddressArrow
    );
    table!(
        CUSTOMER_DEMOGRAPHICS,
        CustomerDemographics,
        "customer_demographics",
        CustomerDemographicsRowGenerator,
        CustomerDemographicsArrow
    );
    table!(DATE_DIM, DateDim, "date_dim", DateDimRowGenerator, DateDimArrow);
    table!(
        HOUSEHOLD_DEMOGRAPHICS,
        HouseholdDemographics,
        "household_demographics",
        HouseholdDemographicsRowGenerator,
        HouseholdDemographicsArrow
    );
    table!(INCOME_BAND, IncomeBand, "income_band", IncomeBandRowGenerator, IncomeBandArrow);
    table!(INVENTORY, Inventory, "inventory", InventoryRowGenerator, InventoryArrow);
    table!(ITEM, Item, "item", ItemRowGenerator, ItemArrow);
    table!(PROMOTION, Promotion, "promotion", PromotionRowGenerator, PromotionArrow);
    table!(REASON, Reason, "reason", ReasonRowGenerator, ReasonArrow);
    table!(SHIP_MODE, ShipMode, "ship_mode", ShipModeRowGenerator, ShipModeArrow);
    table!(STORE, Store, "store", StoreRowGenerator, StoreArrow);
    table!(STORE_RETURNS, StoreReturns, "store_returns", StoreReturnsRowGenerator, StoreReturnsArrow);
    table!(STORE_SALES, StoreSales, "store_sales", StoreSalesRowGenerator, StoreSalesArrow);
    table!(TIME_DIM, TimeDim, "time_dim", TimeDimRowGenerator, TimeDimArrow);
    table!(WAREHOUSE, Warehouse, "warehouse", WarehouseRowGenerator, WarehouseArrow);
    table!(WEB_PAGE, WebPage, "web_page", WebPageRowGenerator, WebPageArrow);
    table!(WEB_RETURNS, WebReturns, "web_returns", WebReturnsRowGenerator, WebReturnsArrow);
    table!(WEB_SALES, WebSales, "web_sales", WebSalesRowGenerator, WebSalesArrow);
    table!(WEB_SITE, WebSite, "web_site", WebSiteRowGenerator, WebSiteArrow);
}

fn tpcds_rows(table: tpcdsgen::config::Table, scale: f64) -> u64 {
    tpcds_session(Part { scale, part: 1, parts: 1 }).get_scaling().get_row_count(table)
}

fn tpcds_session(part: Part) -> Session {
    SessionBuilder::new()
        .with_scale_factor(part.scale)
        .with_chunk_number(part.part as i32)
        .with_total_chunks(part.parts as i32)
        .build()
        .expect("scale and parts were checked before a part is made")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concatenated_parts_equal_the_table() {
        for table in TPCH.iter().filter(|t| (t.divisible)(0.01)) {
            let text = |parts: u32| {
                let mut text = Vec::new();
                for part in 1..=parts {
                    let part = Part { scale: 0.01, part, parts };
                    (table.text)(part, &mut text).unwrap();
                }
                text
            };
            assert_eq!(text(1), text(3), "{}", table.name);
        }
    }

    #[test]
    fn batches_and_text_have_the_same_number_of_rows() {
        let part = Part { scale: 0.001, part: 1, parts: 1 };
        for table in TPCH.iter().chain(TPCDS) {
            if ["customer_demographics", "inventory"].contains(&table.name) {
                continue;
            }
            let rows: usize = (table.batches)(part).map(|batch| batch.unwrap().num_rows()).sum();
            let mut text = Vec::new();
            (table.text)(part, &mut text).unwrap();
            assert_eq!(rows, text.iter().filter(|byte| **byte == b'\n').count(), "{}", table.name);
            assert!(rows > 0, "{}", table.name);
        }
    }
}

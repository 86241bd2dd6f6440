//! Registry of the functions that plans name, including those about data files and ranks, for sessions that
//! decode plans.

use std::sync::Arc;

use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::ScalarUDF;
use harrier_functions::registry;

use crate::data_files::table_partition_function;
use crate::distribution::bucket_routing;
use crate::formats::interval_encoding;

fn own_functions() -> [Arc<ScalarUDF>; 3] {
    [bucket_routing::function(), interval_encoding::function(), table_partition_function()]
}

/// The scalar function of this name, if it is one of Harrier's.
pub(crate) fn scalar_function(name: &str) -> Option<Arc<ScalarUDF>> {
    own_functions()
        .into_iter()
        .find(|function| function.name() == name)
        .or_else(|| registry::scalar_function(name))
}

/// Registers all of them in a session that decodes plans.
pub fn install(builder: &mut SessionStateBuilder) {
    registry::install(builder);
    builder.scalar_functions().get_or_insert_default().extend(own_functions());
}

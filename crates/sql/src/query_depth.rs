//! Visitors of a statement that count in how many queries, one within the other, they are.

/// The methods of `Visitor` by which a field counts the queries around the visited place; with `mut` behind
/// the field, of `VisitorMut`.
#[macro_export]
macro_rules! count_query_depth {
    ($depth:tt) => {
        fn pre_visit_query(
            &mut self,
            _: &::datafusion::sql::sqlparser::ast::Query,
        ) -> ::std::ops::ControlFlow<Self::Break> {
            self.$depth += 1;
            ::std::ops::ControlFlow::Continue(())
        }

        fn post_visit_query(
            &mut self,
            _: &::datafusion::sql::sqlparser::ast::Query,
        ) -> ::std::ops::ControlFlow<Self::Break> {
            self.$depth -= 1;
            ::std::ops::ControlFlow::Continue(())
        }
    };
    ($depth:tt, mut) => {
        fn pre_visit_query(
            &mut self,
            _: &mut ::datafusion::sql::sqlparser::ast::Query,
        ) -> ::std::ops::ControlFlow<Self::Break> {
            self.$depth += 1;
            ::std::ops::ControlFlow::Continue(())
        }

        fn post_visit_query(
            &mut self,
            _: &mut ::datafusion::sql::sqlparser::ast::Query,
        ) -> ::std::ops::ControlFlow<Self::Break> {
            self.$depth -= 1;
            ::std::ops::ControlFlow::Continue(())
        }
    };
}

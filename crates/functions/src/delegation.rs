//! Methods that a wrapper of a function leaves to the function, which it has in its field `inner`, or that a
//! wrapper of an accumulator leaves to the accumulator. Traits of functions have defaults for most methods,
//! so that one which is not listed silently gets the default.

/// Methods of `ScalarUDFImpl`; `inner` is a `ScalarUDF` or an `Arc` of it.
macro_rules! delegate_scalar {
    (@name) => {
        fn name(&self) -> &str {
            self.inner.inner().name()
        }
    };
    (@aliases) => {
        fn aliases(&self) -> &[String] {
            self.inner.inner().aliases()
        }
    };
    (@schema_name) => {
        fn schema_name(&self, arguments: &[::datafusion::logical_expr::Expr]) -> Result<String> {
            self.inner.inner().schema_name(arguments)
        }
    };
    (@signature) => {
        fn signature(&self) -> &::datafusion::logical_expr::Signature {
            self.inner.inner().signature()
        }
    };
    (@coerce_types) => {
        fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
            self.inner.inner().coerce_types(arguments)
        }
    };
    (@return_type) => {
        fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
            self.inner.inner().return_type(arguments)
        }
    };
    (@return_field_from_args) => {
        fn return_field_from_args(
            &self,
            arguments: ::datafusion::logical_expr::ReturnFieldArgs,
        ) -> Result<::datafusion::arrow::datatypes::FieldRef> {
            self.inner.inner().return_field_from_args(arguments)
        }
    };
    (@is_strict) => {
        fn is_strict(&self) -> bool {
            self.inner.inner().is_strict()
        }
    };
    (@simplify) => {
        fn simplify(
            &self,
            arguments: Vec<::datafusion::logical_expr::Expr>,
            context: &::datafusion::logical_expr::simplify::SimplifyContext,
        ) -> Result<::datafusion::logical_expr::simplify::ExprSimplifyResult> {
            self.inner.inner().simplify(arguments, context)
        }
    };
    (@short_circuits) => {
        fn short_circuits(&self) -> bool {
            self.inner.inner().short_circuits()
        }
    };
    (@evaluate_bounds) => {
        fn evaluate_bounds(
            &self,
            inputs: &[&::datafusion::logical_expr::interval_arithmetic::Interval],
        ) -> Result<::datafusion::logical_expr::interval_arithmetic::Interval> {
            self.inner.inner().evaluate_bounds(inputs)
        }
    };
    (@output_ordering) => {
        fn output_ordering(
            &self,
            inputs: &[::datafusion::logical_expr::sort_properties::ExprProperties],
        ) -> Result<::datafusion::logical_expr::sort_properties::SortProperties> {
            self.inner.inner().output_ordering(inputs)
        }
    };
    (@preserves_lex_ordering) => {
        fn preserves_lex_ordering(
            &self,
            inputs: &[::datafusion::logical_expr::sort_properties::ExprProperties],
        ) -> Result<bool> {
            self.inner.inner().preserves_lex_ordering(inputs)
        }
    };
    (@documentation) => {
        fn documentation(&self) -> Option<&::datafusion::logical_expr::Documentation> {
            self.inner.inner().documentation()
        }
    };
    ($($method:ident),+ $(,)?) => {
        $($crate::delegation::delegate_scalar! { @$method })+
    };
}

/// Shows a call as its first argument: a part of a cast, which has no name in SQL, or what a planner adds.
macro_rules! show_as_argument {
    () => {
        fn schema_name(&self, arguments: &[::datafusion::logical_expr::Expr]) -> Result<String> {
            Ok(arguments.first().map(|argument| argument.schema_name().to_string()).unwrap_or_default())
        }
    };
}

/// Methods of `AggregateUDFImpl`; `inner` is an `Arc<AggregateUDF>`.
macro_rules! delegate_aggregate {
    (@name) => {
        fn name(&self) -> &str {
            self.inner.inner().name()
        }
    };
    (@signature) => {
        fn signature(&self) -> &::datafusion::logical_expr::Signature {
            self.inner.inner().signature()
        }
    };
    (@coerce_types) => {
        fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
            self.inner.inner().coerce_types(arguments)
        }
    };
    (@return_type) => {
        fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
            self.inner.inner().return_type(arguments)
        }
    };
    (@return_field) => {
        fn return_field(&self, arguments: &[FieldRef]) -> Result<FieldRef> {
            self.inner.inner().return_field(arguments)
        }
    };
    (@is_nullable) => {
        fn is_nullable(&self) -> bool {
            self.inner.inner().is_nullable()
        }
    };
    (@state_fields) => {
        fn state_fields(
            &self,
            arguments: ::datafusion::logical_expr::function::StateFieldsArgs,
        ) -> Result<Vec<FieldRef>> {
            self.inner.inner().state_fields(arguments)
        }
    };
    (@groups_accumulator_supported) => {
        fn groups_accumulator_supported(
            &self,
            arguments: ::datafusion::logical_expr::function::AccumulatorArgs,
        ) -> bool {
            self.inner.inner().groups_accumulator_supported(arguments)
        }
    };
    (@order_sensitivity) => {
        fn order_sensitivity(&self) -> ::datafusion::logical_expr::utils::AggregateOrderSensitivity {
            self.inner.inner().order_sensitivity()
        }
    };
    (@is_descending) => {
        fn is_descending(&self) -> Option<bool> {
            self.inner.inner().is_descending()
        }
    };
    (@value_from_stats) => {
        fn value_from_stats(
            &self,
            arguments: &::datafusion::logical_expr::StatisticsArgs,
        ) -> Option<ScalarValue> {
            self.inner.inner().value_from_stats(arguments)
        }
    };
    (@default_value) => {
        fn default_value(&self, kind: &DataType) -> Result<ScalarValue> {
            self.inner.inner().default_value(kind)
        }
    };
    (@supports_null_handling_clause) => {
        fn supports_null_handling_clause(&self) -> bool {
            self.inner.inner().supports_null_handling_clause()
        }
    };
    (@set_monotonicity) => {
        fn set_monotonicity(&self, kind: &DataType) -> ::datafusion::logical_expr::SetMonotonicity {
            self.inner.inner().set_monotonicity(kind)
        }
    };
    (@documentation) => {
        fn documentation(&self) -> Option<&::datafusion::logical_expr::Documentation> {
            self.inner.inner().documentation()
        }
    };
    ($($method:ident),+ $(,)?) => {
        $($crate::delegation::delegate_aggregate! { @$method })+
    };
}

/// Methods of `Accumulator`, with the field that holds the accumulator within.
macro_rules! delegate_accumulator {
    (@evaluate $inner:tt) => {
        fn evaluate(&mut self) -> Result<ScalarValue> {
            self.$inner.evaluate()
        }
    };
    (@state $inner:tt) => {
        fn state(&mut self) -> Result<Vec<ScalarValue>> {
            self.$inner.state()
        }
    };
    (@merge_batch $inner:tt) => {
        fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
            self.$inner.merge_batch(states)
        }
    };
    (@retract_batch $inner:tt) => {
        fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
            self.$inner.retract_batch(values)
        }
    };
    (@supports_retract_batch $inner:tt) => {
        fn supports_retract_batch(&self) -> bool {
            self.$inner.supports_retract_batch()
        }
    };
    ($inner:tt: $($method:ident),+) => {
        $($crate::delegation::delegate_accumulator! { @$method $inner })+
    };
}

pub(crate) use {delegate_accumulator, delegate_aggregate, delegate_scalar, show_as_argument};

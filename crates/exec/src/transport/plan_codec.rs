//! Wire format of plans, to ranks and from a front end to its gang.
//!
//! ```text
//!   operator, operator, … , expression      8 levels of one message
//!     └─► bytes: 8 more levels
//!           └─► bytes: …
//! ```
//!
//! Operators and expressions are encoded as in datafusion-proto, but Protocol Buffers decoders reject
//! messages nested deeper than 100 levels, which a sum of 48 terms already exceeds. So after every [`LEVELS`]
//! operators and expressions the rest becomes the bytes of a message of its own, a leaf to the decoder.
//! `series.rs` handles nodes with another encoding.
//!
//! Errors: internal ones, for nodes without an encoding.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::Schema;
use datafusion::common::{Result, internal_err};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{AggregateUDF, ScalarUDF, WindowUDF};
use datafusion::physical_expr::expressions::lit;
use datafusion::physical_plan::memory::LazyMemoryExec;
use datafusion::physical_plan::proto::{ExecutionPlanEncode, ExecutionPlanEncodeCtx};
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr};
use datafusion_distributed::{DistributedCodec, MaybeEncoded};
use datafusion_proto::physical_plan::from_proto::parse_physical_expr_with_converter;
use datafusion_proto::physical_plan::to_proto::serialize_physical_expr_with_converter;
use datafusion_proto::physical_plan::{
    ComposedPhysicalExtensionCodec, PhysicalExtensionCodec, PhysicalPlanDecodeContext, PhysicalPlanNodeExt,
    PhysicalProtoConverterExtension,
};
use datafusion_proto::protobuf::physical_expr_node::ExprType;
use datafusion_proto::protobuf::physical_plan_node::PhysicalPlanType;
use datafusion_proto::protobuf::{
    PhysicalExprNode, PhysicalExtensionExprNode, PhysicalExtensionNode, PhysicalPlanNode,
};
use prost::Message;

use crate::file_versions;
use crate::transport::messages;
use crate::transport::node_codec::{self, NodeCodec};

mod series;

/// Nested operators and expressions per message. Each takes up to 5 levels, and its leaves, such as the
/// statistics of files, some 20; the limit is 100.
const LEVELS: usize = 8;

/// The codecs of extension nodes, in the order in which [`crate::distribution::task_assignment::register`]
/// registers them in datafusion-distributed.
fn codec() -> ComposedPhysicalExtensionCodec {
    ComposedPhysicalExtensionCodec::new(vec![Arc::new(DistributedCodec), Arc::new(node_codec())])
}

/// The codec of this crate's operators and scans.
pub(crate) fn node_codec() -> NodeCodec {
    NodeCodec::new(decode)
}

/// The index of [`NodeCodec`] among them.
const TABLE_FILES: u32 = 1;
/// Codec index of nodes that this module encodes itself.
const OWN: u32 = u32::MAX;

/// The bytes of an extension, as in [`ComposedPhysicalExtensionCodec`].
#[derive(Clone, PartialEq, Message)]
struct TaggedExtension {
    #[prost(uint32, tag = "1")]
    codec: u32,
    #[prost(bytes = "vec", tag = "2")]
    bytes: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct OwnNode {
    #[prost(oneof = "Kind", tags = "1, 2, 3")]
    kind: Option<Kind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Kind {
    /// A nested operator or expression.
    #[prost(bytes, tag = "1")]
    Nested(Vec<u8>),
    #[prost(message, tag = "2")]
    Series(series::Series),
    #[prost(message, tag = "3")]
    Scan(VersionedScan),
}

/// A scan with the versions of its files, which datafusion-proto omits.
#[derive(Clone, PartialEq, Message)]
struct VersionedScan {
    #[prost(bytes = "vec", tag = "1")]
    scan: Vec<u8>,
    #[prost(string, repeated, tag = "2")]
    tags: Vec<String>,
}

impl Kind {
    fn into_bytes(self) -> Vec<u8> {
        TaggedExtension { codec: OWN, bytes: OwnNode { kind: Some(self) }.encode_to_vec() }.encode_to_vec()
    }

    /// `None`: it is an extension of others.
    fn from_bytes(bytes: &[u8]) -> Result<Option<Self>> {
        let tagged: TaggedExtension = messages::decode(bytes)?;
        match tagged.codec {
            OWN => Ok(messages::decode::<OwnNode>(&tagged.bytes)?.kind),
            _ => Ok(None),
        }
    }
}

/// Encodes a plan for [`decode`].
///
/// Errors: one of its operators or expressions has no encoding.
pub fn encode(plan: &Arc<dyn ExecutionPlan>) -> Result<Vec<u8>> {
    let node = PlanConverter::default().execution_plan_to_proto(plan, &codec())?;
    Ok(node.encode_to_vec())
}

/// Decodes a plan of [`encode`], with the functions of a session.
///
/// Errors: the session lacks one of the functions; the bytes are not a plan.
pub fn decode(bytes: &[u8], context: &TaskContext) -> Result<Arc<dyn ExecutionPlan>> {
    let node: PhysicalPlanNode = messages::decode(bytes)?;
    let codec = codec();
    let context = PhysicalPlanDecodeContext::new(context, &codec);
    PlanConverter::default().proto_to_execution_plan(&node, &context)
}

/// Encodes a plan for datafusion-distributed's worker on a rank, whose [`NodeCodec`] calls [`decode`].
pub(crate) fn for_worker(plan: MaybeEncoded<Arc<dyn ExecutionPlan>>) -> Result<Vec<u8>> {
    let plan = match plan {
        MaybeEncoded::Encoded(bytes) => return Ok(bytes),
        MaybeEncoded::Decoded(plan) => encode(&plan)?,
    };
    let tagged = TaggedExtension { codec: TABLE_FILES, bytes: node_codec::nested_plan(plan) };
    let extension = PhysicalExtensionNode { node: tagged.encode_to_vec(), inputs: vec![] };
    Ok(extension_plan(extension).encode_to_vec())
}

fn extension_plan(extension: PhysicalExtensionNode) -> PhysicalPlanNode {
    PhysicalPlanNode { physical_plan_type: Some(PhysicalPlanType::Extension(extension)) }
}

/// Encodes or decodes one plan.
#[derive(Default)]
struct PlanConverter {
    /// Levels of the message that is being encoded.
    levels: Cell<usize>,
    /// Expressions shared by several operators, such as dynamic filters, by id.
    shared: RefCell<HashMap<u64, Arc<dyn PhysicalExpr>>>,
}

impl PlanConverter {
    /// Encodes one level further down; returns whether that began a new message.
    fn descend<T>(&self, encode: impl FnOnce() -> Result<T>) -> Result<(T, bool)> {
        let levels = self.levels.get();
        let is_new = levels == LEVELS;
        self.levels.set(if is_new { 1 } else { levels + 1 });
        let encoded = encode();
        self.levels.set(levels);
        Ok((encoded?, is_new))
    }

    /// Resets a dynamic filter to pass every row, as before its plan runs. The values that a join or sort of
    /// this process has put into it do not apply to the rows of another rank, and refer to columns of other
    /// operators than the encoded one.
    fn reset_dynamic_filter(
        &self,
        node: &mut PhysicalExprNode,
        codec: &dyn PhysicalExtensionCodec,
    ) -> Result<()> {
        if let Some(ExprType::DynamicFilter(filter)) = &mut node.expr_type {
            filter.inner_expr = Some(Box::new(self.physical_expr_to_proto(&lit(true), codec)?));
            filter.generation = 1;
            filter.is_complete = false;
        }
        Ok(())
    }

    fn operator(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        codec: &dyn PhysicalExtensionCodec,
    ) -> Result<PhysicalPlanNode> {
        let encoder = Encoder { converter: self, codec };
        let mut delegate = plan.as_ref();
        while let Some(next) = delegate.downcast_delegate() {
            delegate = next;
        }
        if let Some(node) = delegate.try_to_proto(&ExecutionPlanEncodeCtx::new(&encoder))? {
            return Ok(node);
        }
        if let Some(generator) = plan.downcast_ref::<LazyMemoryExec>() {
            let node =
                PhysicalPlanNode::try_from_physical_plan_with_converter(Arc::clone(plan), codec, self)?;
            return Ok(match series::Series::of(generator, node) {
                Some(series) => {
                    let node = Kind::Series(series).into_bytes();
                    extension_plan(PhysicalExtensionNode { node, inputs: vec![] })
                }
                None => return internal_err!("{} cannot be sent to ranks", plan.name()),
            });
        }
        let mut node = Vec::new();
        codec.try_encode(Arc::clone(plan), &mut node, self)?;
        let inputs = plan.children().into_iter().map(|child| self.execution_plan_to_proto(child, codec));
        Ok(extension_plan(PhysicalExtensionNode { node, inputs: inputs.collect::<Result<_>>()? }))
    }
}

impl PhysicalProtoConverterExtension for PlanConverter {
    fn execution_plan_to_proto(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        codec: &dyn PhysicalExtensionCodec,
    ) -> Result<PhysicalPlanNode> {
        let (node, is_new) = self.descend(|| self.operator(plan, codec))?;
        if let Some(tags) = file_versions::tags(plan) {
            let scan = VersionedScan { scan: node.encode_to_vec(), tags };
            return Ok(extension_plan(PhysicalExtensionNode {
                node: Kind::Scan(scan).into_bytes(),
                inputs: vec![],
            }));
        }
        if !is_new {
            return Ok(node);
        }
        let node = Kind::Nested(node.encode_to_vec()).into_bytes();
        Ok(extension_plan(PhysicalExtensionNode { node, inputs: vec![] }))
    }

    fn physical_expr_to_proto(
        &self,
        expr: &Arc<dyn PhysicalExpr>,
        codec: &dyn PhysicalExtensionCodec,
    ) -> Result<PhysicalExprNode> {
        let (mut node, is_new) =
            self.descend(|| serialize_physical_expr_with_converter(expr, codec, self))?;
        self.reset_dynamic_filter(&mut node, codec)?;
        if !is_new {
            return Ok(node);
        }
        let expr = Kind::Nested(node.encode_to_vec()).into_bytes();
        let extension = PhysicalExtensionExprNode { expr, inputs: vec![] };
        Ok(PhysicalExprNode { expr_id: None, expr_type: Some(ExprType::Extension(extension)) })
    }

    fn proto_to_execution_plan(
        &self,
        proto: &PhysicalPlanNode,
        context: &PhysicalPlanDecodeContext<'_>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let own = match &proto.physical_plan_type {
            Some(PhysicalPlanType::Extension(extension)) => Kind::from_bytes(&extension.node)?,
            _ => None,
        };
        match own {
            Some(Kind::Nested(bytes)) => self.proto_to_execution_plan(&messages::decode(&bytes)?, context),
            Some(Kind::Series(series)) => series.plan(context, self),
            Some(Kind::Scan(VersionedScan { scan, tags })) => {
                let scan = self.proto_to_execution_plan(&messages::decode(&scan)?, context)?;
                Ok(file_versions::with_tags(scan, tags))
            }
            None => proto.try_into_physical_plan_with_context(context, self),
        }
    }

    fn proto_to_physical_expr(
        &self,
        proto: &PhysicalExprNode,
        schema: &Schema,
        context: &PhysicalPlanDecodeContext<'_>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        if let Some(ExprType::Extension(extension)) = &proto.expr_type
            && let Some(Kind::Nested(bytes)) = Kind::from_bytes(&extension.expr)?
        {
            return self.proto_to_physical_expr(&messages::decode(&bytes)?, schema, context);
        }
        let expr = parse_physical_expr_with_converter(proto, schema, context, self)?;
        let Some(number) = proto.expr_id else { return Ok(expr) };
        let known = self.shared.borrow().get(&number).cloned();
        match known {
            // The new filter shares the known one's state, over other columns.
            Some(known) => {
                let children = expr.children().into_iter().cloned().collect();
                known.with_new_children(children)
            }
            None => {
                self.shared.borrow_mut().insert(number, Arc::clone(&expr));
                Ok(expr)
            }
        }
    }
}

/// The callback of operators that encode themselves, for their children.
struct Encoder<'a> {
    converter: &'a PlanConverter,
    codec: &'a dyn PhysicalExtensionCodec,
}

impl ExecutionPlanEncode for Encoder<'_> {
    fn encode_plan(&self, plan: &Arc<dyn ExecutionPlan>) -> Result<PhysicalPlanNode> {
        self.converter.execution_plan_to_proto(plan, self.codec)
    }

    fn encode_expr(&self, expr: &Arc<dyn PhysicalExpr>) -> Result<PhysicalExprNode> {
        self.converter.physical_expr_to_proto(expr, self.codec)
    }

    fn encode_udf(&self, function: &ScalarUDF) -> Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        self.codec.try_encode_udf(function, &mut bytes)?;
        Ok(Some(bytes).filter(|bytes| !bytes.is_empty()))
    }

    fn encode_udaf(&self, function: &AggregateUDF) -> Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        self.codec.try_encode_udaf(function, &mut bytes)?;
        Ok(Some(bytes).filter(|bytes| !bytes.is_empty()))
    }

    fn encode_udwf(&self, function: &WindowUDF) -> Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        self.codec.try_encode_udwf(function, &mut bytes)?;
        Ok(Some(bytes).filter(|bytes| !bytes.is_empty()))
    }
}

//! The complete Flight service: adds what the library's [`FlightSqlService`] lacks beyond Flight SQL.
//!
//! [`FlightSqlService`]: arrow_flight::sql::server::FlightSqlService

use arrow::ipc::writer::IpcWriteOptions;
use arrow_flight::flight_service_server::FlightService;
use arrow_flight::sql::{Any, Command};
use arrow_flight::{
    Action, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo, HandshakeRequest, PollInfo,
    SchemaAsIpc, SchemaResult, Ticket,
};
use prost::Message;
use tonic::{Request, Response, Status, Streaming};

use super::service::{Answer, Service};

/// The complete service of a connection.
#[derive(Clone)]
pub(super) struct CompleteService(pub Service);

#[tonic::async_trait]
impl FlightService for CompleteService {
    type HandshakeStream = <Service as FlightService>::HandshakeStream;
    type ListFlightsStream = <Service as FlightService>::ListFlightsStream;
    type DoGetStream = <Service as FlightService>::DoGetStream;
    type DoPutStream = <Service as FlightService>::DoPutStream;
    type DoActionStream = <Service as FlightService>::DoActionStream;
    type ListActionsStream = <Service as FlightService>::ListActionsStream;
    type DoExchangeStream = <Service as FlightService>::DoExchangeStream;

    async fn handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Answer<Self::HandshakeStream> {
        self.0.handshake(request).await
    }

    async fn list_flights(&self, _: Request<Criteria>) -> Answer<Self::ListFlightsStream> {
        // There are no flights except SQL results.
        Ok(Response::new(Box::pin(futures::stream::empty())))
    }

    async fn get_flight_info(&self, request: Request<FlightDescriptor>) -> Answer<FlightInfo> {
        self.0.get_flight_info(request).await
    }

    async fn poll_flight_info(&self, request: Request<FlightDescriptor>) -> Answer<PollInfo> {
        // Rows are available as soon as it returns.
        let info = self.0.get_flight_info(request).await?.into_inner();
        Ok(Response::new(PollInfo::new().with_info(info)))
    }

    async fn get_schema(&self, request: Request<FlightDescriptor>) -> Answer<SchemaResult> {
        let login = Service::login(&request)?;
        let unreadable = |error: prost::DecodeError| Status::invalid_argument(error.to_string());
        let command = Any::decode(request.into_inner().cmd).map_err(unreadable)?;
        let command =
            Command::try_from(command).map_err(|error| Status::invalid_argument(error.to_string()))?;
        let schema = self.0.schema_of(&login, command).await?;
        let result = SchemaAsIpc::new(&schema, &IpcWriteOptions::default()).try_into();
        let result =
            result.map_err(|error| Status::internal(format!("a schema could not be encoded: {error}")))?;
        Ok(Response::new(result))
    }

    async fn do_get(&self, request: Request<Ticket>) -> Answer<Self::DoGetStream> {
        self.0.do_get(request).await
    }

    async fn do_put(&self, request: Request<Streaming<FlightData>>) -> Answer<Self::DoPutStream> {
        self.0.do_put(request).await
    }

    async fn do_action(&self, request: Request<Action>) -> Answer<Self::DoActionStream> {
        self.0.do_action(request).await
    }

    async fn list_actions(&self, request: Request<Empty>) -> Answer<Self::ListActionsStream> {
        self.0.list_actions(request).await
    }

    async fn do_exchange(&self, request: Request<Streaming<FlightData>>) -> Answer<Self::DoExchangeStream> {
        self.0.do_exchange(request).await
    }
}

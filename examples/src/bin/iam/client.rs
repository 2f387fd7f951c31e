//! The client: one request per connection, as plain as it can be.

use std::net::SocketAddr;

use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use nodewright::workflow::TaskError;
use tokio::net::TcpStream;

/// Speaks to the identity system.
#[derive(Debug)]
pub(crate) struct Client {
    address: SocketAddr,
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self { address }
    }

    /// Sends a request and returns what it was answered.
    ///
    /// # Errors
    ///
    /// Retryable where the system could not be reached, or says that the fault is its own: then nobody knows
    /// whether it did what it was asked.
    pub(crate) async fn send(&self, method: Method, path: &str) -> Result<StatusCode, TaskError> {
        let asked = format!("{method} {path}");
        let answer = self.exchange(method, path).await;
        let status = answer.map_err(|error| TaskError::retryable(asked.clone()).caused_by(error))?;
        if status.is_server_error() {
            return Err(TaskError::retryable(format!("{asked}: {status}")));
        }
        Ok(status)
    }

    async fn exchange(&self, method: Method, path: &str) -> anyhow::Result<StatusCode> {
        let stream = TcpStream::connect(self.address).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let request = Request::builder()
            .method(method)
            .uri(format!("/{path}"))
            .header(header::HOST, self.address.to_string())
            .header(header::CONNECTION, "close")
            .body(Empty::<Bytes>::new())?;
        // The connection is driven here, so that it ends with the call.
        let (response, ended) = tokio::join!(sender.send_request(request), connection);
        ended?;
        Ok(response?.status())
    }
}

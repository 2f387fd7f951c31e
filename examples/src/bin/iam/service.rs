//! The identity system as a service, with its moods.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::net::TcpListener;

use crate::directory::Directory;
use crate::say;

/// A service that is down for a while, or fails alone, before or after it did what it was asked.
#[derive(Debug)]
pub(crate) struct Service(Mutex<Inside>);

#[derive(Debug)]
struct Inside {
    directory: Directory,
    moods: StdRng,
    /// How many more requests it is down for.
    down: u32,
}

impl Service {
    /// Listens on loopback until the program ends.
    pub(crate) async fn start(seed: u64) -> io::Result<(Arc<Self>, SocketAddr)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let service = Arc::new(Self(Mutex::new(Inside {
            directory: Directory::default(),
            moods: StdRng::seed_from_u64(seed),
            down: 0,
        })));
        let serving = service.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let service = serving.clone();
                tokio::spawn(async move {
                    let answer = service_fn(|request: Request<Incoming>| {
                        let status = service.answer(request.method(), &request.uri().path()[1..]);
                        let mut response = Response::new(Empty::<Bytes>::new());
                        *response.status_mut() = status;
                        async { Ok::<_, Infallible>(response) }
                    });
                    // A client that goes away in the middle is no news.
                    let _ = http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), answer)
                        .await;
                });
            }
        });
        Ok((service, address))
    }

    fn answer(&self, method: &Method, path: &str) -> StatusCode {
        let mut inside = self.inside();
        if inside.down == 0 && inside.moods.random_ratio(1, 15) {
            inside.down = inside.moods.random_range(1..=3);
        }
        if inside.down > 0 {
            inside.down -= 1;
            say(&format!("service: down for {method} {path}"));
            return StatusCode::SERVICE_UNAVAILABLE;
        }
        if inside.moods.random_ratio(1, 15) {
            say(&format!("service: failed before {method} {path}"));
            return StatusCode::INTERNAL_SERVER_ERROR;
        }
        let status = match *method {
            Method::GET => inside.directory.find(path),
            Method::PUT => inside.directory.create(path),
            Method::DELETE => inside.directory.remove(path),
            _ => StatusCode::METHOD_NOT_ALLOWED,
        };
        match status {
            StatusCode::CREATED => say(&format!("service: created {path}")),
            StatusCode::NO_CONTENT => say(&format!("service: removed {path}")),
            _ => {}
        }
        if inside.moods.random_ratio(1, 15) {
            say(&format!("service: failed after {method} {path}"));
            return StatusCode::INTERNAL_SERVER_ERROR;
        }
        status
    }

    /// Removes an entry behind everybody's back, with all that speaks of it.
    pub(crate) fn lose(&self, path: &str) {
        self.inside().directory.lose(path);
    }

    /// What is there, for people.
    pub(crate) fn entries(&self) -> String {
        self.inside().directory.entries().join(", ")
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        // A panic in here would end the program.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! The workflow: its tasks are named after what they keep, so that one function can keep all of it.

use hyper::{Method, StatusCode};
use nodewright::workflow::{Done, InvalidWorkflow, TaskContext, TaskError, Workflow};

use crate::client::Client;

/// What there has to be, and after what each may be made.
const WANTED: [(&str, &[&str]); 6] = [
    (
        "roles/reader/groups/everyone",
        &["roles/reader", "groups/everyone"],
    ),
    ("roles/reader/groups/staff", &["roles/reader", "groups/staff"]),
    ("roles/reader", &[]),
    (
        "groups/everyone/members/staff",
        &["groups/everyone", "groups/staff"],
    ),
    ("groups/staff", &[]),
    ("groups/everyone", &[]),
];

pub(crate) fn workflow(client: Client) -> Result<Workflow<Client>, InvalidWorkflow> {
    let mut tasks = Workflow::builder(client);
    for (path, after) in WANTED {
        tasks.task(path, ensure).after(after).undo(remove);
    }
    tasks.build()
}

/// Sees to it that the entry is there. It looks first: the system refuses to make what exists, and an earlier
/// call that seemed to fail may have made it.
async fn ensure(context: TaskContext<Client>) -> Result<Done, TaskError> {
    let (client, path) = (context.shared(), context.name());
    match client.send(Method::GET, path).await? {
        StatusCode::OK => return Ok(Done::Unchanged),
        StatusCode::NOT_FOUND => {}
        status => return Err(refused("looking", status)),
    }
    match client.send(Method::PUT, path).await? {
        StatusCode::CREATED => Ok(Done::Changed),
        status => Err(refused("creating", status)),
    }
}

/// Sees to it that the entry is gone. That it was never there is no mistake.
async fn remove(context: TaskContext<Client>) -> Result<Done, TaskError> {
    match context.shared().send(Method::DELETE, context.name()).await? {
        StatusCode::NO_CONTENT => Ok(Done::Changed),
        StatusCode::NOT_FOUND => Ok(Done::Unchanged),
        status => Err(refused("removing", status)),
    }
}

/// The system will not do it, however often it is asked.
fn refused(what: &str, status: StatusCode) -> TaskError {
    TaskError::fatal(format!("{what}: {status}"))
}

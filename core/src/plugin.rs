//! The smaller seam, for providers that have only "make", "find", "list" and "destroy".
//!
//! A [`ProvisionPlugin`] knows how machines are had. [`PluginBackend`] makes an
//! [`EffectBackend`](crate::effect::EffectBackend) of it: it looks before it makes, and keeps the sessions, over
//! whatever [`Transports`] reach into such machines. It deliberately does not know what a machine is, and
//! remembers none: what there is, is asked of the plugin.

mod backend;
mod transports;

pub use backend::PluginBackend;
pub use transports::Transports;

use std::future::Future;

use crate::effect::{Call, Capabilities, Destroyed, EffectError, Inventory, InventoryEntry, LossSink};
use crate::facts::{CreatedLease, LeaseFacts};
use crate::id::RunId;
use crate::template::LogicalNodeSpec;

/// A provider that can make machines, find them, list them and destroy them.
///
/// A plugin decides nothing and remembers nothing that must be right. It makes the one request that it is
/// asked for, for the attempt that [`Call::identity`] names, and says honestly what came of it. Every call
/// carries [`Call::cancel`], which is raised when nobody waits any more.
///
/// # Errors
///
/// The same for all methods; a plugin's error reaches the core unchanged, so its kind decides what follows.
///
/// - [`ambiguous`](EffectError::ambiguous): the request may have had its effect, now or later. A timeout is
///   this, and so is a connection that broke after the request was sent. A `make` that ends so is looked
///   for before another is made, so it costs time, never a second machine.
/// - [`definite`](EffectError::definite): nothing happened, and the same request may succeed later. To say
///   this of a request that may have got through is the one lie that rents a machine twice.
/// - [`throttled`](EffectError::throttled): nothing happened, and the provider asks for fewer requests.
/// - [`fatal`](EffectError::fatal): nothing happened, and no repetition can help. A `make` that ends so
///   halts its slot until its template changes or somebody asks for a retry.
///
/// # Cancel safety
///
/// Where [`Capabilities::abortable`] is stated, dropping a call's future ends it, and what it had begun is
/// found again by [`find`](Self::find).
///
/// ```
/// use std::collections::BTreeMap;
/// use std::sync::Mutex;
/// use std::time::Duration;
///
/// use nodewright_core::effect::{Call, Capabilities, Destroyed, EffectError, Inventory, InventoryEntry};
/// use nodewright_core::facts::{CreatedLease, LeaseFacts, LeaseId};
/// use nodewright_core::id::{AttemptIdentity, RunId};
/// use nodewright_core::plugin::ProvisionPlugin;
/// use nodewright_core::template::LogicalNodeSpec;
///
/// /// Machines are names on a shelf.
/// #[derive(Default)]
/// struct Shelf(Mutex<BTreeMap<AttemptIdentity, LeaseFacts>>);
///
/// impl Shelf {
///     fn entries(&self) -> Vec<InventoryEntry> {
///         let entry = |(identity, lease): (&AttemptIdentity, &LeaseFacts)| InventoryEntry {
///             identity: identity.clone(),
///             lease: lease.clone(),
///             endpoint: None,
///             alive: true,
///         };
///         self.0.lock().unwrap().iter().map(entry).collect()
///     }
/// }
///
/// impl ProvisionPlugin for Shelf {
///     fn capabilities(&self) -> Capabilities {
///         Capabilities { visibility: Duration::ZERO, inventory: true, watch: false, abortable: true }
///     }
///
///     async fn make(&self, call: &Call, spec: &LogicalNodeSpec) -> Result<CreatedLease, EffectError> {
///         let mut lease = LeaseFacts::new(LeaseId::new(call.identity.token()));
///         lease.template = Some(spec.template.digest());
///         self.0.lock().unwrap().insert(call.identity.clone(), lease.clone());
///         Ok(CreatedLease { lease, endpoint: None })
///     }
///
///     async fn find(&self, call: &Call) -> Result<Option<InventoryEntry>, EffectError> {
///         Ok(self.entries().into_iter().find(|entry| entry.identity == call.identity))
///     }
///
///     async fn list(&self, _: &RunId) -> Result<Inventory, EffectError> {
///         Ok(Inventory { entries: self.entries() })
///     }
///
///     async fn destroy(&self, _: &Call, lease: &LeaseFacts) -> Result<Destroyed, EffectError> {
///         self.0.lock().unwrap().retain(|_, held| held.id != lease.id);
///         Ok(Destroyed::Gone)
///     }
/// }
///
/// # use futures_util::FutureExt;
/// # let shelf = Shelf::default();
/// let run: RunId = "demo".parse()?;
/// assert_eq!(shelf.list(&run).now_or_never(), Some(Ok(Inventory::default())));
/// # Ok::<(), nodewright_core::id::NameError>(())
/// ```
pub trait ProvisionPlugin: Send + Sync + 'static {
    /// What this provider can do. Plain data: the same answer every time.
    fn capabilities(&self) -> Capabilities;

    /// Makes a machine for this slot. That none of the call's identity could be found was just asked.
    ///
    /// The plugin promises that the request itself stamps the machine with [`Call::identity`] and the digest
    /// of `spec.template`: a machine that is labelled afterwards is nobody's if that fails. Where the
    /// provider takes an idempotency key or unique names, [`token`](crate::id::AttemptIdentity::token) is one.
    ///
    /// The endpoint comes with the lease, or, where it is assigned later, with what [`find`](Self::find)
    /// answers then.
    ///
    /// # Errors
    ///
    /// As the trait says. `Ambiguous` means that the machine may be there, or come within
    /// [`Capabilities::visibility`].
    fn make(
        &self,
        call: &Call,
        spec: &LogicalNodeSpec,
    ) -> impl Future<Output = Result<CreatedLease, EffectError>> + Send;

    /// Looks for the machine that is stamped with the call's identity: whole, half-made or dead. Never makes.
    ///
    /// The plugin promises to compare the whole identity, not a name that was cut, and to answer with the
    /// machine's own stamp: its template may be another one than its slot's is now. Of several it answers
    /// always the same one. `None` means that the provider was asked and shows none; it counts as absence
    /// only where `visibility` has passed.
    ///
    /// # Errors
    ///
    /// As the trait says. A look changes nothing, so its `Ambiguous` is overcautious, and harmless.
    fn find(&self, call: &Call) -> impl Future<Output = Result<Option<InventoryEntry>, EffectError>> + Send;

    /// Lists all that the provider holds of the run, half-made and dead machines included. What carries no
    /// stamp is left out; what belongs to another run may be listed and is passed over.
    ///
    /// The plugin promises that the list is whole: an answer of which pages are missing is an error. Where
    /// [`Capabilities::inventory`] is not stated it is never asked.
    ///
    /// # Errors
    ///
    /// As the trait says. Whatever the kind, nothing is concluded of a list that failed.
    fn list(&self, run: &RunId) -> impl Future<Output = Result<Inventory, EffectError>> + Send;

    /// Gives back exactly this lease, and what its half-made `make` left: disks, addresses, keys.
    ///
    /// One that is gone already is `Gone`, whatever error the provider has for it. `Going` means that the
    /// provider took the request and still works on it: it is asked again, so asking twice must do no harm.
    ///
    /// # Errors
    ///
    /// As the trait says. After any of them the same lease is destroyed again later.
    fn destroy(
        &self,
        call: &Call,
        lease: &LeaseFacts,
    ) -> impl Future<Output = Result<Destroyed, EffectError>> + Send;

    /// Reports machines of the run that die, until it is dropped. By default it never reports; a plugin that
    /// does states [`Capabilities::watch`].
    fn watch(&self, run: &RunId, sink: LossSink) -> impl Future<Output = ()> + Send {
        let _ = (run, sink);
        std::future::pending()
    }
}

#[cfg(test)]
mod tests;

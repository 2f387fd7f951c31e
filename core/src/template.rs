//! What every node of a group is made from: an immutable template, shared by all of its slots.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::id::{LogicalNodeId, ProviderKind, RoleId, TemplateDigest};

/// The machine that a node wants of its provider.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeShape {
    /// The image that the machine starts from, in the provider's terms.
    pub image: String,
    /// Disk, in GB.
    #[serde(default = "NodeShape::default_disk_gb")]
    pub disk_gb: u32,
    /// The GPU's name; none asks for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    /// The least GPU memory, in MB.
    #[serde(default)]
    pub min_gpu_memory_mb: u32,
    /// The least bandwidth down, in Mbit/s.
    #[serde(default)]
    pub min_down_mbps: u32,
    /// The least bandwidth up, in Mbit/s.
    #[serde(default)]
    pub min_up_mbps: u32,
    /// The least reliability, in per mille (a file says it as a fraction from 0 to 1).
    #[serde(default)]
    pub min_reliability_per_mille: u16,
    /// Whether only hosts that the provider has verified will do.
    #[serde(default)]
    pub verified_only: bool,
    /// Free labels for the provider.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

impl NodeShape {
    /// Enough for an operating system and an agent.
    pub const DEFAULT_DISK_GB: u32 = 10;

    const fn default_disk_gb() -> u32 {
        Self::DEFAULT_DISK_GB
    }

    /// A machine of this image, all else at its default.
    pub fn new(image: impl Into<String>) -> Self {
        Self {
            image: image.into(),
            disk_gb: Self::DEFAULT_DISK_GB,
            gpu: None,
            min_gpu_memory_mb: 0,
            min_down_mbps: 0,
            min_up_mbps: 0,
            min_reliability_per_mille: 0,
            verified_only: false,
            labels: BTreeMap::new(),
        }
    }
}

/// How the agent is started on the machine. Commands are lines for the machine's `/bin/sh`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BootSpec {
    /// The user that commands run as, where the transport has users.
    #[serde(default = "BootSpec::default_ssh_user")]
    pub ssh_user: String,
    /// Each must exit with 0 before the start command runs.
    #[serde(default)]
    pub verify: Vec<String>,
    /// Starts the agent and stays: its output is followed until the node is handed off.
    pub start: String,
    /// Arguments, appended to the start command as separate words, quoted.
    #[serde(default)]
    pub args: Vec<String>,
    /// Environment of everything that is run.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Further files on the machine to follow as standard output.
    #[serde(default)]
    pub extra_stdout: Vec<String>,
    /// Further files on the machine to follow as standard error.
    #[serde(default)]
    pub extra_stderr: Vec<String>,
}

impl BootSpec {
    /// A boot that only runs this start command.
    pub fn new(start: impl Into<String>) -> Self {
        Self {
            ssh_user: Self::default_ssh_user(),
            verify: Vec::new(),
            start: start.into(),
            args: Vec::new(),
            env: BTreeMap::new(),
            extra_stdout: Vec::new(),
            extra_stderr: Vec::new(),
        }
    }

    fn default_ssh_user() -> String {
        "root".to_owned()
    }
}

/// What the agent needs to join the swarm.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwarmJoinSpec {
    /// The orchestrator's address.
    #[serde(default)]
    pub orchestrator: String,
    /// Where the agent finds the join token: a reference, never the token itself.
    #[serde(default)]
    pub token_ref: String,
}

/// All that a node of a group is made from. Any difference means *replace the attempt*, never mutate it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeTemplate {
    /// What the node is for.
    pub role: RoleId,
    /// Who provides the machine.
    pub provider: ProviderKind,
    /// The machine.
    pub shape: NodeShape,
    /// How its agent is started.
    pub boot: BootSpec,
    /// How its agent joins.
    #[serde(default)]
    pub join: SwarmJoinSpec,
}

/// A [`NodeTemplate`] that is shared by all slots of its group, with its digest.
///
/// A clone shares it. Two are equal when their digests are: 128 bits of SHA-256 over the content.
#[derive(Clone)]
pub struct Template(Arc<Digested>);

struct Digested {
    template: NodeTemplate,
    digest: TemplateDigest,
}

impl Template {
    /// Seals a template.
    pub fn new(template: NodeTemplate) -> Self {
        let bytes = serde_json::to_vec(&template).expect("a template has only text keys and plain values");
        Self(Arc::new(Digested {
            digest: TemplateDigest::of(&bytes),
            template,
        }))
    }

    /// The digest of the content, which a resource made from it carries.
    pub fn digest(&self) -> TemplateDigest {
        self.0.digest
    }
}

impl Deref for Template {
    type Target = NodeTemplate;

    fn deref(&self) -> &NodeTemplate {
        &self.0.template
    }
}

impl PartialEq for Template {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.digest == other.0.digest
    }
}

impl Eq for Template {}

impl Hash for Template {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.digest.hash(state);
    }
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Template")
            .field("digest", &self.0.digest)
            .field("template", &self.0.template)
            .finish()
    }
}

impl Serialize for Template {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.template.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Template {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        NodeTemplate::deserialize(deserializer).map(Self::new)
    }
}

/// What one slot should be: its id, and the template that it shares with its group.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LogicalNodeSpec {
    /// The slot.
    pub id: LogicalNodeId,
    /// What it is made from.
    pub template: Template,
}

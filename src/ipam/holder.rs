//! Who holds an address.

use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};
use smol_str::SmolStr;

/// The holder of an address, as far as it is known. Unknown parts are empty. The original's records name only the container. The holder of
/// an address that was found in use is unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct Holder {
    /// The attachment.
    #[serde(flatten)]
    pub attachment: Attachment,
    /// `namespace/name` of the pod, for people only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// The network namespace of the ADD. Reports have only its path.
    #[serde(
        skip_deserializing,
        skip_serializing_if = "Option::is_none",
        serialize_with = "print_path"
    )]
    pub netns: Option<NetNs>,
    /// Whether it can show no evidence, such as an agent that requests an address for itself. Only its DEL or an operator releases the
    /// address.
    #[serde(rename = "kept", skip_serializing_if = "std::ops::Not::not")]
    pub is_kept: bool,
    /// [`Ipam::generation`](super::Ipam::generation) of the ADD that last requested the address; 0 if it is not known.
    #[serde(skip)]
    pub number: u64,
}

fn print_path<S: Serializer>(netns: &Option<NetNs>, to: S) -> Result<S::Ok, S::Error> {
    netns.as_ref().map(|netns| &*netns.path).serialize(to)
}

/// An attachment of a container to a network. As in the CNI specification, network name, CNI_CONTAINERID and CNI_IFNAME identify it
/// (difference D8).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(default)]
pub struct Attachment {
    /// The network's name.
    #[serde(skip_serializing_if = "SmolStr::is_empty")]
    pub network: SmolStr,
    /// CNI_CONTAINERID.
    #[serde(rename = "container", skip_serializing_if = "String::is_empty")]
    pub container_id: String,
    /// CNI_IFNAME.
    #[serde(rename = "interface", skip_serializing_if = "SmolStr::is_empty")]
    pub if_name: SmolStr,
}

/// A network namespace: its path and its identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetNs {
    /// CNI_NETNS.
    pub path: Box<str>,
    /// Device and inode numbers; `None` if the path could not be examined. The kernel may reuse them as soon as this namespace is gone.
    pub id: Option<(u64, u64)>,
    /// The kernel's cookie of the namespace, unique within a boot; `None` if the kernel has no cookies.
    pub cookie: Option<u64>,
}

/// How long device and inode alone identify a namespace after its holder released the address.
const INODE_IS_KEPT: Duration = Duration::from_secs(30);

impl NetNs {
    /// Returns whether both are the same namespace. The cookies decide. If one is unknown, device and inode decide.
    pub fn is_same(&self, other: &NetNs) -> bool {
        match self.cookie.zip(other.cookie) {
            Some((one, another)) => one == another,
            None => self.id.is_some() && self.id == other.id,
        }
    }

    /// Returns whether the namespace with these numbers is this one. `ago` is the time since its holder released the address.
    pub fn is_still(&self, id: (u64, u64), cookie: Option<u64>, ago: Duration) -> bool {
        match self.cookie.zip(cookie) {
            Some((then, now)) => then == now,
            None => self.id == Some(id) && ago < INODE_IS_KEPT,
        }
    }
}

impl Holder {
    /// Creates a holder with only a container, as in the original's records. An empty ID means an unknown holder.
    pub fn from_container_id(id: &str) -> Holder {
        Holder::from(Attachment {
            container_id: id.to_owned(),
            ..Attachment::default()
        })
    }

    /// Returns the container ID; empty for an unknown holder.
    pub fn container_id(&self) -> &str {
        &self.attachment.container_id
    }

    /// Returns the container ID for people; `unknown` for an unknown holder.
    pub fn container_text(&self) -> &str {
        match self.container_id() {
            "" => "unknown",
            id => id,
        }
    }

    /// Returns whether nothing is known about the holder.
    pub fn is_unknown(&self) -> bool {
        self.container_id().is_empty()
    }

    /// Returns whether the interface is known.
    pub fn has_interface(&self) -> bool {
        !self.attachment.if_name.is_empty()
    }

    /// Returns whether it is the container of this ID, or an attachment of that container.
    pub fn is_container(&self, id: &str) -> bool {
        !self.is_unknown() && self.container_id() == id
    }

    /// Returns whether it is or may be `attachment`. A holder with only a container may be every attachment of the container. A holder
    /// without a network may be in every network, because a container has an interface only once.
    pub fn is_attachment(&self, attachment: &Attachment) -> bool {
        let own = &self.attachment;
        self.is_container(&attachment.container_id)
            && (own.network.is_empty() || own.network == attachment.network)
            && (own.if_name.is_empty() || own.if_name == attachment.if_name)
    }

    /// Returns whether both name the same container, and do not differ in a network or an interface that both name.
    pub fn agrees_with(&self, other: &Holder) -> bool {
        let agree = |a: &str, b: &str| a.is_empty() || b.is_empty() || a == b;
        let (own, others) = (&self.attachment, &other.attachment);
        self.is_container(&others.container_id)
            && agree(&own.network, &others.network)
            && agree(&own.if_name, &others.if_name)
    }

    /// Returns whether both came from the same ADD.
    pub fn is_of_same_add(&self, other: &Holder) -> bool {
        self.attachment == other.attachment && self.number == other.number
    }
}

impl From<Attachment> for Holder {
    /// Creates a holder with only its attachment.
    fn from(attachment: Attachment) -> Holder {
        Holder {
            attachment,
            ..Holder::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_matches_every_interface_and_attachment_only_its_own() {
        let attachment = |if_name: &str| Attachment {
            network: "azure".into(),
            container_id: "c1".into(),
            if_name: if_name.into(),
        };
        let container = Holder::from_container_id("c1");
        assert!(container.is_attachment(&attachment("eth0")));
        assert!(container.is_attachment(&attachment("net1")));
        let eth0 = Holder::from(attachment("eth0"));
        assert!(eth0.is_attachment(&attachment("eth0")));
        assert!(!eth0.is_attachment(&attachment("net1")));
        let in_any_network = Holder::from(Attachment {
            network: "".into(),
            ..attachment("eth0")
        });
        assert!(in_any_network.is_attachment(&attachment("eth0")));
        assert!(!in_any_network.is_attachment(&attachment("net1")));
        let other = Attachment {
            container_id: "c2".into(),
            ..attachment("eth0")
        };
        assert!(!eth0.is_attachment(&other));
        assert!(!container.is_attachment(&other));
    }

    #[test]
    fn unknown_holder_matches_no_container() {
        let unknown = Holder::from_container_id("");
        assert!(unknown.is_unknown());
        assert!(!unknown.is_container(""));
        assert!(!unknown.is_attachment(&Attachment::default()));
    }
}

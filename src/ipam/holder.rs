//! Who holds an address.

use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};
use smol_str::SmolStr;

/// The holder of an address, as far as it is known. What is not known is empty: the original's records name only the container, and
/// nobody is known to hold an address that was found in use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct Holder {
    /// The attachment.
    #[serde(flatten)]
    pub attachment: Attachment,
    /// `namespace/name` of the pod, for people only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// The network namespace that the ADD was made for. Reports have its path.
    #[serde(
        skip_deserializing,
        skip_serializing_if = "Option::is_none",
        serialize_with = "print_path"
    )]
    pub netns: Option<NetNs>,
    /// Whether it can show no evidence, such as an agent that asks for an address of its own. Only its DEL or an operator frees it.
    #[serde(rename = "kept", skip_serializing_if = "std::ops::Not::not")]
    pub is_kept: bool,
    /// [`Ipam::generation`](super::Ipam::generation) of the ADD that last asked for the address; 0 where it is not known.
    #[serde(skip)]
    pub number: u64,
}

fn print_path<S: Serializer>(netns: &Option<NetNs>, to: S) -> Result<S::Ok, S::Error> {
    netns.as_ref().map(|netns| &*netns.path).serialize(to)
}

/// An attachment of a container to a network: what the CNI specification identifies by network name, CNI_CONTAINERID and
/// CNI_IFNAME (difference D8).
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
    /// Device and inode numbers; `None` when the path could not be looked at. The kernel gives them to another namespace as soon
    /// as this one is gone.
    pub id: Option<(u64, u64)>,
    /// The kernel's number of the namespace, unique within a boot; `None` where the kernel has no such number.
    pub cookie: Option<u64>,
}

/// How long device and inode alone tell a namespace after its holder released its address.
const INODE_IS_KEPT: Duration = Duration::from_secs(30);

impl NetNs {
    /// Whether both are the same namespace: by the kernel's number of them, or else by device and inode.
    pub fn is_same(&self, other: &NetNs) -> bool {
        match self.cookie.zip(other.cookie) {
            Some((one, another)) => one == another,
            None => self.id.is_some() && self.id == other.id,
        }
    }

    /// Whether the namespace with these numbers is this one, whose holder released its address `ago`.
    pub fn is_still(&self, id: (u64, u64), cookie: Option<u64>, ago: Duration) -> bool {
        match self.cookie.zip(cookie) {
            Some((then, now)) => then == now,
            None => self.id == Some(id) && ago < INODE_IS_KEPT,
        }
    }
}

impl Holder {
    /// A container of which nothing else is known, as in the original's records. An empty ID means an unknown holder.
    pub fn from_container_id(id: &str) -> Holder {
        Holder::from(Attachment {
            container_id: id.to_owned(),
            ..Attachment::default()
        })
    }

    /// The container ID; empty for an unknown holder.
    pub fn container_id(&self) -> &str {
        &self.attachment.container_id
    }

    /// The container ID for people; `unknown` for an unknown holder.
    pub fn container_text(&self) -> &str {
        match self.container_id() {
            "" => "unknown",
            id => id,
        }
    }

    /// Whether nothing is known of the holder.
    pub fn is_unknown(&self) -> bool {
        self.container_id().is_empty()
    }

    /// Whether the interface is known, too.
    pub fn has_interface(&self) -> bool {
        !self.attachment.if_name.is_empty()
    }

    /// Whether it is the container of this ID, or an attachment of that container.
    pub fn is_container(&self, id: &str) -> bool {
        !self.is_unknown() && self.container_id() == id
    }

    /// Whether it is `attachment`. A holder of which only the container is known may be every attachment of the container; one whose
    /// network is not known may be in every network, as a container has an interface only once.
    pub fn is_attachment(&self, attachment: &Attachment) -> bool {
        let own = &self.attachment;
        self.is_container(&attachment.container_id)
            && (own.network.is_empty() || own.network == attachment.network)
            && (own.if_name.is_empty() || own.if_name == attachment.if_name)
    }

    /// Whether nothing that is known of both tells them apart.
    pub fn agrees_with(&self, other: &Holder) -> bool {
        let agree = |a: &str, b: &str| a.is_empty() || b.is_empty() || a == b;
        let (own, others) = (&self.attachment, &other.attachment);
        self.is_container(&others.container_id)
            && agree(&own.network, &others.network)
            && agree(&own.if_name, &others.if_name)
    }

    /// Whether both came from the same ADD.
    pub fn is_of_same_add(&self, other: &Holder) -> bool {
        self.attachment == other.attachment && self.number == other.number
    }
}

impl From<Attachment> for Holder {
    /// An attachment of which nothing else is known.
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
    fn container_holds_by_every_interface_and_attachment_by_its_own() {
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
    fn unknown_holder_is_nobody() {
        let unknown = Holder::from_container_id("");
        assert!(unknown.is_unknown());
        assert!(!unknown.is_container(""));
        assert!(!unknown.is_attachment(&Attachment::default()));
    }
}

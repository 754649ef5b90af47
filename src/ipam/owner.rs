//! Who owns an address.

use std::rc::Rc;
use std::time::Duration;

/// The owner of an address in use.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Owner {
    /// Not known: the address was found in use, or the original wrote no container ID.
    #[default]
    Unknown,
    /// A container, by its ID. The network and the interface are not known, as the original does not store them.
    Container(Box<str>),
    /// An attachment.
    Attachment(Box<Claim>),
}

/// An attachment as the owner of an address, with what is known of its ADD.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// CNI_CONTAINERID.
    pub container_id: Box<str>,
    /// The network's name; empty where it is not known.
    pub network: Rc<str>,
    /// The interface within the container.
    pub if_name: Rc<str>,
    /// `namespace/name` of the pod, for people only.
    pub pod: Option<Box<str>>,
    /// The network namespace that the ADD was made for.
    pub netns: Option<NetNs>,
    /// [`Ipam::generation`](super::Ipam::generation) of the ADD that last asked for the address.
    pub generation: u64,
}

/// A network namespace: its path and its identity.
#[derive(Clone, Debug, PartialEq)]
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
    /// Whether the namespace with these numbers is this one, whose holder released its address `ago`.
    pub fn is_still(&self, id: (u64, u64), cookie: Option<u64>, ago: Duration) -> bool {
        match self.cookie.zip(cookie) {
            Some((then, now)) => then == now,
            None => self.id == Some(id) && ago < INODE_IS_KEPT,
        }
    }
}

/// An attachment of a container to a network: what the CNI specification identifies by network name, CNI_CONTAINERID and
/// CNI_IFNAME (difference D8).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attachment {
    /// The network's name.
    pub network: String,
    /// CNI_CONTAINERID.
    pub container_id: String,
    /// CNI_IFNAME.
    pub if_name: String,
}

impl Claim {
    /// The claim of an attachment of which nothing else is known.
    pub fn new(attachment: &Attachment, generation: u64) -> Claim {
        Claim {
            container_id: attachment.container_id.as_str().into(),
            network: attachment.network.as_str().into(),
            if_name: attachment.if_name.as_str().into(),
            pod: None,
            netns: None,
            generation,
        }
    }
}

impl Owner {
    /// The owner of a record that has only a container ID; an empty ID means unknown, as in the original's records.
    pub fn from_container_id(id: &str) -> Owner {
        match id {
            "" => Owner::Unknown,
            id => Owner::Container(id.into()),
        }
    }

    /// The container ID, where it is known.
    pub fn container_id(&self) -> Option<&str> {
        match self {
            Owner::Unknown => None,
            Owner::Container(id) => Some(id),
            Owner::Attachment(claim) => Some(&claim.container_id),
        }
    }

    /// Gives up the container ID, where it is known.
    pub fn into_container_id(self) -> Option<Box<str>> {
        match self {
            Owner::Unknown => None,
            Owner::Container(id) => Some(id),
            Owner::Attachment(claim) => Some(claim.container_id),
        }
    }

    /// The claim of an attachment.
    pub fn claim(&self) -> Option<&Claim> {
        match self {
            Owner::Attachment(claim) => Some(claim),
            Owner::Unknown | Owner::Container(_) => None,
        }
    }

    /// The network namespace that the ADD was made for, where it is known.
    pub fn netns(&self) -> Option<&NetNs> {
        self.claim()?.netns.as_ref()
    }

    /// `namespace/name` of the pod, where it is known.
    pub fn pod(&self) -> Option<&str> {
        self.claim()?.pod.as_deref()
    }

    /// The generation of the claim, where there is one.
    pub fn generation(&self) -> Option<u64> {
        self.claim().map(|claim| claim.generation)
    }

    /// The attachment, where it is known.
    pub fn attachment(&self) -> Option<Attachment> {
        let claim = self.claim()?;
        Some(Attachment {
            network: claim.network.to_string(),
            container_id: claim.container_id.to_string(),
            if_name: claim.if_name.to_string(),
        })
    }

    /// Whether nothing is known of the owner.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Owner::Unknown)
    }

    /// Whether it is the container of this ID, or an attachment of that container.
    pub fn is_container(&self, id: &str) -> bool {
        self.container_id() == Some(id)
    }

    /// Whether it is `attachment`. A record that has only a container ID belongs to every attachment of the container; one whose network
    /// is not known belongs to every network, as a container has an interface only once.
    pub fn is_attachment(&self, attachment: &Attachment) -> bool {
        match self {
            Owner::Unknown => false,
            Owner::Container(id) => **id == *attachment.container_id,
            Owner::Attachment(claim) => {
                *claim.container_id == *attachment.container_id
                    && (claim.network.is_empty() || *claim.network == *attachment.network)
                    && *claim.if_name == *attachment.if_name
            }
        }
    }

    /// Whether both came from the same ADD.
    pub fn is_of_same_add(&self, other: &Owner) -> bool {
        self.container_id() == other.container_id() && self.generation() == other.generation()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_owns_by_every_interface_and_attachment_by_its_own() {
        let attachment = |if_name: &str| Attachment {
            network: "azure".into(),
            container_id: "c1".into(),
            if_name: if_name.into(),
        };
        let container = Owner::from_container_id("c1");
        assert!(container.is_attachment(&attachment("eth0")));
        assert!(container.is_attachment(&attachment("net1")));
        let eth0 = Owner::Attachment(Box::new(Claim::new(&attachment("eth0"), 0)));
        assert!(eth0.is_attachment(&attachment("eth0")));
        assert!(!eth0.is_attachment(&attachment("net1")));
        let of_any_network = Claim {
            network: "".into(),
            ..Claim::new(&attachment("eth0"), 0)
        };
        let of_any_network = Owner::Attachment(Box::new(of_any_network));
        assert!(of_any_network.is_attachment(&attachment("eth0")));
        assert!(!of_any_network.is_attachment(&attachment("net1")));
        let other = Attachment {
            container_id: "c2".into(),
            ..attachment("eth0")
        };
        assert!(!eth0.is_attachment(&other));
        assert!(!container.is_attachment(&other));
    }

    #[test]
    fn unknown_owner_is_nobody() {
        let unknown = Owner::from_container_id("");
        assert!(unknown.is_unknown());
        assert!(!unknown.is_container(""));
        assert!(!unknown.is_attachment(&Attachment::default()));
    }
}

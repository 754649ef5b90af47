//! CHECK: compares the records of an attachment with the result of its ADD.

use std::net::IpAddr;

use super::{Attachment, Ipam, Owner};

/// An address that the attachment should hold and does not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckFailure {
    /// It holds no address at all.
    #[error("no address is held for this attachment")]
    Nothing,
    /// Nobody holds the address.
    #[error("{address} is not held for this attachment: it is free")]
    Free {
        /// The address.
        address: IpAddr,
    },
    /// Somebody else holds the address.
    #[error("{address} is not held for this attachment, but for another")]
    Others {
        /// The address.
        address: IpAddr,
        /// The holder's container ID.
        holder: String,
    },
}

impl Ipam {
    /// Compares the records with the addresses in the result of `attachment`. Only addresses in our pools are checked. Without a
    /// result, the attachment must hold any address. An address of an unknown owner may be this attachment's.
    ///
    /// # Errors
    /// The first address that it does not hold.
    pub fn check_attachment(
        &self,
        attachment: &Attachment,
        expected: Option<&[IpAddr]>,
    ) -> Result<(), CheckFailure> {
        let holds_any = self
            .holders()
            .any(|held| held.owner.is_attachment(attachment));
        let Some(expected) = expected else {
            return holds_any.then_some(()).ok_or(CheckFailure::Nothing);
        };
        for address in expected.iter().copied() {
            let ours = self.pools().filter(|(_, key, pool)| {
                let net = pool.net(key);
                net.is_some_and(|net| net.contains(&address))
            });
            let ours: Vec<_> = ours.map(|(_, _, pool)| pool).collect();
            let records = ours.iter().flat_map(|pool| &pool.records);
            let records = records.filter(|record| record.address() == address);
            let owners = records.filter_map(|record| Some(&record.held()?.owner));
            let owners: Vec<_> = owners.collect();
            let may_be_its = |owner: &&Owner| owner.is_attachment(attachment) || owner.is_unknown();
            if ours.is_empty() || owners.iter().any(may_be_its) {
                continue;
            }
            let holder = owners.first().and_then(|owner| owner.container_id());
            return Err(match holder.map(str::to_owned) {
                Some(holder) => CheckFailure::Others { address, holder },
                None if holds_any => CheckFailure::Free { address },
                None => CheckFailure::Nothing,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipam::testing::{attached, with_pools};
    use crate::ipam::{Held, Usage};

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn attachment(container_id: &str, if_name: &str) -> Attachment {
        Attachment {
            network: "azure".into(),
            container_id: container_id.into(),
            if_name: if_name.into(),
        }
    }

    /// `c1` has .5 on eth0, an old record of `c2` .6, somebody unknown .7; .8 is free.
    fn state() -> Ipam {
        let mut ipam = with_pools(&[(
            "10.1.0.0/16",
            0,
            &["10.1.0.5", "10.1.0.6", "10.1.0.7", "10.1.0.8"],
        )]);
        for (address, owner) in [
            ("10.1.0.5", attached("c1", 1)),
            ("10.1.0.6", Owner::from_container_id("c2")),
            ("10.1.0.7", Owner::Unknown),
        ] {
            for pool in ipam.pools_mut() {
                pool.record_mut(&ip(address)).unwrap().usage = Usage::Held(Held {
                    owner: owner.clone(),
                    ..Held::default()
                });
            }
        }
        ipam
    }

    fn check(container_id: &str, if_name: &str, addresses: &[&str]) -> Result<(), CheckFailure> {
        let addresses: Vec<_> = addresses.iter().map(|a| ip(a)).collect();
        state().check_attachment(&attachment(container_id, if_name), Some(&addresses))
    }

    #[test]
    fn what_is_recorded_for_the_attachment_or_may_be_its_own_is_held() {
        for (id, if_name, addresses) in [
            ("c1", "eth0", &["10.1.0.5"][..]),
            ("c2", "net1", &["10.1.0.6"]),
            ("c9", "eth0", &["10.1.0.7"]),
            ("c9", "eth0", &["192.168.0.1", "fd00::1"]),
            ("c9", "eth0", &[]),
            ("c1", "eth0", &["192.168.0.1", "10.1.0.5"]),
        ] {
            assert_eq!(check(id, if_name, addresses), Ok(()), "{id} {addresses:?}");
        }
        assert_eq!(
            state().check_attachment(&attachment("c1", "eth0"), None),
            Ok(())
        );
    }

    #[test]
    fn every_failure_is_reported() {
        let others = |holder: &str| {
            Err(CheckFailure::Others {
                address: ip("10.1.0.5"),
                holder: holder.into(),
            })
        };
        assert_eq!(check("c2", "eth0", &["10.1.0.6", "10.1.0.5"]), others("c1"));
        assert_eq!(check("c1", "net1", &["10.1.0.5"]), others("c1"));
        assert_eq!(
            check("c1", "eth0", &["10.1.0.8"]),
            Err(CheckFailure::Free {
                address: ip("10.1.0.8")
            })
        );
        assert_eq!(
            check("c1", "eth0", &["10.1.0.99"]),
            Err(CheckFailure::Free {
                address: ip("10.1.0.99")
            })
        );
        assert_eq!(
            check("c9", "eth0", &["10.1.0.8"]),
            Err(CheckFailure::Nothing)
        );
        let none = state().check_attachment(&attachment("c1", "net1"), None);
        assert_eq!(none, Err(CheckFailure::Nothing));
    }
}

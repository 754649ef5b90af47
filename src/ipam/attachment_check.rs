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
    use crate::ipam::Moment;
    use crate::ipam::testing::{attached, attachment, hold, ip, with_pools};

    #[test]
    fn what_is_recorded_for_the_attachment_or_may_be_its_own_is_held() {
        // .8 is free.
        let all: &[&str] = &["10.1.0.5", "10.1.0.6", "10.1.0.7", "10.1.0.8"];
        let mut ipam = with_pools(&[("10.1.0.0/16", 0, all)]);
        let old = Owner::from_container_id("c2");
        let owners = [attached("c1", 0), old, Owner::Unknown];
        for (address, owner) in all.iter().zip(owners) {
            hold(&mut ipam, address, owner, Moment(0));
        }
        let free = |address| {
            Err(CheckFailure::Free {
                address: ip(address),
            })
        };
        let others = Err(CheckFailure::Others {
            address: ip("10.1.0.5"),
            holder: "c1".into(),
        });
        let nothing = Err(CheckFailure::Nothing);
        for (id, if_name, addresses, expected) in [
            ("c1", "eth0", Some(&["10.1.0.5"][..]), Ok(())),
            ("c1", "eth0", Some(&["192.168.0.1", "10.1.0.5"]), Ok(())),
            ("c1", "eth0", None, Ok(())),
            ("c2", "net1", Some(&["10.1.0.6"]), Ok(())),
            ("c9", "eth0", Some(&["10.1.0.7"]), Ok(())),
            ("c9", "eth0", Some(&["192.168.0.1", "fd00::1"]), Ok(())),
            ("c9", "eth0", Some(&[]), Ok(())),
            (
                "c2",
                "eth0",
                Some(&["10.1.0.6", "10.1.0.5"]),
                others.clone(),
            ),
            ("c1", "net1", Some(&["10.1.0.5"]), others),
            ("c1", "eth0", Some(&["10.1.0.8"]), free("10.1.0.8")),
            ("c1", "eth0", Some(&["10.1.0.99"]), free("10.1.0.99")),
            ("c9", "eth0", Some(&["10.1.0.8"]), nothing.clone()),
            ("c1", "net1", None, nothing),
        ] {
            let parsed = addresses.map(|all| all.iter().map(|a| ip(a)).collect::<Vec<_>>());
            let found = ipam.check_attachment(&attachment(id, if_name), parsed.as_deref());
            assert_eq!(found, expected, "{id} {if_name} {addresses:?}");
        }
    }
}

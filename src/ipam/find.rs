//! Finds the record of a pool that an attachment holds or requests.

use std::net::IpAddr;

use super::choose::Unavailable;
use super::{Attachment, Holder, Moment, Pool, Refusal, Request, Usage};
use crate::codec::named_address;

impl Pool {
    /// Finds the record of the requested address, if the attachment holds it or may get it. A prefix length behind the address is
    /// ignored.
    pub(super) fn find_named(
        &self,
        address: &str,
        request: &Request<'_>,
        out: Unavailable<'_>,
        now: Moment,
    ) -> Result<IpAddr, Refusal> {
        let not_found = || Refusal::AddressNotFound {
            address: address.to_owned(),
        };
        let key = named_address(address).ok_or_else(not_found)?;
        let record = self.record(&key).ok_or_else(not_found)?;
        let in_use = |holder| Refusal::AddressInUse {
            address: key,
            holder,
        };
        let address = record.address();
        match &record.usage {
            Usage::Held(held) if held.owner.is_attachment(request.attachment) => Ok(key),
            Usage::Held(held) => Err(in_use(match held.owner.container_id() {
                Some(id) => Holder::Container(id.to_owned()),
                None => Holder::Unknown,
            })),
            Usage::Free(_) if out.excludes(&address) => {
                Err(Refusal::AddressExcluded { address: key })
            }
            Usage::Free(_) if out.on_host.contains(&address) => Err(in_use(Holder::TheHost)),
            Usage::Free(_) if out.contains(&address) => Err(in_use(Holder::Unknown)),
            Usage::Free(free) => match free.released.map(|at| now.since(at)) {
                Some(cooled_for) if cooled_for < request.cooldown => Err(Refusal::AddressResting {
                    address: key,
                    left: request.cooldown - cooled_for,
                }),
                _ => Ok(key),
            },
        }
    }

    /// Finds the record that the attachment holds. One that names the attachment goes before one that names only its container.
    pub(super) fn find_held_by(&self, attachment: &Attachment) -> Option<IpAddr> {
        let held = |claimed: bool| {
            self.records.iter().find(move |r| {
                r.held().is_some_and(|h| {
                    h.owner.claim().is_some() == claimed && h.owner.is_attachment(attachment)
                })
            })
        };
        held(true).or_else(|| held(false)).map(|r| r.key)
    }

    /// Finds a free record that an old version of the original left with this container's ID. The original grants it again.
    pub(super) fn find_left_over(
        &self,
        container_id: &str,
        out: Unavailable<'_>,
    ) -> Option<IpAddr> {
        let left = self.records.iter().find(|r| {
            r.free()
                .is_some_and(|f| f.left_over_id.as_deref() == Some(container_id))
                && !out.contains(&r.address())
        });
        left.map(|r| r.key)
    }
}

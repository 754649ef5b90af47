//! Finds the record of a pool that an attachment holds or asks for.

use std::net::IpAddr;

use super::choose::Unavailable;
use super::{Attachment, Holder, Moment, Pool, Refusal, Request, Usage};
use crate::codec::named_address;

impl Pool {
    /// The record of the address that the caller names, if the attachment has it or may have it. A prefix length behind the
    /// address is allowed and means nothing.
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

    /// The record that the attachment holds: one claimed by it before one that merely carries its container ID.
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

    /// A free record that an old version of the original left with this container's ID: the original gives it back.
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

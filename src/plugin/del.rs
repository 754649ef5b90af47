//! DEL: the addresses of an attachment come back. Needs no source, no pool and no state (promise P4).

use tracing::{info, warn};

use super::Context;
use crate::cni::Call;
use crate::failure::Failure;
use crate::host::{boot_now, wall_now};
use crate::ipam::{Freed, Hint};
use crate::state::{Document, Loaded, LockError, Locked, WAIT, load};

/// What the original's messages begin with.
const STAGE: &str = "Failed to release address";

/// Releases what the attachment holds.
pub fn del(call: &Call, context: &Context) -> Result<(), Failure> {
    let mut locked = match Locked::acquire(&context.paths, WAIT) {
        Ok(locked) => locked,
        Err(error @ LockError::Io { .. }) => return without_lock(call, context, error),
        Err(error @ LockError::Busy { .. }) => return Err(error.into()),
    };
    let mut document = match locked.load().map_err(|error| Failure::Store {
        stage: STAGE,
        error,
    })? {
        Loaded::Read(document) => document,
        Loaded::Missing => {
            info!(target: "ipam", "there is no state, so nothing is held.");
            return Ok(());
        }
        Loaded::Corrupt(why) => {
            match locked.set_aside(&wall_now().to_string()) {
                Ok(aside) => {
                    warn!(target: "ipam", "the state could not be read ({why}) and is now {}.", aside.display())
                }
                Err(error) => {
                    warn!(target: "ipam", "the state could not be read ({why}): {error}.")
                }
            }
            return Ok(());
        }
    };
    let freed = release(call, &mut document);
    if freed.is_empty() {
        info!(target: "ipam", "nothing is held.");
        return Ok(());
    }
    context
        .save(&mut locked, &mut document)
        .map_err(|error| Failure::Store {
            stage: STAGE,
            error,
        })?;
    for Freed {
        pool,
        address,
        dropped,
    } in freed
    {
        let fate = if dropped {
            "released, and gone from"
        } else {
            "released to"
        };
        info!(target: "ipam", "{address} {fate} pool {pool}.");
    }
    Ok(())
}

fn release(call: &Call, document: &mut Document) -> Vec<Freed> {
    let ipam = &call.conf.ipam;
    let hint = Hint {
        space: Some(&ipam.address_space),
        subnet: ipam.subnet.as_deref(),
        address: ipam.ip_address.as_deref(),
    };
    document
        .ipam_mut()
        .release(&call.attachment, hint, boot_now())
}

/// A lock that cannot be made (a read-only file system) is in the way only of an attachment that holds something.
fn without_lock(call: &Call, context: &Context, error: LockError) -> Result<(), Failure> {
    let holds_nothing = match load(&context.paths) {
        Ok(Loaded::Missing) => true,
        Ok(Loaded::Read(mut document)) => release(call, &mut document).is_empty(),
        Ok(Loaded::Corrupt(_)) | Err(_) => false,
    };
    if holds_nothing {
        Ok(())
    } else {
        Err(error.into())
    }
}

//! CHECK: does the attachment still hold what its pod was told (SPEC.md, "CHECK: Check container's networking is as
//! expected").
//!
//! Runtimes may take a failure for permanent and kill the pod, so that nothing that passes may fail it: no lock is waited for,
//! and what cannot be read just now is for later (code 11).

use super::context::Context;
use super::decide::loss;
use crate::cni::Call;
use crate::failure::Failure;
use crate::state::{KeyStatus, Loaded, is_rebuild_owed, last_grant_path, load};

/// Compares the state with `prevResult`.
pub fn check(call: &Call, context: &Context) -> Result<(), Failure> {
    // Before the state: every ADD notes its address when that is in the state, so that a state read later knows of it.
    let last = last_grant_path(context.files(), context.boot_id.as_deref());
    let rebuild_owed = is_rebuild_owed(context.files());
    let document =
        match load(context.files(), context.boot_id.as_deref()).map_err(Failure::NotNow)? {
            Loaded::Read(document) => *document,
            Loaded::Missing => return Err(Failure::StateGone("it is not there".to_owned())),
            Loaded::Corrupt(why) => return Err(Failure::StateGone(why)),
        };
    if let KeyStatus::Newer { format, .. } = &document.own {
        return Err(Failure::NewerFormat { found: *format });
    }
    if let Some(why) = loss(&document, rebuild_owed, last) {
        return Err(Failure::StateGone(why.to_owned()));
    }
    if document.is_empty() {
        return Err(Failure::StateGone("it is empty".to_owned()));
    }
    let narrow_refusal = call.previous.as_deref();
    Ok(document.ipam().holds(&call.attachment, narrow_refusal)?)
}

//! CHECK: compares the attachment's addresses with the result of its ADD (SPEC.md, "CHECK: Check container's networking is as
//! expected").
//!
//! A runtime may take a failure for permanent and kill the pod. So CHECK waits for no lock, and transient problems, such as an
//! unreadable state, return code 11.

use super::context::Context;
use crate::cni::Call;
use crate::failure::Failure;
use crate::state::{Loaded, is_rebuild_owed, last_granted_generation, load};

/// Compares the state with `prevResult`.
///
/// # Errors
/// An address of `prevResult` is not held by the attachment, or the state says nothing about it.
pub fn check(call: &Call, context: &Context) -> Result<(), Failure> {
    // Read before the state: an ADD notes its generation after the state has it, so the state cannot seem old by a new note.
    let last = last_granted_generation(context.files(), context.boot_id.as_deref());
    let rebuild_owed = is_rebuild_owed(context.files());
    let state = match load(context.files(), context.boot_id.as_deref()).map_err(Failure::NotNow)? {
        Loaded::Ready(state) => *state,
        Loaded::Newer { format, .. } => return Err(Failure::NewerFormat { found: format }),
        Loaded::Missing => return Err(Failure::StateGone("it is not there".to_owned())),
        Loaded::Corrupt(why) => return Err(Failure::StateGone(why)),
    };
    if let Some(why) = state.lost_reason(rebuild_owed, last) {
        return Err(Failure::StateGone(why.to_owned()));
    }
    if state.is_empty() {
        return Err(Failure::StateGone("it is empty".to_owned()));
    }
    let expected = call.previous.as_deref();
    Ok(state.ipam().check_attachment(&call.attachment, expected)?)
}

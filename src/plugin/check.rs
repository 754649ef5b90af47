//! CHECK: compares the attachment's addresses with the result of its ADD (SPEC.md, "CHECK: Check container's networking is as
//! expected").
//!
//! A runtime may take a failure for permanent and kill the pod. So CHECK waits for no lock, and transient problems, such as an
//! unreadable state, return code 11.

use super::commit::require_known_format;
use super::context::Context;
use crate::cni::Call;
use crate::failure::Failure;

/// Compares the state with `prevResult`.
///
/// # Errors
/// An address of `prevResult` is not held by the attachment, or the state says nothing about it.
pub fn check(call: &Call, context: &Context) -> Result<(), Failure> {
    let state = context.view().map_err(Failure::NotNow)?;
    require_known_format(&state)?;
    if let Some(loss) = state.condition.lost() {
        return Err(Failure::StateGone(loss.why.clone()));
    }
    if state.is_empty() {
        return Err(Failure::StateGone("it is empty".to_owned()));
    }
    let expected = call.previous.as_deref();
    Ok(state.ipam().check_attachment(&call.attachment, expected)?)
}

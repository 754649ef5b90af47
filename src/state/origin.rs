//! Which save a copy of the state is from.

use super::condition::Condition;

/// What our own key says about the save that a copy is from.
#[derive(Debug, Default)]
pub enum Origin {
    /// The state has no key of ours. Another program created it.
    #[default]
    Foreign,
    /// Our key cannot be read, for this reason. Its facts are lost, the records are not.
    Unreadable(String),
    /// An older version of this program saved it. The value is the number of that save, if it was in this boot and recorded no loss.
    Older(Option<u64>),
    /// This program saved it.
    Ours(Save),
    /// A newer version of this program saved it.
    Newer {
        /// The format version of its key.
        format: u64,
        /// The boot, if it is known.
        boot_id: Option<String>,
        /// The text of its key, which is kept.
        key: String,
    },
}

/// A save of this program.
#[derive(Debug, Default)]
pub struct Save {
    /// Its number: [`Ipam::generation`](crate::ipam::Ipam::generation).
    pub number: u64,
    /// Its boot ID; `None` if it could not be read.
    pub boot_id: Option<String>,
    /// The condition of the state when it was saved.
    pub condition: Condition,
    /// Whether another program has saved since. The original keeps our key as it is.
    pub is_overtaken: bool,
    /// Whether the key contradicts the records, although no other program has saved since.
    pub is_edited: bool,
}

impl Origin {
    /// Returns the condition that the copy itself states.
    pub fn condition(&self) -> Condition {
        match self {
            Origin::Ours(save) => save.condition.clone(),
            Origin::Newer { format, .. } => Condition::Newer { format: *format },
            Origin::Foreign | Origin::Unreadable(_) | Origin::Older(_) => Condition::Reconcile,
        }
    }

    /// Returns the save, if this program saved the copy.
    pub fn save(&self) -> Option<&Save> {
        match self {
            Origin::Ours(save) => Some(save),
            _ => None,
        }
    }

    /// Returns the number of that save.
    pub fn number(&self) -> Option<u64> {
        Some(self.save()?.number)
    }

    /// Returns whether this program saved the copy last, and no other program has since.
    pub fn is_ours(&self) -> bool {
        self.save().is_some_and(|save| !save.is_overtaken)
    }

    /// Returns the boot of the save, if it is known.
    pub fn boot_id(&self) -> Option<&str> {
        match self {
            Origin::Ours(Save { boot_id, .. }) | Origin::Newer { boot_id, .. } => {
                boot_id.as_deref()
            }
            Origin::Foreign | Origin::Unreadable(_) | Origin::Older(_) => None,
        }
    }
}

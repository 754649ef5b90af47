//! Decides what `install` and `uninstall` do. Pure: from what stands at the paths to what becomes of it.

use super::occupant::{Kind, Occupant};

/// What `install` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstallPlan {
    /// Nothing: this very executable is installed already.
    Keep,
    /// Puts this executable in place of what stands there.
    Replace(Save),
    /// Nothing, as it must not.
    Refuse(InstallRefusal),
}

/// What becomes of the file that is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Save {
    /// Nothing: it is ours, or there is none.
    Nothing,
    /// Nothing: it is the saved original.
    IsSaved,
    /// It becomes `.orig`, in place of a file of ours, if any.
    AsOriginal,
    /// It becomes `.orig`, and the former `.orig` becomes `.orig.1`.
    AsNewerOriginal,
}

/// Why `install` does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstallRefusal {
    /// What stands there is neither ours nor the original, and `--force` is missing.
    Foreign,
    /// What stands there is a folder or a device.
    NotAFile,
    /// The path for the saved original is taken by a folder or a device.
    CannotSave,
}

/// Decides what `install` does. `own` is the SHA-256 of this executable, `saved` what stands at `.orig`.
pub fn plan_install(own: &str, there: &Occupant, saved: &Occupant, has_force: bool) -> InstallPlan {
    match there.kind {
        Kind::NotAFile => InstallPlan::Refuse(InstallRefusal::NotAFile),
        // What a link leads to may be away for a moment only, but it does not drive out what is saved.
        Kind::Nothing if there.link.is_some() && saved.identity.is_none() => {
            InstallPlan::Replace(Save::AsOriginal)
        }
        Kind::Nothing => InstallPlan::Replace(Save::Nothing),
        Kind::Ours if there.executable && there.sha256.as_deref() == Some(own) => InstallPlan::Keep,
        Kind::Ours => InstallPlan::Replace(Save::Nothing),
        Kind::Foreign if !has_force => InstallPlan::Refuse(InstallRefusal::Foreign),
        Kind::Foreign | Kind::Original => match saved.kind {
            Kind::NotAFile => InstallPlan::Refuse(InstallRefusal::CannotSave),
            // A saved link is an original whatever it leads to now, such as this program in place of the plugin with the other name.
            Kind::Nothing | Kind::Ours if saved.link.is_none() => {
                InstallPlan::Replace(Save::AsOriginal)
            }
            _ if saved.is_same_as(there) => InstallPlan::Replace(Save::IsSaved),
            _ => InstallPlan::Replace(Save::AsNewerOriginal),
        },
    }
}

/// What `uninstall` does at one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UninstallPlan {
    /// Nothing: this program is not installed there.
    NotInstalled,
    /// Brings back `.orig`.
    RestoreNewest,
    /// Brings back `.orig.1`, as `.orig` is not a working plugin.
    RestoreFormer,
    /// Removes this program and leaves nothing.
    Remove,
    /// Nothing: there is no original to bring back, and `--force` is missing.
    Refuse,
}

/// Decides what `uninstall` does at a path. `newest` is what stands at `.orig`, `former` at `.orig.1`.
pub fn plan_uninstall(
    there: &Occupant,
    newest: &Occupant,
    former: &Occupant,
    has_force: bool,
) -> UninstallPlan {
    match there.kind {
        Kind::Original | Kind::Foreign | Kind::NotAFile => UninstallPlan::NotInstalled,
        // Somebody may have removed this program by hand.
        Kind::Ours | Kind::Nothing if newest.is_other_plugin() => UninstallPlan::RestoreNewest,
        Kind::Ours | Kind::Nothing if former.is_other_plugin() => UninstallPlan::RestoreFormer,
        Kind::Nothing => UninstallPlan::NotInstalled,
        Kind::Ours if has_force => UninstallPlan::Remove,
        Kind::Ours => UninstallPlan::Refuse,
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// A file whose content is this text.
    fn file(kind: Kind, content: &str) -> Occupant {
        Occupant {
            kind,
            sha256: Some(content.to_owned()),
            executable: true,
            identity: Some((1, content.bytes().map(u64::from).sum())),
            ..Occupant::default()
        }
    }

    fn nothing() -> Occupant {
        Occupant::default()
    }

    fn ours(content: &str) -> Occupant {
        file(Kind::Ours, content)
    }

    fn original(content: &str) -> Occupant {
        file(Kind::Original, content)
    }

    fn foreign(content: &str) -> Occupant {
        file(Kind::Foreign, content)
    }

    fn folder() -> Occupant {
        Occupant {
            kind: Kind::NotAFile,
            ..Occupant::default()
        }
    }

    fn not_executable(occupant: Occupant) -> Occupant {
        Occupant {
            executable: false,
            ..occupant
        }
    }

    fn link(occupant: Occupant) -> Occupant {
        Occupant {
            link: Some(PathBuf::from("x")),
            identity: Some((1, 99)),
            ..occupant
        }
    }

    #[test]
    fn install_replaces_saves_or_refuses() {
        use InstallPlan::{Keep, Refuse, Replace};
        use InstallRefusal::{CannotSave, Foreign, NotAFile};
        use Save::{AsNewerOriginal, AsOriginal, IsSaved, Nothing};
        for (there, saved, without_force, with_force) in [
            (nothing(), nothing(), Replace(Nothing), Replace(Nothing)),
            (nothing(), original("a"), Replace(Nothing), Replace(Nothing)),
            (
                link(nothing()),
                nothing(),
                Replace(AsOriginal),
                Replace(AsOriginal),
            ),
            (
                link(nothing()),
                original("a"),
                Replace(Nothing),
                Replace(Nothing),
            ),
            (
                original("b"),
                link(ours("old")),
                Replace(AsNewerOriginal),
                Replace(AsNewerOriginal),
            ),
            (
                original("b"),
                link(nothing()),
                Replace(AsNewerOriginal),
                Replace(AsNewerOriginal),
            ),
            (ours("own"), original("a"), Keep, Keep),
            (link(ours("own")), nothing(), Keep, Keep),
            (
                not_executable(ours("own")),
                nothing(),
                Replace(Nothing),
                Replace(Nothing),
            ),
            (ours("old"), nothing(), Replace(Nothing), Replace(Nothing)),
            (
                ours("old"),
                original("a"),
                Replace(Nothing),
                Replace(Nothing),
            ),
            (
                original("a"),
                nothing(),
                Replace(AsOriginal),
                Replace(AsOriginal),
            ),
            (
                original("a"),
                ours("old"),
                Replace(AsOriginal),
                Replace(AsOriginal),
            ),
            (
                original("a"),
                original("a"),
                Replace(IsSaved),
                Replace(IsSaved),
            ),
            (
                link(original("a")),
                link(original("a")),
                Replace(IsSaved),
                Replace(IsSaved),
            ),
            (
                original("b"),
                original("a"),
                Replace(AsNewerOriginal),
                Replace(AsNewerOriginal),
            ),
            (
                original("b"),
                foreign("a"),
                Replace(AsNewerOriginal),
                Replace(AsNewerOriginal),
            ),
            (
                original("a"),
                folder(),
                Refuse(CannotSave),
                Refuse(CannotSave),
            ),
            (
                foreign("a"),
                nothing(),
                Refuse(Foreign),
                Replace(AsOriginal),
            ),
            (
                foreign("a"),
                foreign("a"),
                Refuse(Foreign),
                Replace(IsSaved),
            ),
            (
                foreign("b"),
                original("a"),
                Refuse(Foreign),
                Replace(AsNewerOriginal),
            ),
            (folder(), nothing(), Refuse(NotAFile), Refuse(NotAFile)),
        ] {
            for (force, expected) in [(false, without_force), (true, with_force)] {
                let found = plan_install("own", &there, &saved, force);
                assert_eq!(found, expected, "{there:?} {saved:?} force: {force}");
            }
        }
    }

    #[test]
    fn uninstall_restores_removes_or_refuses() {
        use UninstallPlan::{NotInstalled, Refuse, Remove, RestoreFormer, RestoreNewest};
        for (there, newest, former, without_force, with_force) in [
            (nothing(), nothing(), nothing(), NotInstalled, NotInstalled),
            (
                nothing(),
                original("a"),
                nothing(),
                RestoreNewest,
                RestoreNewest,
            ),
            (
                original("a"),
                original("b"),
                nothing(),
                NotInstalled,
                NotInstalled,
            ),
            (
                foreign("a"),
                original("b"),
                nothing(),
                NotInstalled,
                NotInstalled,
            ),
            (
                folder(),
                original("b"),
                nothing(),
                NotInstalled,
                NotInstalled,
            ),
            (
                ours("own"),
                original("a"),
                original("b"),
                RestoreNewest,
                RestoreNewest,
            ),
            (
                link(ours("own")),
                original("a"),
                nothing(),
                RestoreNewest,
                RestoreNewest,
            ),
            (
                ours("old"),
                foreign("a"),
                nothing(),
                RestoreNewest,
                RestoreNewest,
            ),
            (
                ours("own"),
                nothing(),
                original("b"),
                RestoreFormer,
                RestoreFormer,
            ),
            (
                ours("own"),
                ours("old"),
                original("b"),
                RestoreFormer,
                RestoreFormer,
            ),
            (
                ours("own"),
                not_executable(original("a")),
                original("b"),
                RestoreFormer,
                RestoreFormer,
            ),
            (ours("own"), nothing(), nothing(), Refuse, Remove),
            (ours("own"), ours("old"), nothing(), Refuse, Remove),
            (
                ours("own"),
                not_executable(original("a")),
                folder(),
                Refuse,
                Remove,
            ),
        ] {
            for (force, expected) in [(false, without_force), (true, with_force)] {
                let found = plan_uninstall(&there, &newest, &former, force);
                assert_eq!(
                    found, expected,
                    "{there:?} {newest:?} {former:?} force: {force}"
                );
            }
        }
    }
}

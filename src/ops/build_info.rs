//! What this executable was built from.

/// The version of the program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The first digits of the commit, or "unknown" (`src/build.rs`).
pub const COMMIT: &str = env!("AZURE_VNET_IPAM_BUILD_COMMIT");
/// The target that it was built for.
pub const TARGET: &str = env!("AZURE_VNET_IPAM_BUILD_TARGET");
/// The features of the package that it was built with.
pub const FEATURES: &[&str] = if cfg!(feature = "tls") { &["tls"] } else { &[] };

/// Joins the version and what tells builds of one version apart, before these features.
macro_rules! build_line {
    ($features:literal) => {
        concat!(
            env!("CARGO_PKG_VERSION"),
            " (commit ",
            env!("AZURE_VNET_IPAM_BUILD_COMMIT"),
            ", ",
            env!("AZURE_VNET_IPAM_BUILD_TARGET"),
            $features,
            ")"
        )
    };
}

/// The version, with what tells builds of one version apart, as `--version` prints it behind the name.
pub const LINE: &str = if cfg!(feature = "tls") {
    build_line!(", tls")
} else {
    build_line!("")
};

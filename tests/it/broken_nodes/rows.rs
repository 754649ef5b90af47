//! The broken nodes, each with what `check` must find there. Every row is a test.

mod configuration;
mod disk;
mod links;
mod lock;
mod records;
mod source;
mod state;

use super::Row;

/// Makes a test of each row, and the table `ROWS` of all.
macro_rules! broken_nodes {
    ($($name:ident { $($key:ident: $value:expr),* $(,)? })*) => {
        $(
            #[test]
            #[ignore = "needs root, unshare, iproute2, perl, iptables and time namespaces"]
            fn $name() {
                let path = concat!(module_path!(), "::", stringify!($name));
                crate::broken_nodes::test_row(path, stringify!($name));
            }
        )*

        /// The rows of this file.
        pub const ROWS: &[crate::broken_nodes::Row] = &[$(crate::broken_nodes::Row {
            name: stringify!($name),
            $($key: $value,)*
            ..crate::broken_nodes::HEALTHY
        }),*];
    };
}
use broken_nodes;

/// Wants both families, and has the wire server list addresses of IPv6.
macro_rules! dual_stack {
    () => {
        "sed -i 's/\"type\": \"azure-vnet-ipam\"/\"families\": [\"ipv4\", \"ipv6\"], &/' /etc/cni/net.d/10-bridge.conflist; \
         sed -i 's|</Interface>|<IPSubnet Prefix=\"fd00:10::/64\"><IPAddress Address=\"fd00:10::4\" IsPrimary=\"true\"/><IPAddress Address=\"fd00:10::5\" IsPrimary=\"false\"/><IPAddress Address=\"fd00:10::6\" IsPrimary=\"false\"/><IPAddress Address=\"fd00:10::7\" IsPrimary=\"false\"/></IPSubnet>&|' /run/broken-node/wire.xml"
    };
}
use dual_stack;

broken_nodes! {
    healthy {
        screen: true,
    }
}

/// All rows.
pub fn all() -> Vec<&'static Row> {
    let tables = [
        ROWS,
        disk::ROWS,
        state::ROWS,
        records::ROWS,
        lock::ROWS,
        source::ROWS,
        links::ROWS,
        configuration::ROWS,
    ];
    tables.into_iter().flatten().collect()
}

#!/bin/sh
# The main job on any machine, without root and without Azure: two pods get addresses from a saved answer of the wire
# server, the state tells who has them, and one gives its address back. Everything happens in a folder that is removed at
# the end. BIN names another build of the program to try, and RUNNER what runs it, such as qemu-aarch64.
set -eu
cd "$(dirname "$0")/.."

if [ -z "${BIN:-}" ]; then
    cargo build --release --locked
    BIN=${CARGO_TARGET_DIR:-target}/release/azure-vnet-ipam
fi

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
export AZURE_VNET_IPAM_ROOT="$root"
export AZURE_VNET_IPAM_QUERY_URL=file:testdata/wire.xml

# The network interface that the saved answer speaks of.
mkdir -p "$root/sys/class/net/eth0"
echo 7c:1e:52:f9:f3:c4 >"$root/sys/class/net/eth0/address"

call() {
    echo "\$ CNI_COMMAND=$1 CNI_CONTAINERID=$2 azure-vnet-ipam <netconf"
    result=$(
        echo '{"cniVersion": "1.0.0", "name": "azure", "ipam": {"type": "azure-vnet-ipam"}}' |
            CNI_COMMAND=$1 CNI_CONTAINERID=$2 CNI_NETNS=/var/run/netns/$2 CNI_IFNAME=eth0 \
                CNI_ARGS="K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-${2#c}" ${RUNNER:-} "$BIN"
    )
    [ -z "$result" ] || echo "$result"
}

holders() {
    echo "\$ grep '\"id\"' /var/run/azure-vnet-ipam.json"
    grep '"id"' "$root/var/run/azure-vnet-ipam.json" | sed 's/^\t*//'
}

call ADD c1
call ADD c2
holders
call DEL c1
holders

#!/bin/sh
# Tries the main job on any machine, without root and without Azure. Two pods get addresses from a saved answer of the wire server,
# one of them releases its address, and `show` lists the holders. Everything happens in a folder that is removed at the end.
# BIN names another build of the program, and RUNNER a program that runs it, such as qemu-aarch64.
set -eu
cd "$(dirname "$0")/.."

if [ -z "${BIN:-}" ]; then
    cargo build --locked
    BIN=${CARGO_TARGET_DIR:-target}/debug/azure-vnet-ipam
fi
BIN=$(realpath "$BIN")

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
# Every path of the program is below this folder. The saved answer replaces the wire server.
export AZURE_VNET_IPAM_ROOT="$root"
export AZURE_VNET_IPAM_QUERY_URL=file:wire.xml
cp testdata/wire.xml "$root"

# The boot ID, and the network interface that the saved answer lists.
mkdir -p "$root/proc/sys/kernel/random"
cp /proc/sys/kernel/random/boot_id "$root/proc/sys/kernel/random"
mkdir -p "$root/sys/class/net/eth0"
echo 7c:1e:52:f9:f3:c4 >"$root/sys/class/net/eth0/address"

cd "$root"
echo '{"cniVersion": "1.0.0", "name": "azure", "ipam": {"type": "azure-vnet-ipam"}}' >netconf

azure_vnet_ipam() {
    # shellcheck disable=SC2086 # RUNNER may have arguments
    ${RUNNER:-} "$BIN" "$@"
}

# Prints a command, then runs it as printed.
run() { # command
    echo "\$ $1"
    printed=$(eval "$(echo "$1" | sed 's/azure-vnet-ipam/azure_vnet_ipam/')")
    [ -z "$printed" ] || echo "$printed"
}

run 'cat netconf'
echo '$ export CNI_IFNAME=eth0'
export CNI_IFNAME=eth0
run 'CNI_COMMAND=ADD CNI_CONTAINERID=c1 CNI_NETNS=/var/run/netns/c1 \
    CNI_ARGS="K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-1;K8S_POD_INFRA_CONTAINER_ID=c1" azure-vnet-ipam <netconf'
run 'CNI_COMMAND=ADD CNI_CONTAINERID=c2 CNI_NETNS=/var/run/netns/c2 \
    CNI_ARGS="K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-2;K8S_POD_INFRA_CONTAINER_ID=c2" azure-vnet-ipam <netconf | grep address'
run 'CNI_COMMAND=DEL CNI_CONTAINERID=c1 CNI_NETNS=/var/run/netns/c1 azure-vnet-ipam <netconf'
run 'azure-vnet-ipam show'

// For tests/calico/build: go.sum has the sums of Calico and of the two parts of it that are modules of their own. Calico's go.sum has
// those of all else that it is built from.
module azure-vnet-ipam/tests/calico

go 1.24

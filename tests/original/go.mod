// For tests/original/build: go.sum has the sums of the versions of the original. Their own go.sum have those of all that they are
// built from.
module azure-vnet-ipam/tests/original

go 1.24

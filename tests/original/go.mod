// For tests/original/build: the version of the original, whose sum go.sum has. The original's own go.sum has those of all that it is
// built from.
module azure-vnet-ipam/tests/original

go 1.23

require github.com/Azure/azure-container-networking v1.4.59 // indirect

// Package missingnode deletes custom machines whose Node is gone for long, where the cluster's owner asks for that by the annotation
// rke.cattle.io/delete-missing-custom-machines-after. Nobody else would: a machine that its user has brought is in no MachineSet, and its host
// may have been thrown away without a word.
package missingnode

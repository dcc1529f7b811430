// Package ownership decides whether objects that name each other belong together. Whoever may write an object writes its names, references,
// labels and annotations as they like, so that one side's word is never enough: an owner reference counts if the owner names the object too,
// and the name of a management Cluster counts if that was made for the cluster that names it. Every controller and server of the hub that
// follows such a name asks here. The package reads and compares; it writes nothing.
package ownership

// Refusal is why an object is not what it says: a reason in CamelCase for a condition, and a message that names the field.
type Refusal struct{ Reason, Message string }

// The reasons of refusals.
const (
	// ReasonOwnerMismatch: an owner reference names an object that does not name this one, or another UID than the object has.
	ReasonOwnerMismatch = "OwnerMismatch"
	// ReasonManagementClusterNotOwned: the management Cluster was made for another cluster.
	ReasonManagementClusterNotOwned = "ManagementClusterNotOwned"
	// ReasonWaitingForManagementCluster: the management Cluster is not there yet.
	ReasonWaitingForManagementCluster = "WaitingForManagementCluster"
)

// Package ownership decides whether objects that name each other belong together. A user who may write an object may write any name,
// reference, label and annotation to it, so that a reference of one side is not enough: an owner reference counts if the owner names the
// object too, and the name of a management Cluster counts if that was created for the cluster that names it. All code of the hub that
// follows such a name uses this package. It reads and compares; it writes nothing.
package ownership

// The reasons for which a reference does not count. The message of the Cause names the field.
const (
	// ReasonOwnerMismatch is for an owner reference to an object that does not name this one, or that has another UID.
	ReasonOwnerMismatch = "OwnerMismatch"
	// ReasonManagementClusterNotOwned is for a management Cluster that was created for another cluster.
	ReasonManagementClusterNotOwned = "ManagementClusterNotOwned"
	// ReasonWaitingForManagementCluster is for a management Cluster that does not exist yet.
	ReasonWaitingForManagementCluster = "WaitingForManagementCluster"
	// ReasonNameTaken is for an object that has the name of a Cluster and was made for something else.
	ReasonNameTaken = "NameTaken"
)

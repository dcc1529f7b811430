// Package operation gives operations a phase that no RKEControlPlane carries out: those of Clusters that do not exist, that are imported,
// whose RKEControlPlane does not exist, or that have a control plane of another provider. They wait for a limited time or fail, and are
// deleted after their TTL.
//
// Who writes an operation is decided by its Cluster of cluster.x-k8s.io alone: where that refers to an RKEControlPlane that exists, the
// controller of the RKEControlPlane does, and this one must not. Both write with the resource version that they have read, so that a
// Cluster that is created in between is a conflict and no lost write.
package operation

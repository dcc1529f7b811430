// Package etcdremoval holds every Machine with a member of etcd by a pre-terminate hook of Cluster API, and lets go of a deleted one when the
// cluster has removed its member, so that no deletion costs etcd its quorum. It asks the cluster by an annotation of the Node; the removal
// itself is done by k3s and RKE2. One cluster is one item of work, since its members go one after the other.
package etcdremoval

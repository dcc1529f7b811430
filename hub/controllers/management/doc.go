// Package management makes what a cluster has in the hub whoever made it: the management Cluster, its namespace, and the registration tokens in
// that. Controllers of Clusters do so by its functions; for an RKEControlPlane that was written for Cluster API, without a Cluster of
// provisioning.cattle.io, it has a controller of its own.
package management

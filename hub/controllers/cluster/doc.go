// Package cluster reconciles the Cluster of provisioning.cattle.io. It creates the management Cluster with its namespace and registration
// tokens, and the objects of Cluster API that other controllers reconcile, and reports their progress in the conditions of the Cluster. It
// changes no Machine, except for the finalizers of those that are left of a deleted Cluster.
package cluster

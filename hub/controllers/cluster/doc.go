// Package cluster reconciles the Cluster of provisioning.cattle.io: it makes the management Cluster with its namespace and registration
// token, and the objects of Cluster API that the other controllers work on, and it tells in the Cluster's conditions how far they are.
// It never touches a Machine, except to let go of those of a Cluster that is deleted.
package cluster

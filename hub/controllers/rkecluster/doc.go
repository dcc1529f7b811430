// Package rkecluster reconciles the RKECluster, the infrastructure of clusters with custom machines. There is nothing to create, so it is
// provisioned at once. It is kept until the last Machine is deleted, since Cluster API deletes the infrastructure last.
package rkecluster

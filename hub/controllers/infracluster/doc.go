// Package infracluster reconciles the RKECluster, the infrastructure of clusters whose machines bring their own. There is nothing to
// make, so it is provisioned at once; it only stays until the cluster's last Machine is gone, because Cluster API removes it last.
package infracluster

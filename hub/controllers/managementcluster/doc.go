// Package managementcluster reconciles the management Cluster. It reports whether the cluster's agent is connected, here and on the Cluster
// and RKEControlPlane; for an imported cluster it also reads version and number of Nodes through the agent, and keeps the kubeconfig
// Secret.
//
// It creates the management Cluster, with its namespace and registration tokens, for an RKEControlPlane that was written for Cluster API;
// the controller of Clusters does the same for a Cluster of provisioning.cattle.io, with the functions of ownership.ManagementOwner.
package managementcluster

// Package v1 holds the kinds of rke.cattle.io/v1: the Cluster API providers for RKE2 and k3s, and the names (labels, annotations, Secret
// types) by which hub, gateway and machines recognise each other's objects. It holds types and names only: no client, no behaviour.
//
// +kubebuilder:object:generate=true
// +groupName=rke.cattle.io
package v1

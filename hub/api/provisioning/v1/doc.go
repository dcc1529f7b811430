// Package v1 holds the kinds of provisioning.cattle.io/v1: the Cluster that users write. It holds types only: no client, no behaviour.
//
// +kubebuilder:object:generate=true
// +groupName=provisioning.cattle.io
package v1

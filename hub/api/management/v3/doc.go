// Package v3 holds the kinds of management.cattle.io/v3 that Drover uses: the management Cluster, which has one name for the whole hub, and
// the ClusterRegistrationToken, with which machines and agents introduce themselves. It holds types only: no client, no behaviour.
//
// +kubebuilder:object:generate=true
// +groupName=management.cattle.io
package v3

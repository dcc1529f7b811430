// Package v1alpha1 holds the kinds of operation.cattle.io/v1alpha1: work that is done once on a cluster when somebody asks for it, such as
// a snapshot. Each kind has the same form. It holds types only: no client, no behaviour.
//
// +kubebuilder:object:generate=true
// +groupName=operation.cattle.io
package v1alpha1

// Package v1alpha1 holds the kinds of the lab's infrastructure provider, as Cluster API's contract v1beta2 asks for them.
//
// +kubebuilder:object:generate=true
// +groupName=infrastructure.cluster.x-k8s.io
package v1alpha1

//go:generate go tool controller-gen object paths=.
//go:generate go tool controller-gen crd:maxDescLen=400 paths=. output:crd:dir=../../config

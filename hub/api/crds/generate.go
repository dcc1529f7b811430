package crds

// The definitions of Cluster API come from the types of the module that go.mod pins (those of Drover are generated in hub/api).
// Descriptions are left out: they are most of the bytes, and every API server keeps them in memory.
//
//go:generate go tool controller-gen crd:crdVersions=v1,maxDescLen=0 paths=sigs.k8s.io/cluster-api/api/core/... paths=sigs.k8s.io/cluster-api/api/addons/... paths=sigs.k8s.io/cluster-api/api/ipam/... paths=sigs.k8s.io/cluster-api/api/runtime/v1alpha1 paths=sigs.k8s.io/cluster-api/api/runtime/v1beta2 output:crd:dir=capi
//go:generate go run ./finish capi

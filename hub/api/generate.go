// Package api is the parent of the API groups; the generators for all of them run from here.
package api

//go:generate go tool controller-gen object paths=./management/... paths=./operation/... paths=./provisioning/... paths=./rke/...
//go:generate go tool controller-gen crd:maxDescLen=400 paths=./management/... paths=./operation/... paths=./provisioning/... paths=./rke/... output:crd:dir=crds/drover

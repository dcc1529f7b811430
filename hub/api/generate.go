// Package api is the parent of the API groups; the generators for all of them run from here.
package api

//go:generate go tool controller-gen object paths=./...
//go:generate go tool controller-gen crd:maxDescLen=400 paths=./... output:crd:dir=../crds/drover

// Package chart holds the scenarios of a hub that is installed with its Helm chart into a Kubernetes cluster, behind the build tag e2e:
// `make e2e`. The lab's own hub makes that cluster, of one host; Helm installs another hub there, and that one makes a cluster of a second
// host.
package chart

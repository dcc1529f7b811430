// Package apiproxy lets users reach the Kubernetes API of a cluster through the hub, with their own identity: /k8s/clusters/<id>/ of the
// gateway is the root of that API. It authenticates the user, asks the management cluster whether he may, writes the audit log, and passes
// the request on through the tunnel of the cluster's agent, which adds the credential that the cluster believes. The hub keeps none.
//
// It must not decide what a user may do inside a cluster: that is for the cluster itself, by the user's name and groups.
package apiproxy

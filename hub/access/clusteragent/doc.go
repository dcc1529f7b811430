// Package clusteragent writes the manifest of the cluster-agent: what is applied to a cluster so that it connects to the hub. It is pure:
// the same input gives the same bytes, so that a plan with the manifest in it changes only when something of it does. It must not decide
// where the manifest goes; that is the business of plans and of the gateway.
package clusteragent

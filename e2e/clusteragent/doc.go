// Package clusteragent proves that the two ends of the tunnel fit: the cluster-agent as it runs in a pod, and the hub's sessions, with a
// Kubernetes API behind the one and requests of users before the other.
package clusteragent

// Package timeline tells people what happens to a cluster: it turns transitions of conditions into Kubernetes Events, keeps the phases of
// the cluster and of its machines with their times in a ConfigMap, and writes the provisioning log. It only reads what others have found
// out; it decides nothing, and nothing depends on what it writes.
package timeline

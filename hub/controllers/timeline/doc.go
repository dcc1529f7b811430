// Package timeline records what happened to a cluster. It creates Kubernetes Events from transitions of conditions, keeps the phases of the
// cluster and of its machines with their times in ConfigMaps, and writes the provisioning log. It reads what other controllers have
// reported; no controller depends on what it writes.
package timeline

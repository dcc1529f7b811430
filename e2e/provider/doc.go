// Package provider makes hosts of a lab for Cluster API: an infrastructure provider that keeps the contract v1beta2, as those of clouds
// do. It is how the scenarios know that the hub works with any of them.
//
// It owns the kinds of e2e/provider/api and the hosts that it made for them, and runs in a process of its own with rights of its own. It
// must know nothing of the hub's kinds: all that it sees is Clusters, Machines and their bootstrap Secrets.
package provider

// Package hosts makes machines for end-to-end tests: each one a real Debian 12 with a real systemd, booted by
// systemd-nspawn from an overlay of one base image, inside a network namespace of its own. The namespaces hang on a
// bridge in one more namespace, the lab's hub namespace, in which further processes (the hub, a registry) run.
//
// The package owns everything that is outside the repository: namespaces, mounts, cgroups and processes, and the
// ledger that names each of them before it is made, so that Down finds all of it again, whoever made it and however
// that process ended. It touches nothing of the machine's own network and knows nothing of Kubernetes or Drover.
package hosts

// Package upgrade changes a cluster of custom machines with split roles in place, while a client of its API and the Pods of
// a Deployment watch for what breaks. It is behind the build tags e2e and full: it takes a quarter of an hour on two busy
// cores.
package upgrade

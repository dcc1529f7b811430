// Package upgrade changes a cluster of custom machines with split roles in place, while a client of its API and the Pods of
// a Deployment watch for what breaks: behind the build tag e2e.
package upgrade
